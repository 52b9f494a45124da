"""Makes milepost/testing/ids/*.json: layouts of tokens with the position id that each must have.

    python -m tools.position_ids

Ids follow the rules that models were trained with, written out here without torch. Where transformers is installed, a
test runs its own get_rope_index on every multimodal case; "transformers" says whether that agrees, and why not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[1] / "milepost" / "testing" / "ids"
MERGE = 2
"""Patches that become one token, along each side."""
LATE = (
    "transformers 5.22.2 lets text after a video begin after its rows and columns, below the video's last time; the "
    "code that the model was released with begins one after the largest id"
)


def packed(lengths: list[int]) -> list[int]:
    return [p for n in lengths for p in range(n)]


def masked(mask: list[list[int]]) -> list[list[int | None]]:
    """Real tokens are counted; what padding is told does not matter (null)."""
    return [[sum(row[:i]) if real else None for i, real in enumerate(row)] for row in mask]


def shard(ids: list[int], rank: int, world: int, how: str) -> list[int]:
    pieces = world if how == "contiguous" else 2 * world
    size = len(ids) // pieces
    mine = [rank] if how == "contiguous" else [rank, pieces - 1 - rank]
    return [ids[i] for piece in mine for i in range(piece * size, (piece + 1) * size)]


def text_cases() -> list[dict[str, Any]]:
    left = [[0, 0, 0, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]
    right = [row[::-1] for row in left]
    cases: list[dict[str, Any]] = [
        {"layout": "packed", "given": {"lengths": [5, 3, 7]}, "ids": packed([5, 3, 7])},
        {"layout": "packed", "given": {"lengths": [1, 1, 4]}, "ids": packed([1, 1, 4])},
        {"layout": "left-padded", "given": {"mask": left}, "ids": masked(left)},
        {"layout": "right-padded", "given": {"mask": right}, "ids": masked(right)},
        {"layout": "decode", "given": {"mask": left, "said": 3}, "ids": [[sum(row) + 3] for row in left]},
        {
            "layout": "prefix-shared",
            "given": {"prefix": 4, "lengths": [3, 2]},
            "ids": [*range(4), *range(4, 7), *range(4, 6)],
        },
    ]
    for lengths in ([16], [10, 6], [3, 13]):
        for how in ("contiguous", "zigzag"):
            for rank in range(2):
                given = {"lengths": lengths, "rank": rank, "world": 2}
                cases.append({"layout": f"sharded {how}", "given": given, "ids": shard(packed(lengths), rank, 2, how)})
    return cases


def multimodal(parts: list[Any], *, seconds: float = 0.0, per_second: int = 1, frames_of: int = 1) -> list[list[int]]:
    """Ids on the axes frame, row, column: text counts on all three, and what follows begins after the largest."""
    axes: list[list[int]] = [[], [], []]
    for part in parts:
        here = max((max(axis) for axis in axes if axis), default=-1) + 1
        if isinstance(part, int):
            for axis in axes:
                axis.extend(range(here, here + part))
            continue
        kind, (t, h, w) = part["kind"], part["grid"]
        step = seconds * per_second if kind == "video" and seconds else 1
        frames = t // frames_of if kind == "video" else t
        for f in range(frames):
            for row in range(h // MERGE):
                for column in range(w // MERGE):
                    for axis, place in zip(axes, (int(f * step), row, column), strict=True):
                        axis.append(here + place)
    return axes


def image(h: int, w: int) -> dict[str, Any]:
    return {"kind": "image", "grid": [1, h, w]}


def video(t: int, h: int, w: int) -> dict[str, Any]:
    return {"kind": "video", "grid": [t, h, w]}


def multimodal_cases() -> list[dict[str, Any]]:
    stills = [[3, image(4, 6), 2], [1, image(8, 4), 1, image(4, 4), 3], [2, image(4, 12)]]
    cases = []
    for family in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v", "ernie4_5_vl_moe"):
        for parts in stills:
            cases.append(_case(family, parts, {}))
    cases.append(_case("qwen2_vl", [3, video(2, 8, 4), 2], {}))
    cases.append(_case("qwen2_vl", [3, video(3, 4, 4), 2], {}, LATE))
    cases.append(_case("qwen2_vl", [3, video(5, 4, 4), 2], {}, LATE))
    cases.append(_case("qwen2_5_vl", [2, video(3, 4, 4), 2], {"seconds": 1.0, "per_second": 2}, LATE))
    cases.append(_case("qwen2_5_vl", [2, video(3, 4, 12), 2], {"seconds": 0.5, "per_second": 2}))
    cases.append(_case("qwen2_5_vl", [1, image(4, 4), 2, video(2, 4, 4), 1], {"seconds": 1.0, "per_second": 2}, LATE))
    frame = video(1, 4, 4)
    for family in ("qwen3_vl", "glm4v"):  # a time in words before every frame
        cases.append(_case(family, [2, frame, 3, frame, 3, frame, 2], {}))
    cases.append(_case("ernie4_5_vl_moe", [2, video(4, 4, 4), 2], {"frames_of": 2}))
    return cases


def _case(family: str, parts: list[Any], how: dict[str, Any], why: str = "") -> dict[str, Any]:
    given = {"family": family, "parts": parts, "merge": MERGE, **how}
    return {
        "layout": f"multimodal {family}",
        "given": given,
        "ids": multimodal(parts, **how),
        "transformers": why or True,
    }


def main() -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    for name, cases in (("text", text_cases()), ("multimodal", multimodal_cases())):
        (HOME / f"{name}.json").write_text(json.dumps({"cases": cases}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
