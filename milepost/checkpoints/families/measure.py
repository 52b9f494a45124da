"""Measuring a family: what a small random model of a config's class does about positions, layer by layer.

    measured = measure({"model_type": "hy_v4", ...})
    measured.layers[0].turn.frequencies, measured.layers[3].turn          # None: this layer does not turn
    measured.sentence              # measured on a random model of class HYV4Model of transformers ...

Rows of one token each are read at positions 0, 1, 2, 4, ..., 255, 256, 257 and around the model's end; a text of 23
tokens shows windows. A class that takes no position_ids reads one long row instead.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from milepost.checkpoints.families.bounds import PART, SECONDS, CannotBuild, Exceeded
from milepost.checkpoints.families.inputs import TALL, WIDE, beside, inputs
from milepost.checkpoints.families.small import CUT_WINDOWS, WORDS, Small, builds
from milepost.checkpoints.families.turns import UNEXPLAINED, Turn, by_position, find_turn, frequencies
from milepost.checkpoints.families.watch import LAYER, ModelWatch, Seen, watched
from milepost.checkpoints.verification.frequencies import places
from milepost.spectrum import geometric

if TYPE_CHECKING:
    from milepost.rotation import Pairing

TEXTS = 4
"""Tokens that are read at every position: each pair is measured on several."""
ROW = 67
"""Tokens of one long row, where a class takes no position_ids: a number that is no size of anything else."""
SHORT = 23
"""Tokens of the text that shows windows."""
LAST = 4096
"""The end of a model that does not say its own."""
SAME = 1e-3
"""Rounding over many layers stays below this share; a turn or a temperature at far positions is far above it."""
CLOSE = 2e-5
"""How far frequencies measured in float32 may be from those of a formula, as a share."""


@dataclass(frozen=True)
class MeasuredTurn:
    """A rotation: ``size`` channels from ``first`` on, of ``width``; the frequency of every pair; m on cos and sin.

    ``base`` is that of plain frequencies, None where they are scaled or otherwise. ``backwards``: by minus the angle.
    ``axes``: for grids, the axis that each pair takes, a letter each; ``parts``: halves are of each of so many
    parts. ``error`` is how far a frequency may be off: that of an angle over the farthest position.
    """

    first: int
    size: int
    width: int
    pairing: Pairing | Literal[""]
    frequencies: tuple[float, ...]
    base: float | None
    m: float = 1.0
    backwards: bool = False
    axes: str = ""
    parts: int = 1
    error: float = 1e-9


@dataclass(frozen=True)
class MeasuredLayer:
    """One layer. ``turn`` is None where q and k stand still, ``attends`` false where there is no attention.

    ``softmax`` is the softmax scale times the root of the head size. ``temperature`` is what queries are multiplied by,
    by position. ``window`` is (key, tokens) of the small model; ``values``: they turn by the key's position.
    """

    stack: str
    number: int
    attends: bool = True
    turn: MeasuredTurn | None = None
    softmax: float | None = None
    temperature: tuple[tuple[int, float], ...] = ()
    window: str = ""
    both_sides: bool = False
    bias: bool = False
    values: bool = False
    indexer: MeasuredTurn | None = None


@dataclass(frozen=True)
class MeasuredFamily:
    """What was measured on a small random model. ``tables`` are (name, rows, offset); ``length`` is the text's for
    frequencies that depend on it; ``notes`` what could not be seen."""

    model_type: str
    name: str
    version: str
    layers: tuple[MeasuredLayer, ...]
    tables: tuple[tuple[str, int, int], ...] = ()
    added: bool = False
    length: int = 0
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return f"measured on a random model of class {self.name} of transformers {self.version}"

    @property
    def turns(self) -> bool:
        return any(layer.turn is not None for layer in self.layers)


def main_layers(measured: MeasuredFamily) -> list[MeasuredLayer]:
    """The stack that turns most layers: a text model's, where there are several."""
    stacks = {layer.stack for layer in measured.layers}
    if not stacks:
        return []
    turning = {s: sum(x.turn is not None for x in measured.layers if x.stack == s) for s in sorted(stacks)}
    main = max(turning, key=lambda s: (turning[s], -len(s)))
    return [layer for layer in measured.layers if layer.stack == main]


def measure(data: Mapping[str, Any]) -> MeasuredFamily:
    """Build a small model of a config's class, run it, and say what it does; `CannotBuild` says why not."""
    why: CannotBuild | None = None
    try:
        with contextlib.closing(builds(data)) as tried, torch.no_grad():
            for small in tried:
                try:
                    if isinstance(small, CannotBuild):
                        raise small
                    return _measure(small, str(data.get("model_type", "")))
                except CannotBuild as error:
                    why = why or error
    except Exceeded as error:
        raise CannotBuild(str(error)) from None
    assert why is not None
    raise why


def _measure(small: Small, model_type: str) -> MeasuredFamily:
    names = set(inspect.signature(small.model.forward).parameters)
    if {"input_ids", "inputs_embeds"} <= names:
        try:
            return _of_text(small, model_type, names)
        except CannotBuild:
            return _of_text(small, model_type, names - {"input_ids"})  # some embed several codes, or nothing
    if names & {"input_ids", "inputs_embeds"}:
        return _of_text(small, model_type, names)
    why = CannotBuild(f"{small.name} reads {small.model.main_input_name}, which is not made here")
    for given in inputs(small, names):
        try:
            return _read(small, model_type, _run(small, given, after=True), None, alone=False)
        except CannotBuild as error:
            why = error
    raise why


def _of_text(small: Small, model_type: str, names: set[str]) -> MeasuredFamily:
    if "position_ids" in names:
        short = _short_text(small, names)
        silent = frozenset() if isinstance(short, CannotBuild) else short.silent
        measured = _read(small, model_type, *_alone(small, names, silent), alone=True)
        if not measured.turns and not measured.tables and not measured.added:
            again = _read(small, model_type, *_in_a_row(small, names, silent), alone=False)
            measured = again if again.turns else measured  # position_ids may be there, and not be read
        return _with_windows(measured, short)
    watch, pos = _in_a_row(small, names)
    try:
        return _read(small, model_type, watch, pos, alone=False)
    except ValueError:  # layers of more or fewer tokens than were given: a line is looked for
        return _read(small, model_type, watch, None, alone=False)


# -- running ---------------------------------------------------------------------------------------------------------


def _run(
    small: Small, given: Mapping[str, Any], *, after: bool = False, silent: frozenset[str] = frozenset()
) -> ModelWatch:
    small.clock.limit = SECONDS * (PART if after else 1.0)
    try:
        with watched(small.model, small.clock, silent) as watch:
            small.model(**given)
    except CannotBuild:
        raise
    except (Exception, Exceeded) as error:
        if after and not _silent(small, [MeasuredLayer(*_place(name)) for name in watch.layers]) and watch.layers:
            return watch  # all layers ran: what comes after them (merging of patches) says nothing about positions
        if isinstance(error, Exceeded):
            raise
        text = " ".join(str(error).split())[:200]
        raise CannotBuild(f"{small.name} does not run with small sizes: {type(error).__name__}: {text}") from None
    finally:
        small.clock.limit = SECONDS
    return watch


def _end(small: Small) -> int:
    config = small.config.get_text_config() if hasattr(small.config, "get_text_config") else small.config
    for name in ("max_position_embeddings", "n_positions", "seq_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 1:
            return min(value, 1 << 20)
    return LAST


def _tokens(small: Small, names: set[str], ids: Tensor) -> dict[str, Any]:
    """Tokens, or what stands for them where a class embeds nothing by itself."""
    more = beside(small, names, len(ids))
    if "input_ids" in names:
        codes = getattr(small.config, "num_channels", None)
        if "inputs_embeds" not in names and isinstance(codes, int) and small.name.startswith("Dia"):
            ids = ids[..., None].expand(-1, -1, codes)
        return {"input_ids": ids, **more}
    widths = ("backbone_hidden_size", "hidden_size", "d_model", "dim")
    width = next((getattr(small.config, name) for name in widths if hasattr(small.config, name)), None)
    if not isinstance(width, int):
        raise CannotBuild(f"{small.name} has no width of its own to make embeddings of")
    table = torch.randn(WORDS, width, generator=torch.Generator().manual_seed(1))
    return {"inputs_embeds": table[ids], **more}


def _alone(small: Small, names: set[str], silent: frozenset[str]) -> tuple[ModelWatch, Tensor]:
    """Rows of one token, at every position that matters."""
    end = _end(small)
    pos = torch.tensor(places(end - 1, False))
    ids = torch.arange(5, 5 + TEXTS).repeat(len(pos))[:, None]
    given = {**_tokens(small, names, ids), "position_ids": pos.repeat_interleave(TEXTS)[:, None]}
    if "attention_mask" in names:
        given["attention_mask"] = torch.ones_like(ids)
    if "use_cache" in names:
        given["use_cache"] = False
    return _run(small, given, silent=silent), pos


def _in_a_row(small: Small, names: set[str], silent: frozenset[str] = frozenset()) -> tuple[ModelWatch, Tensor]:
    """One token again and again: what differs between them is position."""
    ids = torch.arange(5, 5 + TEXTS)[:, None].repeat(1, ROW)
    given = _tokens(small, names, ids)
    if "use_cache" in names:
        given["use_cache"] = False
    if "decoder_input_ids" in names:
        given["decoder_input_ids"] = ids
    return _run(small, given, silent=silent), torch.arange(ROW)


# -- reading what was seen -------------------------------------------------------------------------------------------


def _read(small: Small, model_type: str, watch: ModelWatch, pos: Tensor | None, *, alone: bool) -> MeasuredFamily:
    reading = SeenTurns()
    layers = []
    for name, seen in watch.layers.items():
        small.clock.check()
        layers.append(_layer(*_place(name), seen, pos, alone, reading))
    layers += _silent(small, layers)
    layers.sort(key=lambda layer: (layer.stack, layer.number))
    tables: tuple[tuple[str, int, int], ...] = ()
    added = False
    if pos is not None:
        tables = tuple(_tables(watch, pos, alone))
        added = any(
            seen.attended and not _same(by_position(seen.attended[0].v, len(pos), alone))
            for seen in list(watch.layers.values())[:1]
        )
        added = added and not any(layer.values for layer in layers[:1])
    length = int(pos.max()) + 1 if pos is not None else 0
    return MeasuredFamily(
        model_type, small.name, small.version, tuple(layers), tables, added, length, tuple(dict.fromkeys(reading.notes))
    )


@dataclass
class SeenTurns:
    """What was found in the layers so far: what could not be seen, and turns that later layers may have again."""

    notes: list[str] = field(default_factory=list)
    turns: list[tuple[Turn, MeasuredTurn]] = field(default_factory=list)

    def known(self) -> list[Turn]:
        return [turn for turn, _ in self.turns]

    def describe(self, turn: Turn, measure: Callable[[Turn], MeasuredTurn]) -> MeasuredTurn | None:
        """What a turn is, which is measured once for all layers that have it; None where nothing turns."""
        if not turn.turns:
            return None
        before = next((measured for known, measured in self.turns if known is turn), None)
        if before is not None:
            return before
        if turn.left > UNEXPLAINED:
            reason = f"channels change with position, and not by a turn of pairs ({turn.left:.2g} is left over)"
            self.notes.append(reason)
            return MeasuredTurn(turn.first, turn.size, turn.width, "", (), None)
        self.turns.append((turn, measure(turn)))
        return self.turns[-1][1]


def _place(name: str) -> tuple[str, int]:
    """The stack and the number of a layer, from its module's name."""
    match = LAYER.match(name)
    return (match[1], int(match[2])) if match else (name, 0)


def _silent(small: Small, seen: list[MeasuredLayer]) -> list[MeasuredLayer]:
    """Layers that called no attention: they are beside those that did, in the same list."""
    there = {(layer.stack, layer.number) for layer in seen}
    stacks = {layer.stack for layer in seen}
    named = [LAYER.match(name) for name, _ in small.model.named_modules()]
    return [
        MeasuredLayer(match[1], int(match[2]), attends=False)
        for match in named
        if match and match[1] in stacks and (match[1], int(match[2])) not in there
    ]


def _layer(stack: str, number: int, seen: Seen, pos: Tensor | None, alone: bool, reading: SeenTurns) -> MeasuredLayer:
    layer = MeasuredLayer(stack, number, attends=bool(seen.attended or seen.turned))
    calls = [turn for turn in (_of_call(*call, pos, alone, reading) for call in seen.turned) if turn is not None]
    if calls:
        layer = replace(layer, turn=calls[0])
    if seen.indexed:
        layer = replace(layer, indexer=_of_call(*seen.indexed[0], pos, alone, reading))
    if not seen.attended:
        return layer
    first = seen.attended[0]
    if first.scaling is not None:
        layer = replace(layer, softmax=round(first.scaling * math.sqrt(first.q.shape[-1]), 9))
    if pos is None:
        return layer
    q, k, v = (by_position(x, len(pos), alone) for x in (first.q, first.k, first.v))
    if not bool(torch.isfinite(q).all() and torch.isfinite(k).all()):
        raise CannotBuild(f"layer {number} of a random model gives no numbers")
    if _same(q) and _same(k):
        return replace(layer, turn=None)
    still = _same(v)
    values = not still and _turned(v)
    if not calls and (still or values):  # else a position was added to the embedding, and everything differs
        layer = replace(layer, turn=_of_attended(q, pos, reading) or _of_attended(k, pos, reading))
    tau = q.norm(dim=(1, 2)) / q[0].norm()
    if (still or values) and float((tau - 1).abs().max()) > 1e-4:
        layer = replace(layer, temperature=tuple((int(p), round(float(t), 6)) for p, t in zip(pos, tau, strict=True)))
    return replace(layer, values=values)


def _turned(v: Tensor) -> bool:
    """Whether values turn, rather than differ."""
    even = float((v.norm(dim=(1, 2)) / v[0].norm() - 1).abs().max()) < SAME
    turn = find_turn(v[:1].expand_as(v), v)
    return even and turn.turns and turn.left < UNEXPLAINED


def _same(x: Tensor) -> bool:
    """Whether it is the same at every position."""
    return float((x - x[:1]).abs().max()) <= SAME * float(x.abs().max().clamp_min(1e-30))


def _of_call(given: Tensor, got: Tensor, pos: Tensor | None, alone: bool, reading: SeenTurns) -> MeasuredTurn | None:
    """The turn of one call of a rotary function."""
    if given.ndim < 3:
        return None
    if pos is None:
        return _of_grid(given, got, reading)
    given, got = (by_position(x, len(pos), alone) for x in (given, got))
    return reading.describe(find_turn(given, got, reading.known()), partial(_measure_line, pos=pos))


def _of_attended(x: Tensor, pos: Tensor, reading: SeenTurns) -> MeasuredTurn | None:
    """The turn between positions p and 0: pairs as attention gets them."""
    scaled = x / (x.norm(dim=(1, 2), keepdim=True) / x[:1].norm(dim=(1, 2), keepdim=True)).clamp_min(1e-30)
    turn = find_turn(scaled[:1].expand_as(scaled), scaled, reading.known())
    return reading.describe(turn, partial(_measure_line, pos=pos))


def _measure_line(turn: Turn, pos: Tensor) -> MeasuredTurn:
    """A turn whose angle grows evenly with the position."""
    w = frequencies(turn, pos)
    backwards = bool((w < 0).sum() > (w > 0).sum())
    w = -w if backwards else w
    table = tuple(float(f"{value:.9g}") for value in w.tolist())
    error = 1e-9 + 4e-6 / max(1, int(pos.max()))
    base = plain_base(table, turn.size, error)
    return MeasuredTurn(
        turn.first, turn.size, turn.width, turn.pairing, table, base, round(turn.m, 7), backwards, error=error
    )


def plain_base(table: tuple[float, ...], size: int, error: float = 1e-9) -> float | None:
    """The base of plain frequencies, None where they are others."""
    if len(table) < 2 or not all(w > 0 for w in table):
        return None
    last = len(table) - 1
    base = table[last] ** (-size / (2 * last))
    for candidate in (*(float(f"{base:.{n}g}") for n in (1, 2, 3, 4, 6)), base):
        if candidate > 1 and close(table, geometric(size, float(candidate)).frequencies, error):
            return float(candidate)
    return None


def close(a: tuple[float, ...], b: tuple[float, ...], error: float = 1e-9) -> bool:
    """Whether frequencies measured in float32 are those of a formula: the slowest pairs are known less well."""
    return len(a) == len(b) and all(
        abs(x - y) <= CLOSE * max(abs(x), abs(y)) + error for x, y in zip(a, b, strict=True)
    )


def _tables(watch: ModelWatch, pos: Tensor, alone: bool) -> list[tuple[str, int, int]]:
    """Tables whose rows were looked up by position."""
    tables = []
    for name, (rows, index) in watch.tables.items():
        if alone and index.shape[0] == len(pos) * TEXTS:
            rows_of = index.reshape(len(pos), TEXTS, -1)[:, 0, 0]
        elif index.shape[-1] == len(pos):
            rows_of = index.reshape(-1, len(pos))[0]
        else:
            continue
        offset = rows_of - pos
        if len(pos) > 1 and bool((offset == offset[0]).all()):
            tables.append((name, rows, int(offset[0])))
    return tables


# -- grids -----------------------------------------------------------------------------------------------------------


def _of_grid(given: Tensor, got: Tensor, reading: SeenTurns) -> MeasuredTurn | None:
    """The turn of patches or frames."""
    x, y = given.double(), got.double()
    axis = max(range(x.ndim - 1), key=lambda n: x.shape[n])
    x, y = (t.movedim(axis, 0).flatten(1, -2) for t in (x, y))
    return reading.describe(find_turn(x, y, reading.known()), _measure_grid)


def _measure_grid(turn: Turn) -> MeasuredTurn:
    """A turn by one axis, or by two: which axis each pair takes is seen by how many angles it has."""
    line = _measure_line(turn, torch.arange(len(turn.z)))
    if _is_line(turn, line):
        return line
    steps, axes = [], ""
    angle = turn.z.angle()
    for pair in range(angle.shape[1]):
        values = sorted({round(v, 4) for v in angle[:, pair].tolist()})
        gaps = [b - a for a, b in itertools.pairwise(values) if b - a > 2e-4]
        steps.append(float(f"{min(gaps):.4g}") if gaps else 0.0)
        axes += {TALL: "y", WIDE: "x", 1: "."}.get(len(gaps) + 1, "+")
    return MeasuredTurn(
        turn.first, turn.size, turn.width, turn.pairing, tuple(steps), None, round(turn.m, 7), axes=axes
    )


def _is_line(turn: Any, line: MeasuredTurn) -> bool:
    """Whether the angle grows by the same with every token: one axis."""
    w = torch.tensor(line.frequencies, dtype=torch.float64) * (-1 if line.backwards else 1)
    at = torch.arange(len(turn.z), dtype=torch.float64)[:, None] * w
    z = turn.z / turn.z[:1]
    return float((z - torch.polar(torch.ones_like(at), at)).abs().max()) < 1e-2


# -- windows ---------------------------------------------------------------------------------------------------------


def _short_text(small: Small, names: set[str]) -> ModelWatch | CannotBuild:
    """A text of some tokens, which shows windows and layers that do nothing about positions."""
    ids = torch.arange(SHORT)[None] % (WORDS - 8) + 5
    given: dict[str, Any] = _tokens(small, names, ids)
    if "use_cache" in names:
        given["use_cache"] = False
    if "attention_mask" in names:
        given["attention_mask"] = torch.ones_like(ids)
    try:
        return _run(small, given)
    except CannotBuild as error:
        return error


def _with_windows(measured: MeasuredFamily, watch: ModelWatch | CannotBuild) -> MeasuredFamily:
    """What each layer sees of a short text, from the mask that attention gets."""
    if isinstance(watch, CannotBuild):
        return replace(measured, notes=(*measured.notes, f"windows were not seen: {watch}"))
    sight = {name: _sight(seen) for name, seen in watch.layers.items() if seen.attended}
    layers = []
    for layer in measured.layers:
        name = f"{layer.stack}.{layer.number}" if layer.stack else str(layer.number)
        window, both, bias = sight.get(name, ("", False, False))
        layers.append(replace(layer, window=window, both_sides=both, bias=bias))
    return replace(measured, layers=tuple(layers))


def _sight(seen: Seen) -> tuple[str, bool, bool]:
    """The window's key, whether later tokens are seen, and whether logits get a bias, in the mask or beside it."""
    call = seen.attended[0]
    if call.mask is None or call.mask.shape[-1] != SHORT or call.mask.shape[-2] != SHORT:
        return "", call.causal is False, call.bias
    mask = call.mask[0, 0]
    seen_by = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    numbers = mask[seen_by] if mask.dtype != torch.bool else mask.new_zeros(1)
    bias = call.bias or (mask.dtype != torch.bool and bool((numbers != 0).any()))
    last = int(seen_by[SHORT - 1].sum())
    both = bool(seen_by.triu(1).any())
    if last == SHORT:
        return "", both, bias
    chunk = CUT_WINDOWS["attention_chunk_size"]
    for key, size in CUT_WINDOWS.items():
        expected = (SHORT - 1) % chunk + 1 if size == chunk else size
        if last in (expected, expected + 1, expected // 2 + 1):
            return key, both, bias
    return f"{last} tokens", both, bias
