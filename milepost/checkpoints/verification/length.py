"""Length: what a longer text, before or now, does to a shorter one.

    history              the same text again after a much longer one: nothing may be remembered
    cached past trained  for frequencies that depend on the length: tokens from a cache against one pass, where the text
                         outgrows the trained length
    past the end         for learned tables: a position past the last row must be an error, not another row

Texts are short and put at high positions, so that a model trained at 131072 is checked with a few tokens. Both faults
of dynamic and longrope are transformers' own, known since 2023 (huggingface/transformers #25104): frequencies are
changed in forward, keys that are cached keep the old ones, and the base only grows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.probe import BLIND, Case, Check, apart, logits_of, unchanged

STEPS = 6
"""Tokens before and after the trained length."""
KNOWN = "transformers' own code does this, not the checkpoint"


def lengths(case: Case) -> list[Check]:
    """Every check of this page."""
    return [_history(case), _crossing(case), *_end(case)]


def _dependent(case: Case) -> tuple[str, int] | None:
    """The name and the trained length of a scaling that depends on the length."""
    for rope in case.spec.ropes().values() if case.spec is not None else ():
        if rope.scaling is not None and rope.scaling.length_dependent:
            return type(rope.scaling).__name__, rope.trained or 1
    return None


def _history(case: Case) -> Check:
    largest, worst = -1.0, ""
    for name, at, long in _texts(case):
        with unchanged(case.model):
            before, _, after = (_read(case, *(case.text, at) if n != 1 else long) for n in range(3))
        off = apart(before, after)
        if not off <= largest:
            largest, worst = off, name
    scaled = _dependent(case)
    known = f"; {KNOWN}: its {scaled[0]} changes frequencies in forward, and they only grow" if scaled else ""
    return case.judge_logits(
        "history",
        largest,
        "a text gives the same logits after a longer one was read",
        f"a text {worst} gives other logits after a longer one was read{known}",
    )


def _texts(case: Case) -> list[tuple[str, Tensor | None, tuple[Tensor, Tensor | None]]]:
    """Texts by name and positions, each with the longer one that comes between."""
    n = case.length
    if not case.takes_positions:
        return [(f"of {n} tokens", None, (case.tokens(4 * n, 9), None))]
    if case.table is not None:
        many = min(case.room - 8, 4 * n)
        return [(f"of {n} tokens", torch.arange(n), (case.tokens(many, 9), torch.arange(many)))]
    scaled = _dependent(case)
    trained = scaled[1] if scaled else (case.spec.served if case.spec is not None else None) or 1024
    far = torch.arange(4 * trained - n, 4 * trained) if scaled else torch.arange(trained - n, trained)
    starts = {f"of {n} tokens": n}
    if scaled:
        starts |= {
            f"that ends at the trained length {trained}": trained,
            f"that ends at {3 * trained // 2}, past the trained length {trained},": 3 * trained // 2,
        }
    return [
        (name, torch.arange(max(0, end - n), max(0, end - n) + n), (case.tokens(n, 9), far))
        for name, end in starts.items()
    ]


def _read(case: Case, ids: Tensor, at: Tensor | None) -> Tensor:
    more = {} if at is None else {"position_ids": at.to(case.device)[None]}
    return logits_of(case.run(ids, **more))


def _crossing(case: Case) -> Check:
    name, scaled = "cached past trained", _dependent(case)
    if scaled is None:
        return Check(name, "NONE", "its positions do not depend on the length of the text")
    kind, trained = scaled
    ids, pos = (
        case.tokens(2 * STEPS),
        torch.arange(max(0, trained - STEPS), max(0, trained - STEPS) + 2 * STEPS, device=case.device)[None],
    )
    full = case.logits(ids, position_ids=pos)
    with unchanged(case.model):
        out = case.run(ids[:, :STEPS], position_ids=pos[:, :STEPS], use_cache=True)
        parts = [logits_of(out)]
        for t in range(STEPS, 2 * STEPS):
            out = case.run(
                ids[:, t : t + 1],
                position_ids=pos[:, t : t + 1],
                attention_mask=torch.ones(1, t + 1, dtype=torch.long, device=case.device),
                past_key_values=out.past_key_values,
                use_cache=True,
            )
            parts.append(logits_of(out))
    off = apart(torch.cat(parts, 1)[:, -1], full[:, -1])
    own = (
        "; its generate drops the cache there and reads again, a loop of your own does not"
        if case.model_type.startswith("phi")
        else ""
    )
    return case.judge_logits(
        name,
        off,
        f"past {trained} tokens a cache gives the logits of one pass",
        f"past {trained} tokens a cache gives other logits than one pass: {kind} does not turn new keys as those "
        f"it has cached; {KNOWN}{own}",
    )


def _end(case: Case) -> list[Check]:
    """A learned table has an end."""
    if case.table is None or not case.takes_positions:
        return []
    rows, token = case.positions, case.text[:, :1]
    first, last = (case.logits(token, position_ids=torch.full_like(token, at)) for at in (0, rows - 1))
    numbers: dict[str, Any] = {"allowed": case.tolerance, "control": apart(first, last), "unit": "logits"}
    if not numbers["control"] > case.tolerance:
        return [Check("past the end", "BLIND", f"nothing is proved: {BLIND}", 0.0, **numbers)]
    try:
        beyond = case.logits(token, position_ids=torch.full_like(token, case.table.num_embeddings))
    except (IndexError, RuntimeError) as error:
        return [
            Check("past the end", "PASS", f"{rows} positions; one more raises {type(error).__name__}", 0.0, **numbers)
        ]
    alike = [
        f" as position {at}: positions are wrapped or held at the table's end"
        for at, had in ((0, first), (rows - 1, last))
        if apart(had, beyond) <= case.tolerance
    ]
    sentence = (
        f"the table ends at position {rows - 1}, and a position past it is read{alike[0] if alike else ''}, without an "
        "error"
    )
    return [Check("past the end", "FAIL", sentence, min(apart(beyond, first), apart(beyond, last)), **numbers)]
