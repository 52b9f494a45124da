"""Layouts: one text gives the same logits alone, from a cache, padded on the left, and packed behind another.

    cached         transformers' own generate reads the first half and is made to say the rest, token by token
    left-padded    two texts of different length in one batch of generate: reading and saying
    packed         two texts in one row, positions from 0 in each, a mask that keeps them apart
    positions under padding      what the padded row was really given: angles of q and k, or rows of the table, against
                                 the text alone

A relative encoding gives right logits even when padding is counted as tokens; so positions are looked at as well as
logits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.patch import hooked
from milepost.checkpoints.model.probe import Case, Check, apart, judged, unchanged
from milepost.checkpoints.verification.watch import RotaryWatch, measure, watched
from milepost.rope.config.layer_kinds import DO_NOT

SAID = 5
"""Tokens that generate is made to say in a batch."""


def layouts(case: Case) -> list[Check]:
    """Every check of this page."""
    return [_cached(case), *_padded(case), _packed(case)]


def _full(case: Case, prompt: Tensor, forced: Tensor) -> Tensor:
    """The logits before each of the forced tokens, from one pass without a cache: K V."""
    if case.both:
        return case.logits(torch.cat([forced.new_full((1, 1), case.start), forced[:, :-1]], 1), input_ids=prompt)[0]
    return case.logits(torch.cat([prompt, forced], 1))[0, prompt.shape[1] - 1 : -1]


def _cached(case: Case) -> Check:
    if not case.generates:
        return Check("cached", "NONE", "this model does not generate: there is no cache")
    half = case.length // 2
    prompt, forced = (case.source, case.text) if case.both else (case.text[:, :half], case.text[:, half:])

    def said() -> Tensor:
        return case.continued([prompt], forced)[0]

    off = apart(said(), _full(case, prompt, forced))
    return case.judge_logits(
        "cached",
        off,
        f"{forced.shape[1]} tokens said one by one from a cache give the logits of one pass",
        "tokens said one by one from a cache give other logits than one pass over the text",
        said,
    )


# -- left padding ----------------------------------------------------------------------------------------------------


def _padded(case: Case) -> list[Check]:
    if not case.generates:
        return [_padded_encoder(case)]
    long, short = case.tokens(case.length, 1), case.tokens(case.odd(case.length - 7), 2)
    forced = torch.cat([case.tokens(SAID, 3), case.tokens(SAID, 4)])
    with watched(case.model) as watch, _looked_up(case) as rows:
        logits = case.continued([long, short], forced)
    off = max(apart(logits[n], _full(case, prompt, forced[n : n + 1])) for n, prompt in enumerate((long, short)))
    check = case.judge_logits(
        "left-padded",
        off,
        f"a text with {long.shape[1] - short.shape[1]} tokens of padding before it is read and continued as alone",
        "a text with padding before it gives other logits than alone",
        lambda: case.continued([long, short], forced),
    )
    check = replace(check, sentence=check.sentence + _unaided(case, long, short))
    return [check, *_told(case, watch, rows, long, short, forced)]


def _unaided(case: Case, long: Tensor, short: Tensor) -> str:
    """What a plain call makes of padding, without the position_ids that generate gives: worth knowing, and no fault of
    the checkpoint."""
    if not case.takes_positions:
        return ""
    pad = long.shape[1] - short.shape[1]
    ids = torch.cat([short[:, :1].expand(1, pad), short], 1)
    mask = torch.ones_like(ids)
    mask[:, :pad] = 0
    difference = apart(case.logits(ids, attention_mask=mask)[:, pad:], case.logits(short))
    return (
        f"; called without position_ids it counts padding as tokens (logits {difference:.2g} apart): give them, as "
        "generate does"
        if difference > case.tolerance
        else ""
    )


def _padded_encoder(case: Case) -> Check:
    text = case.text
    ids, mask = torch.cat([text, text[:, :4]], 1), torch.ones(1, case.length + 4, dtype=torch.long, device=case.device)
    mask[:, case.length :] = 0
    off = apart(case.logits(ids, attention_mask=mask)[:, : case.length], case.logits(text))
    return case.judge_logits(
        "padded",
        off,
        "a text with padding after it is read as alone (this model does not generate, and is padded on the right)",
        "a text with padding after it gives other logits than alone",
    )


def _told(
    case: Case, watch: RotaryWatch, rows: list[Tensor], long: Tensor, short: Tensor, forced: Tensor
) -> list[Check]:
    """The positions that the shorter, padded row was told, while it was read and at every token said."""
    name, pad = "positions under padding", long.shape[1] - short.shape[1]
    if case.spec is not None:
        return _turned(case, watch, name, pad, short, forced)
    if case.table is None or not rows:
        return []
    padded = [int(p) for p in torch.cat([rows[0][1, pad:], *(r[1, :1] for r in rows[1:])])]
    with unchanged(case.model), _looked_up(case) as alone:
        case.run(torch.cat([short, forced[1:, :-1]], 1))
    off = max(abs(a - b) for a, b in zip(padded, alone[0][0].tolist(), strict=True))
    first = int(alone[0][0, 0])
    return [
        judged(
            Check(
                name,
                "PASS",
                f"the first token after padding is told row {first} of the table, as alone",
                float(off),
                0.0,
                1.0,
                "rows",
            ),
            f"positions don't follow left padding: the first token after {pad} of padding is told row {padded[0]} of "
            f"the table, alone {first}",
            "",
        )
    ]


def _turned(case: Case, watch: RotaryWatch, name: str, pad: int, short: Tensor, forced: Tensor) -> list[Check]:
    """By angles: q and k of the padded row at every step, against the same text alone."""
    assert case.spec is not None
    spec, count = case.spec, short.shape[1]
    turning = [n for n in range(case.layers) if spec.layer(n if spec.layers else 0) is not None]
    text = torch.cat([short, forced[1:, :-1]], 1)
    text = torch.cat([text, short[:, : case.odd(text.shape[1]) - text.shape[1]]], 1)
    several = torch.cat([text, *(case.tokens(text.shape[1], seed) for seed in (11, 12, 13))])
    with unchanged(case.model), watched(case.model) as alone:
        case.run(several)
    if not watch.steps or not alone.steps or not alone.sides(-1, turning):
        return [
            Check(name, "BLIND", "nothing is proved: the rotary function of this model's code could not be watched")
        ]
    worst, layer = -1.0, 0
    for n, sides in alone.sides(-1, turning).items():
        rope = spec.layer(n if spec.layers else 0)
        for side, (given, got) in enumerate(sides):
            if rope is None:
                continue
            turn = measure(given, got, text.shape[1], rope)
            want = turn.z[0]
            for step in range(len(watch.steps)):
                calls = watch.sides(step, turning).get(n, [])
                if side < len(calls):
                    z = measure(*calls[side], count + pad if step == 0 else 1, rope, alike=False, way=turn.way).z[1]
                    off = apart(
                        torch.view_as_real(z[pad:] if step == 0 else z),
                        torch.view_as_real(want[:count] if step == 0 else want[count + step - 1, None]),
                    )
                    worst, layer = (off, n) if not off <= worst else (worst, layer)
    control = abs(2 * torch.sin(spec.main.spectrum(count).tensor()[0] / 2).item())
    return [
        judged(
            Check(
                name,
                "PASS",
                "after padding q and k are turned as in the text alone, in every layer and at every step",
                worst,
                8 * case.eps,
                control,
                "turn",
            ),
            f"positions don't follow left padding: in layer {layer} q or k is turned by another angle than in the "
            "text alone",
            "",
        )
    ]


@contextlib.contextmanager
def _looked_up(case: Case) -> Iterator[list[Tensor]]:
    """The rows of the learned table that the model looks up, found by what comes out: one tensor B L a call."""
    rows: list[Tensor] = []

    def note(table: Any, given: Any, out: Tensor) -> None:
        rows.append(torch.cdist(out.double(), table.weight.double()[None].expand(out.shape[0], -1, -1)).argmin(-1))

    with hooked(*(() if case.table is None else (case.table.register_forward_hook(note),))):
        yield rows


# -- packing ---------------------------------------------------------------------------------------------------------


def _packed(case: Case) -> Check:
    kinds = set(getattr(case.text_config, "layer_types", None) or ())
    if not case.takes_positions or not case.generates or kinds & set(DO_NOT):
        why = (
            "it takes no position_ids"
            if not case.takes_positions
            else "it is no causal model"
            if not case.generates
            else "layers without attention know no mask"
        )
        return Check("packed", "NONE", f"this model's code has no packed rows: {why}")
    first, second = case.tokens(9, 5), case.tokens(case.length - 9, 6)
    ids, pos = (
        torch.cat([first, second], 1),
        torch.cat([torch.arange(9), torch.arange(case.length - 9)])[None].to(case.device),
    )
    segment = torch.arange(case.length, device=case.device) >= 9
    seen = (segment[:, None] == segment[None, :]).tril()
    mask = torch.zeros(seen.shape, dtype=case.dtype, device=case.device).masked_fill(
        ~seen, torch.finfo(case.dtype).min
    )[None, None]
    logits = case.logits(ids, position_ids=pos, attention_mask=mask, use_cache=False)
    off = max(apart(logits[:, :9], case.logits(first)), apart(logits[:, 9:], case.logits(second)))
    own = case.logits(ids, position_ids=pos, attention_mask=None, use_cache=False)
    cut = apart(own, logits) <= case.tolerance
    more = (
        ""
        if cut
        else "; without such a mask its code does not keep them apart: position_ids that begin again are not enough"
    )
    return case.judge_logits(
        "packed",
        off,
        f"two texts in one row, each from position 0 and masked from the other, are read as alone{more}",
        "two texts in one row, each from position 0 and masked from the other, give other logits than alone",
    )
