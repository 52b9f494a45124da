"""The race of candidates: which rotation does a server run, found out without running every candidate on all of a text.

The server is asked once, for the last tokens of sixteen stretches of the first eighth of each text, and of the
stretches after it. Every candidate is run here on the first eighth. Those that are far from the nearest there (see
`match`) are out; the others are run on the whole text, and the answer is theirs. Where none of them fits the whole
text, the ones that were out are run on it as well, so that nothing is decided by the start alone.

A candidate whose rotation depends on the length of the text turns the start of a long text otherwise than a short text:
then, and on short texts, everything is run on the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from milepost.checkpoints.diagnosis.plan import Tell
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.quiet import quiet
from milepost.measure.drift import ALLOWANCE
from milepost.measure.intervals import Numbers
from milepost.rope.config.keys import ConfigError
from milepost.served.subject import Served
from milepost.served.verification.candidates import Rotation, rotations
from milepost.served.verification.match import Match, eight_bits, match
from milepost.served.verification.references import References

STRETCHES, SCORED = 16, 8
"""Stretches of a text, and tokens at the end of each that are scored."""
FIRST = 8
"""The first eighth of a text is read by every candidate."""
LEAST = 16 * STRETCHES
"""Tokens that the first eighth has at least; otherwise there is one round, on the whole text."""


@dataclass(frozen=True)
class Targets:
    """What is scored: wished positions, the stretch of each, and how many of them are in the first eighth."""

    positions: tuple[int, ...]
    stretches: Numbers
    early: int


def choose_targets(subject: Served, longest: int, race: bool) -> Targets:
    """The targets of texts of ``longest`` tokens after the first one."""
    first = longest // FIRST
    raced = race and first >= LEAST
    ends = [first // STRETCHES * (n + 1) for n in range(STRETCHES)] if raced else []
    early = len(ends)
    ends += [end for n in range(STRETCHES) if (end := longest // STRETCHES * (n + 1)) > (first if raced else 0)]
    scored = min(SCORED, max(1, (ends[0] // 2)))
    parts = [subject.ending(end, scored) for end in ends]
    return Targets(
        tuple(p for part in parts for p in part), np.repeat(np.arange(len(parts)), scored), early * scored
    )  # fmt: skip


def run_race(subject: Served, against: Loaded, read: Numbers, tell: Tell) -> tuple[Match, Rotation]:
    """Every candidate on the weights here, against the server; and the nearest of them."""
    tried, race = candidates_of(against)
    targets = choose_targets(subject, read.shape[1] - 1, race)
    places = [subject.places(row, targets.positions) for row in read]
    references = References(against)
    with quiet():
        against.prove(tried[0].encodings)
        tell("asking the server", 0.02)
        server, outside = subject.losses_of(read, places)
        rounds = _Rounds(references, read, places, targets, server, outside, tell)
        named = {rotation.name: rotation for rotation in tried}
        dropped: tuple[dict[str, Any], ...] = ()
        if targets.early:
            first = rounds.run(list(named.values()), targets.early, 0.05, 0.25)
            dropped = tuple(row for row in first if row["far"])
            named = {row["candidate"]: named[row["candidate"]] for row in first if not row["far"]}
        rows = rounds.run(list(named.values()), len(targets.positions), 0.3, 0.4)
        allowed = rounds.noise(next(r for r in tried if r.name == rows[0]["candidate"]))
        if dropped and rows[0]["distance"] > allowed:
            everything = [r for r in tried if r.name in {row["candidate"] for row in (*rows, *dropped)}]
            rows, dropped = rounds.run(everything, len(targets.positions), 0.7, 0.1), ()
    best = next(rotation for rotation in tried if rotation.name == rows[0]["candidate"])
    out = tuple({**row, "same": False} for row in dropped)
    return Match((*rows, *out), allowed, int((~outside).sum())), best


def candidates_of(against: Loaded) -> tuple[list[Rotation], bool]:
    """The candidates, and whether the start of a text can tell them apart."""
    if against.spec is None:
        raise ConfigError(f"{against.name} has no rotary positions, so that there are no rotations to tell apart")
    tried = rotations(against.spec, len(against.inspection.layers), against.trained)
    return tried, not any(rotation.by_length for rotation in tried)


@dataclass(frozen=True)
class _Rounds:
    """What every round compares: a server's losses at the places of each window."""

    references: References
    read: Numbers
    places: list[list[int]]
    targets: Targets
    server: Numbers
    outside: Numbers
    tell: Tell

    def run(self, tried: list[Rotation], count: int, start: float, share: float) -> tuple[dict[str, Any], ...]:
        """Some candidates on the first ``count`` targets. One that is the same as another is left out."""
        losses: dict[str, Numbers] = {}
        places = [row[:count] for row in self.places]
        tokens = max(row[-1] for row in places)
        for number, rotation in enumerate(tried):
            self.tell(f"running {rotation.name} on {tokens} tokens", start + share * number / len(tried))
            made = self.references.losses(rotation, self.read, places)
            if np.isfinite(made).all() and not any(np.abs(made - other).max() < 1e-6 for other in losses.values()):
                losses[rotation.name] = made
        server, outside = self.server[:, :count], self.outside[:, :count]
        return match(server, outside, losses, self.targets.stretches[:count], tokens)

    def noise(self, best: Rotation) -> float:
        """The distance that arithmetic explains: what 8-bit activations do to the best one's losses, which does not
        grow along a text."""
        count = self.targets.early or len(self.targets.positions)
        places, known = [row[:count] for row in self.places], ~self.outside[:, :count]
        self.tell("running it in 8 bits", 0.7)
        plain = self.references.losses(best, self.read, places)
        with eight_bits(self.references.subject.model):
            rounded = self.references.losses(best, self.read, places, kind="8 bits")
        off = np.abs(rounded - plain)[known if known.any() else ...]
        return ALLOWANCE * float(off.mean())
