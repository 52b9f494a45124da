"""worker: one trial in a process of its own. News, and at last the result, go to standard output, a JSON line each."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from milepost.lab.kinds import from_json
from milepost.lab.strangers import import_named
from milepost.lab.trial import threads

PAUSE = 0.5
"""Seconds between two lines about steps."""


def main(out: str, key: str) -> None:
    """Run trial ``key`` of the plan in ``out``."""
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    plan = from_json(json.loads((Path(out) / "plan.json").read_text(encoding="utf-8")))
    threads(plan.threads)
    trial = plan.trial(key)
    import_named([trial.encoding])
    told = [0.0]

    def tell(news: dict[str, Any]) -> None:
        if "step" in news and news["step"] != news["of"] and time.monotonic() - told[0] < PAUSE:
            return
        told[0] = time.monotonic()
        print(json.dumps(news), flush=True)

    print(json.dumps({"result": plan.run(trial, Path(out) / "trials" / key, tell)}), flush=True)


def _end_with_the_driver() -> None:
    """Wait until standard input closes, which it does when the driver ends in whatever way; then nobody waits for this trial."""
    while os.read(0, 1):
        pass
    os._exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
