"""Layer kinds: which layers of a model attend how, from its config.

layer_types: ["sliding_attention", "sliding_attention", "full_attention", ...]        as configs list it today
sliding_window_pattern: 6, no_rope_layers: [1, 1, 1, 0], attn_layer_indices: [9, 18]  before that, by model type
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from milepost.rope.config.keys import ConfigError, ConfigKeys, or_default, short

if TYPE_CHECKING:
    from milepost.rope.config.families import Family

Rule = Callable[[ConfigKeys, int], tuple[str, ...]]
"""The kind of each of so many layers, from the config."""

ATTEND = (
    "full_attention", "sliding_attention", "chunked_attention", "indexed_attention", "hybrid", "hybrid_sliding",
    "reference_sliding_attention", "window_attention", "compressed_sparse_attention",
    "heavily_compressed_attention", "minimax_m3_sparse",
)  # fmt: skip
"""Kinds that attend, in transformers' words."""
DO_NOT = ("linear_attention", "conv", "moe", "recurrent", "no_rope")
"""Kinds without attention, and our word for those that attend without turning."""
UNSCALED = "unscaled_attention"
"""Our word for layers that turn without the config's scaling, where others have it."""
OLDER = {
    "attention": "full_attention",
    "mamba": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}


def layer_kinds(family: Family, keys: ConfigKeys, layers: int, known: bool = True) -> tuple[str, ...]:
    """The kind of each layer: as the config lists it, else by the family's rule; nothing where all are of one kind.

    A family that is not ``known`` is taken at its config's word about layers that do not turn.
    """
    words = keys.has("no_rope_layers") or keys.has("no_rope_layer_interval")
    if family.no_rope or (not known and words):
        return _no_rope(keys, layers)
    bases = keys.items("layer_rope_theta") if family.bases else None
    if bases is not None and bases.value:
        return _by_base(keys, bases.value)
    entry = keys.items("layer_types", "layers_block_type")
    if entry is not None and entry.value:
        return tuple(_kind(value, entry.key) for value in entry.value)
    return () if family.layers is None else family.layers(keys, layers)


def _by_base(keys: ConfigKeys, bases: list[Any]) -> tuple[str, ...]:
    """layer_rope_theta: a base for each layer, 0 for one that does not turn."""
    if any(isinstance(base, bool) or not isinstance(base, int | float) or base < 0 for base in bases):
        raise ConfigError(f"layer_rope_theta has a base for each layer, or 0, got {short(bases)}")
    if len({base for base in bases if base}) > 1:
        raise ConfigError(
            f"layer_rope_theta has several bases, {short(sorted(set(bases)))}: a RopeSpec can't hold that"
        )
    listed = keys.items("layer_types")
    kinds = listed.value if listed is not None and len(listed.value) == len(bases) else ["full_attention"] * len(bases)
    return tuple(_kind(kind, "layer_types") if base else "no_rope" for kind, base in zip(kinds, bases, strict=True))


def _kind(value: object, key: str) -> str:
    name = OLDER.get(value, value) if isinstance(value, str) else ""
    if name not in ATTEND + DO_NOT:
        raise ConfigError(
            f"{key} holds {short(value)}, which is no kind of layer; there are {', '.join(ATTEND[:4])}, "
            "linear_attention and others"
        )
    return name


def every(name: str, default: int, *, last: bool = True, other: str = "sliding_attention") -> Rule:
    """One full-attention layer in so many (as the key ``name`` says): the last of each group, or the first."""

    def rule(keys: ConfigKeys, layers: int) -> tuple[str, ...]:
        n = or_default(keys.whole(name) if name else None, default)
        return tuple("full_attention" if (i + 1 if last else i) % n == 0 else other for i in range(layers))

    return rule


def listed_at(name: str, *, other: str, absent: bool) -> Rule:
    """The key ``name`` lists the numbers of full-attention layers; without a list, all are (``absent``) or none."""

    def rule(keys: ConfigKeys, layers: int) -> tuple[str, ...]:
        entry = keys.items(name)
        if entry is None:
            return ("full_attention",) * layers if absent else (other,) * layers
        bad = [n for n in entry.value if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < layers]
        if bad:
            raise ConfigError(f"{entry.key} holds {short(bad[0])}, and layers are numbered 0 to {layers - 1}")
        return tuple("full_attention" if i in entry.value else other for i in range(layers))

    return rule


def unscaled_but(name: str) -> Rule:
    """The key ``name`` lists the numbers of layers that have the config's scaling; without a list, all have it."""
    at = listed_at(name, other=UNSCALED, absent=True)
    return lambda keys, layers: at(keys, layers) if layers else ()


def still_at(name: str, *default: int) -> Rule:
    """The key ``name`` lists the numbers of layers that attend and do not turn (those that attend to images)."""

    def rule(keys: ConfigKeys, layers: int) -> tuple[str, ...]:
        still = or_default(keys.items(name), list(default))
        return tuple("no_rope" if i in still else "full_attention" for i in range(layers))

    return rule


def repeated(name: str, *default: str) -> Rule:
    """The key ``name`` lists the kinds of the first few layers, and the rest repeats them."""

    def rule(keys: ConfigKeys, layers: int) -> tuple[str, ...]:
        entry = keys.items(name)
        kinds = default if entry is None or not entry.value else tuple(_kind(value, entry.key) for value in entry.value)
        return tuple(kinds[i % len(kinds)] for i in range(layers))

    return rule


def _no_rope(keys: ConfigKeys, layers: int) -> tuple[str, ...]:
    """Llama 4 and SmolLM3: ``no_rope_layers`` holds 0 for a layer that does not turn; or every n-th does not."""
    listed = keys.items("no_rope_layers")
    if listed is not None and listed.value:
        bad = [turns for turns in listed.value if turns not in (0, 1)]
        if bad:
            raise ConfigError(
                f"{listed.key} holds {short(bad[0])}; it has 1 for a layer that turns, and 0 for one that does not"
            )
        return tuple("full_attention" if turns else "no_rope" for turns in listed.value)
    n = or_default(keys.whole("no_rope_layer_interval"), 4)
    return tuple("no_rope" if (i + 1) % n == 0 else "full_attention" for i in range(layers))
