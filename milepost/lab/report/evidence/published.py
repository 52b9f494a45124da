"""Published: what papers measured, as data with references, to be set beside a lab run.

Numbers do not carry over between set-ups; patterns may (see patterns).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[3] / "measured" / "published.json"
PUBLISHED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
"""By subject: a reference, the setting, and rows of numbers."""
BY_LENGTH = ("perplexity_by_length", "same_last_tokens", "without_tuning", "with_tuning")
"""Subjects whose rows are perplexities by length."""
_TABLE_2 = PUBLISHED["perplexity_by_length"]
TRAINED: int = _TABLE_2["trained"]
TABLE: dict[str, dict[int, float]] = {
    encoding: {int(length): value for length, value in row.items()} for encoding, row in _TABLE_2["rows"].items()
}
"""Perplexity of four encodings by length."""
SHOWN = (1012, 2512, 3512)
"""The lengths that a table shows; the figure has all."""


def perplexity_rise(name: str, times: float) -> list[dict[str, Any]]:
    """From each source that has it: perplexity at so many times the trained length, over that at the trained length.

    ``name`` is an encoding, or "rope, yarn" and the like. The next longer length stands in for one that was not
    measured, and the longest for all beyond it.
    """
    rises = []
    for subject in BY_LENGTH:
        source = PUBLISHED[subject]
        row = {int(length): value for length, value in source["rows"].get(name, {}).items()}
        if row:
            length = next((n for n in sorted(row) if n >= times * source["trained"]), max(row))
            about = {"trained": source["trained"], "length": length, "reference": source["reference"]}
            rises.append({"rise": row[length] / row[min(row)], "times": length / source["trained"], **about})
    return rises
