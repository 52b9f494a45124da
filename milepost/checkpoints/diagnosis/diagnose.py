"""diagnose: where a checkpoint breaks on a text of yours, how sharply, and why.

    found = diagnose("path/to/model", "moby-dick.txt", [1024, 2048, 4096])
    found.onset, found.effective_length, found.verdict[0]

Loss by position and by length, the same passage at other positions, retrieval by depth, where heads look, angles
never seen, cached against uncached: a page each in `milepost.measure`, joined into one verdict. Nothing is written,
and no text is read twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from milepost.checkpoints.diagnosis import measure, report
from milepost.checkpoints.diagnosis.cause import Cause, find_cause, read_tensors, really_trained
from milepost.checkpoints.diagnosis.plan import QUERIES, STEPPED, WATCHED, DiagnosisPlan, Reader, Tell, make_plan
from milepost.checkpoints.diagnosis.verdict import verdict
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.text import Text, read_text
from milepost.checkpoints.result import CommandResult
from milepost.measure.intervals import DRAWS
from milepost.measure.losses import TOLERATED_RISE
from milepost.measure.onset import Onset
from milepost.measure.results import provenance
from milepost.rope.analysis import analyse

Row = dict[str, Any]
WINDOWS, FEW = 6, 6
"""Windows that are read, and those below which a bootstrap's intervals are too narrow.

Of 3 windows, all lie on one side by chance once in four.
"""


@dataclass(frozen=True)
class Diagnosis(CommandResult):
    """What was measured, as plain data. ``onset`` is the first position that fails.

    Where none fails it is None, and ``effective_length`` is the longest length tested. ``failure`` holds the numbers
    of the onset, ``cause`` the rule that explains it, ``disjoint`` the length sweep in windows without overlap.
    """

    model: str
    family: str
    trained_length: int | None
    effective_length: int
    onset: int | None
    verdict: tuple[str, ...]
    failure: Row | None
    cause: Row | None
    loss_by_position: list[Row]
    loss_by_length: list[Row]
    disjoint: list[Row]
    shifted: list[Row]
    retrieval: Row
    attention: list[Row]
    pairs: list[Row]
    drift: list[Row]
    notes: tuple[str, ...]
    protocol: Row
    provenance: Row

    document = staticmethod(report.document)

    @classmethod
    def concluded(
        cls, subject: Any, rows: int | None, longest: int, failure: Onset | None, cause: Cause | None, measured:
        Row, notes: Iterable[str], about: Row,
    ) -> Diagnosis:  # fmt: skip
        """What follows from the measures of a subject with a name, a family and a trained length, loaded or served;
        ``rows`` of a table were really trained.
        """
        return cls(
            model=subject.name, family=subject.family, trained_length=subject.trained,
            effective_length=longest if failure is None else failure.start,
            onset=None if failure is None else failure.start,
            verdict=tuple(verdict(subject.trained, rows, longest, failure, cause, measured)),
            failure=None if failure is None else _finite(asdict(failure)),
            cause=None if cause is None else asdict(cause), **measured, notes=tuple(notes),
            protocol=about["protocol"], provenance={key: value for key, value in about.items() if key != "protocol"},
        )  # fmt: skip


@runtime_checkable
class Diagnosable(Protocol):
    """A subject with a protocol of its own: a model behind a server."""

    def diagnose(self, text: str | Path, lengths: Sequence[int], *, windows: int, tell: Tell) -> Diagnosis:
        """See `diagnose`."""
        ...


def diagnose(
    model: str | Path | Loaded | Diagnosable, text: str | Path | Text, lengths: Sequence[int], *,
    windows: int = WINDOWS, device: str = "cpu", dtype: str = "float32", tokenizer: str | Path | None = None,
    tell: Tell = lambda what, share: None,
) -> Diagnosis:  # fmt: skip
    """Diagnose a causal language model on a text, up to the longest of ``lengths``, in at most ``windows`` windows of
    it.

    A model that is loaded already is taken as it is. Raises ValueError, in one sentence, for lengths past a table, a
    text that is too short, and what can't be loaded.
    """
    if isinstance(model, Diagnosable):
        if isinstance(text, Text):
            raise ValueError("a model behind a server is given its text as a path")
        return model.diagnose(text, lengths, windows=windows, tell=tell)
    tell("loading", 0.0)
    subject = model if isinstance(model, Loaded) else load(model, device=device, dtype=dtype, tokenizer=tokenizer)
    tensors = read_tensors(subject)
    rows = really_trained(tensors)
    plan = make_plan(subject, lengths, windows, rows)
    words = text if isinstance(text, Text) else read_text(text, subject)
    read = measure.Windows.of(words, plan)
    reader = Reader(subject, plan, tell)
    losses, by_position, failure = measure.loss_by_position(reader, plan, read)
    by_length = measure.loss_by_length(reader, plan, read, losses)
    disjoint = measure.disjoint_losses(reader, plan, read, losses)
    shifted = measure.shifted_losses(reader, plan, read)
    retrieval, unasked = measure.retrieval_by_depth(reader, plan, read, words)
    attention, unseen = measure.attention_by_head(reader, plan, read)
    drift, unheld = measure.drift_by_length(reader, plan, read)
    pairs, unknown = _pairs(subject, plan.longest)
    measured: Row = {
        "loss_by_position": by_position, "loss_by_length": by_length, "disjoint": disjoint, "shifted": shifted,
        "retrieval": retrieval, "attention": attention, "drift": drift, "pairs": pairs,
    }  # fmt: skip
    cause = None if failure is None else find_cause(subject, tensors, failure, shifted, attention)
    tell("done", 1.0)
    about = provenance(what="diagnose", text=words.describe(), **_protocol(subject, plan, len(read.tokens)))
    notes = (*_notes(subject, plan, len(read.tokens)), *unasked, *unseen, *unheld, *unknown)
    return Diagnosis.concluded(subject, rows, plan.longest, failure, cause, measured, notes, about)


def _finite(value: Any) -> Any:
    """An onset as plain data; a number that is not finite is null."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _pairs(subject: Loaded, longest: int) -> tuple[list[Row], list[str]]:
    """The frequency pairs beyond their trained angles at the longest length; none for a model that does not rotate."""
    if subject.spec is None:
        return [], []
    try:
        return [analysis.to_json() for analysis in analyse(subject.spec, longest)], []
    except ValueError as error:
        return [], [f"angles can't be compared with training: {error}"]


def _notes(subject: Loaded, plan: DiagnosisPlan, windows: int) -> list[str]:
    """What a reader should know first."""
    notes = []
    if subject.trained is None:
        notes.append(f"the trained length is not known: the shortest length, {plan.home}, stands for it")
    if not plan.firsts:
        notes.append(f"{subject.family} takes no positions from outside, so that a passage can't be put elsewhere")
    return [*notes, *window_notes(windows, plan.windows)]


def window_notes(windows: int, asked: int) -> list[str]:
    """What to know of so many windows of a text."""
    notes = []
    if windows < asked:
        notes.append(f"the text has room for {windows} of the {asked} windows that were asked for")
    if windows < FEW:
        notes.append(
            f"intervals are of {windows} windows only, and too narrow to be sure of: give text for {FEW} or more"
        )
    return notes


def _protocol(subject: Loaded, plan: DiagnosisPlan, windows: int) -> Row:
    """How it was done, in words where numbers do not tell."""
    passes = "a pass for each bucket's end" if plan.length_dependent else "one pass"
    weights = next(p.dtype for p in subject.model.parameters() if p.is_floating_point())
    return {
        "plan": plan.to_json(),
        "windows_read": windows,
        "device": str(subject.device),
        "dtype": str(weights).removeprefix("torch."),
        "intervals": f"95%, bootstrap over windows or files, {DRAWS} draws; Wilson's for shares",
        "loss_by_position": f"{passes} over windows of {plan.longest} tokens, nats a token",
        "loss_by_length": f"the last {plan.targets} tokens of each window, the same at every length",
        "disjoint": (
            "the first half of the windows, cut into pieces of each length without overlap; every token of a piece is "
            "scored"
        ),
        "shifted": (
            f"the first {plan.passage} tokens of each window at other positions, nothing before them; differences "
            "paired with position 0"
        ),
        "retrieval": (
            f"{plan.trials} trials a cell, the likeliest of one-token candidates after the last token, answers dealt "
            "evenly"
        ),
        "attention": f"{WATCHED} windows, {QUERIES} queries of each at even distances",
        "drift": (
            f"one window, its last {STEPPED} tokens one by one through the cache; allowed: 4 x the distance of the "
            "logits from float64"
        ),
        "onset": (
            f"past {plan.home} tokens: the first bucket whose tokens have a higher loss than the same tokens at the "
            "end of "
            f"texts of {plan.home}, the paired interval above {TOLERATED_RISE:.0%} of their loss, the next bucket "
            "too; within: against earlier buckets, and read again with less before them"
        ),
    }


__all__ = ["Cause", "Diagnosis", "diagnose"]
