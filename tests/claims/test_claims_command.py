"""`milepost claims` as a user runs it: rows, files, words, exit codes."""

import json

import pytest
from typer.testing import CliRunner

from milepost.claims import report
from milepost.claims.judge import document, judge
from milepost.claims.rule import VERDICTS, sentence
from milepost.claims.table import CLAIMS
from milepost.cli import app

TABLE = {
    "permutation", "causal-bag", "alice-bob", "same-token", "length-is-no-signal", "previous-token", "integer-swamps",
    "binary-jumps", "sin-unique", "sin-linear", "sin-dot", "wavelengths", "add-vs-concat", "orthogonal",
    "shared-heads", "learned-ends", "shift", "sin-extrapolates", "t5-limits", "alibi-flat", "alibi-infinite",
    "alibi-heads", "alibi-cost", "rope-relative", "rope-norm", "rope-vanishes", "rope-decay", "rope-breaks",
    "rope-far-random", "base-up", "phase-wrap", "dims-scales", "pi-local", "ntk-both", "yarn-balance",
    "yarn-needs-training", "trade", "memory", "latency", "alibi-cheapest", "linear-attention", "absolute-tasks",
    "migrate", "vit-2d", "n-d", "choose", "rope-sign", "rope-abs", "rope-in-range", "sin-relation",
    "alibi-weights-linear", "alibi-same-distribution", "pairs-in-code", "ntk-64", "bucket-or-function",
    "learned-fits", "add-or-concat-trained", "integer-binary-train", "nearest", "rnn",
}  # fmt: skip


def run(*words):
    return CliRunner().invoke(
        app, ["claims", *[str(word) for word in words]], env={"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}
    )


def test_the_whole_table_is_there_with_both_languages_and_a_source():
    known = CLAIMS
    assert set(known) == TABLE and len(known) == 60
    for claim in known.values():
        assert claim.statement.endswith(".") and any(
            "一" <= letter <= "鿿" or letter == "。" for letter in claim.chinese
        )
        assert claim.source[0] == "0" and claim.experiment and any(clause.role == "core" for clause in claim.rule)
        assert claim.parts


def test_json_is_a_list_of_rows():
    done = run("rope-sign", "alibi-weights-linear", "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["id"] for row in rows] == ["rope-sign", "alibi-weights-linear"]
    for row in rows:
        assert row["verdict"] in VERDICTS
        assert all(
            isinstance(row[name], str) and row[name]
            for name in ("evidence", "rule", "statement", "statement_zh", "source", "experiment")
        )
        assert row["rule"] == sentence(CLAIMS[row["id"]].rule)
        for clause in row["clauses"]:
            assert {"role", "words", "side", "bound", "says", "measured"} <= clause.keys()


def test_words_say_the_verdict_and_count():
    done = run("rope-norm")
    assert done.exit_code == 0
    assert "rope-norm" in done.stdout and "holds" in done.stdout and "Of 1 claim: 1 holds." in done.stdout


def test_an_unknown_claim_is_told_the_nearest():
    done = run("rope-sing")
    assert done.exit_code == 2
    assert "there is no claim 'rope-sing' (did you mean 'rope-sign'?)" in done.stderr and "Traceback" not in done.output


def test_exact_refuses_a_claim_without_an_exact_part():
    done = run("rope-breaks", "--exact")
    assert done.exit_code == 2 and "rope-breaks has none; leave --exact out" in done.stderr


def test_exact_runs_the_exact_half_of_a_mixed_claim_and_says_what_was_left_out():
    row = json.loads(run("causal-bag", "--exact", "--json").stdout)[0]
    assert row["verdict"] == "holds with a limit"
    assert "Its trained part was not run: only exact experiments were asked for" in row["evidence"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seeds", "3,4"], "--seeds chooses the models to train: give --out"),
        (["--seeds", "x", "--out", "OUT"], "--seeds is how many, such as 3, or which, such as 0,7; got 'x'"),
        (["--seeds", "11", "--out", "OUT"], "claims are judged on at most 10 seeds, got 11"),
        (["--seeds", "4,4", "--out", "OUT"], "seeds are different whole numbers"),
    ],
)
def test_seeds_that_can_t_be_trained_are_said(tmp_path, words, said):
    out = tmp_path / "claims"
    done = run("rope-breaks", *[str(out) if word == "OUT" else word for word in words])
    assert done.exit_code == 2 and said in done.stderr and not out.exists()


def test_a_model_wants_a_text():
    done = run("pi-local", "--model", "somewhere")
    assert done.exit_code == 2 and "give both --model and --text" in done.stderr


def test_what_can_t_run_is_a_row_with_its_reason():
    row = json.loads(run("alice-bob", "--json").stdout)[0]
    assert row["verdict"] == "not decided here"
    assert "no folder was given to train them in: give --out" in row["evidence"]


@pytest.mark.parametrize("name", ["migrate", "vit-2d"])
def test_what_is_trained_wants_a_folder(name):
    row = judge([name])[0]
    assert row["verdict"] == "not decided here" and "give --out" in row["evidence"]


def test_out_writes_a_document_with_provenance_and_a_page(tmp_path):
    out = tmp_path / "claims"
    done = run("rope-sign", "rope-abs", "--exact", "--out", out)
    assert done.exit_code == 0 and f"open {out / 'claims.html'}" in done.stderr
    data = json.loads((out / "claims.json").read_text())
    assert [row["id"] for row in data["rows"]] == ["rope-sign", "rope-abs"]
    assert data["provenance"]["versions"]["milepost"] and data["provenance"]["protocol"]["exact"] is True
    assert report.document(data).html() == (out / "claims.html").read_text()
    assert report.document(data).markdown() == (out / "claims.md").read_text()
    again = run("rope-sign", "--exact", "--out", out)
    assert again.exit_code == 2 and "holds claims already: go on with --resume" in again.stderr
    assert run("rope-sign", "--exact", "--out", out, "--resume").exit_code == 0


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "novel.txt").write_text("once")
    done = run("rope-sign", "--out", tmp_path)
    assert done.exit_code == 2 and "holds other things than claims" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["novel.txt"]


def test_the_page_is_made_of_the_rows_alone():
    data = document([{**row, "verdict": "fails"} for row in judge(["rope-norm"])])
    assert report.counted(data["rows"]) == {"holds": 0, "holds with a limit": 0, "fails": 1, "not decided here": 0}
    assert "fails (1)" in report.document(data).html()


def test_help_has_an_example():
    done = run("--help")
    assert done.exit_code == 0 and "milepost claims" in done.stdout and "--exact" in done.stdout


def test_a_checkpoint_that_is_not_there_is_said_before_anything_is_trained(tmp_path):
    words = [
        "claims",
        "pi-local",
        "--out",
        str(tmp_path / "out"),
        "--model",
        str(tmp_path / "none"),
        "--text",
        str(tmp_path / "none.txt"),
    ]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 2 and "there is no file or folder" in ran.stderr and not (tmp_path / "out").exists()
