"""Results without what may differ between two runs of the same plan: when, how fast, and with how much memory."""

from __future__ import annotations

import json
from typing import Any

PASSING = {"train_tokens_per_s", "peak_mb", "date"}


def stripped(found: Any) -> Any:
    """The same data without passing things, at any depth."""
    if isinstance(found, dict):
        return {name: stripped(value) for name, value in found.items() if name not in PASSING}
    return [stripped(value) for value in found] if isinstance(found, list) else found


def same(a: Any, b: Any) -> None:
    """Both to the last bit, with the first difference named."""
    a, b = (json.dumps(stripped(one), indent=1, sort_keys=True).splitlines() for one in (a, b))
    assert next(((x, y) for x, y in zip(a, b, strict=False) if x != y), None) is None
    assert len(a) == len(b)
