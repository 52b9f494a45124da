"""judge: claims as rows. The parts of each experiment are run, and the rule gives the verdict on their numbers.

rows = judge(["rope-sign", "shift"])                          # exact ones, in seconds
rows = judge(profile="quick", out="runs/claims")              # all; models are trained in runs/claims/lab
rows = judge(out="runs/fresh", seeds=[3, 4, 5])               # models that were not known when the rules were written
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from milepost.checks import nearest
from milepost.claims.checkpoint import StretchedCheckpoint
from milepost.claims.claim import Claim
from milepost.claims.report import rows_document
from milepost.claims.rule import NotMeasured, Number, sentence, verdict
from milepost.claims.seeds import MOST_SEEDS
from milepost.claims.table import CLAIMS, GROUPS, NEEDS
from milepost.claims.trained import Lab, train
from milepost.measure.results import Rows, provenance

PROFILES = ("quick", "standard")
SCHEMA = 1
ONLY_EXACT = "only exact experiments were asked for"
Tell = Callable[[str, float], None]
Row = dict[str, Any]


def choose(ids: Sequence[str], *, exact: bool = False) -> list[Claim]:
    """The claims of these ids, or all of them; with ``exact`` and no ids, those that exact experiments decide alone."""
    for name in ids:
        if name not in CLAIMS:
            raise ValueError(f"there is no claim {name!r}{nearest(name, CLAIMS)}; the claims are {', '.join(CLAIMS)}")
    if not ids:
        return [claim for claim in CLAIMS.values() if not exact or claim.kind == "exact" or claim.exact_decides]
    chosen = [CLAIMS[name] for name in dict.fromkeys(ids)]
    without = [claim.id for claim in chosen if exact and claim.exact is None]
    if without:
        raise ValueError(f"--exact runs exact experiments only, and {', '.join(without)} has none; leave --exact out")
    return chosen


def judge(
    ids: Sequence[str] = (),
    *,
    exact: bool = False,
    profile: str = "quick",
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    model: str | Path | None = None,
    text: str | Path | None = None,
    seeds: Sequence[int] = (),
    tell: Tell = lambda what, share: None,
) -> Rows:
    """A row for each claim: what was measured, the rule and the verdict.

    Without ``out`` nothing is trained, without ``model`` and ``text`` no checkpoint is read: what needs them is not
    decided. ``seeds`` replace those of the profile; then no results that come with the package are read. ``tell`` is
    called with the current step and the share that is done.
    """
    if profile not in PROFILES:
        raise ValueError(f"the profile is {' or '.join(PROFILES)}, got {profile!r}")
    if (model is None) != (text is None):
        raise ValueError("a checkpoint is measured on a text: give both --model and --text, or neither")
    if seeds and (exact or out is None):
        raise ValueError("--seeds chooses the models to train: give --out, the folder for them, and leave --exact out")
    if len(seeds) > MOST_SEEDS:
        raise ValueError(f"claims are judged on at most {MOST_SEEDS} seeds, got {len(seeds)}: name fewer")
    chosen = choose(ids, exact=exact)
    if exact:
        return judge_measured(chosen, None, None, {}, parts=("exact",), tell=tell)
    folder = None if out is None else Path(out)
    lab = checkpoint = None
    if model is not None and text is not None and any(claim.checkpoint is not None for claim in chosen):
        # first: a checkpoint that can't be used is reported before hours of training
        checkpoint = StretchedCheckpoint(model, text, tell, folder)
    if any(claim.trained is not None for claim in chosen):
        lab = train(
            [need for claim in chosen for need in claim.needs],
            NEEDS,
            profile,
            folder and folder / "lab",
            resume=resume,
            workers=workers,
            tell=tell,
            seeds=seeds,
        )
    return judge_measured(chosen, lab, checkpoint, {"checkpoint": "it needs --model and --text"}, tell=tell)


def judge_measured(
    chosen: Sequence[Claim],
    lab: Lab | None,
    checkpoint: StretchedCheckpoint | None,
    reasons: Mapping[str, str],
    *,
    parts: Sequence[str] = ("exact", "timed", "trained", "checkpoint"),
    tell: Tell = lambda what, share: None,
) -> Rows:
    """A row for each claim, from models that are trained and a checkpoint that is loaded.

    ``reasons`` say for a part why there is nothing to run it with.
    """
    rows = []
    for number, claim in enumerate(chosen):
        tell(claim.id, number / len(chosen))
        rows.append(_judge(claim, parts, {"trained": lab, "checkpoint": checkpoint}, reasons))
    return Rows("claims", rows, rows_document)


def document(judged: list[Row], **protocol: Any) -> dict[str, Any]:
    """The rows with their provenance: what the report draws."""
    intervals = "95%, of shares within 0 and 1; a clause is clear when its whole interval lies on one side of the bound"
    about = provenance(what="claims", intervals=intervals, **protocol)
    return {
        "schema": SCHEMA,
        "groups": {name: title for name, (title, _) in GROUPS.items()},
        "rows": judged,
        "provenance": about,
    }


def _judge(claim: Claim, parts: Sequence[str], sources: Mapping[str, Any], reasons: Mapping[str, str]) -> Row:
    """Run the parts of one claim, and apply the rule to their numbers."""
    numbers: dict[str, Number] = {}
    figures: list[dict[str, Any]] = []
    notes: list[str] = []
    not_run: list[str] = []
    begun = time.perf_counter()
    for part in claim.parts:
        try:
            if part not in parts:
                raise NotMeasured(ONLY_EXACT)
            if sources.get(part, ...) is None:
                raise NotMeasured(reasons[part])
            measured = getattr(claim, part)(*([sources[part]] if part in sources else []))
        except NotMeasured as reason:
            not_run.append(f"its {part} part was not run: {reason}")
            continue
        numbers |= {name: n if isinstance(n, Number) else Number(float(n)) for name, n in measured.numbers.items()}
        figures += [asdict(figure) for figure in measured.figures]
        notes += measured.notes
    seconds = round(time.perf_counter() - begun, 3)
    return {**describe(claim, numbers, [*notes, *not_run]), "figures": figures, "seconds": seconds}


def describe(claim: Claim, numbers: Mapping[str, Number], notes: Iterable[str]) -> Row:
    """The row of a claim, without pictures: what its rule says of these numbers."""
    notes = list(notes)
    evidence = [f"{clause.words}: {numbers[clause.number]}" for clause in claim.rule if clause.number in numbers]
    clauses = [
        {
            "role": clause.role,
            "number": clause.number,
            "side": clause.side,
            "bound": clause.bound,
            "words": clause.words,
            "says": clause.says(numbers),
            "measured": numbers[clause.number].to_json() if clause.number in numbers else None,
        }
        for clause in claim.rule
    ]
    return {
        "id": claim.id,
        "group": next(group for group, (_, claims) in GROUPS.items() if claim in claims),
        "kind": claim.kind,
        "statement": claim.statement,
        "statement_zh": claim.chinese,
        "source": claim.source,
        "experiment": claim.experiment,
        "rule": sentence(claim.rule),
        "verdict": verdict(claim.rule, numbers),
        "evidence": ". ".join(text[:1].upper() + text[1:] for text in (*evidence, *notes)) + ".",
        "clauses": clauses,
        "numbers": {name: number.to_json() for name, number in numbers.items()},
        "notes": notes,
    }
