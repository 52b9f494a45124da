"""The claims of docs/claims: judged by all that a folder of `milepost claims` holds. No model of the lab is trained: what needs one that
is not there is not decided.

milepost claims --profile standard --seeds 3,4,5 --model SmolLM2-135M-Instruct --text moby-dick.txt --out runs/claims      # hours
python tools/claims_docs.py runs/claims --profile standard --seeds 3,4,5 --model SmolLM2-135M-Instruct --text moby-dick.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

from milepost.claims.judge import chosen, document, rows
from milepost.claims.needs import images, plans
from milepost.claims.real import Real
from milepost.claims.trained import Lab
from milepost.measure.results import write, write_json
from milepost.report import claims as report

DOCS = Path(__file__).resolve().parent.parent / "docs" / "claims"


def main() -> None:
    """Judge, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--profile", default="standard")
    parser.add_argument("--seeds", type=lambda text: tuple(map(int, text.split(","))), required=True)
    parser.add_argument("--model")
    parser.add_argument("--text")
    parser.add_argument("--out", type=Path, default=DOCS)
    asked = parser.parse_args()

    def tell(what: str, share: float) -> None:
        print(f"{share:4.0%} {what}", flush=True)

    every = chosen([])
    plan, pictures = plans(asked.profile, every, asked.seeds), images(asked.profile, every, asked.seeds)
    lab = Lab(asked.profile, plan, asked.folder / "lab", None, {}, tell, pictures)
    real = None if asked.model is None else Real(asked.model, asked.text, tell, asked.folder)
    judged = rows(every, lab, real, {"checkpoint": "no checkpoint was given"}, tell=tell)
    about = {"profile": asked.profile, "seeds": list(asked.seeds), "model": asked.model, "text": asked.text}
    made = document(judged, exact=False, **about)
    write_json(asked.out / "claims.json", made)
    print(write(asked.out / "claims.html", report.page(made)), report.answer(judged))


if __name__ == "__main__":
    main()
