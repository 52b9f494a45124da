"""Worker: one trial in a process of its own. News, and at last the result, go to standard output, a JSON line each."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from milepost.lab.sweep.modalities import read_plan, run_trial
from milepost.measure.memory import keep_freed

PAUSE = 0.5
"""Seconds between two lines about steps."""


def main(out: str, key: str) -> None:
    """Run trial ``key`` of the plan in ``out``."""
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    keep_freed()
    plan = read_plan(json.loads((Path(out) / "plan.json").read_text(encoding="utf-8")))
    last = 0.0

    def tell(news: dict[str, Any]) -> None:
        nonlocal last
        if "step" in news and news["step"] != news["of"] and time.monotonic() - last < PAUSE:
            return
        last = time.monotonic()
        print(json.dumps(news), flush=True)

    result = run_trial(plan, plan.trial(key), Path(out) / "trials" / key, tell)
    print(json.dumps({"result": result}), flush=True)


def _end_with_the_driver() -> None:
    """Wait until standard input closes, as it does when the driver ends in whatever way; then end this process too."""
    while os.read(0, 1):
        pass
    os._exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
