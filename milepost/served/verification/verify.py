"""verify, for a model behind a server: is it the model that its config describes, and does all of a text reach it?

    done = verify_served(connect("http://127.0.0.1:8000"), "book.txt", 4096, against=load("path/to/model"))
    done.ok, done.failed, done.same      # ("YaRN, factor 4, without the temperature",)

Where the weights are here too, candidate rotations are run on them, and the server's losses are matched with theirs
(`candidates`, `race`, `match`). What needs no weights: truncation, and the same text in other company (`repeats`). The
history of short texts is asked first, before any long one was read. Where texts are cut, the rest is measured on texts
that are not. What it costs is said before the first request (`plan`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from milepost.checkpoints.diagnosis.plan import SHORTEST, Tell
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.probe import Check, finite
from milepost.checkpoints.result import CheckedResult
from milepost.measure.intervals import DRAWS
from milepost.measure.results import plain_fields, provenance
from milepost.rope import ConfigError
from milepost.served import report
from milepost.served.subject import Served
from milepost.served.verification.candidates import CONFIG, OFF_BY_ONE
from milepost.served.verification.match import Match, rotation_sentence
from milepost.served.verification.plan import PARTS, make_plan
from milepost.served.verification.race import run_race
from milepost.served.verification.repeats import TOLERATED, read_history, repeats
from milepost.served.verification.truncation import cut_here, served_part, truncation

WINDOWS = 2
"""Texts that are read."""


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
    only: Collection[str] = PARTS, notes: Sequence[str] = (), tell: Tell = lambda what, share: None,
) -> ServedVerification:  # fmt: skip
    """Verify a served model on texts of ``length`` tokens. ``against`` are the weights that it should run; ``only``
    names the parts that are wanted, each of which costs the server passes of its own (`plan`)."""
    parts = _parts(only, against)
    if against is not None:
        subject.server.need_losses()
    if length < 4 * SHORTEST:
        raise ConfigError(f"texts to verify on have at least {4 * SHORTEST} tokens, got {length}")
    if against is not None and subject.server.can.vocabulary not in (None, against.vocabulary):
        raise ConfigError(
            f"{subject.name} has a vocabulary of {subject.server.can.vocabulary} tokens, and {against.name} one of "
            f"{against.vocabulary}: they are not the same model"
        )
    tell("reading the text", 0.0)
    words = subject.read_text(text)
    tokens, _ = words.windows(length, windows, least=1)
    read, refused = served_part(subject, subject.refit(tokens))
    if read.shape[1] <= 4 * SHORTEST:
        why = refused or f"it serves {subject.server.can.served} tokens"
        raise ConfigError(f"{why}: too few to verify on, which takes {4 * SHORTEST + 1}")
    notes = list(notes)
    notes += [] if refused or read.shape[1] > length else [
        f"texts have {read.shape[1]} tokens, so that the {subject.server.can.served} that are served leave room for "
        "what is generated"
    ]  # fmt: skip
    left = [part for part in PARTS if part not in parts and (part != "rotation" or against is not None)]
    notes += [f"not asked for: {' and '.join(left)}"] if left else []
    if against is not None:
        subject.need_same_tokens(read, against)
    plan = make_plan(subject, read, against, parts)
    tell(plan.sentence(subject.family), 0.0)
    can, checks = subject.server.can, list[Check]()
    history = read_history(subject, read) if can.repeats and "repeats" in parts else []
    reached = read.shape[1]
    if can.repeats and "truncation" in parts:
        tell("how much of a text reaches the model", 0.01)
        checks, reached = truncation(subject, read[0])
    checks += [] if refused is None else [Check("served length", "FAIL", refused, float(read.shape[1]), unit="tokens")]
    whole, read = read[0], read[:, :reached]
    found: Match | None = None
    if against is None or "rotation" not in parts:
        pass
    elif reached < 4 * SHORTEST:
        checks.insert(0, Check("rotation", "BLIND", f"nothing is proved: {reached} tokens of a text reach the model"))
    else:
        found, best = run_race(subject, against, read, tell)
        checks.insert(0, _rotation(found))
        if reached < len(whole):
            checks = [
                replace(check, sentence=f"{check.sentence}; {cut_here(subject, against, best, whole, reached)}")
                if check.name == "start of the text" else check
                for check in checks
            ]  # fmt: skip
    allowed = TOLERATED if found is None else found.allowed
    if "repeats" in parts and can.repeats:
        tell("the same text in other company", 0.9)
        other = None if found is None else found.nearest_other
        checks += repeats(subject, read, history, allowed, other, None if found is None else found.distance(OFF_BY_ONE))
    elif "repeats" in parts:
        sentence = f"nothing is proved: {subject.family} ends when a prompt is repeated, so that none is"
        checks.append(Check("the same text again", "BLIND", sentence))
    tell("done", 1.0)
    return ServedVerification(
        model=subject.name, against=None if against is None else against.name, server=subject.to_json(),
        checks=tuple(checks), candidates=() if found is None else found.rows, same=() if found is None else found.same,
        notes=(*notes, *subject.notes()),
        provenance=provenance(
            what="verify", length=length, windows=len(read), text=words.describe(),
            targets=None if found is None else found.targets, plan=plain_fields(plan),
            allowed="4 x what 8-bit activations do to the losses of the same weights here" if found else
            f"{TOLERATED} nats, since no weights were given", intervals=f"95%, bootstrap over stretches, {DRAWS} draws",
        ),
    )  # fmt: skip


def _parts(only: Collection[str], against: Loaded | None) -> tuple[str, ...]:
    unknown = sorted({*only} - {*PARTS})
    if unknown or not only:
        raise ConfigError(f"the parts of a verification are {', '.join(PARTS)}; got {', '.join(unknown) or 'none'}")
    if against is None and set(only) == {"rotation"}:
        raise ConfigError("a rotation is found on the weights that should be served: give --against")
    return tuple(part for part in PARTS if part in only)


def _rotation(found: Match) -> Check:
    verdict: Any = "FAIL" if not found.fits or CONFIG not in found.same else "PASS" if len(found.same) == 1 else "WARN"
    return Check(
        "rotation", verdict, rotation_sentence(found), finite(found.distance(CONFIG)), found.allowed,
        found.nearest_other, "nats",
    )  # fmt: skip
