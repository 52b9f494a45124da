"""`milepost lab --modality ...`, as a user runs it: what it prints, what it refuses, and with which exit code."""

import json

import pytest
from in_process import trials_here
from test_lab_images import fill, save
from typer.testing import CliRunner

from milepost.cli import app
from milepost.lab import report as lab_any


def run(*words):
    return CliRunner().invoke(
        app, [str(word) for word in words], env={"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}
    )


def lab(modality, *words):
    return run("lab", "--modality", modality, "--profile", "tiny", *words)


@pytest.mark.slow
def test_a_tiny_run_on_digits_ends_with_a_table_an_answer_and_a_report(tmp_path):
    out = tmp_path / "run"
    done = lab("image", "--encodings", "learned,axial(base=100.0)", "--lengths", "1x,16", "--seeds", "3,", "--out", out)
    assert done.exit_code == 0, done.output
    assert (
        "8 x 8 (1x)" in done.stdout
        and "16 x 16 (2x)" in done.stdout
        and "table ends" in done.stdout
        and "At the trained 8 x 8 pixels" in done.stdout
    )
    assert f"open {out / 'report.html'}" in done.stderr
    results = lab_any.load(out)
    assert [(one["encoding"], one["strategy"], one["seed"]) for one in results["runs"]] == [
        ("learned", "none", 3),
        ("axial(base=100.0)", "none", 3),
        ("axial(base=100.0)", "linear", 3),
    ]
    (out / "report.html").unlink()
    again = run("report", out, "--json")
    assert (
        again.exit_code == 0
        and json.loads(again.stdout) == [str(out / "report.html"), str(out / "report.md")]
        and (out / "report.html").exists()
    )
    for words in (("compare", out), ("choose", "--runs", out)):
        refused = run(*words)
        assert refused.exit_code == 2 and "another modality than text (image)" in refused.stderr
    resumed = lab(
        "image",
        "--encodings",
        "learned,axial(base=100.0)",
        "--lengths",
        "1x,16",
        "--seeds",
        "3,",
        "--out",
        out,
        "--resume",
        "--json",
    )
    assert resumed.exit_code == 0 and json.loads(resumed.stdout)["runs"] == results["runs"]
    other = lab("video", "--out", out, "--resume")
    assert other.exit_code == 2 and "holds results of another plan" in other.stderr


@pytest.mark.slow
@pytest.mark.parametrize("modality", ["video", "eeg"])
def test_a_tiny_run_on_signals(modality, tmp_path):
    with trials_here():
        done = lab(modality, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())  # without the terminal's line breaks
    assert "nope knows the order on no axis" in said and "To move a signal by 1,048,576 places" in said
    assert {run["data"] for run in lab_any.load(tmp_path / "run")["runs"]} == {modality}


@pytest.mark.parametrize(
    ("modality", "words", "said"),
    [
        ("image", ["--text", "book.txt"], "--modality image has no use for --text: images have nothing like it"),
        ("image", ["--tasks", "recall"], "no use for --tasks"),
        ("image", ["--tokenizer", "bytes"], "no use for --tokenizer"),
        ("image", ["--tune", "5"], "no use for --tune"),
        ("image", ["--strategies", "yarn"], "unknown strategy 'yarn' for images; there are none, linear"),
        ("image", ["--lengths", "0.6x"], "would be 2.4 x 2.4 patches of 2 pixels"),
        ("image", ["--train-length", "7"], "a multiple of 2, from 4 to 64; got 7"),
        ("image", ["--encodings", "rope(scaling=yarn(factor=2.0, trained=16)),axail"], "did you mean 'axial'"),
        ("image", ["--images", "nowhere"], "there is no folder"),
        ("video", ["--lengths", "1x"], "--modality video has no use for --lengths: made signals have nothing like it"),
        ("eeg", ["--train-length", "8"], "--modality eeg has no use for --train-length"),
        ("eeg", ["--images", "pets"], "no use for --images"),
        ("video", ["--strategies", "linear"], "no use for --strategies"),
        ("text", ["--images", "pets"], "--modality text has no use for --images: text has nothing like it"),
    ],
)
def test_what_a_modality_has_no_use_for_is_refused(modality, words, said, tmp_path):
    done = lab(modality, *words, "--out", tmp_path / "run")
    assert done.exit_code == 2 and said in done.stderr and done.stdout == ""
    assert not (tmp_path / "run").exists()


def test_images_of_mixed_sizes_are_refused_by_name(tmp_path):
    fill(tmp_path / "pets")
    save(tmp_path / "pets" / "dog" / "wide.png", [[0] * 12] * 6)
    done = lab("image", "--images", tmp_path / "pets", "--out", tmp_path / "run")
    assert done.exit_code == 2 and "cat/00.png is 6 x 10 and dog/wide.png is 6 x 12" in done.stderr
