"""recommend: what to set for a longer text. Everything is tried on the reader's own text.

    done = recommend("path/to/model", target_length=8192, text="book.txt")
    done.top, done.best, done.verdict

Same targets: the last half of the trained length is scored, with `trained` and with `target` tokens read. On one part
of the text each method's number (a factor, a window) is searched until both neighbours of the best one are worse, or
a limit is reached, which is said; of all that were tried the smallest is chosen that is not clearly worse than the
best one (their paired interval touches 0). On the other part the chosen settings are measured:

    gain       the loss of the model as it is at the target, less the method's loss there
    cost       the method's loss at the trained length, less that of the model as it is: the price that short texts pay
    gap        the method's loss at the target, less that of the model as it is at the trained length: does the longer
               context hurt?

A method helps where its gain's interval is above 0, and reaches the target where its gap is not clearly above 2% of the
loss. Of the methods that can't be told from the one with the largest gain, the answer prefers those that a config can
say, then the smallest cost. A method that hides the far part of the text does not read it, however small its loss: it
is measured and shown, and is never the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.text import read_text
from milepost.checkpoints.recommendation import report
from milepost.checkpoints.recommendation.candidates import UNCHANGED, Method, encodings_by_layer, methods
from milepost.checkpoints.recommendation.comparison import Comparison
from milepost.checkpoints.recommendation.words import advice, exports, limits, verdict
from milepost.checkpoints.result import CommandResult
from milepost.measure.results import plain_fields, provenance
from milepost.rope import ConfigError

Row = dict[str, Any]


@dataclass(frozen=True)
class Recommendation(CommandResult):
    """``rows`` are the methods, the largest gain first. ``top`` is the answer ("none": leave it as it is).

    ``best`` is the best that a config of transformers can say, with its ``factor``, or None where none helps;
    ``exports`` are its words for each engine.
    """

    model: str
    family: str
    trained_length: int
    target_length: int
    rows: tuple[Row, ...]
    tried: tuple[Row, ...]
    top: str
    best: str | None
    factor: float | None
    verdict: tuple[str, ...]
    exports: dict[str, dict[str, Any]]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def works(self) -> bool:
        """Whether the target is reached at all."""
        return any(row["reaches"] for row in self.rows if row["method"] == self.top)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**plain_fields(self), "works": self.works}

    document = staticmethod(report.document)


def recommend(
    model: str | Path | Loaded, *, target_length: int, text: str | Path, windows: int | None = None,
    trained_length: int | None = None, device: str = "cpu", dtype: str = "float32",
    tokenizer: str | Path | None = None, tell: Callable[[str, float], None] = lambda what, share: None,
) -> Recommendation:  # fmt: skip
    """Measure every scaling and every training-free map for ``target_length`` tokens.

    ``windows`` are those to report on, by default enough to score 2048 tokens, from 8 to 64. ``tell`` is called with
    what is measured, and what share of the work is done.
    """
    subject = model if isinstance(model, Loaded) else load(model, device=device, dtype=dtype, tokenizer=tokenizer)
    trained = trained_length or subject.trained
    if trained is None:
        raise ConfigError(
            f"{subject.name} does not say for what length it was trained: give the trained length (--trained-length)"
        )
    if target_length <= trained:
        raise ConfigError(
            f"{subject.name} was trained for {trained} tokens: {target_length} need no scaling, and there is nothing "
            "to recommend"
        )
    words = read_text(text, subject)
    comparison = Comparison(subject, trained, target_length, words, windows, tell)
    searched: list[Method] = []
    if subject.spec is not None:
        layers = len(subject.inspection.layers)
        subject.prove(encodings_by_layer(subject.spec, layers))
        searched = methods(subject.spec, trained, target_length, layers)
    comparison.expect(len(searched))
    chosen, tried = comparison.choose(searched)
    rows = comparison.report([UNCHANGED, *chosen])
    top, best = comparison.answer(rows)
    return Recommendation(
        model=subject.name, family=subject.family, trained_length=trained, target_length=target_length,
        rows=tuple({name: value for name, value in row.items() if name not in ("spec", "windows")} for row in rows),
        tried=tuple(tried), top=top["method"], best=None if best is None else best["method"],
        factor=None if best is None else best["factor"],
        verdict=tuple(verdict(rows, top, best, trained, target_length, subject)),
        exports=exports(subject, None if best is None else best["spec"]),
        notes=(*advice(subject, trained, target_length), *limits(rows)),
        provenance=provenance(
            what="recommend", trained=trained, target=target_length, targets=comparison.targets, text=words.describe(),
            windows=comparison.counts, seed=0, device=str(subject.device), dtype=dtype,
            settings="chosen on one part of the text, reported on the other",
            intervals=f"95%, bootstrap over {'files' if comparison.by_file else 'windows'}, paired on the same targets",
        ),
    )  # fmt: skip
