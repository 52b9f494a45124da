"""bench all goes on where it was stopped, keeps every part that it finished, and does a part again when asked to."""

import json

import pytest
from typer.testing import CliRunner

from milepost.bench import everything
from milepost.cli import app

pytestmark = pytest.mark.slow


@pytest.fixture
def small(monkeypatch):
    """Three parts that count how often they ran; the second fails the first time."""
    ran = {"rotation": 0, "forward-4096": 0, "decode-16384": 0}

    def part(name):
        def run():
            ran[name] += 1
            if name == "forward-4096" and ran[name] == 1:
                raise KeyboardInterrupt
            row = {
                "scheme": "rope",
                "implementation": "milepost",
                "length": 4096,
                "ratio": float(ran[name]),
                "seconds": 1.0,
                "peak_mb": 1.0,
                "note": "",
            }
            extra = {"mode": "eager", "times_ours": 1.0} if name == "rotation" else {"pass": name.split("-")[0]}
            return [{**row, **extra}]

        return run

    monkeypatch.setattr(everything, "parts", lambda tell: {name: part(name) for name in ran})
    return ran


def run(*words):
    return CliRunner().invoke(app, ["bench", "all", *map(str, words)])


def test_a_killed_benchmark_goes_on_with_what_is_missing(small, tmp_path):
    assert run("--out", tmp_path).exit_code != 0
    held = json.loads((tmp_path / "bench.json").read_text())
    assert list(held["parts"]) == ["rotation"] and held["rope"] and not held["rows"]
    assert run("--out", tmp_path, "--resume").exit_code == 0
    assert small == {"rotation": 1, "forward-4096": 2, "decode-16384": 1}
    done = json.loads((tmp_path / "bench.json").read_text())
    assert [row["pass"] for row in done["rows"]] == ["forward", "decode"] and (tmp_path / "bench.md").exists()


def test_one_part_can_be_done_again(small, tmp_path):
    small["forward-4096"] = 1
    run("--out", tmp_path)
    before = json.loads((tmp_path / "bench.json").read_text())
    assert run("--out", tmp_path, "--resume", "--again", "decode-16384").exit_code == 0
    after = json.loads((tmp_path / "bench.json").read_text())
    assert small["rotation"] == 1 and small["decode-16384"] == 2
    assert after["parts"]["forward-4096"] == before["parts"]["forward-4096"] and after["rows"][-1]["ratio"] == 2.0


def test_wrong_words_and_broken_files(small, tmp_path):
    small["forward-4096"] = 1
    wrong = run("--out", tmp_path, "--resume", "--again", "nothing")
    assert wrong.exit_code == 2 and "unknown part 'nothing'" in wrong.stderr
    (tmp_path / "bench.json").write_text('{"parts": ')
    broken = run("--out", tmp_path, "--resume")
    assert broken.exit_code == 2 and "run without --resume" in broken.stderr
