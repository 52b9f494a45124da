"""A small share of `make attack`: some inputs of every target, and that a finding is one."""

import os
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CLONE))

from tools.attack import inputs, kills  # noqa: E402 (the clone is on the path now)
from tools.attack.__main__ import SHARES  # noqa: E402

COUNT = int(os.environ.get("MILEPOST_ATTACK", "40"))


@pytest.mark.slow
@pytest.mark.parametrize("target", SHARES)
def test_hostile_inputs_are_read_or_refused_in_a_sentence(target):
    done = inputs.run(target, COUNT if target != "results_json" else COUNT // 4, seed=99)
    assert done["findings"] == [] and done["read"] + done["refused"] == done["inputs"] > 0


@pytest.mark.slow
def test_a_killed_command_is_run_again_and_ends_with_the_same_bits():
    done = kills.run(8, seed=99, only=("extend", "migrate", "resize", "convert_layout", "lab"))
    assert done["findings"] == [] and done["met a run"] > 0 and done["inputs"] == 8


def test_every_target_has_a_file_and_a_share():
    held = {file.stem for file in (CLONE / "tools" / "attack").glob("*.py")}
    assert held - {"__init__", "__main__", "inputs", "kills", "mutation", "seeds"} == set(SHARES)
    assert sum(SHARES.values()) == 100


@pytest.mark.parametrize(
    ("does", "what"),
    [
        (lambda: {}["x"], "KeyError"),
        (lambda: int("x"), "ValueError"),
        (lambda: bytearray(700 << 20).extend(b"x"), "MB"),
        (lambda: sum(n * n for n in range(4_000_000)), "took"),
    ],
    ids=["traceback", "a ValueError of Python's own", "memory", "time"],
)
def test_a_finding_is_found(does, what, monkeypatch):
    from types import SimpleNamespace

    monkeypatch.setitem(
        sys.modules, "tools.attack.made", SimpleNamespace(prepare=lambda _: 0, attack=lambda *_: does())
    )
    monkeypatch.setattr(inputs, "WARM", 0)
    monkeypatch.setattr(inputs, "SECONDS", 0.1)
    done = inputs.run("made", 1)
    assert len(done["findings"]) == 1 and what in done["findings"][0]["what"]


def test_the_pieces_of_a_run_make_its_inputs_once_and_judge_them_all(monkeypatch):
    from types import SimpleNamespace

    seen = []

    made_of = SimpleNamespace(prepare=lambda _: 0, attack=lambda _, rng: seen.append(rng.random()))
    monkeypatch.setitem(sys.modules, "tools.attack.made", made_of)
    monkeypatch.setattr(inputs, "WARM", 3)
    whole = inputs.run("made", 20)
    made = list(seen)
    seen.clear()
    pieces = [inputs.run("made", 6), inputs.run("made", 14, first=6)]
    assert seen == [*made[:6], *made[3:]]  # those before a piece are made again
    assert [one["inputs"] for one in (whole, *pieces)] == [20, 6, 14]
    monkeypatch.setattr(inputs, "SECONDS", -1.0)  # each takes too long: all that are judged by time are found
    late = [
        [found["input"] for found in inputs.run("made", n, first=first)["findings"]] for n, first in ((6, 0), (2, 6))
    ]
    assert late == [[3, 4, 5], [6, 7]]


def test_a_refusal_of_ours_is_no_finding():
    from milepost import build

    with pytest.raises(ValueError, match="unknown encoding") as raised:
        build("rop")
    assert inputs.judge(raised.value) is None
