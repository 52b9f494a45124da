"""Which families honour what, from a measured file: fills its "families".

For each family of configs.json that is spelled in every way, the outcome is one of

    read                 the engine's rope code gets what the config says
    unscaled             the base arrives, and the scaling is dropped
    base 10000           the scaling arrives, and another base than the config's
    unscaled, base 10000 neither does
    stops: ...           the engine ends with this error
    other                none of these
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


OWN_BASE = 300000.0
"""The base that the spelled configs have."""


def _base(table: tuple[float, ...]) -> float:
    """The base that the first two frequencies of a table have, which scalings leave alone or divide alike."""
    return float(f"{(table[1] / table[0]) ** -len(table):.4g}")


def fill(path: Path) -> dict[str, dict[str, str]]:
    """Write the outcomes into a measured file."""
    from milepost.rope import find_engine, open_config
    from milepost.rope.config.keys import ConfigError
    from milepost.rope.engines import measured

    data = json.loads(path.read_text())
    text = path.read_text().replace(f'"families": {json.dumps(data["families"])}', '"families": {}')
    path.write_text(text)
    measured.load.cache_clear()
    measured.versions.cache_clear()
    engine = find_engine(data["engine"], data["version"])
    held = measured.load(data["engine"], data["version"])

    def outcome(name: str, case: dict[str, object]) -> str:
        if "stops" in case:
            return f"stops: {str(case['stops']).splitlines()[0][:120]}"
        try:
            spec = engine.read(open_config(measured.configs()[name]))
        except ConfigError:
            return "other"

        def same(base: float | None, scaled: bool) -> bool:
            kinds = tuple(
                (kind, rope and replace(rope, base=base or rope.base, scaling=rope.scaling if scaled else None))
                for kind, rope in spec.kinds
            )
            return not measured.apart(held, case, replace(spec, kinds=kinds))

        for words, base, scaled in (("read", None, True), ("unscaled", None, False)):
            if same(base, scaled):
                return words
        for base in sorted({_base(held.tables[table]) for rope in case["ropes"] for table in rope["tables"].values()}):
            for words, scaled in (("base", True), ("unscaled, base", False)):
                if same(base, scaled) and base == OWN_BASE and scaled:
                    return "read"  # by all layers, also those of a kind that has a base of its own elsewhere
                if same(base, scaled):
                    return f"{words} {base:.0f}"
        return "other"

    families: dict[str, dict[str, str]] = {}
    for name, case in held.cases.items():
        words = name.split()
        if len(words) == 3 and words[2] in ("flat", "nested") and "not_measured" not in case:
            families.setdefault(words[0], {})[f"{words[1]} {words[2]}"] = outcome(name, dict(case))
    path.write_text(text.replace('"families": {}', f'"families": {json.dumps(families)}'))
    measured.load.cache_clear()
    return families


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for family, outcomes in fill(Path(name)).items():
            print(family, {k: v for k, v in outcomes.items() if v != "read"})
