"""verify, for a model behind a server: is it the model that its config describes, and does all of a text reach it?

    done = verify_served(connect("http://127.0.0.1:8000"), "book.txt", 4096, against=load("path/to/model"))
    done.ok, done.failed, done.same      # ("YaRN, factor 4, without the temperature",)

Where the weights are here too, every candidate rotation is run on them, and the server's losses are matched with theirs
(`candidates`, `match`). What needs no weights: truncation, and the same text in other company (`repeats`). The history
of short texts is asked first, before any long one was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoints.diagnosis.plan import SHORTEST, Tell
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.probe import Check, finite
from milepost.checkpoints.model.quiet import quiet
from milepost.checkpoints.result import CheckedResult
from milepost.measure.intervals import DRAWS, Numbers
from milepost.measure.results import provenance
from milepost.rope import ConfigError
from milepost.served import report
from milepost.served.subject import Served
from milepost.served.verification.candidates import CONFIG, Rotation, rotations
from milepost.served.verification.match import Match, eight_bits, losses_here, match, rotation_sentence
from milepost.served.verification.repeats import TOLERATED, read_history, repeats
from milepost.served.verification.truncation import truncation

WINDOWS, BLOCKS, SCORED = 2, 16, 8
"""Windows that are read, stretches of each, and tokens at the end of a stretch that are scored."""


@dataclass(frozen=True)
class ServedVerification(CheckedResult):
    """``candidates`` are the rotations that were tried, the nearest first; ``same`` those that can't be told from the
    nearest. Both are empty where no weights were given.
    """

    model: str
    against: str | None
    server: dict[str, Any]
    checks: tuple[Check, ...]
    candidates: tuple[dict[str, Any], ...]
    same: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        plain = super().to_json()
        return {**plain, "checks": [c.to_json() for c in self.checks], "ok": self.ok, "failed": list(self.failed)}

    document = staticmethod(report.verification)


def verify_served(
    subject: Served, text: str | Path, length: int, *, against: Loaded | None = None, windows: int = WINDOWS,
    tell: Tell = lambda what, share: None,
) -> ServedVerification:  # fmt: skip
    """Verify a served model on texts of ``length`` tokens. ``against`` are the weights that it should run."""
    served = subject.server.can.served
    if length < 4 * SHORTEST:
        raise ConfigError(f"texts to verify on have at least {4 * SHORTEST} tokens, got {length}")
    if served is not None and length + 1 > served:
        raise ConfigError(f"{subject.name} serves {served} tokens, and texts of {length} were asked for: ask for fewer")
    if against is not None and subject.server.can.vocabulary not in (None, against.vocabulary):
        raise ConfigError(
            f"{subject.name} has a vocabulary of {subject.server.can.vocabulary} tokens, and {against.name} one of "
            f"{against.vocabulary}: they are not the same model"
        )
    tell("reading the text", 0.0)
    words = subject.read_text(text)
    tokens, _ = words.windows(length, windows, least=1)
    read = subject.refit(tokens)
    repeated = subject.server.can.repeats
    history = read_history(subject, read) if repeated else []
    found: Match | None = None
    checks: list[Check] = []
    if against is not None and subject.server.can.losses:
        found = _matched(subject, against, read, tell)
        checks.append(_rotation(found))
    elif against is not None:
        checks.append(Check("rotation", "BLIND", f"nothing is proved: {subject.family} tells no log-likelihoods"))
    tell("how much of a text reaches the model", 0.8)
    checks += truncation(subject, read[0]) if repeated else []
    tell("the same text in other company", 0.9)
    allowed = TOLERATED if found is None else found.allowed
    if repeated:
        checks += repeats(subject, read, history, allowed, None if found is None else found.nearest_other)
    else:
        sentence = f"nothing is proved: {subject.family} ends when a prompt is repeated, so that none is"
        checks.append(Check("the same text again", "BLIND", sentence))
    tell("done", 1.0)
    return ServedVerification(
        model=subject.name, against=None if against is None else against.name, server=subject.to_json(),
        checks=tuple(checks), candidates=() if found is None else found.rows, same=() if found is None else found.same,
        notes=tuple(subject.notes()),
        provenance=provenance(
            what="verify", length=length, windows=len(read), text=words.describe(),
            targets=None if found is None else found.targets,
            allowed="4 x what 8-bit activations do to the losses of the same weights here" if found else
            f"{TOLERATED} nats, since no weights were given", intervals=f"95%, bootstrap over stretches, {DRAWS} draws",
        ),
    )  # fmt: skip


def _places(subject: Served, read: Numbers) -> list[list[int]]:
    """The positions that are scored: the last tokens of equal stretches of each window."""
    last = read.shape[1] - 1
    stretch = last // BLOCKS
    scored = min(SCORED, max(1, stretch // 2))
    wished = [p for n in range(BLOCKS) for p in subject.ending(stretch * (n + 1), scored)]
    return [subject.places(row, wished) for row in read]


def _matched(subject: Served, against: Loaded, read: Numbers, tell: Tell) -> Match:
    """Every candidate, run here, against the server."""
    if against.spec is None:
        raise ConfigError(f"{against.name} has no rotary positions, so that there are no rotations to tell apart")
    places = _places(subject, read)
    with quiet():
        layers = len(against.inspection.layers)
        tried = rotations(against.spec, layers, against.trained)
        against.prove(tried[0].encodings)
        tell("asking the server", 0.02)
        server, outside = subject.losses_of(read, places)
        losses: dict[str, Numbers] = {}
        for number, rotation in enumerate(tried):
            tell(f"running {rotation.name}", 0.05 + 0.65 * number / len(tried))
            made = losses_here(against, rotation, read, places)
            if np.isfinite(made).all() and not any(np.abs(made - other).max() < 1e-6 for other in losses.values()):
                losses[rotation.name] = made
        best = min(losses, key=lambda name: float(np.abs(server - losses[name])[~outside].mean()))
        tell("running it in 8 bits", 0.72)
        nearest: Rotation = next(rotation for rotation in tried if rotation.name == best)
        with eight_bits(against.model):
            noisy = losses_here(against, nearest, read, places)
    return match(server, outside, losses, noisy, best, BLOCKS)


def _rotation(found: Match) -> Check:
    verdict: Any = "FAIL" if not found.fits or CONFIG not in found.same else "PASS" if len(found.same) == 1 else "WARN"
    return Check(
        "rotation", verdict, rotation_sentence(found), finite(found.distance(CONFIG)), found.allowed,
        found.nearest_other, "nats",
    )  # fmt: skip
