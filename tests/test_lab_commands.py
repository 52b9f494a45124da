"""lab, report, compare and choose, as a user runs them: what they print, where, and with which exit code."""

import json
import os
import pty
import subprocess
import sys

import pytest
from in_process import trials_here
from typer.testing import CliRunner

from milepost.cli import app
from milepost.lab import choose as chooser
from milepost.lab import report


def run(*words, **more):
    return CliRunner().invoke(
        app, [str(word) for word in words], env={"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}, **more
    )


@pytest.fixture
def folders(made, tmp_path):
    """Two runs that can be compared, one with strategies and one with another encoding."""
    for name, results in (
        ("first", made(tasks={"recall": {"rope": 0.5, "nope": 2.2}})),
        ("second", made(encodings=("rope", "sinusoidal"))),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(results))
    return tmp_path / "first", tmp_path / "second"


def change(folder, *path, to):
    found = json.loads((folder / "results.json").read_text())
    here = found
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = to
    (folder / "results.json").write_text(json.dumps(found))


# -- lab
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_tiny_run_ends_with_a_table_an_answer_and_a_report(tmp_path):
    out = tmp_path / "run"
    with trials_here():
        done = run("lab", "--profile", "tiny", "--encodings", "nope,learned", "--lengths", "1x,2x", "--out", out)
    assert done.exit_code == 0, done.output
    assert (
        "16 (1x)" in done.stdout and "table ends" in done.stdout and "At 2 times the trained 16 tokens" in done.stdout
    )
    assert f"open {out / 'report.html'}" in done.stderr
    results = report.load(out)
    assert (out / "report.md").read_text() == report.document(results).markdown()
    assert {run["encoding"] for run in results["runs"]} == {"nope", "learned"}
    again = run("lab", "--profile", "tiny", "--encodings", "nope,learned", "--lengths", "1x,2x", "--out", out)
    assert again.exit_code == 2 and "holds results already; go on with --resume" in again.stderr


# -- report
# -------------------------------------------------------------------------------------------------------------------


def test_report_writes_both_files_from_results_alone(folders):
    done = run("report", folders[0])
    assert done.exit_code == 0 and done.stdout == ""
    assert (folders[0] / "report.html").exists() and "## Tasks" in (folders[0] / "report.md").read_text()


def test_report_as_json_names_the_files(folders):
    done = run("report", folders[0], "--json")
    assert json.loads(done.stdout) == [str(folders[0] / "report.html"), str(folders[0] / "report.md")]


def test_report_of_what_is_no_run_is_a_sentence(folders, tmp_path):
    done = run("report", tmp_path / "nowhere")
    assert done.exit_code == 2 and done.stderr.startswith("milepost: ") and "holds no results.json" in done.stderr
    (folders[0] / "results.json").write_text((folders[0] / "results.json").read_text()[:999])
    done = run("report", folders[0])
    assert done.exit_code == 2 and "no whole JSON" in done.stderr and "Traceback" not in done.output


# -- compare
# ------------------------------------------------------------------------------------------------------------------


def test_compare_puts_runs_in_one_table_and_report(folders, tmp_path):
    done = run("compare", *folders, "--out", tmp_path / "both")
    assert done.exit_code == 0, done.output
    for name in ("rope (first)", "rope (second), yarn", "sinusoidal", "alibi"):
        assert f"\n{name}  " in done.stdout
    assert (tmp_path / "both" / "report.html").exists() and "of second" in (tmp_path / "both" / "report.md").read_text()


def test_compare_as_json(folders):
    done = run("compare", *folders, "--json")
    found = json.loads(done.stdout)
    assert [part["from"] for part in found["joined"]] == ["first", "second"]
    assert {run.get("from") for run in found["runs"] if run["encoding"] == "rope" and run["data"] == "text"} == {
        "first",
        "second",
    }


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("text", "sha256"), "0" * 64, "another text"),
        (("plan", "lengths"), [16, 32], "other lengths"),
        (("plan", "shape", "length"), 8, "another trained length"),
    ],
)
def test_compare_refuses_other_texts_and_lengths_with_the_reason(folders, path, value, said):
    change(folders[1], "provenance", "protocol", *path, to=value)
    done = run("compare", *folders)
    assert done.exit_code == 2 and f"{folders[1]} has {said} than {folders[0]}" in done.stderr and done.stdout == ""


def test_compare_does_not_write_over_a_run_s_own_report(folders):
    done = run("compare", *folders, "--out", folders[0])
    assert done.exit_code == 2 and "holds a run of its own" in done.stderr


# -- choose
# -------------------------------------------------------------------------------------------------------------------

SAID = ["--trained-length", "64", "--target-length", "256", "--modality", "text", "--no-far-recall", "--no-absolute"]


def test_choose_ranks_with_evidence_and_cost(folders):
    done = run("choose", *SAID, "--runs", folders[0])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert "trained at 16 tokens, tested at 64, which is 4 times; 2 seeds" in done.stdout.replace("\n", " ")
    first, second = (next(line for line in lines if line.startswith(f"{place}. ")) for place in (1, 2))
    assert first.split()[1] == "alibi" and "2.425" in first and "+0.8%" in first
    assert "rope, yarn" in second and "/" in second
    assert "Not ranked: learned (its table ends before 64 tokens)." in done.stdout
    assert "assumed" not in done.output


def test_choose_says_what_it_assumed_when_nobody_can_be_asked(folders):
    done = run("choose", "--runs", folders[0], "--far-recall")
    assert done.exit_code == 0
    assert (
        "trained at 4096 (assumed), to read 16384 tokens (assumed), text (assumed), far recall matters, absolute place"
        in done.stdout
    )
    assert "not measured" in done.stdout


def test_choose_as_json(folders):
    done = run("choose", *SAID, "--runs", folders[0], "--json")
    found = json.loads(done.stdout)
    assert found["ranked"][0]["name"] == "alibi" and found["assumed"] == {} and found["source"] == str(folders[0])
    assert found["ranked"][1]["cost"]["forward"]["ratio"] > 0


def test_choose_takes_several_runs_that_can_be_compared(folders):
    done = run("choose", *SAID, "--runs", folders[0], "--runs", folders[1], "--json")
    assert {"rope (first), yarn", "rope (second), yarn", "sinusoidal"} <= {
        one["name"] for one in json.loads(done.stdout)["ranked"]
    }
    change(folders[1], "provenance", "protocol", "text", "sha256", to="0" * 64)
    done = run("choose", *SAID, "--runs", folders[0], "--runs", folders[1])
    assert done.exit_code == 2 and "another text" in done.stderr


def test_choose_judges_by_what_ships_or_says_that_nothing_does(made, monkeypatch, tmp_path):
    monkeypatch.setattr(chooser, "MEASURED", tmp_path)
    done = run("choose", *SAID)
    assert done.exit_code == 2 and "no lab measurements come with this milepost" in done.stderr
    (tmp_path / "lab.json").write_text(json.dumps(made()))
    done = run("choose", *SAID)
    assert done.exit_code == 0 and "Measured (shipped with the package)" in done.stdout and "1. alibi" in done.stdout
    assert "not measured" in done.stdout  # no bench.json there


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--trained-length", "many"], "lengths are numbers"), (["--target-length", "0"], "lengths are numbers")],
)
def test_choose_refuses_what_is_no_length(folders, words, said):
    done = run("choose", "--runs", folders[0], *words)
    assert done.exit_code == 2 and said in done.stderr


def test_choose_asks_on_a_terminal_for_what_was_not_said(folders):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "milepost.cli", "choose", "--runs", str(folders[0]), "--target-length", "4k"]
    env = os.environ | {"NO_COLOR": "1", "COLUMNS": "200"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        os.write(ours, b"2k\ntext\ny\nn\n")
        try:
            said, asked = process.communicate(timeout=60)
        finally:
            process.kill()  # one that still waits for an answer would wait for ever
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, asked
    for question in (
        "Tokens that the model is trained on [4096]",
        "What does it read",
        "Must it find things far back",
        "Does the absolute place",
    ):
        assert question in asked
    assert "Tokens that it must read" not in asked
    assert (
        "trained at 2048, to read 4096 tokens, text, far recall matters, absolute place does not matter." in said
        and "assumed" not in said
    )


def test_choose_needs_no_torch(folders):
    code = f"""
import sys
sys.modules["torch"] = sys.modules["numpy"] = None
from milepost.cli import app
app(["choose", "--runs", {str(folders[0])!r}, "--json"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranked"]


@pytest.mark.parametrize("seeds", ["200000000", "9" * 400, "1001", "0"])
def test_more_seeds_than_anybody_trains_are_refused_at_once(seeds, tmp_path):
    done = CliRunner().invoke(app, ["lab", "--profile", "tiny", "--seeds", seeds, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2 and "--seeds is from 1 to 1000" in done.output and not (tmp_path / "out").exists()
