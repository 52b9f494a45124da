"""Live frequencies: what every layer does to q and k at chosen positions, against what the config asks for.

The model reads a few tokens at positions 0, 1, 2, 4, ..., 255, 256, 257, L - 1, L, L + 1 (L: what its config serves).
From z = m e^(i p w), measured in `watch`, follow for every layer and pair:

    layers         which layers turn at all
    rotary size    which channels are touched
    pairing        which channels are a pair
    frequencies    w, by following the angle from each power of two to the next
    temperature    m of q times m of k
    positions      is the angle p w at every p, L and L + 1 included? Turned twice, the slope is 2 (fault R15)
    precision      frequencies and positions in half precision

Tolerance of an angle: transformers multiplies p and w in float32. w = base^(-2i/d) has an error of (4 + ln base)
roundings, a scaling mixes it with the plain one, so an angle p w may be off by p max(w, plain w) (16 + ln base) 2^-24;
and z itself by a few roundings of the model's dtype.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.probe import Case, Check, judged, unchanged
from milepost.checkpoints.verification.causes import Live, why_frequencies, why_position, why_temperature
from milepost.checkpoints.verification.watch import EXPLAINED, LayerTurn, cached_keys, measure, watched
from milepost.rope import LayerRope, RopeSpec

ROWS = 4
"""Texts that are read at once, so that each pair is measured on several heads even where a layer has one."""
HALF = (torch.bfloat16, torch.float16)


def frequencies(case: Case) -> list[Check]:
    """Every check of this page, or why there is none."""
    if case.spec is None:
        return [Check("frequencies", "NONE", case.no_spec)]
    runs = [_run(case, case.spec, last, length) for last, length in _reaches(case.spec)]
    seen = [layer for run in runs for layer in run.seen]
    checks = [_layers(case, case.spec, runs[0])]
    if not seen:
        why = (
            f"{', '.join(runs[0].functions) or 'no function named apply...rotary...'} of the model's code was never "
            "called"
        )
        return [*checks, Check("frequencies", "BLIND", f"nothing is proved: {why}")]
    if any(layer.turn.silent for layer in seen):
        return [
            *checks,
            Check(
                "frequencies",
                "BLIND",
                "nothing is proved: q or k is zero in every channel, so that no turn can be seen",
            ),
        ]
    checks += [_size(case, seen), _pairing(case, seen)]
    if checks[1].verdict == "FAIL" or (
        checks[2].verdict == "FAIL" and any(layer.turn.left > EXPLAINED for layer in seen)
    ):
        return [
            *checks,
            Check(
                "frequencies",
                "BLIND",
                f"can't be measured while the {checks[1 if checks[1].verdict == 'FAIL' else 2].name} is wrong",
            ),
        ]
    return [
        *checks,
        _frequencies(case, seen),
        _temperature(case, seen),
        _positions(case, runs, seen),
        _precision(case, seen),
    ]


# -- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeasuredSide:
    """One side (q or k) of one layer in one run, and its rope."""

    layer: int
    side: int
    rope: LayerRope
    turn: LayerTurn
    pos: Tensor
    length: int
    eps: float
    low: int

    @property
    def w(self) -> Tensor:
        """The frequencies asked for."""
        return self.rope.spectrum(self.length).tensor()

    def may(self, p: Tensor | float) -> Tensor:
        """How far the angles at ``p`` may be off: positions x pairs."""
        size = torch.maximum(self.w, self.rope.plain().tensor())
        at = torch.as_tensor(p, dtype=torch.float64)[..., None]
        return at * size * (16 + math.log(self.rope.base)) * 2**-24 + 4 * self.eps

    @property
    def live(self) -> Tensor:
        """The frequencies measured, the angle followed over powers of two up to ``low``."""
        return follow(self.turn.z[0], self.pos, self.low)

    @property
    def found(self) -> Live:
        return Live(self.live, self.low, self.may(float(self.low)))


@dataclass(frozen=True)
class MeasuredReading:
    """One reading at chosen positions."""

    seen: list[MeasuredSide]
    turned: set[int]
    functions: list[str]
    ended: str


def follow(z: Tensor, pos: Tensor, low: int) -> Tensor:
    """w of each pair from z (positions x pairs): the angle at 1, then at 2, 4, 8, ... near to twice the one before."""
    angle, w = z.angle(), torch.zeros(z.shape[-1], dtype=torch.float64)
    p = 1
    while p <= low:
        off = angle[int((pos == p).nonzero()[0])] - w * p
        w = w + (off - 2 * torch.pi * (off / (2 * torch.pi)).round()) / p
        p *= 2
    return w


def _reaches(spec: RopeSpec) -> list[tuple[int, int]]:
    """The last position below the model's end, and the length of text, of each run: two where the length decides about
    frequencies."""
    served = spec.served or spec.trained or 4096
    if any(r.scaling is not None and r.scaling.length_dependent for r in spec.ropes().values()):
        trained = spec.main.trained or spec.trained or served
        return [(trained - 1, trained), (2 * trained - 1, 2 * trained)]
    return [(served - 1, served)]


def places(last: int, beyond: bool) -> list[int]:
    """Positions up to ``last`` (and two beyond)."""
    powers = [1 << n for n in range(last.bit_length()) if 1 << n <= last]
    some = {0, *powers, *(p for p in (3, 5, 255, 256, 257) if p <= last), last}
    return sorted(some | ({last + 1, last + 2} if beyond else set()))


def _run(case: Case, spec: RopeSpec, last: int, length: int) -> MeasuredReading:
    """Read tokens at the places, and measure every layer."""
    dependent = any(r.scaling is not None and r.scaling.length_dependent for r in spec.ropes().values())
    ended = ""
    try:
        return _read(case, spec, places(last, not dependent), last, length, ended)
    except (IndexError, RuntimeError) as error:
        if dependent:
            raise
        ended = f"past its table of {last + 1} positions the model raises {type(error).__name__}"
        return _read(case, spec, places(last, False), last, length, ended)


def _read(case: Case, spec: RopeSpec, places: list[int], last: int, length: int, ended: str) -> MeasuredReading:
    while len(places) != case.odd(len(places)):
        places = [*places, places[-1]]  # so that axes can be told apart
    pos = torch.tensor(places)
    ids = torch.cat([case.tokens(len(places), seed) for seed in range(ROWS)])
    with unchanged(case.model), watched(case.model) as watch:
        out = case.run(ids, position_ids=pos.to(case.device).expand(ROWS, -1))
    turning = [n for n in range(case.layers) if spec.layer(n if spec.layers else 0) is not None]
    sides = watch.sides(-1, turning)
    cached = cached_keys(sides, getattr(out, "past_key_values", None))
    low = 1 << (max(1, last).bit_length() - 1)
    seen = []
    for n, calls in sorted(sides.items()):
        rope = spec.layer(n if spec.layers else 0) if n < case.layers else None
        for side, (given, got) in enumerate(calls):
            if rope is not None and bool(
                torch.isfinite(given).all()
            ):  # after a layer that gives no numbers, none can be measured
                turn = measure(given, got, len(places), rope)
                if side == 1 and n in cached:
                    later = measure(given, cached[n], len(places), rope)
                    turn = later if later.left < EXPLAINED else turn  # some normalise keys after turning them
                seen.append(MeasuredSide(n, side, rope, turn, pos, length, case.eps, low))
    return MeasuredReading(seen, set(sides), watch.functions, ended)


# -- the checks ------------------------------------------------------------------------------------------------------


def _layers(case: Case, spec: RopeSpec, run: MeasuredReading) -> Check:
    wanted = {n for n in range(case.layers) if spec.layer(n if spec.layers else 0) is not None}
    if not run.functions:
        return Check(
            "layers", "BLIND", "nothing is proved: the model's code has no function named apply...rotary... to watch"
        )
    if run.turned != wanted:
        missing, more = sorted(wanted - run.turned), sorted(run.turned - wanted)
        faults = [
            f"{words} {_some(n)}"
            for words, n in (
                ("the config has layers turn that don't:", missing),
                ("layers turn that should not:", more),
            )
            if n
        ]
        return Check("layers", "FAIL", "; ".join(faults), len(missing) + len(more), 0, unit="layers")
    still = case.layers - len(wanted)
    return Check(
        "layers",
        "PASS",
        f"{len(wanted)} of {case.layers} layers turn q and k" + (f", {still} do not, as asked" if still else ""),
        0,
        0,
        1,
        "layers",
    )


def _size(case: Case, seen: list[MeasuredSide]) -> Check:
    name = "rotary size"
    for s in seen:
        asked, width, size = s.rope.rotary, s.turn.width, s.turn.size
        slow = (
            float(s.w[-1]) * float(s.pos.max()) < 1e-4
        )  # a pair so slow that it does not move could be taken for one that stands still
        if width not in (s.rope.head_dim, asked) or size > asked or (size < asked and not slow):
            wrong = size if width in (s.rope.head_dim, asked) else width
            return Check(
                name,
                "FAIL",
                f"{_at(s)} turns {wrong} channels of a head of {s.rope.head_dim}; the config asks for {asked}",
                wrong,
                asked,
                unit="channels",
            )
    rope = case.spec.main if case.spec is not None else seen[0].rope
    return Check(
        name,
        "PASS",
        f"{rope.rotary} of {rope.head_dim} channels turn, the others are untouched",
        rope.rotary,
        rope.rotary,
        unit="channels",
    )


def _pairing(case: Case, seen: list[MeasuredSide]) -> Check:
    worst = max(seen, key=lambda s: (s.turn.pairing != s.rope.pairing, s.turn.left))
    left, allowed = worst.turn.left, 8 * case.eps
    if not all(math.isfinite(s.turn.left) for s in seen):
        return Check("pairing", "BLIND", "can't be measured: what comes out of the rotary function is no number")
    if worst.turn.pairing != worst.rope.pairing:
        return Check(
            "pairing",
            "FAIL",
            f"{_at(worst)} forms {worst.turn.pairing} pairs; the model type has {worst.rope.pairing} ones",
            1.0,
            allowed,
            unit="left over",
        )
    return judged(
        Check(
            "pairing",
            "PASS",
            f"{worst.rope.pairing} pairs, turned by one angle in all heads",
            left,
            allowed,
            1.0,
            "left over",
        ),
        f"{_at(worst)}: no turn of {worst.rope.pairing} pairs, nor of others, explains what it does to q and k",
        "",
    )


def _frequencies(case: Case, seen: list[MeasuredSide]) -> Check:
    """In units of what rounding allows to each pair."""
    assert case.spec is not None
    off = [_ratio((s.live - s.w).abs() * s.low, s.may(float(s.low))) for s in seen]
    worst = max(range(len(seen)), key=off.__getitem__)
    s = seen[worst]
    bent = (
        s.rope.plain().tensor() ** (math.log(s.rope.base * 1.01) / math.log(s.rope.base)) - s.rope.plain().tensor()
    ).abs() * s.low
    control = float((bent / s.may(float(s.low))).max())
    kinds = len({x.rope for x in seen})
    relative = float(((s.live - s.w).abs() / s.w.clamp_min(1e-30)).max())
    right = Check(
        "frequencies",
        "PASS",
        f"{len({x.layer for x in seen})} layers{f' of {kinds} kinds' if kinds > 1 else ''} turn as the config asks, "
        f"base {s.rope.base:.10g}, {_scaling(s.rope)}",
        off[worst],
        1.0,
        control,
        "of rounding",
    )
    wrong = (
        f"{_at(s)}: frequencies differ by up to {relative:.3g} of themselves; "
        f"{why_frequencies(s.found, s.rope, case.spec, s.length)}"
    )
    return judged(right, wrong, "another base could not be told from this one")


def _temperature(case: Case, seen: list[MeasuredSide]) -> Check:
    worst: tuple[float, MeasuredSide, float, float] | None = None
    for q, k in itertools.pairwise(seen):
        if (q.layer, q.length, q.side, k.side) != (k.layer, k.length, 0, 1):
            continue
        asked = q.rope.spectrum(q.length).temperature
        got = float((q.turn.z.abs() * k.turn.z.abs()).mean())
        off = abs(got / asked - 1)
        if worst is None or not off <= worst[0]:
            worst = off, q, got, asked
    if worst is None:
        return Check("temperature", "BLIND", "nothing is proved: q and k were not seen together")
    off, s, got, asked = worst
    softmax = "" if s.rope.softmax == 1 else f" (times {s.rope.softmax:.6g} on the softmax, not measured)"
    return judged(
        Check(
            "temperature",
            "PASS",
            f"turning multiplies logits by {got:.6g}, as asked{softmax}",
            off,
            8 * case.eps,
            1.0,
            "relative",
        ),
        f"{_at(s)} multiplies logits by {got:.6g}; the config asks for {asked:.6g}; {why_temperature(got, asked)}",
        "",
    )


def _positions(case: Case, runs: list[MeasuredReading], seen: list[MeasuredSide]) -> Check:
    """Is the angle a straight line through every position, of slope 1?"""
    assert case.spec is not None
    worst, where, words = -1.0, seen[0], ""
    for s in seen:
        live, unit = s.live, s.turn.z[0] / s.turn.z[0].abs()
        line = torch.polar(torch.ones_like(s.pos[:, None] * live), s.pos[:, None].double() * live)
        off = (unit - line).abs() / (3 * s.may(s.pos))
        value = _ratio(off, torch.ones(()))
        if not value <= max(worst, 1.0):
            row = int(off.nan_to_num(math.inf).max(-1).values.argmax())
            worst, where, words = value, s, why_position(unit[row], int(s.pos[row]), live, s.may(s.pos[row]), case.spec)
        slope = s.live / s.w
        clear = s.w * s.low > 64 * s.may(float(s.low))
        typical = float(slope[clear].median()) if bool(clear.any()) else 1.0
        even = bool(clear.any()) and float((slope[clear] - typical).abs().max()) < 1e-3 * abs(typical)
        if even and abs(typical - 1) > 1e-3:
            return Check(
                "positions",
                "FAIL",
                f"{_at(s)}: angles grow {typical:.4g} times as fast as asked (slope {typical:.4g}): {_twice(typical)}",
                typical,
                1.0,
                unit="slope",
            )
        if worst < value:
            worst = value
    shown = [p for p in (1, 257, int(seen[0].pos.max())) if p in seen[0].pos.tolist()]
    far = max(int(s.pos.max()) for s in seen)
    near = float(min(257, far))
    to_start = (torch.polar(torch.ones_like(where.w), far * where.w) - 1).abs() / (3 * where.may(float(far)))
    to_neighbour = 2 * (where.w / 2).sin().abs() / (3 * where.may(near))
    control = min(float(to_start.max()), float(to_neighbour.max()))
    ended = runs[0].ended
    return judged(
        Check(
            "positions",
            "PASS",
            f"angles grow evenly from 0 to {far}, at {', '.join(map(str, shown))} too"
            + (f"; {ended}" if ended else ""),
            worst,
            1.0,
            control,
            "of rounding",
        ),
        f"{_at(where)}: {words}",
        "two neighbours at 257, or the last position and the first, can't be told apart",
    )


def _twice(slope: float) -> str:
    return (
        "the encoding is applied twice, or positions are doubled"
        if abs(slope - 2) < 1e-2
        else f"positions are multiplied by {slope:.4g}, or a scaling is not applied"
    )


def _precision(case: Case, seen: list[MeasuredSide]) -> Check:
    """Half precision in tables of frequencies, and what it looks like in what they do."""
    narrow = [
        f"{name} ({str(b.dtype).removeprefix('torch.')})"
        for name, b in case.model.named_buffers()
        if b.dtype in HALF and ("freq" in name or "embed_positions" in name or "rotary" in name)
    ]
    off, control = 0.0, 0.0
    for s in seen:
        for dtype in HALF:
            rounded = s.w.to(dtype).double()
            if s.found.is_table(rounded) and not s.found.is_table(s.w):
                narrow.append(f"{_at(s)} turns by frequencies rounded to {str(dtype).removeprefix('torch.')}")
        off = max(off, _ratio((s.live - s.w).abs() * s.low, s.found.may))
        control = max(control, _ratio((s.w.bfloat16().double() - s.w).abs() * s.low, s.found.may))
    numbers: dict[str, Any] = {"measured": off, "allowed": 1.0, "control": control, "unit": "of rounding"}
    if narrow:
        return Check(
            "precision",
            "FAIL",
            f"in half precision: {_some(narrow)}; model.to(dtype) rounds every buffer, load with dtype= instead",
            **numbers,
        )
    if not off <= 1:
        return Check("precision", "BLIND", "can't be judged while the frequencies are wrong", **numbers)
    return judged(
        Check("precision", "PASS", "no table is in half precision, and none was", **numbers),
        "",
        "frequencies rounded to bfloat16 could not be told from these at this length",
    )


# -- words -----------------------------------------------------------------------------------------------------------


def _ratio(off: Tensor, may: Tensor) -> float:
    """The largest off / may; infinite where a number is none."""
    largest = float((off / may).max())
    return largest if math.isfinite(largest) and bool(torch.isfinite(off).all()) else math.inf


def _at(s: MeasuredSide) -> str:
    return f"layer {s.layer}"


def _scaling(rope: LayerRope) -> str:
    text = "no scaling" if rope.scaling is None else repr(rope.scaling)
    return text if len(text) <= 90 else text[:87] + "..."


def _some(items: list[int] | list[str]) -> str:
    return ", ".join(map(str, items[:4])) + (f" and {len(items) - 4} more" if len(items) > 4 else "")
