"""What can't be read is said in a sentence, and what can't be compared is refused with the reason."""

import copy
import json
import subprocess
import sys

import pytest

from milepost.lab.report import document, read
from milepost.lab.report import tables as lab_tables
from milepost.lab.report.answer import answer
from milepost.lab.report.runs import name


def put(folder, results):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(results if isinstance(results, str) else json.dumps(results))
    return folder


def without(results, *path):
    found = copy.deepcopy(results)
    here = found
    for step in path[:-1]:
        here = here[step]
    del here[path[-1]]
    return found


def test_what_was_written_is_read(made, tmp_path):
    assert read.load(put(tmp_path, made())) == made()


def test_a_folder_without_results(tmp_path):
    with pytest.raises(ValueError, match=r"holds no results.json: run `milepost lab"):
        read.load(tmp_path / "nowhere")


def test_a_cut_file(made, tmp_path):
    with pytest.raises(ValueError, match=r"no whole JSON .*--resume` writes it again"):
        read.load(put(tmp_path, json.dumps(made())[:-200]))


@pytest.mark.parametrize("found", ["[]", "3", '{"schema": 2}', "{}"])
def test_another_schema(tmp_path, found):
    with pytest.raises(ValueError, match=r"has schema (None|2), and this milepost reads schema 1"):
        read.load(put(tmp_path, found))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("runs",), "runs is missing"),
        (("comparisons",), "comparisons is missing"),
        (("provenance", "protocol"), r"provenance\.protocol is missing"),
        (("provenance", "protocol", "plan", "lengths"), r"plan\.lengths is missing"),
        (("provenance", "protocol", "plan", "shape", "length"), r"plan\.shape\.length is missing"),
        (("provenance", "protocol", "text", "sha256"), r"text\.sha256 is missing"),
        (("runs", 3, "encoding"), r"runs\[3\]\.encoding is missing"),
        (("runs", 0, "loss_by_length", 1, "loss"), r"runs\[0\]\.loss_by_length wants rows with length, loss"),
        (("comparisons", 0, "difference"), r"comparisons\[0\]\.difference is missing"),
    ],
)
def test_a_missing_key_is_named(made, tmp_path, path, said):
    with pytest.raises(ValueError, match=said):
        read.load(put(tmp_path, without(made(), *path)))


def test_a_value_of_another_kind_is_named(made, tmp_path):
    with pytest.raises(ValueError, match=r"runs is dict and not list"):
        read.load(put(tmp_path, made() | {"runs": {}}))


# -- several runs
# -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("text", "sha256"), "cd" * 32, "another text"),
        (("plan", "lengths"), [16, 32], "other lengths"),
        (("plan", "shape", "length"), 32, "another trained length"),
        (("plan", "tokenizer"), "mine.json", "another tokenizer"),
        (("plan", "windows"), 9, "another number of test windows"),
    ],
)
def test_runs_that_scored_other_tokens_are_refused_with_the_reason(made, path, value, said):
    other = made()
    here = other["provenance"]["protocol"]
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    with pytest.raises(ValueError, match=rf"runs/b has {said} than runs/a \(.*\): their losses can't be compared"):
        read.joined({"runs/a": made(), "runs/b": other})


def test_an_encoding_in_two_folders_is_told_apart_by_the_folder(made):
    both = read.joined({"runs/a": made(encodings=("nope", "rope")), "runs/b": made(encodings=("rope", "alibi"))})
    names = list(dict.fromkeys(name(run) for run in both["runs"]))
    assert names == [
        "nope",
        "rope (a)",
        "rope (a), linear",
        "rope (a), yarn",
        "rope (b)",
        "rope (b), linear",
        "rope (b), yarn",
        "alibi",
    ]
    assert len(both["runs"]) == 2 * (4 + 4)


def test_folders_of_one_name_are_told_apart_by_more_of_the_path(made):
    both = read.joined({"x/run": made(encodings=("rope",)), "y/run": made(encodings=("rope",))})
    assert {name(run) for run in both["runs"] if run["strategy"] == "none"} == {"rope (x/run)", "rope (y/run)"}


def test_strategies_of_joined_runs_are_set_against_their_own_model(made):
    worse = made(encodings=("rope",), seeds=(0,))
    for run in worse["runs"]:
        for row in (*run["loss_by_length"], *run.get("fixed", [])):
            row["loss"] += 1.0
    for one in worse["comparisons"]:
        one["difference"] += 0.5
    both = read.joined({"a": made(encodings=("rope",), seeds=(0,)), "b": worse})
    found = {row[0]: row for row in lab_tables.strategy_table(both)[1]}
    assert found["rope (a), yarn"][2] == found["rope (b), yarn"][2] == "+0.150"
    assert found["rope (a), yarn"][5].startswith("+0.360") and found["rope (b), yarn"][5].startswith("-0.140")
    assert "rope (a)" in answer(both)


def test_text_of_one_folder_and_tasks_of_another_are_one_encoding(made):
    tasks = made(encodings=(), tasks={"recall": {"rope": 0.5}})
    both = read.joined({"a": made(encodings=("rope",)), "b": tasks})
    assert all("from" not in run for run in both["runs"])


def test_what_else_differs_is_said_and_every_folder_has_its_protocol(made):
    other = made(encodings=("alibi",))
    other["provenance"]["protocol"]["plan"]["steps"] = 900
    both = read.joined({"a": made(encodings=("rope",)), "b": other})
    assert "These runs differ in steps (a: 20; b: 900)." in document(both).markdown()
    titles = [section.title for section in document(both).sections]
    assert titles[-2:] == ["Protocol and provenance of a", "Protocol and provenance of b"]


def test_one_folder_is_itself(made):
    assert read.joined({"a": made()}) == made()


def test_a_folder_given_twice_is_refused(made, tmp_path):
    put(tmp_path / "a", made())
    with pytest.raises(ValueError, match="is given twice"):
        read.load_all([tmp_path / "a", tmp_path / "b" / ".." / "a"])


def test_a_report_is_written_without_torch_or_numpy(made, tmp_path):
    put(tmp_path, made(tasks={"recall": {"rope": 0.5}}))
    code = f"""
import sys
sys.modules["torch"] = sys.modules["numpy"] = None
from milepost.lab import report as lab
lab.save(lab.load({str(tmp_path)!r}), {str(tmp_path)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 30_000 and (tmp_path / "report.md").exists()
