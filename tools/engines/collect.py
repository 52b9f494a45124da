"""Measured files, milepost/rope/engines/measured/ENGINE-VERSION.json, and the lines of drivers that they are made of.

A line is what a driver wrote about one case, by the case's id; `held_lines` gives a file's cases in the same words, so
that what was run today can be compared with it (`agree`) and put beside it (`write`).
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "milepost" / "rope" / "engines" / "measured"
DIGITS = 9
CLOSE = 2e-6
"""Relative difference of two numbers that two processors may have in float32; as in milepost.rope.engines.measured."""
PARTS = (("cases", "", "config"), ("exports", "export ", "text"))
"""The parts of a file: the name, how ids begin, and the key that says what exactly was run."""
Line = dict[str, Any]


def digest(text: str, length: int = 16) -> str:
    """A short name of what a case ran, which changes with it."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def held_lines(path: Path) -> dict[str, Line]:
    """What a measured file holds, in a driver's words."""
    if not path.exists():
        return {}
    data = json.loads(path.read_text())
    lines: dict[str, Line] = {}
    for part, begins, key in PARTS:
        for name, case in data[part].items():
            if "refused" in case:
                continue
            case["of"] = case.pop(key, None)
            for rope in case.get("ropes", []):
                rope["tables"] = {length: data["tables"][place] for length, place in rope["tables"].items()}
            lines[begins + name] = case
    return lines


def driver_lines(path: Path) -> dict[str, Line]:
    """What a driver wrote, the last line of each case."""
    lines: dict[str, Line] = {}
    for text in path.read_text().splitlines() if path.exists() else []:
        line = json.loads(text)
        line.pop("where", None)
        for rope in line.get("ropes", []):
            rope.pop("m_spread", None)
            rope["positions"] = rope["positions"][-1] if rope["positions"] else 0
            rounded = {n: [float(f"{w:.{DIGITS}g}") for w in table] for n, table in rope["tables"].items()}
            rope["tables"] = rounded
        lines[line.pop("id")] = line
    return lines


def agree(one: Line, other: Line) -> bool:
    """Whether two measurements of a case say the same: the outcome, and numbers as close as float32 has them."""
    for key in ("stops", "not_measured"):
        if key in one or key in other:
            kinds = [line.get(key, "").partition(":")[0] for line in (one, other)]
            return key in one and key in other and (key == "not_measured" or kinds[0] == kinds[1])
    if one["layers"] != other["layers"] or len(one["ropes"]) != len(other["ropes"]):
        return False
    return all(_alike(a, b) for a, b in zip(one["ropes"], other["ropes"], strict=True))


def _alike(one: Line, other: Line) -> bool:
    words = ("head", "rotary", "pairing", "window")
    if any(one.get(word) != other.get(word) for word in words) or one["tables"].keys() != other["tables"].keys():
        return False
    pairs = [(one["m"], other["m"]), (one["softmax"] or 0, other["softmax"] or 0)]
    pairs.append((one.get("queries", 1), other.get("queries", 1)))
    for length, table in one["tables"].items():
        if len(table) != len(other["tables"][length]):
            return False
        pairs += zip(table, other["tables"][length], strict=True)
    return all(math.isclose(a, b, rel_tol=CLOSE) for a, b in pairs)


def write(path: Path, head: dict[str, Any], lines: dict[str, Line], jobs: list[Line], refused: dict[str, str]) -> None:
    """Write a measured file: a line for each job that has one, and what was refused. Tables that are alike are one."""
    tables: dict[str, int] = {}
    parts: dict[str, dict[str, Any]] = {"cases": {}, "exports": {}}
    for job in jobs:
        if (line := lines.get(job["id"])) is None:
            continue
        ropes = [
            {**rope, "tables": {n: tables.setdefault(json.dumps(t), len(tables)) for n, t in rope["tables"].items()}}
            for rope in line.get("ropes", [])
        ]
        found = {key: value for key, value in line.items() if key not in ("of", "ropes", "lengths", "config", "text")}
        if "layers" in line:
            found |= {"ropes": ropes, "lengths": job["lengths"]}
        part, begins, key = PARTS[job["id"].startswith("export ")]
        parts[part][job["id"].removeprefix(begins)] = found | {key: job["of"]}
    parts["exports"] |= {name: {"refused": reason} for name, reason in refused.items()}
    kept = json.loads(path.read_text()) if path.exists() else {}
    head = {**head, "families": kept.get("families", {})}
    shown = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for part, cases in parts.items():
        rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items())
        shown.append(f'"{part}": {{\n{rows}}}')
    shown.append('"tables": [\n' + ",\n".join(tables) + "]")
    path.write_text("{" + ",\n".join(shown) + "}\n")
