"""What a verification costs, said before it begins: requests, tokens of the server, tokens that are read here.

Passes over a text of n tokens, for a server that tells a prompt's log-likelihoods / for one whose tokens are forced:

    served length          1, where it is not said    the same
    history                1, and 4 eighths           the same
    tokens counted         1                          0 to 1
    start of the text      3                          3
    too long a text        a refused request          the same
    rotation               1 for each text            1 for each text, and a request for each target
    prefill and decode     2 for each text            3
    prefix cache           2 for each text            2
    alone and in a batch   6 1/2                      6 1/2, and none where requests are not run side by side

A cut that is found costs one more pass for each halving of the text. Parts of a verification that are not asked for
(`PARTS`) cost nothing: a rotation alone is one pass over each text.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from milepost.checkpoints.model.loaded import Loaded
from milepost.measure.intervals import Numbers
from milepost.served.subject import Served, growing
from milepost.served.verification.race import candidates_of, choose_targets
from milepost.served.verification.repeats import CROWD, STEPS, crowd_length

PARTS = ("rotation", "truncation", "repeats")
"""The parts of a verification, each of which may be asked for alone."""


@dataclass(frozen=True)
class VerificationPlan:
    """The most ``requests`` and ``tokens`` that the server is asked for, where nothing is cut.

    ``here`` are the tokens that candidates read in this process: from those of the first round, when one of them is
    left, to all of them.
    """

    requests: int
    tokens: int
    here: tuple[int, int]

    def sentence(self, family: str) -> str:
        """In words."""
        words = f"at most {self.requests} requests, in which {family} computes {self.tokens} tokens"
        low, high = self.here
        return words if not high else f"{words}; candidates read {low} to {high} tokens here, unless they are kept"


def make_plan(
    subject: Served, read: Numbers, against: Loaded | None, parts: Collection[str] = PARTS
) -> VerificationPlan:
    """The plan for some ``parts`` of a verification, on texts ``read`` (n L)."""
    can, (texts, length) = subject.server.can, read.shape
    requests, tokens, here = 0, 0, (0, 0)
    if can.served is None:
        requests, tokens = 1, length
    if can.repeats and "truncation" in parts:
        requests, tokens = requests + 1 + 3 + 1, tokens + length * (1 + 3)
        tokens += 0 if can.served is None or can.served > 1 << 18 else can.served + 1
    if can.repeats and "repeats" in parts:
        requests, tokens = requests + 2 * texts + 1, tokens + 2 * texts * max(8, length // 8) + length
    if against is not None and can.losses and "rotation" in parts:
        tried, race = candidates_of(against)
        targets = choose_targets(subject, length - 1, race)
        grown = growing(length) if can.prompt else []
        each = 1 if can.prompt else len(targets.positions)
        requests += texts * each + len(grown)
        tokens += texts * (length + (0 if can.prompt else each)) + sum(grown)
        early = targets.positions[targets.early - 1] + 1 if targets.early else 0
        noise = early or length
        first = texts * (len(tried) * early + noise)
        here = (first + texts * (length if early else len(tried) * length), first + texts * len(tried) * length)
    if can.repeats and can.losses and "repeats" in parts:
        some = texts if can.prompt else 1
        decode, prefix = (2, 2 * length + STEPS) if can.prompt else (3, 3 * length + STEPS), (4, 2 * length)
        requests += some * (decode[0] + prefix[0])
        tokens += some * (decode[1] + prefix[1])
        if can.batches:
            requests += 2 * CROWD
            tokens += 2 * math.ceil(CROWD * crowd_length(subject, length) * (1 - (CROWD - 1) / (4 * CROWD)) + CROWD)
    return VerificationPlan(requests, tokens, here)
