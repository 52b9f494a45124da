"""The page of the claims: their words, verdicts and pictures, from the results in docs/claims."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from milepost.claims.report import document, figure
from milepost.draw.figure import Figure

FILE = Path(__file__).resolve().parents[2] / "docs" / "claims" / "claims.json"


@cache
def results() -> dict[str, Any]:
    """The results."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def drawn() -> dict[str, list[Figure]]:
    """The pictures of each claim, by the name of the figure."""
    return {
        f"claim-{row['id']}": [figure(one) for one in row["figures"]] for row in results()["rows"] if row["figures"]
    }


def page() -> str:
    """claims.md of the handbook."""
    whole = replace(document(results()), question="")
    title, _, rest = whole.markdown(
        lambda one: f"![{one.title}](figures/claim-{one.title}.svg)" if one.figures else "", folded=False
    ).partition("\n\n")
    return f"{title}\n\n{intro()}\n\n{rest}"


def intro() -> str:
    """What was run, in words."""
    about = results()["provenance"]["protocol"]
    seeds, model = ", ".join(map(str, about["seeds"])), about["model"]
    return (
        "What the notes say of positional encodings, and what comes out when it is tried. A verdict follows from the "
        "measurement by the rule that stands with it; the rules are older than the results that they judge here. "
        "`milepost claims` does it again, and `milepost claims ID` for one of them.\n\nSmall models: profile "
        f"{about['profile']}, seeds {seeds}. "
        + (f"Checkpoint: {model}, on {about['text']}. " if model else "No checkpoint was read. ")
        + f"Measured on {results()['provenance']['date'][:10]}"
        + (f", the checkpoint on {about['checkpoint_of']}." if "checkpoint_of" in about else ".")
        + (f" Models are still to be trained for {', '.join(about['open'])}." if about.get("open") else "")
        + " Each number says how many seeds it is of: one seed alone says nothing of others."
    )
