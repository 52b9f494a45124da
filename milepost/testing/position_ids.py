"""Golden position ids: layouts of tokens with the id that each token must have, to try a stranger's collator against.

    from milepost.testing import check_positions

    def collate(layout, given):                      # layout: "packed", given: {"lengths": [5, 3, 7]}
        return my_collator(...).position_ids         # lists or a tensor; None for a layout that it does not have

    assert check_positions(collate).ok

Layouts: packed, left- and right-padded, decode (the id of the token after ``said`` more), prefix-shared, sharded (what
rank holds of packed texts, contiguous or zigzag), and multimodal ones (ids on the axes frame, row and column; ``parts``
are numbers of text tokens, and grids of patches before merging). A null id is padding's: anything may stand there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

IDS = Path(__file__).parent / "ids"
Collate = Callable[[str, dict[str, Any]], Any]


def golden_positions() -> Iterator[Mapping[str, Any]]:
    """Every case: its layout, what is given, and the ids."""
    for file in sorted(IDS.glob("*.json")):
        yield from json.loads(file.read_text(encoding="utf-8"))["cases"]


def difference(ids: Any, given: Any, place: tuple[int, ...] = ()) -> str:
    """The first place where what was given is not the golden id; empty where there is none."""
    if isinstance(ids, list):
        if not isinstance(given, list) or len(given) != len(ids):
            size = len(given) if isinstance(given, list) else f"{given!r}"
            where = f" at {list(place)}" if place else ""
            return f"{len(ids)} expected{where}, got {size}"
        parts = (difference(want, got, (*place, n)) for n, (want, got) in enumerate(zip(ids, given, strict=True)))
        return next(filter(None, parts), "")
    if ids is None or ids == given:
        return ""
    return f"token {list(place)} must have position {ids}, got {given!r}"


def plain(value: Any) -> Any:
    """Lists, from lists or a tensor; a batch of one row may have an axis of its own."""
    return value.tolist() if hasattr(value, "tolist") else value


def fits(ids: list[Any], given: Any) -> Any:
    """Given ids without axes of one that the golden ones do not have: B of a single row."""
    while isinstance(given, list) and _depth(given) > _depth(ids):
        inner = given if len(given) == 1 else [row[0] for row in given if isinstance(row, list) and len(row) == 1]
        if len(given) != 1 and len(inner) != len(given):
            return given
        given = given[0] if len(given) == 1 else inner
    return given


def _depth(value: Any) -> int:
    return 1 + _depth(value[0]) if isinstance(value, list) and value else int(isinstance(value, list))
