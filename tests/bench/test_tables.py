"""The tables of the front pages are those that the script makes of the benchmark, and it leaves alone what it can't
know.
"""

import json

from tools import bench_tables
from tools.bench_tables import BENCH, MACHINES, PAGES, ROOT, Numbers, filled, remembered


def row(scheme, kind, length, ratio, peak=None, by="milepost"):
    about = {"scheme": scheme, "implementation": by, "pass": kind, "length": length}
    return {**about, "ratio": ratio, "seconds": 1.0, "peak_mb": peak, "note": ""}


def result(*rows):
    about = {"date": "d", "cores": 2, "machine": "m", "versions": {"milepost": "9"}, "protocol": {"threads": 2}}
    return {"rows": list(rows), "rope": [], "lab": [], "provenance": about}


def test_the_pages_are_those_of_the_benchmark():
    shown = Numbers(json.loads(BENCH.read_text(encoding="utf-8")), json.loads(MACHINES.read_text(encoding="utf-8")))
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "<!-- bench " in text and filled(text, shown) == text, f"{name}: run tools/bench_tables.py"


def test_a_table_is_filled_and_one_without_all_its_numbers_is_left():
    page = "a\n<!-- bench readme -->\nold\n<!-- /bench -->\nb\n<!-- bench maps -->\nkept\n<!-- /bench -->\n"
    measured = result(*(row(s, kind, n, 1.5) for s in ("rope", "alibi", "t5") for kind, n in bench_tables.COLUMNS))
    said = []
    text = filled(page, Numbers(measured, []), said.append)
    assert "| `alibi` | 1.50 | 1.50 | 1.50 | 1.50 |" in text and "old" not in text and "\nkept\n" in text
    assert "|---|---:|---:|---:|---:|" in text and said == ["maps: left as it is, since there is no number of the maps"]


def test_ranges_are_over_machines_and_a_machine_replaces_itself():
    other = {"processor": "p", "threads": 2, "milepost": "9", "date": "d", "ratios": {"rope forward 4096": 1.2}}
    once = remembered(result(row("rope", "forward", 4096, 1.05)), [other])
    twice = remembered(result(row("rope", "forward", 4096, 1.01)), once)
    assert len(once) == len(twice) == 2 and twice[0] == other
    assert Numbers(result(), twice).ranges()[1][1] == "1.01 to 1.20"
