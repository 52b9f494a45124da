"""Ctrl-C: one sentence that says how to go on, exit code 130, and nothing half-written."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from milepost.bench import everything
from milepost.claims import trained
from milepost.cli import app
from milepost.cli.served import journal
from milepost.cli.shared import INTERRUPTED

STOP = """
import signal, sys, os, importlib
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts us in the background ignores it
module, name = sys.argv[1].rsplit(".", 1)
def stop(*given, **named):
    os.kill(os.getpid(), signal.SIGINT)
    import time; time.sleep(30)
setattr(importlib.import_module(module), name, stop)
from milepost.cli import app
app(sys.argv[2:])
"""


def stopped_in(where: str, *words: str) -> str:
    """The words of a command to which Ctrl-C comes in the function ``where``."""
    ran = subprocess.run(
        [sys.executable, "-c", STOP, where, *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == INTERRUPTED == 128 + signal.SIGINT and "Traceback" not in ran.stderr, ran.stderr
    return ran.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_lab_run_that_is_stopped_says_how_to_go_on(tmp_path):
    out = tmp_path / "run"
    words = ["lab", "--profile", "tiny", "--encodings", "rope", "--seeds", "1", "--out", str(out), "--workers", "1"]
    said = stopped_in("milepost.lab.sweep.driver.store_finished", *words)
    assert said == f"milepost: stopped; what is done so far is kept in {out}: go on with --resume"
    assert (out / "plan.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_a_command_that_keeps_nothing_says_so_and_leaves_nothing(command, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    where = f"milepost.checkpoints.{'verification.verify' if command == 'verify' else 'inspection.inspect'}.{command}"
    said = stopped_in(where, command, str(tmp_path / "model"), "--out", str(tmp_path / "out"))
    assert said == "milepost: stopped; to begin again, give the same command"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    "command", ["extend", "migrate", "resize", "recommend", "diagnose", "claims", "convert-layout"]
)
def test_every_long_command_ends_with_a_sentence(command, tmp_path, monkeypatch):
    """Where a training is there, its folder adds the note; see tests/measure/test_folder.py."""
    places = {
        "extend": "milepost.checkpoints.extension.extend.extend",
        "migrate": "milepost.checkpoints.migrate",
        "resize": "milepost.checkpoints.resizing.resize.resize",
        "recommend": "milepost.checkpoints.recommend",
        "diagnose": "milepost.checkpoints.diagnose",
        "claims": "milepost.claims.judge.judge",
        "convert-layout": "milepost.checkpoints.convert_layout",
    }
    words = {
        "extend": ["m", "--target-length", "2k", "--out", "o"], "migrate": ["m", "--to", "rope", "--text", "t", "--steps", "5", "--out", "o"],
        "resize": ["m", "--length", "9", "--out", "o"], "recommend": ["m", "--target-length", "2k", "--text", "t"],
        "diagnose": ["m", "--text", "t", "--lengths", "1k"], "claims": ["rope-sign"], "convert-layout": ["m", "--to", "half", "--out", "o"],
    }  # fmt: skip
    note = "the training is kept: go on with --resume"

    def stop(*given, **named):
        error = KeyboardInterrupt()
        error.add_note(note)
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(places[command], stop)
    ran = CliRunner().invoke(app, [command, *words[command]])
    assert ran.exit_code == INTERRUPTED and ran.stderr.strip().endswith(f"milepost: stopped; {note}")
    assert list(Path().iterdir()) == []


def _stop(*given, **named):
    raise KeyboardInterrupt


def _said(*words):
    ran = CliRunner().invoke(app, [*words])
    return ran.exit_code, " ".join(ran.stderr.split())


def test_claims_whose_training_has_begun_say_how_to_go_on(tmp_path, monkeypatch):
    """The same command would be refused, because the folder holds something now."""
    command = ["claims", "alibi-heads", "--workers", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(trained, "store_finished", _stop)
    note = f"milepost: stopped; what is done so far is kept in {tmp_path / 'out'}: go on with --resume"
    assert _said(*command) == (INTERRUPTED, note)
    code, said = _said(*command)
    assert code == 2 and "go on with --resume" in said
    assert _said(*command, "--resume") == (INTERRUPTED, note)  # it goes on, and is stopped again


def test_a_benchmark_says_how_to_go_on_once_a_part_is_kept(tmp_path, monkeypatch):
    """Parts of an older run in the same folder are not what this one has done: without --resume they are not kept."""
    command, begun = ["bench", "all", "--out", str(tmp_path)], []
    parts = {"rotation": lambda: begun.append("rotation") or [], "lab": _stop}
    monkeypatch.setattr(everything, "parts", lambda tell: parts)
    kept = f"milepost: stopped; what is done so far is kept in {tmp_path}: go on with --resume"
    code, said = _said(*command)
    assert code == INTERRUPTED and said.endswith(kept) and begun == ["rotation"]
    code, said = _said(*command, "--resume")
    assert code == INTERRUPTED and said.endswith(kept) and begun == ["rotation"]
    parts["rotation"] = _stop
    code, said = _said(*command)
    assert code == INTERRUPTED and said.endswith("milepost: stopped; to begin again, give the same command")


def test_what_a_server_answered_is_kept_and_said(tmp_path):
    with pytest.raises(KeyboardInterrupt) as stopped, journal(tmp_path / "out", False) as kept:
        kept.touch()
        raise KeyboardInterrupt
    note = f"what is done so far is kept in {tmp_path / 'out.readings.jsonl'}: go on with --resume"
    assert stopped.value.__notes__ == [note]
