"""Families without rotary positions: learned tables, ALiBi, T5's buckets, DeBERTa, Inkling, images.

Each reader says what a model type's code does.

    gpt2, bert, opt, roberta, ...    a table added to the embedding; OPT adds 2 rows, RoBERTa counts from padding id + 1
    bloom, mpt, falcon               ALiBi: a slope for each head (Falcon only with "alibi": true)
    t5, mt5                          a bias for each bucket of distances, one table a stack
    deberta, deberta-v2              a relative table for content; (position_biased_input) one added to the embedding
    inkling_text                     relative logits of hidden states, a temperature by position, windows
    vit, dinov2, swin                a table for patches; a table for offsets inside a window

Defaults are those of transformers, for configs that leave a key out. Held to its models by
tests/checkpoints/inspection/test_inspect.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from milepost.checkpoints.files import StoredTensor, ending
from milepost.checkpoints.inspection.parts import (
    CONTENT,
    EMBEDDING,
    LOGITS,
    InspectedLayer,
    LearnedTable,
    Length,
    Positions,
)
from milepost.rope.config.keys import ConfigError, ConfigKeys, Entry, or_default, short

Reader = Callable[[ConfigKeys, Mapping[str, StoredTensor]], Positions]

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
WIDTHS = ("hidden_size", "n_embd", "d_model")
MOST_LAYERS = 10000
NO_SCALING = "there is no scaling"
UNSAID = Length()


def _count(keys: ConfigKeys, names: tuple[str, ...], default: int, most: int = 1 << 40) -> Entry[int]:
    """A whole number under one of these names, or the model type's own."""
    return keys.whole(*names, most=most) or Entry(
        default, f"not in the config: the default of its model type ({default})"
    )


def _layers(keys: ConfigKeys, default: int = 12) -> int:
    return _count(keys, LAYERS, default, MOST_LAYERS).value


def _plain(count: int, stack: str = "") -> tuple[InspectedLayer, ...]:
    return tuple(InspectedLayer(n, "none", stack) for n in range(count))


# -- tables that are added to the embedding --------------------------------------------------------------------------


def _learned(
    keys: ConfigKeys,
    tensors: Mapping[str, StoredTensor],
    *,
    names: tuple[str, ...] = ("max_position_embeddings",),
    rows: int = 512,
    extra: int = 0,
    pad: int | None = None,
    tensor: str = "position_embeddings.weight",
) -> Positions:
    """A table with ``extra`` rows before the first position (OPT), or whose positions begin after the padding id
    (RoBERTa: ``pad``)."""
    kind = keys.text("position_embedding_type")
    if kind is not None and kind.value != "absolute":
        return _other_bert(keys, kind)
    limit = _count(keys, names, rows, 1 << 31)
    offset = extra
    if pad is not None:
        offset = or_default(keys.whole("pad_token_id", least=0), pad) + 1
    declared = limit.value + extra
    table = LearnedTable(declared, declared - offset, offset, _width(keys), source=limit.key)
    if table.usable < 1:
        raise ConfigError(f"{limit.key} = {limit.value} leaves no position to use: positions begin at row {offset}")
    table, notes = _seen(table, ending(tensors, tensor, "position_embd.weight"))
    if offset and pad is not None:
        notes.append(
            f"{limit.key} = {limit.value} counts rows: the first {offset} (padding id + 1) serve no position, "
            f"so {table.usable} tokens are the most, not {limit.value}"
        )
    elif offset:
        notes.append(
            f"the table has {table.rows} rows, {offset} more than {limit.key}: the first {offset} serve no position"
        )
    length = Length(
        table.usable,
        f"{limit.key}{f', less {offset} rows' if pad is not None else ''} (the table ends there)",
    )
    return _added_table(keys, table, length, notes)


def _added_table(keys: ConfigKeys, table: LearnedTable, length: Length, notes: list[str]) -> Positions:
    """A model that adds one table to its embedding, and reads ``length`` tokens, no more."""
    scaled = replace(length, source=NO_SCALING)
    layers = _plain(_layers(keys))
    return Positions((EMBEDDING,), layers, (table,), length, scaled, length, tuple(notes), _init(keys))


def _other_bert(keys: ConfigKeys, kind: Entry[str]) -> Positions:
    note = f"{kind.key} = {kind.value!r}: relative positions of older BERT code, which are not read here"
    return Positions((CONTENT,), tuple(InspectedLayer(n, kind.value) for n in range(_layers(keys))), notes=(note,))


def _width(keys: ConfigKeys) -> int | None:
    return or_default(keys.whole("embedding_size") or keys.whole(*WIDTHS), None)


def _init(keys: ConfigKeys) -> float | None:
    return or_default(keys.number("initializer_range", "init_std", above=0), None)


def _seen(table: LearnedTable, held: list[StoredTensor]) -> tuple[LearnedTable, list[str]]:
    """The table as the tensor has it: where config and tensor differ, the tensor is what is there, and that is said."""
    if len(held) != 1 or len(held[0].shape) < 2:
        return table, []
    rows, width = held[0].shape[-2:]
    notes: list[str] = []
    if rows <= table.offset:
        raise ConfigError(
            f"the tensor {held[0].name} has {rows} rows, and positions begin at row {table.offset}: the checkpoint is "
            "damaged"
        )
    if rows != table.rows:
        notes.append(
            f"the config means {table.rows} rows of positions, and the tensor {held[0].name} has {rows}: one of them "
            "is wrong; the tensor is counted"
        )
        table = replace(
            table, rows=rows, usable=rows - table.offset, source=f"{held[0].name}, not {table.source}", grid=None
        )
    return replace(table, width=width, tensor=held[0].name), notes


def _gpt_neo(keys: ConfigKeys, tensors: Mapping[str, StoredTensor]) -> Positions:
    """GPT-2's table, with layers that see a window: attention_types = [[["global", "local"], 12]]."""
    positions = _learned(keys, tensors, rows=2048, tensor="wpe.weight")
    window, count = _count(keys, ("window_size",), 256).value, _layers(keys, 24)
    listed = keys.items("attention_types")
    try:
        groups: Any = listed.value if listed else [[["global", "local"], count // 2]]
        kinds = [kind for kinds, times in groups for _ in range(min(times, MOST_LAYERS)) for kind in kinds]
    except (TypeError, ValueError):
        raise ConfigError(
            "attention_types must be a list such as [[['global', 'local'], 12]], got "
            f"{short(listed.value if listed else None)}"
        ) from None
    if len(kinds) != count:
        raise ConfigError(f"attention_types lists {len(kinds)} layers, and there are {count}")
    layers = (
        InspectedLayer(n, "none", kind="sliding_attention", window=window)
        if kind == "local"
        else InspectedLayer(n, "none")
        for n, kind in enumerate(kinds)
    )
    return replace(positions, layers=tuple(layers))


def no_layer_turns(keys: ConfigKeys) -> bool:
    """Whether all of SmolLM3's layers are without rotation: no_rope_layers holds 0 for each."""
    listed = keys.items("no_rope_layers")
    return listed is not None and bool(listed.value) and all(turns == 0 for turns in listed.value)


def _nope(keys: ConfigKeys, tensors: Mapping[str, StoredTensor]) -> Positions:
    """No position anywhere: a SmolLM3 none of whose layers turns."""
    limit = _count(keys, ("max_position_embeddings",), 32768, 1 << 31)
    length = Length(limit.value, limit.key)
    note = "no layer has positions of its own: the causal mask alone tells what came before"
    return Positions((), _plain(_layers(keys, 36)), (), length, replace(length, source=NO_SCALING), length, (note,))


# -- ALiBi -----------------------------------------------------------------------------------------------------------


def published_slopes(heads: int) -> tuple[float, ...]:
    """The slopes of the paper's code, as in encodings/alibi, without torch."""
    below = 2 ** math.floor(math.log2(heads))
    return (
        *(2.0 ** (-8 * h / below) for h in range(1, below + 1)),
        *(2.0 ** (-4 * (2 * h + 1) / below) for h in range(heads - below)),
    )


def mpt_slopes(heads: int, most: float = 8.0) -> tuple[float, ...]:
    """MPT's own: those of the power of two above, every other one first."""
    above = 2 ** math.ceil(math.log2(heads))
    all_of_them = tuple(2.0 ** (-most * h / above) for h in range(1, above + 1))
    return all_of_them if above == heads else (*all_of_them[1::2], *all_of_them[::2])[:heads]


def _alibi(count: int, slopes: tuple[float, ...], *notes: str, served: Length = UNSAID) -> Positions:
    trained = replace(served, source=served.source + " (ALiBi itself ends nowhere)") if served.tokens else served
    layers = tuple(InspectedLayer(n, "alibi", slopes=slopes) for n in range(count))
    return Positions((LOGITS,), layers, (), trained, replace(trained, source=NO_SCALING), served, notes)


def _bloom(keys: ConfigKeys, tensors: Mapping[str, StoredTensor]) -> Positions:
    length = keys.whole("seq_length")
    served = Length() if length is None else Length(length.value, length.key)
    return _alibi(_layers(keys, 2), published_slopes(_count(keys, HEADS, 8, 1 << 14).value), served=served)


def _falcon(keys: ConfigKeys, tensors: Mapping[str, StoredTensor]) -> Positions:
    heads, width = _count(keys, HEADS, 71, 1 << 14).value, _count(keys, WIDTHS, 4544).value
    length = _count(keys, ("max_position_embeddings",), 2048)
    size = width // heads
    note = (
        f"Falcon divides its bias by sqrt(head size) with the logits: in effect the slopes are {math.sqrt(size):.4g} "
        "times gentler than listed"
    )
    rounded = "Falcon makes its bias in bfloat16: from 256 tokens on neighbours may get the same bias"
    return _alibi(_layers(keys, 32), published_slopes(heads), note, rounded, served=Length(length.value, length.key))


def _mpt(keys: ConfigKeys, tensors: Mapping[str, StoredTensor]) -> Positions:
    inner = keys.inner("attn_config")
    most, on = (inner.number("alibi_bias_max", above=0), inner.flag("alibi")) if inner is not None else (None, None)
    length = _count(keys, ("max_seq_len",), 2048)
    notes = [
        f"transformers makes MPT's bias for {length.key} = {length.value} tokens, and stops at longer texts: raise "
        "that key, the bias itself has no end"
    ]
    if most is not None and most.value != 8:
        notes.append(
            f"{most.key} = {most.value:g} is not read by transformers' MPT, which takes 8: the slopes listed are those "
            "of 8"
        )
    if on is not None and not on.value:
        notes.append(
            f"{on.key} is false: MPT's own code then has learned positions, and transformers' MPT adds ALiBi all the "
            "same"
        )
    heads = _count(keys, HEADS, 16, 1 << 14).value
    return _alibi(_layers(keys, 24), mpt_slopes(heads), *notes, served=Length(length.value, length.key))


# -- T5 --------------------------------------------------------------------------------------------------------------


def _t5(
    keys: ConfigKeys, tensors: Mapping[str, StoredTensor], *, layers: int = 6, encoder_only: bool = False
) -> Positions:
    buckets = _count(keys, ("relative_attention_num_buckets",), 32, 1 << 16)
    distance = _count(keys, ("relative_attention_max_distance",), 128)
    first = _count(keys, ("num_layers", "num_hidden_layers"), layers, MOST_LAYERS).value
    stacks = [
        InspectedLayer(n, "t5", "encoder", buckets=buckets.value, max_distance=distance.value, both_sides=True)
        for n in range(first)
    ]
    if not encoder_only and or_default(keys.flag("is_encoder_decoder"), True):
        count = or_default(keys.whole("num_decoder_layers", most=MOST_LAYERS), first)
        stacks += [
            InspectedLayer(n, "t5", "decoder", buckets=buckets.value, max_distance=distance.value, both_sides=False)
            for n in range(count)
        ]
    sources = {
        "buckets": buckets.key,
        "max_distance": distance.key,
        "scale": "logits are not divided by the root of the head size in T5's code",
    }
    notes = [
        f"{buckets.key} = {buckets.value}, and the tensor {held.name} has {held.shape[0]} rows: one of them is wrong"
        for held in ending(tensors, *BIASES)
        if held.shape and held.shape[0] != buckets.value
    ]
    length = keys.whole("n_positions")
    trained = (
        Length()
        if length is None
        else Length(length.value, f"{length.key} (what it was trained on; it limits nothing)")
    )
    return Positions(
        (LOGITS,),
        tuple(stacks),
        (),
        trained,
        replace(trained, source=NO_SCALING),
        Length(None, "T5's buckets end nowhere"),
        tuple(notes),
        None,
        sources,
    )


BIASES = ("relative_attention_bias.weight", "attn_rel_b.weight")


# -- DeBERTa ---------------------------------------------------------------------------------------------------------


def _deberta(keys: ConfigKeys, tensors: Mapping[str, StoredTensor]) -> Positions:
    length = _count(keys, ("max_position_embeddings",), 512)
    added_table = _learned(keys, tensors) if or_default(keys.flag("position_biased_input"), True) else None
    layers = _plain(_layers(keys, 24))
    where = () if added_table is None else added_table.where
    notes = [] if added_table is None else list(added_table.notes)
    sources: dict[str, str] = {}
    if or_default(keys.flag("relative_attention"), False):
        span = or_default(keys.whole("max_relative_positions", least=-1), -1)
        reach = length.value if span < 1 else span
        buckets = or_default(keys.whole("position_buckets", least=-1), -1)
        some = buckets if buckets > 0 else None  # -1: every distance has a row
        side = some or reach
        given = keys.config.get("pos_att_type") or ()
        terms = given.lower().split("|") if isinstance(given, str) else or_default(keys.items("pos_att_type"), [])
        first = InspectedLayer(0, "deberta", buckets=some, max_distance=reach, both_sides=True, rows=2 * side)
        layers, where = tuple(replace(first, layer=n) for n in range(len(layers))), (*where, CONTENT)
        sources["terms"] = f"pos_att_type: {', '.join(map(str, terms)) or 'none'}"
        if not terms:
            notes.append("pos_att_type is empty, so distances act through no term: the relative table does nothing")
        for held in ending(tensors, "rel_embeddings.weight"):
            if held.shape[:1] != (2 * side,):
                notes.append(
                    f"the config means {2 * side} relative rows, and the tensor {held.name} has shape "
                    f"{list(held.shape)}: one of them is wrong"
                )
    if not where:
        notes.append(
            "relative_attention and position_biased_input are both off: nothing tells this model where a token is"
        )
    limit = (
        Length(None, "relative distances end nowhere; those past the span share a row")
        if added_table is None
        else added_table.served
    )
    trained = Length(length.value, length.key)
    tables = () if added_table is None else added_table.tables
    return Positions(
        where, layers, tables, trained, replace(trained, source=NO_SCALING), limit, tuple(notes), _init(keys), sources
    )


# -- Inkling ---------------------------------------------------------------------------------------------------------


def _inkling(keys: ConfigKeys, tensors: Mapping[str, StoredTensor]) -> Positions:
    """Relative logits in every layer: local ones as far as their window, the others with a temperature by position."""
    count = _layers(keys, 66)
    window, extent = _count(keys, ("sliding_window_size", "sliding_window"), 512), _count(keys, ("rel_extent",), 1024)
    size, width = _count(keys, ("d_rel",), 16).value, _count(keys, WIDTHS, 6144).value
    heads = {name: _count(keys, (f"{name}num_attention_heads",), 64).value for name in ("", "swa_")}
    floor, alpha = keys.whole("log_scaling_n_floor"), keys.number("log_scaling_alpha")
    listed, places = keys.items("layer_types"), keys.items("local_layer_ids")
    if listed is not None:
        local = [kind == "hybrid_sliding" for kind in listed.value]
    else:
        local = [(n + 1) % 6 != 0 if places is None else n in places.value for n in range(count)]
    if len(local) != count:
        raise ConfigError(f"layer_types lists {len(local)} layers, and there are {count}")
    far: dict[str, tuple[float | None, float | None]] = {
        "size": (size, 16),
        "extent": (extent.value, 1024),
        "floor": (or_default(floor, None), None),
        "alpha": (or_default(alpha, 0.1), 0.1),
    }
    near = {"size": far["size"], "extent": (window.value, 1024)}
    layers = []
    for n, slides in enumerate(local):
        words = {"heads": (heads["swa_" if slides else ""], None), "width": (width, None), **(near if slides else far)}
        text = ", ".join(f"{name}={value}" for name, (value, default) in words.items() if value != default)
        kind, reach = ("sliding_attention", window) if slides else ("full_attention", extent)
        layers.append(
            InspectedLayer(
                n, "relative_logits", kind=kind, window=window.value if slides else None, max_distance=reach.value,
                text=f"relative_logits({text})",
            )
        )  # fmt: skip
    notes = [
        "q and k are normalised, and their product is divided by the head size D, not by its root: attend(scale=1 / D)",
        "keys and values pass a convolution over the last tokens before attention",
    ]
    if floor is not None:
        notes.append(
            f"queries of layers without a window, and their relative logits, are multiplied by 1 + "
            f"{far['alpha'][0]:g} ln max(1, (p + 1) / {floor.value}): a text that is renumbered has other temperatures"
        )
    length = _count(keys, ("max_position_embeddings", "model_max_length"), 131072)
    served = Length(length.value, length.key)
    sources = {"extent": extent.key, "window": window.key}
    return Positions(
        (CONTENT,), tuple(layers), (), served, replace(served, source=NO_SCALING), served, tuple(notes), None, sources
    )


# -- images ----------------------------------------------------------------------------------------------------------


def _sides(keys: ConfigKeys, name: str, default: int) -> tuple[int, int]:
    """A size, or a pair of sizes."""
    if isinstance(keys.config.get(name), list | tuple):
        sides = keys.numbers(name)
        if sides is None or len(sides.value) != 2 or any(n != int(n) for n in sides.value):
            raise ConfigError(f"{name} must be one size or two, got {short(keys.config[name])}")
        return int(sides.value[0]), int(sides.value[1])
    side = _count(keys, (name,), default, 1 << 20).value
    return side, side


def _vit(keys: ConfigKeys, tensors: Mapping[str, StoredTensor], *, patch: int = 16, note: str = "") -> Positions:
    image, piece = _sides(keys, "image_size", 224), _sides(keys, "patch_size", patch)
    grid = image[0] // piece[0], image[1] // piece[1]
    rows = grid[0] * grid[1] + 1
    table = LearnedTable(rows, rows, 0, _width(keys), grid=grid, prefix=1, source="image_size, patch_size")
    table, notes = _seen(table, ending(tensors, "embeddings.position_embeddings"))
    length = Length(table.rows, f"{grid[0]} x {grid[1]} patches and a class token ({table.source})")
    return _added_table(keys, table, length, [*notes, note])


def _swin(keys: ConfigKeys, tensors: Mapping[str, StoredTensor]) -> Positions:
    image, piece = _sides(keys, "image_size", 224), _sides(keys, "patch_size", 4)
    window = _count(keys, ("window_size",), 7, 1 << 16)
    depths = keys.numbers("depths")
    if depths is not None and sum(depths.value) > MOST_LAYERS:
        raise ConfigError(f"depths adds up to {sum(depths.value):g} layers: a model has at most {MOST_LAYERS}")
    sides = [image[0] // piece[0], image[1] // piece[1]]
    grid = sides[0], sides[1]
    layers: list[InspectedLayer] = []
    notes = []
    for stage, depth in enumerate((2, 2, 6, 2) if depths is None else depths.value):
        small = min(sides) <= window.value
        if min(sides) < window.value:
            notes.append(
                f"stage {stage} has {sides[0]} x {sides[1]} patches, fewer than the window of {window.value}: only a "
                "part of its table is used"
            )
        for block in range(int(depth)):
            side, shift = (min(sides), 0) if small else (window.value, window.value // 2 if block % 2 else 0)
            layers.append(
                InspectedLayer(
                    len(layers),
                    "swin",
                    f"stage {stage}",
                    "window_attention",
                    side,
                    both_sides=True,
                    rows=(2 * window.value - 1) ** 2,
                    shift=shift,
                )
            )
        sides = [-(-side // 2) for side in sides]
    tables: tuple[LearnedTable, ...] = ()
    if or_default(keys.flag("use_absolute_embeddings"), False):
        rows = grid[0] * grid[1]
        table, more = _seen(
            LearnedTable(rows, rows, grid=grid, source="image_size, patch_size"),
            ending(tensors, "embeddings.position_embeddings"),
        )
        tables, notes = (table,), notes + more
    for held in ending(tensors, "relative_position_bias_table")[:1]:
        if held.shape[:1] != ((2 * window.value - 1) ** 2,):
            notes.append(
                f"{window.key} = {window.value} means {(2 * window.value - 1) ** 2} rows, and the tensor {held.name} "
                f"has shape {list(held.shape)}"
            )
    length = Length(grid[0] * grid[1], f"{grid[0]} x {grid[1]} patches (image_size, patch_size)")
    where = (EMBEDDING, LOGITS) if tables else (LOGITS,)
    return Positions(
        where,
        tuple(layers),
        tables,
        length,
        replace(length, source=NO_SCALING),
        Length(None, "windows tile any image"),
        tuple(notes),
        _init(keys),
    )


_RESIZED = "for images of another size the table is resampled (bicubic), which is not what was trained"
_ROBERTA = partial(_learned, pad=1)

READERS: dict[str, Reader] = {
    "gpt2": partial(_learned, names=("n_positions", "max_position_embeddings"), rows=1024, tensor="wpe.weight"),
    "gpt_bigcode": partial(_learned, names=("n_positions", "max_position_embeddings"), rows=1024, tensor="wpe.weight"),
    "gpt_neo": _gpt_neo,
    "opt": partial(_learned, rows=2048, extra=2, tensor="embed_positions.weight"),
    "bert": _learned,
    "electra": _learned,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "bloom": _bloom,
    "mpt": _mpt,
    "falcon": _falcon,
    "t5": _t5,
    "mt5": partial(_t5, layers=8),
    "deberta": _deberta,
    "deberta-v2": _deberta,
    "inkling_text": _inkling,
    "vit": partial(_vit, note="other image sizes need interpolate_pos_encoding=True in transformers; " + _RESIZED),
    "dinov2": partial(_vit, patch=14, note=_RESIZED),
    "swin": _swin,
    "smollm3": _nope,
}
"""A reader for each model type that has no rotary positions.

Falcon is here for its ALiBi, and SmolLM3 for models none of whose layers turns.
"""
