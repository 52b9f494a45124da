"""diagnose, for a model behind a server: where does it break on a text of yours, and how sharply?

    found = diagnose(connect("http://127.0.0.1:8000", tokenizer="path/to/model"), "book.txt", [1024, 4096, 16384])

Three measures of a loaded checkpoint's diagnosis, by a protocol that costs the server little:

    loss by position    one pass over each window; the last tokens of eight equal stretches are scored. Past the trained
                        length, the same tokens again at the end of short texts: the paired difference is the rise
    loss by length      the last tokens of each window, read with more and more context
    retrieval           as for a checkpoint, at three depths

Tokens that the server computes, in passes over all windows at every length (windows x the sum of lengths): 1 for the
two losses, at most 1/2 for the short texts, at most 3/2 for retrieval. Positions are forced over a cached prefix where
a server tells no log-likelihoods of a prompt: each costs a request, and hardly a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoints.diagnosis.cause import Cause
from milepost.checkpoints.diagnosis.diagnose import Diagnosis, window_notes
from milepost.checkpoints.diagnosis.measure import Windows, change_of, retrieval_row
from milepost.checkpoints.diagnosis.needle import make_needles
from milepost.checkpoints.diagnosis.plan import SHORTEST, Tell
from milepost.checkpoints.model.text import Text
from milepost.measure.intervals import DRAWS, Numbers
from milepost.measure.losses import TOLERATED_RISE, loss_row
from milepost.measure.onset import Onset, Rise, first_failure, paired_rise
from milepost.measure.results import plain_fields, provenance
from milepost.measure.retrieval import LEAST_HAYSTACK, retrieval, room
from milepost.rope import ConfigError
from milepost.served.subject import Served, growing

Row = dict[str, Any]
STRETCHES, FORCED = 8, 8
"""Stretches of a window, and tokens at the end of each that are forced one by one."""
DEPTHS = (0.0, 0.5, 1.0)
NO_CAUSE = Cause(
    "not known",
    "a server shows no positions and no attention, so that none can be found through it; verify --against the weights "
    "finds out which rotation it runs",
    "losses alone were measured",
)


@dataclass(frozen=True)
class ServedPlan:
    """``home`` counts as in range, ``near`` is the length of the short texts, ``scored`` the tokens of each stretch.

    ``tokens`` is the most that the server should compute, prefix cache taken into account, and ``requests`` the most
    that are sent.
    """

    lengths: tuple[int, ...]
    windows: int
    home: int
    near: int
    scored: int
    edges: tuple[tuple[int, int], ...]
    trials: int
    tokens: int
    requests: int

    @property
    def longest(self) -> int:
        return self.lengths[-1]


def make_plan(subject: Served, lengths: Sequence[int], windows: int) -> ServedPlan:
    """The plan for some lengths, or an error about them."""
    subject.server.need_losses()
    chosen, can = tuple(sorted(set(lengths))), subject.server.can
    if not chosen or chosen[0] < SHORTEST:
        raise ConfigError(f"lengths are at least {SHORTEST} tokens, got {', '.join(map(str, chosen)) or 'none'}")
    if windows < 2:
        raise ConfigError(f"at least 2 windows are read, so that there is an interval; got {windows}")
    if can.served is not None and chosen[-1] + 1 > can.served:
        raise ConfigError(
            f"{subject.name} serves {can.served} tokens, and texts of {chosen[-1]} were asked for, with a token after "
            "them: ask for shorter lengths, or serve more"
        )
    longest, all_lengths = chosen[-1], sum(chosen)
    home = subject.trained if subject.trained is not None and subject.trained < longest else chosen[0]
    near = max(SHORTEST, min(home, chosen[0], all_lengths // (2 * STRETCHES)))
    stretch = longest // STRETCHES
    scored = max(1, min(stretch, near // 2, chosen[0] // 2, longest if can.prompt else FORCED))
    ends = [stretch * (n + 1) for n in range(STRETCHES - 1)] + [longest]
    edges, trials = tuple((end - scored, end) for end in ends), max(1, windows // 2)
    beyond = sum(start >= home for start, _ in edges)
    tokens = windows * (all_lengths + beyond * near) + trials * len(DEPTHS) * all_lengths
    each = 1 if can.prompt else scored
    passes = windows * ((1 if can.prompt else STRETCHES * scored) + each * (len(chosen) - 1 + beyond))
    requests = passes + trials * len(DEPTHS) * len(chosen)
    tokens += 0 if can.prompt else requests
    grown = [n for before, after in pairwise((0, *chosen)) for n in growing(after + 1, before)] if can.prompt else []
    tokens, requests = tokens + sum(grown), requests + len(grown)
    return ServedPlan(chosen, windows, home, near, scored, edges, trials, tokens, requests)


class Progress:
    """What is being done, and the share of the planned tokens that were sent for."""

    def __init__(self, plan: ServedPlan, tell: Tell):
        self.plan, self.tell, self.done = plan, tell, 0

    def step(self, what: str, tokens: int) -> None:
        self.tell(what, min(1.0, self.done / self.plan.tokens))
        self.done += tokens


def diagnose_served(
    subject: Served, text: str | Path, lengths: Sequence[int], *, windows: int, tell: Tell
) -> Diagnosis:  # fmt: skip
    """See `milepost.checkpoints.diagnose`."""
    plan = make_plan(subject, lengths, windows)
    before = subject.to_json()
    tell(f"at most {plan.requests} requests, in which {subject.family} computes {plan.tokens} tokens", 0.0)
    progress = Progress(plan, tell)
    words = subject.read_text(text)
    tokens, groups = words.windows(plan.longest, plan.windows)
    read = Windows(subject.refit(tokens), groups, words.begin, words.bytes_per_token)
    by_length, rows = _by_length(subject, plan, read, progress)
    long, by_position = _by_position(subject, plan, read, progress)
    rows.append(
        {
            **read.row(plan.longest, long[-1], groups),
            **change_of(by_length if len(rows) else long[-1], long[-1], groups),
        }
    )
    failure = _onset(subject, plan, read, long, progress)
    retrieved, unasked = _retrieval(subject, plan, read, words, progress)
    measured: Row = {
        "loss_by_position": by_position, "loss_by_length": rows, "disjoint": [], "shifted": [], "retrieval": retrieved,
        "attention": [], "drift": [], "pairs": [],
    }  # fmt: skip
    tell("done", 1.0)
    cause = None if failure is None else NO_CAUSE
    spent = {name: _difference(before[name], value) for name, value in subject.to_json().items() if name in SPENT}
    about = provenance(what="diagnose", text=words.describe(), server=subject.to_json(), spent=spent, **_protocol(plan))
    notes = (*_notes(subject, plan, len(tokens)), *unasked)
    return Diagnosis.concluded(subject, None, plan.longest, failure, cause, measured, notes, about)


SPENT = ("requests", "tokens_sent", "tokens_computed")


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _by_length(subject: Served, plan: ServedPlan, read: Windows, progress: Progress) -> tuple[Numbers, list[Row]]:
    """The same last tokens at all lengths but the longest, the shortest first; and their losses at the shortest."""
    rows: list[Row] = []
    shortest = np.zeros(0)
    for length in plan.lengths[:-1]:
        progress.step(f"the same tokens after {length}", len(read.tokens) * length)
        losses, _ = subject.last_losses(read.tokens, length, plan.scored, read.begin)
        shortest = shortest if rows else losses
        rows.append({**read.row(length, losses, read.groups), **change_of(shortest, losses, read.groups)})
    return shortest, rows


def _by_position(
    subject: Served, plan: ServedPlan, read: Windows, progress: Progress
) -> tuple[list[Numbers], list[Row]]:
    """Losses at the end of each stretch, as numbers and as rows."""
    progress.step("loss by position", len(read.tokens) * plan.longest)
    short = read.tokens.shape[1] - 1 - plan.longest  # a text that was spelled again may be some tokens shorter
    positions = [p for _, end in plan.edges for p in subject.ending(end + short, plan.scored)]
    losses, _ = subject.losses_at(read.tokens, positions)
    buckets = np.split(losses, len(plan.edges), axis=1)
    rows = [
        {"start": start, "end": end, **loss_row(bucket, read.groups)}
        for (start, end), bucket in zip(plan.edges, buckets, strict=True)
    ]
    return buckets, rows


def _onset(subject: Served, plan: ServedPlan, read: Windows, long: list[Numbers], progress: Progress) -> Onset | None:
    """The first stretch that fails: its tokens against themselves at the end of short texts."""
    rises: list[Rise | None] = []
    short = read.tokens.shape[1] - 1 - plan.longest
    for (start, end), losses in zip(plan.edges, long, strict=True):
        if start < plan.home:
            rises.append(None)
            continue
        progress.step("the same tokens in short texts", len(read.tokens) * plan.near)
        near, _ = subject.last_losses(read.tokens[:, : end + short + 1], plan.near, plan.scored, read.begin)
        rises.append((float(near.mean()), paired_rise(losses - near, read.groups)))
    return first_failure(rises, plan.edges)


def _retrieval(
    subject: Served, plan: ServedPlan, read: Windows, text: Text, progress: Progress
) -> tuple[Row, list[str]]:  # fmt: skip
    """Retrieval by depth, for servers that take token ids; and why there is none."""
    hays = read.tokens[: plan.trials]
    empty: Row = {"kind": "words", "candidates": [], "chance": 0.0, "trials": 0, "cells": [], "lengths": []}
    if not subject.server.can.ids:
        return empty, [f"retrieval is not asked: {subject.family} takes no token ids, and needles are made of tokens"]
    needles = make_needles(subject, text, hays, len(DEPTHS), plan.lengths[0])
    fits = [n for n in plan.lengths if room(needles.build(0, 0), n) >= LEAST_HAYSTACK]

    def last(ids: Any) -> Any:
        progress.step("retrieval", ids.shape[1])
        return subject.last(ids)

    cells = retrieval(last, hays, needles.build, fits, DEPTHS)
    short = ", ".join(str(n) for n in plan.lengths if n not in fits)
    notes = [f"retrieval is not asked at {short} tokens: needle and question leave no room for text"] if short else []
    return retrieval_row(needles, len(hays), cells, fits), notes


def _notes(subject: Served, plan: ServedPlan, windows: int) -> list[str]:
    notes = subject.notes()
    if subject.trained is None:
        notes.append(
            f"the trained length is not known (--trained-length): the shortest length, {plan.home}, stands for it"
        )
    return [*notes, *window_notes(windows, plan.windows)]


def _protocol(plan: ServedPlan) -> Row:
    return {
        "plan": plain_fields(plan) | {"edges": [list(edge) for edge in plan.edges]},
        "intervals": f"95%, bootstrap over windows or files, {DRAWS} draws; Wilson's for shares",
        "loss_by_position": (
            f"one pass over windows of {plan.longest} tokens, the last {plan.scored} tokens of each of {STRETCHES} "
            "stretches, nats a token"
        ),
        "loss_by_length": f"the last {plan.scored} tokens of each window, the same at every length",
        "retrieval": (
            f"{plan.trials} trials a cell, the likeliest of one-token candidates after the last token, answers dealt "
            "evenly"
        ),
        "onset": (
            f"past {plan.home} tokens: the first stretch whose last tokens have a higher loss than the same tokens at "
            f"the end of texts of {plan.near}, the paired interval above {TOLERATED_RISE:.0%} of their loss, the next "
            "stretch too"
        ),
    }
