"""What llama.cpp's code knows of an architecture, where the GGUF file is silent: pairing, and layers of several kinds.

Read off llama_model_rope_type and the loaders of llama.cpp. "norm" there is interleaved here, "neox" is half. A
converter that finds halves in the weights of a "norm" architecture permutes the rows of q and k, so that the file is
what the engine turns.
"""

from __future__ import annotations

from dataclasses import dataclass

PERMUTED = {
    "llama", "llama-embed", "deci", "baichuan", "internlm2", "minicpm", "xverse", "olmo", "arctic", "deepseek",
    "granite", "granitemoe", "granitehybrid", "smollm3", "arcee", "mistral3", "llada",
}  # fmt: skip
"""Interleaved, because the converter permutes q and k."""
INTERLEAVED = PERMUTED | {
    "llama4", "command-r", "cohere2", "cohere2moe", "deepseek2", "deepseek2-ocr", "deepseek32", "deepseek4",
    "mistral4", "plm", "chatglm", "glm4", "glm-dsa", "chameleon", "bailingmoe", "neo-bert", "ernie4_5",
    "ernie4_5-moe", "maincoder",
}  # fmt: skip
HALF = {
    "falcon", "falcon-h1", "grok", "dbrx", "jina-bert-v3", "modern-bert", "nomic-bert", "nomic-bert-moe",
    "eurobert", "stablelm", "bitnet", "qwen", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen3next", "qwen2vl",
    "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "paddleocr", "dream", "llada-moe", "rnd1", "olmo2", "olmoe",
    "phi2", "phi3", "phimoe", "plamo", "plamo2", "plamo3", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4",
    "gemma-embedding", "starcoder2", "openelm", "gptneox", "codeshell", "orion", "nemotron", "exaone", "exaone4",
    "exaone-moe", "minicpm3", "bailingmoe2", "dots1", "hunyuan-moe", "hunyuan-dense", "gpt-oss", "lfm2", "lfm2moe",
    "smallthinker", "seed_oss", "grovemoe", "apertus", "minimax-m2", "cogvlm", "pangu-embedded", "afmoe", "laguna",
    "mimo2", "step35", "mellum", "jais2", "glm4moe",
}  # fmt: skip
CROSSED = {"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"}
"""M-RoPE whose sections are interleaved."""
NOT_ROTARY: dict[str, str] = {
    **dict.fromkeys(("gpt2", "bert", "starcoder"), "learned positions"),
    **dict.fromkeys(("mpt", "bloom", "refact", "jais", "jina-bert-v2"), "ALiBi"),
    **dict.fromkeys(("t5", "t5encoder"), "T5's relative bias"),
    **dict.fromkeys(
        (
            "mamba",
            "mamba2",
            "jamba",
            "nemotron_h",
            "nemotron_h_moe",
            "kimi-linear",
            "rwkv6",
            "rwkv6qwen2",
            "rwkv7",
            "arwkv7",
        ),
        "no positions",
    ),
    **dict.fromkeys(("clip", "wavtokenizer-dec"), "no rotary positions in llama.cpp"),
}

READS_BETAS = {"grok", "mistral3", "laguna", "deepseek4"}
"""Architectures for which llama.cpp reads yarn_beta_fast and yarn_beta_slow."""
SHARPENED = ("mistral3", "mistral4", "deepseek2")
"""Architectures whose queries llama.cpp multiplies by attention.temperature_scale; Llama 4 has it without a key."""
READS_EXT = {"grok", "laguna"}
"""Those for which it reads yarn_ext_factor."""
TENTH = {"deepseek2", "deepseek2-ocr", "deepseek32", "mistral4"}
"""Their yarn_log_multiplier is a tenth of mscale_all_dim, and acts on the softmax too; mistral3's is the whole."""


@dataclass(frozen=True)
class Kinds:
    """Layers of two kinds: one in ``group``, the last or the first, is ``one``, the others are ``many``.

    Sliding layers have the base ``local`` (None: the common one) and the common scaling, or none; ``still`` is the
    kind that does not turn. ``window`` says that there are two kinds only where the file has attention.sliding_window.
    """

    group: int
    first: bool = False
    many: str = "sliding_attention"
    one: str = "full_attention"
    local: float | None = None
    scaled: bool = False
    still: str | None = None
    window: bool = True


_STILL = "full_attention"
KINDS: dict[str, Kinds] = {
    "gemma3": Kinds(6, local=10000.0),
    "gemma3n": Kinds(5, local=10000.0),
    "gemma-embedding": Kinds(6, local=10000.0),
    "olmo2": Kinds(4),
    "modern-bert": Kinds(3, first=True),
    "cohere2": Kinds(4, scaled=True, still=_STILL),
    "exaone4": Kinds(4, scaled=True, still=_STILL),
    "afmoe": Kinds(4, scaled=True, still=_STILL),
    "smallthinker": Kinds(4, first=True, scaled=True, still=_STILL),
    "llama4": Kinds(4, many="full_attention", one="no_rope", still="no_rope", window=False),
    "smollm3": Kinds(4, many="full_attention", one="no_rope", still="no_rope", window=False),
}

WRITTEN_AS = {
    "bamba": "granitehybrid", "cohere": "command-r", "cohere2_moe": "cohere2moe", "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2", "deepseek_v32": "deepseek32", "deepseek_v4": "deepseek4",
    "ernie4_5_moe": "ernie4_5-moe", "exaone4_5": "exaone4", "exaone_moe": "exaone-moe", "falcon_h1": "falcon-h1",
    "gemma3_text": "gemma3", "gemma3n_text": "gemma3n", "gemma4_text": "gemma4", "glm": "chatglm",
    "glm4_moe": "glm4moe", "glm4_moe_lite": "deepseek2", "glm_moe_dsa": "glm-dsa", "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss", "granitemoehybrid": "granitehybrid", "granitemoeshared": "granitemoe",
    "hunyuan_v1_dense": "hunyuan-dense", "hunyuan_v1_moe": "hunyuan-moe", "lfm2_moe": "lfm2moe",
    "llama4_text": "llama4", "mimo_v2_flash": "mimo2", "minimax_m2": "minimax-m2", "ministral3": "mistral3",
    "mistral": "llama", "mixtral": "llama", "olmo3": "olmo2", "phi": "phi2", "qwen2_5_vl": "qwen2vl",
    "qwen2_moe": "qwen2moe", "qwen2_vl": "qwen2vl", "qwen3_5_moe_text": "qwen35moe", "qwen3_5_text": "qwen35",
    "qwen3_moe": "qwen3moe", "qwen3_next": "qwen3next", "solar_open": "glm4moe", "youtu": "deepseek2",
}  # fmt: skip
"""Architectures that the converter of build 11549 writes for model types of transformers, where the names differ."""


def architecture(model: str) -> str | None:
    """The architecture of a model type's GGUF file; None for one that is not known."""
    return WRITTEN_AS.get(model) or (model if model in INTERLEAVED | HALF else None)
