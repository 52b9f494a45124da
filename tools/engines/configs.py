"""The configs that every engine is run with: small models that turn as the real ones do. Writes measured/configs.json.

A config here has the rotary keys of a real one (head size, base, scaling, kinds of layers), and everything else so
small that an engine builds the whole model on a CPU in a moment: two heads, few layers, a vocabulary of 64.

    golden   the configs of milepost/rope/golden
    tests    those of tests/rope/real_configs.py
    spelled  one family each with every scaling, in the spelling of transformers 4 (flat) and 5 (nested)
    special  keys that engines are known to read differently
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "rope")]
OUT = ROOT / "milepost" / "rope" / "engines" / "measured" / "configs.json"
LAYERS = 8
LONGEST = 1 << 17  # engines make a table of max_position_embeddings rows

ARCHITECTURES = {
    "apertus": "ApertusForCausalLM", "baichuan": "BaichuanForCausalLM", "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM", "ernie4_5": "Ernie4_5ForCausalLM", "exaone4": "Exaone4ForCausalLM",
    "falcon": "FalconForCausalLM", "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration", "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_unified": "Gemma4UnifiedForConditionalGeneration", "gemma4_unified_text": "Gemma4ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM", "glm": "GlmForCausalLM", "glm4": "Glm4ForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM", "gpt_oss": "GptOssForCausalLM", "gptj": "GPTJForCausalLM",
    "granite": "GraniteForCausalLM", "helium": "HeliumForCausalLM", "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM",
    "internlm2": "InternLM2ForCausalLM", "llama": "LlamaForCausalLM", "llama4": "Llama4ForConditionalGeneration",
    "llama4_text": "Llama4ForCausalLM", "minicpm3": "MiniCPM3ForCausalLM", "ministral3": "MistralForCausalLM",
    "mistral": "MistralForCausalLM", "mistral3": "Mistral3ForConditionalGeneration", "mixtral": "MixtralForCausalLM",
    "modernbert": "ModernBertModel", "nemotron": "NemotronForCausalLM", "nomic_bert": "NomicBertModel",
    "olmo": "OlmoForCausalLM", "olmo2": "Olmo2ForCausalLM", "olmo3": "Olmo3ForCausalLM", "olmoe": "OlmoeForCausalLM",
    "persimmon": "PersimmonForCausalLM", "phi": "PhiForCausalLM", "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen2_5_omni": "Qwen2_5OmniForConditionalGeneration", "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM", "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration", "seed_oss": "SeedOssForCausalLM", "smollm3": "SmolLM3ForCausalLM",
    "stablelm": "StableLmForCausalLM", "starcoder2": "Starcoder2ForCausalLM",
}  # fmt: skip
SPELLED = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "phi",
    "phi3",
    "gpt_neox",
    "gptj",
    "falcon",
    "stablelm",
    "cohere",
    "olmo",
    "olmo2",
    "starcoder2",
    "granite",
    "glm4",
    "internlm2",
    "deepseek_v2",
    "nemotron",
    "seed_oss",
    "ernie4_5",
    "persimmon",
    "baichuan",
    "cohere2",
    "exaone4",
    "smollm3",
    "hunyuan_v1_dense",
    "olmo3",
    "gpt_oss",
]
SHARES = {"phi": 0.5, "stablelm": 0.25, "nemotron": 0.5, "persimmon": 0.5, "glm4": 0.5, "gpt_neox": 0.25}
MOE = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
       "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
       "shared_expert_intermediate_size": 32, "routed_scaling_factor": 1.0, "norm_topk_prob": True}  # fmt: skip
MLA = {"kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 64, "v_head_dim": 64}
EXTRA: dict[str, dict[str, Any]] = {
    "deepseek_v2": MLA | MOE | {"topk_method": "greedy", "scoring_func": "softmax", "moe_layer_freq": 1,
                                "aux_loss_alpha": 0.0, "seq_aux": True, "n_group": 1},
    "deepseek_v3": MLA | MOE | {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1,
                                "n_group": 2, "topk_group": 1, "q_lora_rank": 32},
    "minicpm3": {"kv_lora_rank": 32, "q_lora_rank": 32, "qk_nope_head_dim": 64, "scale_emb": 1, "dim_model_base": 256,
                 "scale_depth": 1.4, "v_head_dim": 64, "hidden_act": "silu"},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": MOE | {"decoder_sparse_step": 1}, "qwen3_moe": MOE | {"decoder_sparse_step": 1},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 128,
                "swiglu_limit": 7.0},
    "llama4_text": {"attention_bias": False, "num_local_experts": 4, "num_experts_per_tok": 1,
                    "intermediate_size_mlp": 64,
                    "attention_chunk_size": 8192, "interleave_moe_layer_step": 2, "use_qk_norm": False},
    "falcon": {"multi_query": True, "new_decoder_architecture": False, "parallel_attn": True, "bias": False,
               "layer_norm_epsilon": 1e-5},
    "gptj": {"n_inner": None, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"},
    "gpt_neox": {"use_parallel_residual": True, "hidden_act": "gelu", "layer_norm_eps": 1e-5},
    "phi": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "qk_layernorm": False},
    "stablelm": {"layer_norm_eps": 1e-5, "hidden_act": "silu", "use_qkv_bias": False},
    "starcoder2": {"norm_epsilon": 1e-5, "use_bias": True, "hidden_act": "gelu_pytorch_tanh", "mlp_type": "default",
                   "sliding_window": None},
    "cohere": {"layer_norm_eps": 1e-5, "logit_scale": 1.0, "hidden_act": "silu"},
    "cohere2": {"layer_norm_eps": 1e-5, "logit_scale": 1.0, "hidden_act": "silu"},
    "gemma2": {"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
               "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"},
    "gemma": {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"},
    "gemma3_text": {"query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh"},
    "granite": {"attention_multiplier": 1.0, "embedding_multiplier": 1.0, "logits_scaling": 1.0,
                "residual_multiplier": 1.0, "attention_bias": False, "mlp_bias": False},
    "glm4": {"attention_bias": True}, "glm": {"attention_bias": True},
    "nemotron": {"norm_eps": 1e-5, "hidden_act": "relu2", "attention_bias": False, "mlp_bias": False},
    "internlm2": {"bias": False}, "persimmon": {"hidden_act": "relu2", "layer_norm_eps": 1e-5, "qk_layernorm": False},
    "hunyuan_v1_dense": {"use_qk_norm": True, "attention_bias": False},
    "exaone4": {"sliding_window": 4096},
    "olmo": {"clip_qkv": None, "attention_bias": False},
    "nomic_bert": {"n_inner": 64, "activation_function": "swiglu", "layer_norm_epsilon": 1e-12, "type_vocab_size": 2,
                   "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "prenorm": False,
                   "use_rms_norm": False, "causal": False},
    "qwen3_5_text": {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 32,
                     "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4},
    "helium": {"attention_bias": False}, "olmo3": {"sliding_window": 512}, "ernie4_5": {"use_bias": False},
    "gemma4_unified_text": {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
                            "num_global_key_value_heads": 1},
}  # fmt: skip
EXTRA["kimi_k2"] = EXTRA["deepseek_v3"]
EXTRA["gemma4_text"] = EXTRA["gemma4_unified_text"]
VISION = {"depth": 1, "num_hidden_layers": 1, "hidden_size": 32, "num_heads": 2, "num_attention_heads": 2,
          "intermediate_size": 32, "patch_size": 14, "image_size": 28, "embed_dim": 32}  # fmt: skip
VISIONS: dict[str, dict[str, Any]] = {
    "qwen2_vl": {"depth": 1, "embed_dim": 64, "hidden_size": 256, "num_heads": 2, "mlp_ratio": 1, "patch_size": 14,
                 "in_chans": 3},
    "qwen3_vl": {"depth": 1, "hidden_size": 64, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 256,
                 "deepstack_visual_indexes": [0], "num_position_embeddings": 16},
    "qwen3_5": {"depth": 1, "hidden_size": 64, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 512,
                "num_position_embeddings": 16},
    "gemma3": {"model_type": "siglip_vision_model", **VISION}, "mistral3": {"model_type": "pixtral", **VISION},
}  # fmt: skip


def cut(config: dict[str, Any]) -> dict[str, Any]:
    """The config as small as it can be, with the same rotation in the layers that remain."""
    from milepost.rope import read
    from milepost.rope.config.config_json import TEXT
    from milepost.rope.config.keys import ConfigError

    part = next((name for name in TEXT if isinstance(config.get(name), dict)), None)
    kind = config.get("model_type", "")
    named = {"architectures": [ARCHITECTURES[kind]]} if kind in ARCHITECTURES else {}
    if part is not None:
        vision = {"vision_config": VISIONS[kind]} if kind in VISIONS else {}
        inner = cut(config[part])
        inner.pop("architectures", None)
        return {**config, **named, **vision, part: inner, "vocab_size": 64}
    try:
        head = read(config).main.head_dim
    except ConfigError:  # milepost refuses its scaling; engines may not
        head = read({name: value for name, value in config.items() if name != "rope_scaling"}).main.head_dim
    gpt2 = "n_embd" in config
    width, heads, depth = ("n_embd", "n_head", "n_layer") if gpt2 else (
        "hidden_size", "num_attention_heads", "num_hidden_layers")  # fmt: skip
    layers = min(int(config[depth]), 6 if kind.startswith("gemma4") else LAYERS)  # the last layer of Gemma 4 is full
    small = {**EXTRA.get(kind, {}), **config, **named}
    small |= {k: v for k, v in EXTRA.get(kind, {}).items() if k in MLA or k in MOE}
    small |= {width: 2 * head, heads: 2, depth: layers, "vocab_size": 64, "torch_dtype": "float32"}
    if kind == "nomic_bert":
        small |= {"hidden_size": 2 * head, "num_attention_heads": 2, "num_hidden_layers": layers}
    if "kv_lora_rank" in small:
        small |= {width: 128, "num_key_value_heads": 2}
    if not gpt2:
        small |= {"intermediate_size": 64}
        small.setdefault("rms_norm_eps", 1e-6)
        small.setdefault("hidden_act", "silu")
        small.setdefault("num_key_value_heads", 2)
        small.setdefault("tie_word_embeddings", True)
        small["pad_token_id"], small["bos_token_id"], small["eos_token_id"] = 0, 1, 2
    for name in ("layer_types", "no_rope_layers", "layers_block_type"):
        if small.get(name):
            small[name] = small[name][:layers]
    for name in ("max_position_embeddings", "max_sequence_length", "model_max_length"):
        if isinstance(small.get(name), int):
            small[name] = min(small[name], LONGEST)
    if "vision_config" in small:
        small["vision_config"] = VISIONS.get(kind, VISION)
    return small


def scalings(head: int, trained: int) -> dict[str, dict[str, Any]]:
    """A dictionary for each scaling that configs have."""
    original = {"original_max_position_embeddings": trained}
    return {
        "default": {},
        "linear": {"rope_type": "linear", "factor": 4.0},
        "dynamic": {"rope_type": "dynamic", "factor": 4.0},
        "yarn": {"rope_type": "yarn", "factor": 4.0, **original},
        "llama3": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **original},
        "longrope": {
            "rope_type": "longrope",
            "short_factor": [1.0 + 0.01 * i for i in range(head // 2)],
            "long_factor": [1.0 + 0.2 * i for i in range(head // 2)],
            "factor": 4.0,
            **original,
        },
    }


def plain(model_type: str) -> dict[str, Any]:
    """A small model of a type, with 4096 positions and a base that is nobody's default."""
    if model_type == "gptj":
        return {"model_type": "gptj", "n_embd": 256, "n_head": 2, "n_layer": 2, "n_positions": 4096, "rotary_dim": 64,
                "rotary": True}  # fmt: skip
    size: dict[str, Any] = {"model_type": model_type, "hidden_size": 256, "num_attention_heads": 2}
    if model_type in ("qwen3", "gemma", "gemma2", "glm4", "seed_oss", "ernie4_5", "mistral", "mixtral", "exaone4",
                      "hunyuan_v1_dense", "ministral3"):  # fmt: skip
        size["head_dim"] = 128
    if model_type == "gpt_oss":
        size |= {"head_dim": 64, "layer_types": ["sliding_attention", "full_attention"] * 2}
    if model_type in ("exaone4", "cohere2", "olmo3"):
        size["sliding_window"] = 512
    if model_type == "exaone4":
        size |= {"sliding_window_pattern": "LLLG", "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
    if model_type == "deepseek_v2":
        size |= {"qk_rope_head_dim": 64}
    if model_type == "falcon":
        size["alibi"] = False
    if model_type in SHARES:
        size["rotary_pct" if model_type == "gpt_neox" else "partial_rotary_factor"] = SHARES[model_type]
    layers = 4 if model_type in ("cohere2", "exaone4", "smollm3", "olmo3", "gpt_oss") else 2
    return {**size, "num_hidden_layers": layers, "max_position_embeddings": 4096}


def spelled(model_type: str, scaling: str, nested: bool) -> dict[str, Any]:
    """A family with a scaling, in the spelling of transformers 5 (nested) or 4."""
    from milepost.rope import read

    config, base = plain(model_type), 300000.0
    rotary = read({**config, **({"rope_theta": base} if model_type == "baichuan" else {})}).main.rotary
    given = scalings(rotary, 4096)[scaling]
    if model_type == "gpt_oss":  # without a dictionary it has a yarn of its own; with one, engines want all of these
        given = {"rope_type": "default", **given}
        given |= {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False} if scaling == "yarn" else {}
    if scaling in ("yarn", "llama3", "longrope"):
        config["max_position_embeddings" if "n_positions" not in config else "n_positions"] = 16384
    if nested:
        rope = {"rope_type": "default", "rope_theta": base, **given}
        if model_type in SHARES:
            rope["partial_rotary_factor"] = SHARES[model_type]
        if model_type == "olmo3":
            plain_rope = {"rope_type": "default", "rope_theta": base}
            return {**config, "rope_parameters": {"sliding_attention": plain_rope, "full_attention": rope}}
        return {**config, "rope_parameters": rope}
    flat = {**config, "rotary_emb_base" if model_type == "gpt_neox" else "rope_theta": base}
    return {**flat, "rope_scaling": {**given, "type": given["rope_type"]} if given else None}  # 4.57 saves both names


def special() -> dict[str, dict[str, Any]]:
    """Keys that engines read differently, on a Llama unless the name says another."""
    base = {**plain("llama"), "rope_theta": 500000.0, "max_position_embeddings": 16384}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    long = scalings(128, 4096)["longrope"]
    dictionaries = {
        "yarn attention_factor 1": {**yarn, "attention_factor": 1.0},
        "yarn attention_factor 0.8": {**yarn, "attention_factor": 0.8},
        "yarn attn_factor 0.8": {**yarn, "attn_factor": 0.8},
        "yarn mscale 0.7": {**yarn, "mscale": 0.7},
        "yarn mscale_all_dim 0.7": {**yarn, "mscale_all_dim": 0.7},
        "yarn mscale 1 mscale_all_dim 0.5": {**yarn, "mscale": 1.0, "mscale_all_dim": 0.5},
        "yarn mscale 1 mscale_all_dim 1": {**yarn, "mscale": 1.0, "mscale_all_dim": 1.0},
        "yarn betas 16 2": {**yarn, "beta_fast": 16.0, "beta_slow": 2.0},
        "yarn truncate false": {**yarn, "truncate": False},
        "yarn factor 1": {**yarn, "factor": 1.0},
        "yarn factor 64": {**yarn, "factor": 64.0},
        "yarn integer factor": {**yarn, "factor": 4},
        "yarn without factor": {"rope_type": "yarn", "original_max_position_embeddings": 4096},
        "yarn without original": {"rope_type": "yarn", "factor": 4.0},
        "yarn by type": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
        "linear by type": {"type": "linear", "factor": 4.0},
        "linear integer factor": {"rope_type": "linear", "factor": 4},
        "dynamic by type": {"type": "dynamic", "factor": 2.0},
        "dynamic max_trained_positions": {"rope_type": "dynamic", "factor": 2.0, "max_trained_positions": 2048},
        "dynamic alpha": {"rope_type": "dynamic", "alpha": 8.0, "factor": 1.0},
        "ntk": {"rope_type": "ntk", "factor": 4.0},
        "llama3 steep": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                         "original_max_position_embeddings": 8192},
        "longrope attention_factor": {**long, "attention_factor": 1.25},
        "longrope mscales": {**long, "short_mscale": 1.1, "long_mscale": 1.3},
        "longrope by su": {**long, "rope_type": "su"},
        "default in a dictionary": {"rope_type": "default"},
    }  # fmt: skip
    made = {f"llama {name}": {**base, "rope_scaling": value} for name, value in dictionaries.items()}
    for name in ("yarn attention_factor 1", "yarn mscale 1 mscale_all_dim 1", "yarn attn_factor 0.8",
                 "linear integer factor", "dynamic max_trained_positions", "yarn truncate false"):  # fmt: skip
        nested = {**base, "rope_parameters": {"rope_theta": base.pop("rope_theta", 500000.0), **dictionaries[name]}}
        base["rope_theta"] = 500000.0
        nested.pop("rope_theta", None)
        made[f"llama {name}, nested"] = nested
    phi3 = {**plain("phi3"), "max_position_embeddings": 16384, "original_max_position_embeddings": 4096}
    phi3_long = {k: v for k, v in long.items() if k in ("short_factor", "long_factor")}
    made["phi3 longrope by type"] = {**phi3, "rope_scaling": {**phi3_long, "type": "longrope"}}
    made["phi3 su by type"] = {**phi3, "rope_scaling": {**phi3_long, "type": "su"}}
    made["phi3 partial longrope"] = {
        **phi3, "partial_rotary_factor": 0.75,
        "rope_scaling": {"type": "longrope", **{k: phi3_long[k][:48] for k in ("short_factor", "long_factor")}},
    }  # fmt: skip
    for family in ("mistral", "mixtral"):
        headless = {key: value for key, value in plain(family).items() if key != "head_dim"}
        made[f"{family} yarn without head_dim"] = {
            **headless, "max_position_embeddings": 16384, "rope_theta": 500000.0, "rope_scaling": yarn,
        }  # fmt: skip
    deepseek = {**plain("deepseek_v3"), "qk_rope_head_dim": 64, "max_position_embeddings": 16384, "rope_theta": 1e4}
    made["deepseek_v3 yarn mscales"] = {**deepseek, "rope_scaling": {**yarn, "mscale": 1.0, "mscale_all_dim": 0.5}}
    made["deepseek_v3 yarn"] = {**deepseek, "rope_scaling": yarn}
    vl = {**plain("qwen2_5_vl"), "rope_theta": 1e6, "max_position_embeddings": 16384}
    sections = {"mrope_section": [16, 24, 24]}
    made["qwen2_5_vl mrope"] = {**vl, "rope_scaling": {"type": "mrope", **sections}}
    made["qwen2_5_vl yarn"] = {**vl, "rope_scaling": {**yarn, **sections}}
    gemma3 = {**plain("gemma3_text"), "head_dim": 128, "num_hidden_layers": 7, "sliding_window": 512}
    made["gemma3_text default flat"] = {**gemma3, "rope_theta": 1e6, "rope_local_base_freq": 10000.0}
    made["gemma3_text yarn nested"] = {
        **gemma3, "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                      "full_attention": {"rope_theta": 1e6, **yarn}},
    }  # fmt: skip
    return made


def every_config() -> dict[str, dict[str, Any]]:
    """All configs by id."""
    import real_configs

    found: dict[str, dict[str, Any]] = {}
    for path in sorted((ROOT / "milepost" / "rope" / "golden").glob("*.json")):
        data = json.loads(path.read_text())
        if "config" in data:
            found[f"golden {data['name']}"] = data["config"]
    found |= {f"tests {name.lower().replace('_', '-')}": config for name, config in real_configs.REAL.items()}
    for family in SPELLED:
        for scaling in ("default", "yarn", "linear"):
            for nested in (False, True):
                name = f"{family} {scaling} {'nested' if nested else 'flat'}"
                found[name] = spelled(family, scaling, nested)
    found |= special()
    return {name: cut(config) for name, config in found.items()}


def main() -> None:
    """Write them, one line each."""
    configs = every_config()
    lines = [f" {json.dumps(name)}: {json.dumps(config)}" for name, config in configs.items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(configs)} configs, {OUT.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
