"""The decoupled rope of latent attention (DeepSeek's MLA): which channels of a head turn, and whose they are.

    q_h = [q_h, turned q_h]        k_h = [k_h, turned k]       one k that turns, for all heads

Rows of one token each are read at position 0 and at others. Such a row attends to itself alone, so that nothing but
the turn depends on its position, in any layer. So what differs between two rows of one token is what turns: it must be
the rotary channels that the config asks for, the same ones in q and in k, and in k the same numbers in every head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.loaded import Look
from milepost.checkpoints.model.probe import Case, Check, unchanged
from milepost.checkpoints.model.watched_attention import looks
from milepost.rope.spec import LayerRope

NAME = "decoupled rope"
TOKENS = 3
"""Tokens that are read at every position."""


def decoupled(case: Case) -> list[Check]:
    """One check, where the config has a key of its own for positions."""
    if case.spec is None or not any(rope.one_key for rope in case.spec.ropes().values()):
        return []
    places = (0, 1, 3, 257, max(258, (case.spec.served or 4096) - 1))  # the last one, so that slow pairs move, too
    ids = case.tokens(TOKENS).T.repeat(len(places), 1)
    at = torch.tensor(places, device=case.device).repeat_interleave(TOKENS)[:, None]
    try:
        with unchanged(case.model):
            seen = looks(case.model, lambda: case.run(ids, position_ids=at))
    except ValueError as error:
        return [Check(NAME, "BLIND", f"nothing is proved: {error}")]
    checks = []
    for look in seen:
        rope = case.spec.layer(look.layer) if look.layer < len(case.spec.layers) else case.spec.main
        if rope is not None and rope.one_key:
            checks.append(_check(look, rope, case.eps))
    return [min(checks, key=lambda check: ("FAIL", "BLIND", "PASS").index(check.verdict))] if checks else []


def _check(look: Look, rope: LayerRope, eps: float) -> Check:
    """The check of one layer."""
    q, k = (_turning(x, eps) for x in (look.q, look.k))
    head, where = look.q.shape[-1], f"layer {look.layer}"
    numbers: dict[str, Any] = {"measured": float(len(k)), "allowed": float(rope.rotary), "unit": "channels"}
    if not q or not k:
        sides = " and ".join(word for word, found in (("queries", q), ("keys", k)) if not found)
        return Check(NAME, "FAIL", f"{where}: the attention gets {sides} that no position has turned", **numbers)
    if q != k:
        return Check(
            NAME,
            "FAIL",
            f"{where} turns {_words(q)} of a query's {head} channels and {_words(k)} of a key's: rope is on the wrong "
            "part of one of them",
            **numbers,
        )
    if len(k) > rope.rotary:
        return Check(
            NAME,
            "FAIL",
            f"{where} turns {_words(k)} of {head} channels, and the config asks for {rope.rotary}: rope is on the part "
            "that should have no positions, too",
            **numbers,
        )
    apart = _apart(look.k[..., k])
    if apart > 8 * eps:
        return Check(
            NAME,
            "FAIL",
            f"{where} turns {_words(k)} of {head} channels, which differ from head to head; what turns must be the one "
            "key that all heads share (qk_rope_head_dim): rope is on the wrong part",
            apart,
            8 * eps,
            unit="relative",
        )
    rest = [c for c in range(head) if c not in k]
    if look.k.shape[1] == 1 or not rest or not _apart(look.k[..., rest]) > 8 * eps:
        return Check(NAME, "BLIND", "nothing is proved: heads have no keys of their own to tell the shared one from")
    return Check(
        NAME,
        "PASS",
        f"{_words(k)} of {head} channels of a head turn, the same in q and k, and the key's are one for all heads",
        apart,
        8 * eps,
        _apart(look.k[..., rest]),
        "relative",
    )


def _turning(x: Tensor, eps: float) -> list[int]:
    """The channels of ``x`` (rows, heads, 1, D) that depend on the position of a row; a temperature is taken out."""
    rows = torch.nn.functional.normalize(x[:, :, -1].double(), dim=-1).reshape(-1, TOKENS, *x[0, :, -1].shape)
    moved = (rows - rows[:1]).abs().amax((0, 1, 2))
    return [n for n, yes in enumerate((moved > 8 * eps * rows.abs().max()).tolist()) if yes]


def _apart(k: Tensor) -> float:
    """How far heads are apart, as a share of their size."""
    return float(((k - k[:, :1]).abs().max() / k.abs().max().clamp_min(1e-30)).double())


def _words(channels: list[int]) -> str:
    """Channels as words."""
    if channels == list(range(channels[0], channels[-1] + 1)):
        return f"{len(channels)} ({channels[0]} to {channels[-1]})"
    return f"{len(channels)} ({', '.join(map(str, channels[:4]))}, ...)"
