"""What is shipped of the reference table: short, and with all that reports, `choose` and `compare` say of it."""

import copy
import json

import pytest

from milepost.claims.seeds import gap, rise
from milepost.lab.choose import Wish, choose
from milepost.lab.comparisons import comparisons
from milepost.lab.report import document
from milepost.lab.report.evidence.patterns import patterns
from milepost.lab.report.read import check, joined
from milepost.lab.report.runs import by_name, paired, plain
from milepost.lab.report.tables import paired_table, strategy_table
from tools import reference_table

FILES = [0, 0, 1, 2, 2, 2]


@pytest.fixture
def whole(made):
    """Results with losses of windows, several to a file, and what only a lab's own results hold."""
    results = made(encodings=("nope", "alibi", "rope"))
    for run in results["runs"]:
        shift = len(run["encoding"]) / 100 + run["seed"] / 50
        run["loss_by_window"] = {
            str(row["length"]): [row["loss"] + shift * (at - 2) for at in range(6)]
            for row in run["loss_by_length"] if row["loss"] is not None
        }  # fmt: skip
        fixed = {length: losses for length, losses in run["loss_by_window"].items() if run["strategy"] != "none"}
        run |= {"window_files": FILES, "fixed_by_window": fixed, "folder": "somewhere", "targets": 32}
    results["comparisons"] += comparisons([run for run in results["runs"] if run["strategy"] == "none"])
    return results


def test_what_is_shipped_says_the_same(whole):
    short = check(reference_table.shorten(copy.deepcopy(whole)), "short")
    assert len(json.dumps(short)) < 0.85 * len(json.dumps(whole))
    assert all(run["window_files"] == FILES and "folder" not in run for run in short["runs"])
    assert [(p.status, p.shown) for p in patterns(short)] == [(p.status, p.shown) for p in patterns(whole)]
    assert paired_table(short) == paired_table(whole) and strategy_table(short) == strategy_table(whole)
    assert document(short).answer == document(whole).answer and document(short).notes == document(whole).notes
    mine, theirs = (by_name(plain(results)) for results in (short, whole))
    for length in (16, 128):
        between, before = (paired(groups["nope"], groups["rope"], length) for groups in (mine, theirs))
        assert between == pytest.approx(before, abs=1e-3)
    asked = Wish(16, 64)
    assert [row["name"] for row in choose(asked, short)["ranked"]] == [
        row["name"] for row in choose(asked, whole)["ranked"]
    ]
    assert len(joined({"a": short, "b": short})["runs"]) == 2 * len(short["runs"])


def test_claims_read_the_same_numbers(whole):
    short = reference_table.shorten(copy.deepcopy(whole))
    groups = [by_name(results["runs"]) for results in (short, whole)]
    paid = [gap(runs["rope"], runs["rope, yarn"], 16, field="fixed_by_window") for runs in groups]
    rises = [rise(runs["alibi"], 128, 16) for runs in groups]
    for mine, theirs in (paid, rises):
        for side in ("value", "low", "high"):  # a window is off by half of its last digit at most
            assert getattr(mine, side) == pytest.approx(getattr(theirs, side), abs=1e-3)
    assert all(set(run.get("fixed_by_window", {})) <= {"16"} for run in short["runs"])


def test_shortening_twice_changes_nothing(whole):
    once = reference_table.shorten(copy.deepcopy(whole))
    assert reference_table.shorten(copy.deepcopy(once)) == once


def test_what_was_shipped_before_stays_beside_what_is_new(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(reference_table, "SHIPPED", tmp_path / "lab.json")
    monkeypatch.setattr(reference_table, "CLONE", tmp_path)
    (tmp_path / "docs/lab").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    encodings = ["nope", "alibi", "rope", "t5"]
    whole["provenance"]["protocol"]["plan"]["encodings"] = encodings
    missing = [{"encoding": name, "seed": 0, "data": "text"} for name in ("rope", "t5")]
    new = {**whole, "runs": [run for run in whole["runs"] if run["encoding"] == "nope"], "comparisons": []}
    (tmp_path / "out/results.json").write_text(json.dumps({**new, "missing": missing}))
    costs = {"rows": {"rope": {"train": 1.5}}, "about": "made up"}
    old = [run for run in whole["runs"] if run["encoding"] == "rope"]
    reference_table.ship(tmp_path / "out", {**whole, "runs": old, "costs": costs})
    held = json.loads((tmp_path / "lab.json").read_text())
    assert list(dict.fromkeys(run["encoding"] for run in held["runs"])) == ["nope", "rope"]
    assert {(row["encoding"], row["strategy"]) for row in held["comparisons"]} == {("rope", "linear"), ("rope", "yarn")}
    assert held["missing"] == missing[1:] and held["costs"] == costs
    page = (tmp_path / "docs/lab/report.html").read_text()
    assert "All encodings" in page and "made up" in page
