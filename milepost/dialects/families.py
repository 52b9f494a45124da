"""Families: what model types mean where their configs are silent. Held to transformers by tests/peers/test_families.py.

A config of today says its base; one of 2023 often does not, and the number stood in the code. Pairing stands in no config at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from milepost.dialects.keys import Keys
from milepost.rotation import Pairing

Rule = Callable[[Keys, int], tuple[str, ...]]
"""The kind of each of so many layers, from the config."""


@dataclass(frozen=True)
class Family:
    """Defaults of a model type: the base (``local``: of its sliding layers), the share of channels that turn, how pairs are formed,
    which layers are of which kind, kinds that do not turn, kinds that scalings leave alone, and whether mscale_all_dim acts on the softmax.
    """

    base: float | None = 10000.0
    pairing: Pairing = "half"
    share: float = 1.0
    local: float | None = None
    layers: Rule | None = None
    still: tuple[str, ...] = ()
    unscaled: tuple[str, ...] = ()
    softmax: bool = False


def _every(name: str, default: int, *, last: bool = True) -> Rule:
    """One full-attention layer in so many: the last of each group, or the first."""

    def rule(keys: Keys, layers: int) -> tuple[str, ...]:
        found = keys.whole(name)
        n = default if found is None else found.value
        return tuple("full_attention" if (i + 1 if last else i) % n == 0 else "sliding_attention" for i in range(layers))

    return rule


def _no_rope(keys: Keys, layers: int) -> tuple[str, ...]:
    """Llama 4 and SmolLM3: ``no_rope_layers`` holds 0 for a layer that does not turn; or every n-th does not."""
    listed = keys.items("no_rope_layers")
    if listed is not None and listed.value:
        return tuple("full_attention" if turns else "no_rope" for turns in listed.value)
    found = keys.whole("no_rope_layer_interval")
    n = 4 if found is None else found.value
    return tuple("no_rope" if (i + 1) % n == 0 else "full_attention" for i in range(layers))


def _two(base: float, layers: Rule) -> Family:
    """Two kinds of layers: the sliding ones have a base of their own, and no scaling."""
    return Family(base, local=10000.0, layers=layers, unscaled=("sliding_attention",))


FAMILIES: dict[str, Family] = {
    **{
        name: Family()
        for name in (
            "llama",
            "mistral",
            "qwen2",
            "qwen2_moe",
            "qwen3",
            "qwen3_moe",
            "gemma",
            "gemma2",
            "falcon",
            "phi3",
            "olmo",
            "olmo2",
            "olmoe",
            "starcoder2",
            "granite",
            "granitemoe",
            "arcee",
            "seed_oss",
            "ministral",
            "exaone",
            "internlm2",
            "internlm",
            "baichuan",
            "yi",
        )
    },
    "mixtral": Family(1e6),
    "phimoe": Family(1e6),
    "bitnet": Family(5e5),
    "gpt_oss": Family(1.5e5),
    "gpt_neox": Family(share=0.25),
    "stablelm": Family(share=0.25),
    "phi": Family(share=0.5),
    "nemotron": Family(share=0.5),
    "persimmon": Family(share=0.5),
    "gptj": Family(pairing="interleaved"),
    "codegen": Family(pairing="interleaved"),
    "cohere": Family(5e5, "interleaved"),
    "cohere2": Family(1e4, "interleaved", layers=_every("sliding_window_pattern", 4), still=("full_attention",)),
    "glm": Family(pairing="interleaved", share=0.5),
    "glm4": Family(pairing="interleaved", share=0.5),
    "helium": Family(1e5, "interleaved"),
    "ernie4_5": Family(5e5, "interleaved"),
    "deepseek_v2": Family(pairing="interleaved", softmax=True),
    "deepseek_v3": Family(pairing="interleaved", softmax=True),
    "kimi_k2": Family(pairing="interleaved", softmax=True),
    "llama4_text": Family(5e5, "interleaved", layers=_no_rope),
    "smollm3": Family(2e6, layers=_no_rope),
    "gemma3_text": _two(1e6, _every("sliding_window_pattern", 6)),
    "gemma3n_text": _two(1e6, _every("sliding_window_pattern", 5)),
    "modernbert": _two(1.6e5, _every("global_attn_every_n_layers", 3, last=False)),
    "olmo3": Family(5e5, layers=_every("sliding_window_pattern", 4), unscaled=("sliding_attention",)),
    "qwen2_vl": Family(1e6),
    "qwen2_vl_text": Family(1e6),
    "qwen2_5_vl": Family(1e6),
    "qwen2_5_vl_text": Family(1e6),
    "qwen3_vl_text": Family(5e5),
    "qwen3_vl_moe_text": Family(5e5),
}

NOT_ROTARY: dict[str, str] = {
    **dict.fromkeys(("gpt2", "bert", "roberta", "opt", "gpt_neo", "gpt_bigcode", "electra", "bart", "xlm-roberta"), "learned positions"),
    **dict.fromkeys(("bloom", "mpt"), "ALiBi"),
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5"), "T5's relative bias"),
    **dict.fromkeys(("deberta", "deberta-v2"), "DeBERTa's disentangled attention"),
    **dict.fromkeys(("xlnet", "transfo-xl"), "Transformer-XL's relative attention"),
    **dict.fromkeys(("mamba", "mamba2", "rwkv"), "no attention, and no positions"),
}
"""Model types without rotary positions, and what they have instead."""


def layer_kinds(family: Family, keys: Keys, layers: int | None) -> tuple[str, ...]:
    """The kind of each layer: as the config lists it, else by the family's rule; nothing where all are of one kind."""
    listed: Any = keys.items("layer_types")
    if listed is not None and listed.value:
        return tuple(str(kind) for kind in listed.value)
    if family.layers is None:
        return ()
    return family.layers(keys, layers if layers is not None else 0)
