"""Each part of bench all runs in a process of its own, which says what it does and why it stopped."""

import pytest

from milepost.bench import everything, parts


def test_every_part_has_its_time_and_the_other_way_round():
    known = parts.parts(lambda text: None)
    assert list(known) == list(everything.MINUTES) == list(everything.parts(lambda text: None))


@pytest.mark.slow
def test_a_part_runs_in_a_process_of_its_own_and_tells_what_it_does():
    told = []
    rows = parts.run_apart("path-512", told.append)
    assert [row["scheme"] for row in rows] == ["nope", "path"] and rows[1]["ratio"] > 0
    assert any("path forward 512" in text for text in told)


def test_schemes_have_a_process_each_and_what_ratios_are_to_has_one_row(monkeypatch):
    ran = []

    def run(name, schemes, tell):
        ran.append((name, *schemes))
        return [{"scheme": "nope"}, *({"scheme": scheme} for scheme in schemes)]

    monkeypatch.setattr(parts, "_run_process", run)
    rows = parts.run_apart("training-4096", print)
    assert ran == [("training-4096", "rope"), ("training-4096", "alibi"), ("training-4096", "t5")]
    assert [row["scheme"] for row in rows] == ["nope", "rope", "alibi", "t5"]


def test_a_part_that_stops_says_why():
    with pytest.raises(RuntimeError, match=r"the part nothing stopped \(1\): KeyError: 'nothing'"):
        parts.run_apart("nothing", lambda text: None)
