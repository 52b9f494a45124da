"""bench train and bench evaluate say what they promise; how fast is no test's business."""

import json

import pytest
from typer.testing import CliRunner

from milepost.cli import app


def run(*words):
    return CliRunner().invoke(app, ["bench", *words])


@pytest.mark.slow
def test_training_throughput_is_a_ratio_to_nope():
    done = run("train", "--profile", "tiny", "--rounds", "1", "--json")
    rows = {row["encoding"]: row for row in json.loads(done.stdout)}
    schemes = {"nope", "alibi", "rope", "t5", "kerple", "shaw", "transformer_xl", "deberta"}
    assert done.exit_code == 0 and set(rows) == schemes and rows["nope"]["ratio"] == 1
    for row in rows.values():
        assert row["ratio"] == pytest.approx(row["tokens_per_s"] / rows["nope"]["tokens_per_s"])


def test_evaluation_is_a_ratio_to_one_long_pass():
    done = run("evaluate", "--profile", "tiny", "--rounds", "1", "--json")
    one, sliding = json.loads(done.stdout)
    assert (
        done.exit_code == 0
        and one["ratio"] == 1
        and sliding["ratio"] == pytest.approx(sliding["seconds"] / one["seconds"])
    )


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_a_table_for_people_and_wrong_words(command):
    done = run(command, "--profile", "tiny", "--rounds", "1")
    assert done.exit_code == 0 and ("nope" in done.stdout or "one long pass" in done.stdout)
    wrong = run(command, "--profile", "huge")
    assert wrong.exit_code == 2 and "unknown profile 'huge'" in wrong.stderr
    assert run(command, "--rounds", "0").exit_code == 2
