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
        + f"Measured on {results()['provenance']['date'][:10]}."
        + (OLD_LAB if results()["provenance"]["versions"]["milepost"] == "0.1.0" else "")
    )


OLD_LAB = (
    "\n\n**To be measured again:** the trained parts are of version 0.1, whose lab trained for 400 steps, from words "
    "that were fifty times smaller than an added code. Verdicts that compare trained models at the trained length "
    "(integer-binary-train, add-or-concat-trained, learned-fits, shared-heads, nearest and others) say what that lab "
    "showed. Exact and timed parts, and those on a checkpoint, do not depend on it."
)
"""What a reader must know of results that are older than the lab that trains now."""
