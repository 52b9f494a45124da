"""The claims of docs/claims, written from a folder of `milepost claims`, or from the numbers that docs/claims holds.

    milepost claims --profile quick --seeds 0,1,2 --model SmolLM2-135M-Instruct --text moby-dick.txt --out runs/claims
    python tools/claims_docs.py runs/claims --seeds 0,1,2 --model SmolLM2-135M-Instruct --text moby-dick.txt
    python tools/claims_docs.py runs/claims --seeds 0,1,2 --keep-checkpoint
    python tools/claims_docs.py runs/claims --seeds 0,1,2 --keep-checkpoint --only shared-heads,vit-2d
    python tools/claims_docs.py --words

The first command takes hours. The second judges what its folder holds, each claim on the seeds whose models are
finished; a claim whose model is not there is not decided. The third reads no checkpoint, and keeps what docs/claims
holds of one: trained models have no part in that. The fourth judges the named claims alone, and keeps the other rows as
docs/claims holds them: for a folder that has the models of some claims. The last keeps all numbers, pictures and notes
of docs/claims, and writes statements, rules and evidence anew: for when their wording has changed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from milepost.claims import report
from milepost.claims.checkpoint import StretchedCheckpoint
from milepost.claims.judge import choose, describe, document, judge_measured
from milepost.claims.needs import images
from milepost.claims.rule import Number
from milepost.claims.table import CLAIMS, GROUPS, NEEDS
from milepost.claims.trained import Lab, planned
from milepost.measure.results import write, write_json

UNTRAINED = ("was not run: ", "not trained")
"""Words of the evidence where a model is still to be trained."""
DOCS = Path(__file__).resolve().parent.parent / "docs" / "claims"


def reword(row: dict[str, Any]) -> dict[str, Any]:
    """A row with today's words for its numbers."""
    numbers = {name: Number(**number) for name, number in row["numbers"].items()}
    exact = {name for name, number in numbers.items() if not number.over}  # these have no interval
    numbers |= {name: Number(numbers[name].value) for name in exact}
    return {**row, **describe(CLAIMS[row["id"]], numbers, row["notes"])}


def keep_checkpoint(row: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """A row with the numbers and pictures of a checkpoint that the claims of before hold."""
    held = next((held for held in before["rows"] if held["id"] == row["id"]), None)
    if CLAIMS[row["id"]].checkpoint is None or held is None:
        return row
    about, date = before["provenance"]["protocol"], before["provenance"]["date"][:10]
    date, model = about.get("checkpoint_of", date), about["model"]
    real = {name: Number(**number) for name, number in held["numbers"].items() if name.startswith("real ")}
    numbers = {name: Number(**number) for name, number in row["numbers"].items()}
    exact = {name: Number(number.value) for name, number in numbers.items() if not number.over}
    notes = [note for note in row["notes"] if not note.startswith("its checkpoint part was not run")]
    notes.append(f"the numbers of the checkpoint, {model}, are those of {date}")
    figures = [figure for figure in held["figures"] if model in figure["title"]]
    said = describe(CLAIMS[row["id"]], {**numbers, **exact, **real}, notes)
    return {**row, **said, "figures": row["figures"] + figures}


def keep_others(judged: list[dict[str, Any]], before: dict[str, Any], only: tuple[str, ...]) -> list[dict[str, Any]]:
    """The judged rows among those that docs/claims holds, each in its place; all of the judged where none is named."""
    anew = {row["id"]: row for row in judged}
    return [anew.get(row["id"], row) for row in before["rows"]] if only else judged


def main() -> None:
    """Judge or reword, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--seeds", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("--model")
    parser.add_argument("--text")
    parser.add_argument("--keep-checkpoint", action="store_true")
    parser.add_argument("--only", type=lambda text: tuple(text.split(",")), default=())
    parser.add_argument("--out", type=Path, default=DOCS)
    asked = parser.parse_args()
    if asked.words == (asked.folder is not None) or (asked.folder is not None and not asked.seeds):
        parser.error("give a folder and --seeds, or --words alone")

    def tell(what: str, share: float) -> None:
        print(f"{share:4.0%} {what}", flush=True)

    if asked.words:
        made = json.loads((asked.out / "claims.json").read_text(encoding="utf-8"))
        titles = {name: title for name, (title, _) in GROUPS.items()}
        made |= {"groups": titles, "rows": [reword(row) for row in made["rows"]]}
    else:
        plan, old = planned(asked.profile, NEEDS, asked.seeds)
        pictures = images(asked.profile, NEEDS, asked.seeds)
        lab = Lab(asked.profile, plan, asked.folder / "lab", old, tell, pictures, partial=True)
        real = None if asked.model is None else StretchedCheckpoint(asked.model, asked.text, tell, asked.folder)
        reasons = {"checkpoint": "no checkpoint was given"}
        judged = judge_measured(choose(asked.only), lab, real, reasons, tell=tell)
        about = {"profile": asked.profile, "seeds": list(asked.seeds), "model": asked.model, "text": asked.text}
        before = json.loads((DOCS / "claims.json").read_text(encoding="utf-8"))
        if asked.keep_checkpoint:
            judged[:] = [keep_checkpoint(row, before) for row in judged]
            held = before["provenance"]["protocol"]
            about |= {"model": held["model"], "text": held["text"]}
            about["checkpoint_of"] = held.get("checkpoint_of", before["provenance"]["date"][:10])
        judged[:] = keep_others(judged, before, asked.only)
        whole = [row["id"] for row in judged if not any(word in row["evidence"] for word in UNTRAINED)]
        about["open"] = [row["id"] for row in judged if row["id"] not in whole]
        made = document(judged, exact=False, **about)
    write_json(asked.out / "claims.json", made)
    print(write(asked.out / "claims.html", report.document(made).html()), report.answer(made["rows"]))


if __name__ == "__main__":
    main()
