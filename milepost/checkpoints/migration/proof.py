"""Proof: nothing but positions was changed, and the new positions are what they should be.

By logits, twice, before anything is tuned.

    off    the source without its positions and the target without its own give the same logits
    on     the target with its positions gives those of milepost's reference: RoPE with GPT-NeoX's frequencies, ALiBi as
           Falcon has it, the new table

Positions are switched off by the models' own code: a table of zeros, all tokens at position 0 (RoPE), biases of zero
(ALiBi). Tolerances are those of `verify`: 4 times the target's distance from itself in float64. Each has a control:
what the positions themselves do to the same number.

unused    the target made from a source with noise in place of its table is bit by bit the same, and no tensor of it is
          the table
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.migration.body import Body, table_of
from milepost.checkpoints.migration.fade import scale_positions
from milepost.checkpoints.migration.reference import FalconALiBi, logits
from milepost.checkpoints.migration.source import Origin
from milepost.checkpoints.migration.targets import BASE
from milepost.checkpoints.model.patch import hooked, patched
from milepost.checkpoints.model.probe import Case, Check, apart, judged, without_bias, zero_output
from milepost.checkpoints.model.quiet import quiet
from milepost.checkpoints.model.turned_attention import Nudged, turned
from milepost.encoding import Encoding
from milepost.encodings.rope import RoPE
from milepost.lab.model import Decoder

TOKENS = 48
"""Tokens of the proof, where a table is not shorter."""
NO_EFFECT = "positions change the logits of this model no more than rounding does"


def prove(origin: Origin, target: Any, to: str, table: Tensor | None = None) -> list[Check]:
    """Both proofs for ``target``, made from ``origin``.

    ``table`` are the new rows (offset + rows, C) where it has some.
    """
    with quiet():
        case = Case(target, target.config.to_dict())
        case.length = _tokens(origin, case, to)
        return [_off(origin, case, to), _on(origin, case, to, table)]


def _tokens(origin: Origin, case: Case, to: str) -> int:
    """Tokens of the proof: past the old end where the new positions go on, and never past the new end."""
    end = case.room - origin.table()[1] if table_of(case.model) is not None else 1 << 20
    return min(origin.length + TOKENS // 2 if to == "longer-table" else TOKENS, end)


# -- off ---------------------------------------------------------------------------------------------


def _off(origin: Origin, case: Case, to: str) -> Check:
    ids = case.text[:, : origin.length]
    with without_positions(origin.model):
        source = _run(origin.model, ids)
    plain, without = _run(case.model, ids), target_off(case, ids, to)
    moved = max(apart(_run(origin.model, ids), source), apart(plain, without))
    words = "the source without its positions and the new model without its own give the same logits"
    right = Check("positions off", "PASS", words, apart(source, without), case.tolerance, moved, "logit")
    wrong = f"with positions off, logits differ by {right.measured:.3g}, and rounding explains {case.tolerance:.3g}"
    return judged(right, f"{wrong}: weights were moved wrongly", NO_EFFECT)


def _run(model: Any, ids: Tensor, **more: Any) -> Tensor:
    with torch.no_grad():
        if isinstance(model, Decoder):
            return model(ids).double()  # type: ignore[no-any-return]
        if "position_ids" in more:
            more["attention_mask"] = torch.ones_like(ids)  # without, repeated positions would mean packed texts
        return model(input_ids=ids, use_cache=False, **more).logits.double()  # type: ignore[no-any-return]


def without_positions(model: Any) -> contextlib.AbstractContextManager[None]:
    """A source whose positions do nothing: the table is zero, the lab's encoding none, or every token at position 0."""
    if isinstance(model, Decoder):
        return patched((model.blocks[0], "enc", Encoding()))
    if (table := table_of(model)) is not None:
        return hooked(table[0].register_forward_hook(zero_output))
    return hooked(scale_positions(model.model.rotary_emb, lambda: 0))


def target_off(case: Case, ids: Tensor, to: str) -> Tensor:
    """The target's logits without its positions."""
    if to == "rope":
        return _run(case.model, ids, position_ids=torch.zeros_like(ids))
    if to == "alibi":
        with without_bias(case.model):
            return _run(case.model, ids)
    with without_positions(case.model) if table_of(case.model) is not None else contextlib.nullcontext():
        return _run(case.model, ids)


# -- on ----------------------------------------------------------------------------------------------


def _on(origin: Origin, case: Case, to: str, table: Tensor | None) -> Check:
    ids, slack = case.text, 0.0
    got = _run(case.model, ids)
    if origin.added:
        if origin.family == "opt" and to in ("nope", "longer-table") and not _has_body(origin):
            return Check(
                "positions on",
                "NONE",
                "this OPT has parts that the reference does not; its own code was compared with positions off",
            )
        want, slack, other, words = _reference(
            origin.body(), case, ids, to, table, origin.table()[1] if to == "longer-table" else 0
        )
    else:
        with turned(origin.model, {}):
            want = _run(origin.model, ids)
        other, words = _run(origin.model, ids), "the source's weights under milepost's attention, without any rotation"
    allowed = case.tolerance + slack
    right = Check(
        "positions on", "PASS", f"logits are those of {words}", apart(got, want), allowed, apart(other, want), "logit"
    )
    wrong = f"logits are {right.measured:.3g} from those of {words}, and rounding explains {allowed:.3g}"
    return judged(right, wrong, NO_EFFECT)


def _has_body(origin: Origin) -> bool:
    try:
        origin.body()
    except ValueError:
        return False
    return True


def _reference(
    body: Body, case: Case, ids: Tensor, to: str, table: Tensor | None, offset: int
) -> tuple[Tensor, float, Tensor, str]:
    """What logits should be; how far rounded frequencies may move them.

    What they are without the new positions (or with the old); and in words.
    """
    none = logits(body, ids)
    if to == "rope":
        enc = RoPE(body.head_dim, BASE)
        want = logits(body, ids, enc)
        nudged = logits(
            body, ids, Nudged(enc, (16 + math.log(BASE)) * 2**-24)
        )  # transformers has its frequencies in float32
        return (
            want,
            apart(nudged, want),
            none,
            f"milepost's RoPE with GPT-NeoX's frequencies (base {BASE:g}, all {body.head_dim} channels)",
        )
    if to == "alibi":
        return (
            logits(body, ids, FalconALiBi(body.heads, body.head_dim)),
            0.0,
            none,
            "milepost's ALiBi with Falcon's slopes, in bfloat16 and over sqrt(D)",
        )
    if to == "nope":
        seen = ids[:, : len(body.old)]
        return (
            none,
            0.0,
            torch.cat([logits(body, seen, table=body.old), none[:, seen.shape[1] :]], 1),
            "milepost's reference without any position",
        )
    assert table is not None
    return (
        logits(body, ids, table=table[offset:]),
        0.0,
        none,
        f"milepost's reference with the new table of {len(table) - offset} rows",
    )


# -- unused ------------------------------------------------------------------------------------------


def unused(origin: Origin, target: Any, make: Callable[[], Any]) -> Check:
    """No tensor of ``target`` is the old table, and a source with noise in its place gives ``make`` the same bits."""
    rows = origin.body().old if origin.family == "lab" or _has_body(origin) else origin.table()[0]
    held = target.state_dict()
    there = [
        name
        for name, value in held.items()
        if value.shape[-1:] == rows.shape[-1:] and value.ndim == 2 and _inside(value, rows)
    ]
    with _noise_in(origin):
        other = make().state_dict()
    apart_ = [name for name in held if not torch.equal(held[name], other[name])]
    name = there[0] if there else apart_[0] if apart_ else ""
    words = f"none of {len(held)} tensors is the old table, and a source with noise in its place gives the same bits"
    if there or apart_:
        return Check(
            "old table unused",
            "FAIL",
            f"{name} {'holds the old table' if there else 'changes with the old table'}",
            len({*there, *apart_}),
            0.0,
        )
    return Check("old table unused", "PASS", words, 0.0, 0.0, None, "tensors")


def _inside(value: Tensor, rows: Tensor) -> bool:
    """Whether the first rows of a tensor, or those after an offset of 2, are the table."""
    return any(len(value) >= len(rows) + a and torch.equal(value[a : a + len(rows)], rows) for a in (0, 2))


@contextlib.contextmanager
def _noise_in(origin: Origin) -> Iterator[None]:
    """The source with other positions, for a while: noise in its table, or another base."""
    table = table_of(origin.model)
    enc: Any = origin.model.encodings[0] if isinstance(origin.model, Decoder) else None
    where = table[0].weight if table is not None else enc.table if hasattr(enc, "table") else enc.frequencies
    had = where.detach().clone()
    try:
        with torch.no_grad():
            where.add_(torch.randn(where.shape, generator=torch.Generator().manual_seed(0)).to(where))
        yield
    finally:
        with torch.no_grad():
            where.copy_(had)
