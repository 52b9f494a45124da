"""Retrieval: does the model find one sentence in a long text? By depth and length.

Answers are judged by their likelihoods, so that base models can be asked.

    text        haystack, with a needle at a depth of 0 .. 1, then the question:  ... needle ... question
    right       the true answer is the likeliest of K candidates, all of which are one token
    margin      log p(true answer) - log p(the likeliest other), nats
    chance      1/K: the answers are dealt evenly, so a model that never looks is right once in K

One pass a trial: the logits after the last token tell all K. The trials of all lengths and depths have the same
haystacks (the first tokens of each), and a trial has the same needle at every length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milepost.measure.intervals import Mean, Numbers, share

Last = Callable[[Tensor], Tensor]
"""Tokens (B L) to the logits after the last of them (B V)."""
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
LEAST_HAYSTACK = 8
"""Tokens of haystack that a length must leave room for."""


@dataclass(frozen=True)
class Question:
    """A needle and what is asked after the text, as tokens; ``answer`` is the number of the true candidate."""

    needle: Numbers
    asked: Numbers
    candidates: Numbers
    answer: int


@dataclass(frozen=True)
class Cell:
    """The trials of one length and depth: the share that was right, with its interval, and the mean margin in nats."""

    length: int
    depth: float
    right: Mean
    margin: float


def room(question: Question, length: int) -> int:
    """Tokens of haystack in a text of ``length`` tokens."""
    return length - len(question.needle) - len(question.asked)


def lay_out(hay: Numbers, question: Question, length: int, depth: float) -> Numbers:
    """A text of exactly ``length`` tokens.

    The first token of the haystack stays the first of all: some models begin each text alike.
    """
    left = room(question, length)
    if left < LEAST_HAYSTACK or len(hay) < left:
        raise ValueError(
            f"a text of {length} tokens has room for {left} tokens of haystack beside the needle and the question, and "
            f"{len(hay)} are given; at least {LEAST_HAYSTACK} are needed: "
            f"ask at {length - left + LEAST_HAYSTACK} tokens or more"
        )
    place = 1 + round(depth * (left - 1))
    return np.concatenate([hay[:place], question.needle, hay[place:left], question.asked])


@torch.no_grad()
def retrieval(
    last: Last,
    hays: Numbers,
    ask: Callable[[int, int], Question],
    lengths: Sequence[int],
    depths: Sequence[float] = DEPTHS,
    device: Any = "cpu",
) -> list[Cell]:
    """Every length and depth; ``ask(trial, depth number)`` gives the question of a trial about ``hays[trial]``."""
    cells = []
    for length in lengths:
        margins: list[list[float]] = [[] for _ in depths]
        for trial, hay in enumerate(hays):
            for number, depth in enumerate(depths):  # neighbours share what is before the needle, which may be cached
                question = ask(trial, number)
                ids = torch.from_numpy(lay_out(hay, question, length, depth)[None]).to(device)
                scores = torch.log_softmax(last(ids)[0].double(), -1).cpu()[torch.from_numpy(question.candidates)]
                margins[number].append(_margin(scores, question.answer))
        for depth, mine in zip(depths, margins, strict=True):
            right = sum(margin > 0 for margin in mine)
            cells.append(Cell(length, depth, share(right, len(hays)), float(np.mean(mine))))
    return cells


def _margin(scores: Tensor, answer: int) -> float:
    """How much likelier the answer is than the best other candidate; a tie or a NaN does not count as right."""
    others = torch.cat([scores[:answer], scores[answer + 1 :]])
    return float(scores[answer] - others.max())


def pool_depths(cells: Sequence[Cell], length: int) -> Cell:
    """All depths of a length in one; its depth is -1."""
    mine = [cell for cell in cells if cell.length == length]
    trials = sum(cell.right.tokens for cell in mine)
    right = round(sum(cell.right.value * cell.right.tokens for cell in mine))
    return Cell(length, -1.0, share(right, trials), float(np.mean([cell.margin for cell in mine])))
