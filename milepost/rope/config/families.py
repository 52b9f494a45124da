"""Families: what model types mean where their configs are silent. Held to transformers by tests/peers/test_families.py.

A config of today says its base; one of 2023 often does not, and the number stood in the code. Pairing stands in no
config at all, nor does which layers turn. Most model types are Llama's: a whole head, in halves, base 10000. The table
says what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milepost.rope.config.layer_kinds import Rule, every, listed_at, repeated, still_at, unscaled_but

if TYPE_CHECKING:
    from milepost.rotation import Pairing


@dataclass(frozen=True)
class Family:
    """What the code of a model type does, where its config does not say. A word each; see the comments."""

    base: float | None = 10000.0  # rope_theta
    pairing: Pairing = "half"
    share: float = 1.0  # partial_rotary_factor
    partial: bool = False  # does the code read partial_rotary_factor at all? (where share is below 1, it does)
    rotary: int | None = None  # rotary_dim, where the config has none (GPT-J)
    local: float | None = None  # the base of sliding layers, where it is another one
    layers: Rule | None = None  # the kind of each layer, where layer_types is not there
    no_rope: bool = False  # no_rope_layers says which layers turn, whatever their kind
    still: tuple[str, ...] = ()  # kinds that attend, and do not turn
    turns_without: str | None = None  # where this key is null, the kinds in `still` turn as well
    unscaled: tuple[str, ...] = ()  # kinds that a v4 rope_scaling leaves alone
    by_kind: bool = False  # rope_parameters holds a dictionary for each kind, and nothing else is read
    softmax: bool = False  # mscale_all_dim acts on the softmax scale besides
    rope: Mapping[str, Any] | None = None  # rope_parameters, where the config has none
    only: tuple[str, Any] | None = None  # it turns only where this key has this value
    wide: tuple[str, str, int] | None = None  # a kind whose heads have another size: kind, key, size
    indexer: Pairing | None = None  # how the rope of an indexer pairs channels (it has the main one's table)
    temperature: tuple[str, float, float] | None = None  # of queries by position, in kinds that stand still: form, a, n
    bases: bool = False  # layer_rope_theta has a base for each layer, 0 for one that does not turn
    needs: str = ""  # the key without which it is not known which layers turn
    unread: tuple[str, ...] = ()  # keys that the code does not read
    alpha: bool = False  # dynamic with alpha is a fixed base: theta * alpha^(d/(d-2))
    note: str = ""  # what a LayerRope can't hold

    @property
    def turns_part(self) -> bool:
        """Whether the code can turn a part of the head."""
        return self.partial or self.share != 1 or self.rotary is not None


def _yarn(factor: float, original: int, **more: Any) -> dict[str, Any]:
    return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original, **more}


def _llama3(factor: float, original: int, **more: Any) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "factor": factor,
        "original_max_position_embeddings": original,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        **more,
    }


def _two(base: float, layers: Rule, **more: Any) -> Family:
    """Two kinds of layers: the sliding ones have a base of their own."""
    return Family(base, local=10000.0, layers=layers, by_kind=True, **more)


def _mla(base: float = 10000.0, **more: Any) -> Family:
    """DeepSeek's: qk_rope_head_dim channels turn, in neighbouring pairs, and mscale_all_dim acts on the softmax."""
    return Family(base, "interleaved", softmax=True, **more)


_SLIDING, _FULL = ("sliding_attention",), ("full_attention",)
_EVERY_4TH = every("sliding_window_pattern", 4)
_LINEAR_4TH = every("full_attention_interval", 4, other="linear_attention")
_INDEXER = "the indexer that chooses keys has a rope of its own"
_GEMMA4 = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}
_QUERIES = {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}

_LLAMA_LIKE = """
    arcee aria_text diffllama doge dots1 eurobert exaone falcon falcon_h1 gemma gemma2 granite granitemoe
    granitemoeshared hyperclovax internlm internlm2 jais2 jetmoe llama ministral mistral olmo olmo2 olmoe
    qwen2 qwen2_moe qwen3 qwen3_moe seed_oss starcoder2 vaultgemma yi
"""

_BASES = {
    1e3: "nomic_bert",
    2e4: "jina_embeddings_v3",
    1.6e5: "gte",
    5e5: "bitnet flex_olmo qwen3_vl_text qwen3_vl_moe_text",
    1e6: """
        lfm2_moe minimax mixtral phimoe qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text
        qwen3_omni_moe_text
    """,
    11158840.0: "hy_v3",
}
"""Llama's, but for the base."""

HELD: dict[str, Family] = {
    **{name: Family() for name in _LLAMA_LIKE.split()},
    **{name: Family(base) for base, names in _BASES.items() for name in names.split()},
    # a part of the head
    "gpt_neox": Family(share=0.25),
    "gpt_neox_japanese": Family(partial=True),
    "stablelm": Family(share=0.25),
    "qwen3_next": Family(share=0.25, layers=_LINEAR_4TH),
    "qwen3_5_text": Family(share=0.25, layers=_LINEAR_4TH),
    "qwen3_5_moe_text": Family(share=0.25, layers=_LINEAR_4TH),
    "phi": Family(share=0.5),
    "phi3": Family(partial=True),
    "phi4_multimodal": Family(partial=True),
    "nemotron": Family(share=0.5),
    "persimmon": Family(share=0.5),
    "glm4_moe": Family(share=0.5),
    "glm4v_moe_text": Family(share=0.5),
    "bamba": Family(share=0.5, layers=listed_at("attn_layer_indices", other="linear_attention", absent=False)),
    "recurrent_gemma": Family(share=0.5, layers=repeated("block_types", "recurrent", "recurrent", "full_attention")),
    "minimax_m2": Family(5e6, partial=True),
    "solar_open": Family(1e6, partial=True),
    # neighbouring pairs
    "gptj": Family(pairing="interleaved", rotary=64),
    "codegen": Family(pairing="interleaved", rotary=64),
    "cohere": Family(5e5, "interleaved"),
    "cohere2": Family(1e4, "interleaved", layers=_EVERY_4TH, still=_FULL),
    "glm": Family(pairing="interleaved", share=0.5),
    "glm4": Family(pairing="interleaved", share=0.5),
    "glm4v_text": Family(pairing="interleaved", partial=True),
    "helium": Family(1e5, "interleaved"),
    "ernie4_5": Family(5e5, "interleaved"),
    "ernie4_5_moe": Family(5e5, "interleaved"),
    # a part of the head of its own, qk_rope_head_dim
    "deepseek_v2": _mla(),
    "deepseek_v3": _mla(),
    "deepseek_v32": _mla(note=_INDEXER, indexer="half"),
    "glm_moe_dsa": _mla(note=_INDEXER, indexer="interleaved"),
    "glm4_moe_lite": _mla(),
    "kimi_k2": _mla(),
    "longcat_flash": Family(1e7, "interleaved", softmax=True),
    "youtu": _mla(),
    "minicpm3": Family(softmax=True),
    "mistral4": _mla(rope=_yarn(128.0, 8192, rope_theta=10000.0, **_QUERIES)),
    # a scaling where the config has none
    "gpt_oss": Family(1.5e5, rope=_yarn(32.0, 4096, truncate=False)),
    "apertus": Family(1.2e7, rope=_llama3(8.0, 8192, rope_theta=1.2e7)),
    "cwm": Family(1e6, rope=_llama3(16.0, 8192, rope_theta=1e6)),
    "ministral3": Family(rope=_yarn(16.0, 16384, rope_theta=1e6, **_QUERIES)),
    # kinds of layers
    "gemma3_text": _two(1e6, every("sliding_window_pattern", 6), unscaled=_SLIDING),
    "gemma3n_text": _two(1e6, every("sliding_window_pattern", 5), unscaled=_SLIDING),
    "modernbert": _two(1.6e5, every("global_attn_every_n_layers", 3, last=False)),
    "modernbert-decoder": _two(1.6e5, every("global_attn_every_n_layers", 3, last=False)),
    "olmo3": Family(5e5, local=5e5, layers=_EVERY_4TH, unscaled=_SLIDING, by_kind=True),
    **dict.fromkeys(
        ("gemma4_text", "gemma4_unified_text"),
        Family(None, layers=every("", 6), by_kind=True, rope=_GEMMA4, wide=("full_attention", "global_head_dim", 512)),
    ),
    "afmoe": Family(layers=every("global_attn_every_n_layers", 4), still=_FULL),
    "exaone4": Family(layers=_EVERY_4TH, still=_FULL, turns_without="sliding_window"),
    "exaone_moe": Family(layers=_EVERY_4TH, still=_FULL, turns_without="sliding_window"),
    "llama4_text": Family(5e5, "interleaved", no_rope=True),
    "smollm3": Family(2e6, no_rope=True),
    "mllama_text_model": Family(5e5, layers=still_at("cross_attention_layers", 3, 8, 13, 18, 23, 28, 33, 38)),
    "lfm2": Family(1e6, layers=listed_at("full_attn_idxs", other="conv", absent=True)),
    "olmo_hybrid": Family(layers=every("", 4, other="linear_attention")),
    "granitemoehybrid": Family(only=("position_embedding_type", "rope")),
    "zamba2": Family(only=("use_mem_rope", True)),
    # dynamic that is not dynamic
    "hunyuan_v1_dense": Family(alpha=True),
    "hunyuan_v1_moe": Family(alpha=True),
    "hunyuan_vl_text": Family(alpha=True),
}

_RUN_BASES = {
    1e4: """
        chameleon cohere_compass_text dbrx deepseek_ocr2_encoder deepseek_ocr2_text dia_decoder dia_encoder esmc
        glm_image_text glmasr_encoder gradium_phonon_tts granite4_vision_text idefics
        kyutai_speech_to_text lasr_encoder mimi mimi_decoder mimi_encoder moshi
        nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp nemotron3_diarization_audio neomme
        pocket_tts pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder
        qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text step3p5 t5_gemma_module
        t5gemma2_decoder t5gemma2_text timesfm2_5 ultrabert unlimited_ocr_text voxtral_realtime_encoder
        voxtral_realtime_text csm_depth_decoder_model hrm_text
    """,
    5e5: "EvollaModel csm evolla higgs_audio_v2 laguna mellum paddleocr_vl_text",
    1e6: "emu3_text_model qwen2_5_omni_talker",
    5e6: "mimo_v2_flash zaya",
    1e8: "cosmos3_edge_text",
}
"""Base, and the rest as the config's words say: a part of the head, kinds of layers."""

RUN: dict[str, Family] = {
    **{name: Family(base, partial=True) for base, names in _RUN_BASES.items() for name in names.split()},
    "axk1": _mla(),
    "axk2": _mla(indexer="half", note=_INDEXER),
    "bailing_hybrid": _mla(6e6, needs="layer_types"),
    "beam": Family(by_kind=True, needs="layer_types", temperature=("beam", 0.1, 2048)),
    "blt_global_transformer": Family(5e5, "interleaved", partial=True),
    "blt_patcher": Family(1e4, "interleaved", partial=True),
    **dict.fromkeys(("blt_local_encoder", "blt_local_decoder"), Family(5e5, "interleaved", partial=True)),
    **dict.fromkeys(
        ("diffusion_gemma_text", "embedding_gemma2_text"),
        Family(None, layers=every("", 6), by_kind=True, rope=_GEMMA4, wide=("full_attention", "global_head_dim", 512)),
    ),
    **dict.fromkeys(("flint", "kolibri1"), Family(still=_FULL, needs="layer_types")),
    **dict.fromkeys(("glm_ocr_text", "moonshine", "moonshine_streaming"), Family(1e4, "interleaved", partial=True)),
    "molmo2_text": Family(1e4, partial=True, layers=unscaled_but("rope_scaling_layers")),
    "roformer": Family(1e4, "interleaved"),
    "pe_audio_encoder": Family(2e4, "interleaved"),
    "openai_privacy_filter": Family(1.5e5, "interleaved", rope=_yarn(32.0, 4096, truncate=False)),
    **dict.fromkeys(("granite_swa", "granitemoe_swa"), Family(bases=True, needs="layer_types")),
    "muse_glimmer_text": Family(bases=True, needs="layer_rope_theta"),
    "muse_spark_text": Family(5e5, bases=True, needs="layer_rope_theta"),
    "qwen4_exp_text": Family(partial=True, indexer="half", note=_INDEXER),
    "hy_v4": Family(softmax=True, indexer="half", note=_INDEXER),
    "mistral_large4_text": _mla(no_rope=True, indexer="interleaved", note=_INDEXER),
    "minimax_m3_vl_text": Family(5e6, partial=True, unread=("rotary_dim",)),
}
"""Families that were found by running: each was measured on a small random model of its class (`make families`)."""

FAMILIES: dict[str, Family] = {**HELD, **RUN}
"""Every family, by its model type."""

HEADS: dict[str, int] = {
    name: size
    for size, names in {
        256: """
            gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text vaultgemma qwen3_next qwen3_5_text
            qwen3_5_moe_text
        """,
        128: """
            afmoe cwm ernie4_5 glm glm4 helium hy_v3 jetmoe llama4_text minimax_m2 ministral3 qwen3 qwen3_vl_text
            seed_oss solar_open
        """,
        64: "deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa gpt_oss longcat_flash mistral4 youtu",
        32: "minicpm3",
    }.items()
    for name in names.split()
}
"""Head sizes (of the part that turns) where the config has none, and hidden_size / num_attention_heads is another."""

NOT_ROTARY: dict[str, str] = {
    **dict.fromkeys(
        ("gpt2", "bert", "roberta", "opt", "gpt_neo", "gpt_bigcode", "electra", "bart", "xlm-roberta"),
        "learned positions",
    ),
    **dict.fromkeys(("bloom", "mpt"), "ALiBi"),
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5"), "T5's relative bias"),
    **dict.fromkeys(("deberta", "deberta-v2"), "DeBERTa's disentangled attention"),
    "inkling_text": "relative logits of hidden states",
    **dict.fromkeys(("xlnet", "transfo-xl"), "Transformer-XL's relative attention"),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), "no attention, and no positions"),
    **dict.fromkeys(
        ("jamba", "nemotron_h", "zamba", "kimi_linear", "glm5_next_text"), "attention without positions (NoPE)"
    ),
    **dict.fromkeys(("esm", "seamless_m4t"), "a table or sinusoids, added to the embedding"),
    **dict.fromkeys(
        ("wav2vec2-bert", "wav2vec2-conformer", "neucodec", "xcodec2"), "relative positions of its sound encoder"
    ),
}
"""Model types without rotary positions, and what they have instead."""

_GRID = "turns patches by their row and their column"
NOT_HELD: dict[str, str] = {
    **dict.fromkeys(
        [
            "cohere_compass_vision",
            "dinov3_vit",
            "edgetam_video",
            "efficientloftr",
            "eomt_dinov3",
            "ernie4_5_vl_moe_vision",
            "exaone4_5_vision",
            "gemma4_vision",
            "glm4v_moe_vision",
            "glm4v_vision",
            "glm5_next_vision",
            "glm_ocr_vision",
            "kimi_k25_vision",
            "llama4_vision_model",
            "minimax_m3_vl_vision",
            "mlcd",
            "mlcd_vision_model",
            "muse_glimmer_vision",
            "muse_spark_vision",
            "paddleocr_vl_vision",
            "pixtral",
            "qwen2_5_omni_vision_encoder",
            "qwen2_5_vl_vision",
            "qwen2_vl_vision",
            "qwen3_5_moe_vision",
            "qwen3_5_vision",
            "qwen3_omni_moe_vision_encoder",
            "qwen3_vl_moe_vision",
            "qwen3_vl_vision",
            "qwen4_exp_vision",
            "sam2_video",
            "sam3_tracker_video",
            "sam3_vit_model",
            "sapiens2",
            "step3p5_vision",
            "video_llama_3_vision",
        ],
        _GRID,
    ),
    "blt": "is four models in one, each with a config of its own (patcher, encoder, global, decoder)",
    "clvp_encoder": "turns queries, keys and values, and does not turn outputs back",
    "muse_glimmer_assistant": "reads the hidden states of another model",
    "pe_audio_video_encoder": "turns frames of sound and of video",
    "pe_video_encoder": "turns frames of video",
    "qwen2_5_omni_dit": "turns the first head alone",
    "musicflamingo": "turns frames of sound by their time in seconds, and also has a text model",
    "nanochat": "turns pairs the other way round, by minus the angle",
    "deepseek_v4": (
        "turns the last channels of the head, with one table for keys and another for compressed keys, "
        "and turns outputs back"
    ),
    "cohere2_moe": "turns some full-attention layers and not others",
    "ernie4_5_vl_moe_text": "orders its frequencies by axis before it turns",
    "chatglm": "turns half of the head in neighbouring pairs, with a rope_ratio of its own",
    "qwen": "scales by use_dynamic_ntk and use_logn_attn, in code of its own",
}
"""Model types whose rotation a RopeSpec can't hold, and why."""
