"""Puts what a driver wrote, a line for each case, into milepost/rope/engines/measured/ENGINE-VERSION.json."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "milepost" / "rope" / "engines" / "measured"


def collect(
    engine: str,
    version: str,
    lines: Path,
    job: dict[str, Any],
    stood_in: list[str],
    exported: tuple[Path, list[dict[str, Any]], dict[str, str]] | None = None,
    digits: int = 9,
) -> Path:
    """The measured file of one engine and version; ``exported`` are the lines of exports, their cases and refusals."""
    written = exported[1] if exported else []
    lengths = {case["id"]: case for case in [*job["cases"], *written]}
    tables: list[list[float]] = []
    places: dict[str, int] = {}
    cases: dict[str, Any] = {}
    exports: dict[str, Any] = {}
    every = [path.read_text().splitlines() for path in ([lines, exported[0]] if exported else [lines])]
    for line in (line for part in every for line in part):
        case = json.loads(line)
        name = case.pop("id")
        if name not in lengths:
            continue
        case.pop("where", None)
        for rope in case.get("ropes", []):
            rope.pop("first", None)
            rope.pop("m_spread", None)
            named = {}
            for length, table in rope["tables"].items():
                shown = json.dumps([float(f"{w:.{digits}g}") for w in table])
                if shown not in places:
                    places[shown] = len(places)
                    tables.append(json.loads(shown))
                named[length] = places[shown]
            rope["tables"] = named
            rope["positions"] = rope["positions"][-1] if rope["positions"] else 0
        if "ropes" in case:
            case["lengths"] = lengths[name]["lengths"]
        if name.startswith("export "):
            digest = hashlib.sha256(lengths[name]["text"].encode()).hexdigest()[:16]
            exports[name.removeprefix("export ")] = case | {"text": digest}
        else:
            cases[name] = case
    exports |= {name: {"refused": reason} for name, reason in (exported[2] if exported else {}).items()}
    out = MEASURED / f"{engine}-{version}.json"
    kept = json.loads(out.read_text()) if out.exists() else {}
    parts = [f'"engine": {json.dumps(engine)}', f'"version": {json.dumps(version)}',
             f'"stood_in": {json.dumps(stood_in)}', f'"families": {json.dumps(kept.get("families", {}))}',
             '"cases": {\n' + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()) + "}",
             '"exports": {\n' + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in exports.items()) + "}",
             '"tables": [\n' + ",\n".join(json.dumps(t) for t in tables) + "]"]  # fmt: skip
    out.write_text("{" + ",\n".join(parts) + "}\n")
    print(
        f"{out.name}: {len(cases)} cases, {len(exports)} exports, {len(tables)} tables, {out.stat().st_size // 1000} kB"
    )
    return out
