"""judge: claims as rows. Each part of each experiment is run, its numbers go into the rule, and the rule gives the verdict.

rows = judge(["rope-sign", "shift"])                          # exact ones, in seconds
rows = judge(profile="quick", out="runs/claims")              # all; models are trained in runs/claims/lab
rows = judge(out="runs/fresh", seeds=[3, 4, 5])               # models that no rule here was written after
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.claims import GROUPS
from milepost.claims.claim import Claim, Found, NotMeasured
from milepost.claims.groups import claims_of
from milepost.claims.rule import Number, sentence, verdict
from milepost.claims.seeds import T
from milepost.measure.results import Rows, provenance
from milepost.spec import nearest

if TYPE_CHECKING:
    from milepost.claims.real import Real
    from milepost.claims.trained import Lab

PROFILES = ("quick", "standard")
SCHEMA = 1
Tell = Callable[[str, float], None]
Row = dict[str, Any]


def claims() -> dict[str, Claim]:
    """All claims by id, group by group."""
    return {claim.id: claim for group in GROUPS for claim in claims_of(group)}


def group_of(claim: Claim) -> str:
    """The file in which a claim stands."""
    return next(group for group in GROUPS if claim in claims_of(group))


def chosen(ids: Sequence[str], *, exact: bool = False) -> list[Claim]:
    """The claims of these ids, or all of them; with ``exact`` alone, those that exact experiments decide by themselves."""
    known = claims()
    for name in ids:
        if name not in known:
            raise ValueError(f"there is no claim {name!r}{nearest(name, known)}; the claims are {', '.join(known)}")
    wanted = (
        [known[name] for name in dict.fromkeys(ids)]
        if ids
        else [one for one in known.values() if not exact or one.kind == "exact" or one.exact_decides]
    )
    lacking = [one.id for one in wanted if exact and one.exact is None]
    if lacking:
        raise ValueError(f"--exact runs exact experiments alone, and {', '.join(lacking)} has none; leave --exact out")
    return wanted


def judge(
    ids: Sequence[str] = (), *, exact: bool = False, profile: str = "quick", out: str | Path | None = None, resume: bool = False, workers: int | None = None,
    model: str | Path | None = None, text: str | Path | None = None, seeds: Sequence[int] = (), tell: Tell = lambda what, share: None,
) -> Rows:  # fmt: skip
    """A row for each claim: what was measured, the rule and the verdict.

    Without ``out`` nothing is trained, without ``model`` and ``text`` no checkpoint is read: what needs them is not decided. ``seeds``: which are trained,
    where it is not those of the profile; then nothing that comes with the package is read. ``tell`` hears what is being done and what share is done.
    """
    if profile not in PROFILES:
        raise ValueError(f"the profile is {' or '.join(PROFILES)}, got {profile!r}")
    if (model is None) != (text is None):
        raise ValueError("a checkpoint is measured on a text: give both --model and --text, or neither")
    if seeds and (exact or out is None):
        raise ValueError(
            "--seeds says which models are trained: give --out, the folder for them, and leave --exact out"
        )
    if len(seeds) > max(T):
        raise ValueError(f"intervals are known for at most {max(T)} seeds, got {len(seeds)}: name fewer")
    wanted = chosen(ids, exact=exact)
    lab, real, why = _sources(wanted, exact, profile, out, resume, workers, model, text, seeds, tell)
    return rows(wanted, lab, real, why, exact=exact, tell=tell)


def rows(
    wanted: Sequence[Claim], lab: Lab | None, real: Real | None, why: Mapping[str, str], *, exact: bool = False,
    tell: Tell = lambda what, share: None,
) -> Rows:  # fmt: skip
    """A row for each claim, from models that are trained and a checkpoint that is there; ``why`` says of a part why there is nothing to run it with."""
    found = []
    for number, claim in enumerate(wanted):
        tell(claim.id, number / len(wanted))
        found.append(_row(claim, ("exact",) if exact else claim.parts, lab, real, why))
    return Rows("claims", found)


def document(judged: list[Row], **protocol: Any) -> dict[str, Any]:
    """The rows with where they come from: what `report.claims` draws."""
    about = provenance(
        what="claims",
        intervals="95%, of shares within 0 and 1; a clause is clear when its whole interval lies on one side of the threshold",
        **protocol,
    )
    return {"schema": SCHEMA, "groups": GROUPS, "rows": judged, "provenance": about}


def _sources(
    wanted: list[Claim], exact: bool, profile: str, out: str | Path | None, resume: bool, workers: int | None, model: str | Path | None,
    text: str | Path | None, seeds: Sequence[int], tell: Tell,
) -> tuple[Lab | None, Real | None, dict[str, str]]:  # fmt: skip
    """The trained models and the checkpoint that the claims need; and for what there is not, why."""
    why = {
        "trained": "it needs small models, and no folder was given to train them in: give --out",
        "checkpoint": "it needs --model and --text",
    }
    if exact:
        return None, None, dict.fromkeys(why, "only exact experiments were asked for")
    lab = real = None
    if model is not None and text is not None and any(claim.checkpoint is not None for claim in wanted):
        from milepost.claims.real import Real

        real = Real(
            model, text, tell, None if out is None else Path(out)
        )  # first: what is wrong with it is said before hours of training
    asked = [claim for claim in wanted if claim.trained is not None]
    if asked:
        from milepost.claims.trained import gather

        lab = gather(
            asked,
            profile,
            None if out is None else Path(out) / "lab",
            resume=resume,
            workers=workers,
            tell=tell,
            seeds=seeds,
        )
    return lab, real, why


def _row(claim: Claim, parts: Sequence[str], lab: Lab | None, real: Real | None, why: Mapping[str, str]) -> Row:
    """One claim: run the parts, hold the numbers against the rule."""
    numbers: dict[str, Number] = {}
    figures: list[dict[str, Any]] = []
    notes: list[str] = []
    lacking: list[str] = []
    begun = time.perf_counter()
    for part in claim.parts:
        source = {"trained": lab, "checkpoint": real}.get(part)
        if part not in parts or (part in ("trained", "checkpoint") and source is None):
            lacking.append(f"its {part} part was not run: {why.get(part, 'only exact experiments were asked for')}")
            continue
        try:
            found: Found = getattr(claim, part)(*([source] if source is not None else []))
        except NotMeasured as reason:
            lacking.append(f"its {part} part was not run: {reason}")
            continue
        numbers |= {name: one if isinstance(one, Number) else Number(float(one)) for name, one in found.numbers.items()}
        figures += [figure.to_json() for figure in found.figures]
        notes += found.notes
    clauses = [
        {
            "role": clause.role, "number": clause.number, "side": clause.side, "bound": clause.bound, "words": clause.words.rstrip(","),
            "says": clause.says(numbers), "measured": numbers[clause.number].to_json() if clause.number in numbers else None,
        }
        for clause in claim.rule
    ]  # fmt: skip
    told = [
        f"{clause.words.rstrip(',')}: {numbers[clause.number]}" for clause in claim.rule if clause.number in numbers
    ]
    evidence = ". ".join(_capital(text) for text in (*told, *notes, *lacking)) + "."
    return {
        "id": claim.id, "group": group_of(claim), "kind": claim.kind, "statement": claim.statement, "statement_zh": claim.chinese, "source": claim.source,
        "experiment": claim.experiment, "rule": sentence(claim.rule), "verdict": verdict(claim.rule, numbers), "evidence": evidence, "clauses": clauses,
        "numbers": {name: one.to_json() for name, one in numbers.items()}, "figures": figures, "seconds": round(time.perf_counter() - begun, 3),
    }  # fmt: skip


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
