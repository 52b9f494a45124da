"""worker: one trial in a process of its own. News, and at last the result, go to standard output, a JSON line each."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from milepost.lab.plan import Plan
from milepost.lab.trial import run, threads

PAUSE = 0.5
"""Seconds between two lines about steps."""


def main(out: str, key: str, count: str) -> None:
    """Run trial ``key`` of the plan in ``out`` with so many threads."""
    threads(int(count))
    plan = Plan.from_json(json.loads((Path(out) / "plan.json").read_text()))
    trial = next(t for t in plan.trials() if t.key == key)
    told = [0.0]

    def tell(news: dict[str, Any]) -> None:
        if "step" in news and news["step"] != news["of"] and time.monotonic() - told[0] < PAUSE:
            return
        told[0] = time.monotonic()
        print(json.dumps(news), flush=True)  # where the driver is gone, this is where the worker ends

    print(json.dumps({"result": run(plan, trial, Path(out) / "trials" / key, tell)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
