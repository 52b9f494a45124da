"""Rotary models: the layers of a RopeSpec, and the windows that layers see."""

from __future__ import annotations

from dataclasses import replace

from milepost.checkpoints.inspection.parts import ROTATED, InspectedLayer, Length, Positions
from milepost.rope import LayerRope, RopeSpec
from milepost.rope.config.keys import ConfigKeys, or_default
from milepost.rope.config.layer_kinds import DO_NOT

ALL_SLIDE = {
    "mistral": 4096,
    "mixtral": None,
    "phi3": None,
    "starcoder2": None,
    "ministral": None,
    "phimoe": None,
    "openai_privacy_filter": None,
    "voxtral_realtime_encoder": None,
    "voxtral_realtime_text": None,
}
"""Every layer has the window, where the config has one; the number is the default of the model type."""
LATE_SLIDE = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")
"""Layers from max_window_layers on slide, if use_sliding_window is true."""
SLIDING, FULL, CHUNKED = "sliding_attention", "full_attention", "chunked_attention"


def positions(spec: RopeSpec, keys: ConfigKeys, length: int | None) -> Positions:
    """What a spec says, layer by layer; temperatures are for a text of ``length`` tokens where that matters."""
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "block_count")
    kinds = list(spec.layers or ("all",) * or_default(keys.whole(*names, most=10000), 0))
    notes = list(spec.notes)
    named = _named(keys, kinds)
    seen = _windows(spec, keys, kinds, named, notes)
    made = []
    for n, (kind, window) in enumerate(zip(kinds, seen, strict=True)):
        rope = spec.layer(n) if spec.layers else spec.main
        shown = (SLIDING if window else FULL) if kind == "all" else kind
        shown = CHUNKED if window and named[n] == CHUNKED else shown
        made.append(layer(n, shown, rope, window, length))
    served = Length(spec.served, _source(spec, "served"))
    trained = Length(spec.trained, _source(spec, "trained") or (served.source if spec.trained == spec.served else ""))
    scaled = Length(spec.scaled, _source(spec, "scaling") if spec.main.scaling is not None else "there is no scaling")
    if scaled.tokens and served.tokens and served.tokens > scaled.tokens:
        notes.append(f"{served.tokens} tokens may be served ({served.source}), and the scaling reaches {scaled.tokens}")
    return Positions((ROTATED,), tuple(made), (), trained, scaled, served, tuple(notes), sources=dict(spec.sources))


def _source(spec: RopeSpec, name: str) -> str:
    """Where a value of the spec came from; that of full attention, where kinds of layers differ."""
    sources = (spec.sources.get(key) for key in (name, f"{FULL}.{name}", *(f"{kind}.{name}" for kind, _ in spec.kinds)))
    return next(filter(None, sources), "")


def layer(number: int, kind: str, rope: LayerRope | None, window: int | None, length: int | None) -> InspectedLayer:
    """One layer; its temperature is for a text of ``length`` tokens, where that matters."""
    if rope is None:
        return InspectedLayer(
            number, "no attention" if kind in DO_NOT and kind != "no_rope" else "none", kind=kind, window=window
        )
    known = length is not None or rope.scaling is None or not rope.scaling.length_dependent
    scaling = "none" if rope.scaling is None else repr(rope.scaling)
    made = InspectedLayer(
        number,
        "rope",
        kind=kind,
        window=window,
        pairing=rope.pairing,
        head_dim=rope.head_dim,
        rotary=rope.rotary,
        base=rope.base,
        scaling=scaling,
    )
    return replace(made, temperature=rope.temperature(length) if known else None)


def _named(keys: ConfigKeys, kinds: list[str]) -> list[str]:
    """The kind of each layer as the config lists it, else the spec's."""
    listed = keys.items("layer_types")
    return [str(kind) for kind in listed.value] if listed is not None and len(listed.value) == len(kinds) else kinds


def _windows(
    spec: RopeSpec, keys: ConfigKeys, kinds: list[str], named: list[str], notes: list[str]
) -> list[int | None]:
    """How many tokens each layer may see; None: all."""
    size = _size(keys, spec.model, notes)
    listed = keys.items("layer_types")
    if spec.model in LATE_SLIDE and listed is None:
        slides, first = keys.flag("use_sliding_window"), or_default(keys.whole("max_window_layers", least=0), 28)
        return [size if or_default(slides, False) and n >= first else None for n in range(len(kinds))]
    if spec.model == "gemma2" and listed is None:
        return [None if n % 2 else size for n in range(len(kinds))]
    if SLIDING in named or CHUNKED in named:
        chunk = keys.whole("attention_chunk_size")
        return [size if kind == SLIDING else chunk.value if kind == CHUNKED and chunk else None for kind in named]
    if spec.model in ALL_SLIDE:
        return [size] * len(kinds)
    if size is not None and listed is None and len(spec.kinds) == 1:
        notes.append(
            f"the config has a window of {size} tokens, and which layers of a {spec.model or 'model like this'} have "
            "it is not known here"
        )
    return [None] * len(kinds)


def _size(keys: ConfigKeys, model: str, notes: list[str]) -> int | None:
    if model.startswith("modernbert"):
        size = or_default(keys.whole("local_attention"), 128)
        notes.append(f"sliding layers see {size // 2} tokens on each side (local_attention = {size})")
        return size
    window = keys.whole("sliding_window", "attention.sliding_window", least=0)
    if window is not None:
        return window.value or None
    if "sliding_window" in keys.config:  # null: none
        return None
    return 4096 if model in ("gemma2", "gemma3_text") else ALL_SLIDE.get(model)
