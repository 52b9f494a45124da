"""Published patterns: each passes where a run shows it, fails where it does not, and says when it can't be asked."""

import copy

import pytest

from milepost.lab.report.answer import answer, notes
from milepost.lab.report.evidence.learning import gain_of_doubling, unsettled
from milepost.lab.report.evidence.patterns import FAIL, PASS, UNKNOWN, patterns
from milepost.lab.report.evidence.published import PUBLISHED, TABLE, perplexity_rise
from milepost.lab.report.evidence.ranks import rank_table, reciprocal_ranks

LENGTHS = [64, 80, 96, 128, 256, 512]
LOSSES = {
    "nope": [1.87, 1.97, 2.11, 2.31, 2.49, 2.62],
    "sinusoidal": [1.32, 2.25, 3.42, 3.55, 3.64, 4.01],
    "learned": [1.34, None, None, None, None, None],
    "t5": [1.32, 1.36, 1.52, 1.91, 2.70, 2.99],
    "alibi": [1.35, 1.35, 1.35, 1.36, 1.36, 1.37],
    "rope": [1.31, 1.31, 1.42, 2.34, 3.27, 3.52],
}
SCALED = {"linear": 2.9, "ntk": 2.3, "dynamic": 2.2, "yarn": 1.8}


def results(losses=LOSSES, scaled=SCALED):
    def run(encoding, strategy, row):
        rows = [{"length": n, "loss": loss} for n, loss in zip(LENGTHS, row, strict=True)]
        return {"encoding": encoding, "strategy": strategy, "seed": 0, "loss_by_length": rows}

    runs = [run(name, "none", row) for name, row in losses.items()]
    runs += [run("rope", name, [1.31, 1.4, 1.5, 1.6, loss, 3.0]) for name, loss in scaled.items()]
    plan = {"shape": {"length": 64}, "lengths": LENGTHS, "steps": 10, "rows": 2, "seeds": [0]}
    text = {"train_tokens": 10**6}
    return {
        "runs": runs, "comparisons": [], "failed": [], "missing": [],
        "provenance": {"protocol": {"plan": plan, "text": text, "targets": 32}},
    }  # fmt: skip


def status(found, word):
    return next(pattern for pattern in patterns(found) if word in pattern.statement)


def test_a_run_as_published_passes_all_that_can_be_asked():
    known = patterns(results())
    assert [pattern.status for pattern in known].count(PASS) == 7 and FAIL not in [p.status for p in known]
    assert status(results(), "papers disagree").shown.startswith("1.25x: linear")
    assert status(results(), "size of the model").status == UNKNOWN


@pytest.mark.parametrize(
    ("word", "encoding", "row"),
    [
        ("equal at the trained length", "sinusoidal", [1.45, 2.3, 3.4, 3.5, 3.6, 4.0]),
        ("Sinusoidal codes break", "sinusoidal", [1.32, 1.32, 1.38, 2.0, 3.0, 4.0]),
        ("RoPE breaks", "rope", [1.31, 1.31, 1.37, 2.0, 3.0, 4.0]),
        ("ALiBi stays flat", "alibi", [1.35, 1.35, 1.36, 1.37, 1.38, 1.42]),
        ("T5's biases", "t5", [1.32, 1.4, 1.6, 2.5, 3.5, 3.6]),
        ("behind every encoding", "nope", [1.33, 1.4, 1.5, 1.6, 1.7, 1.8]),
    ],
)
def test_a_run_that_shows_it_otherwise_fails_and_says_so_first(word, encoding, row):
    changed = results({**LOSSES, encoding: row})
    assert status(changed, word).status == FAIL and status(results(), word).status == PASS
    assert notes(changed)[0].startswith("Not as published") and word in notes(changed)[0]


def test_yarn_must_be_the_best_of_the_scalings():
    assert status(results(scaled={**SCALED, "ntk": 1.7}), "YaRN").status == FAIL
    assert status(results(scaled={}), "YaRN").status == UNKNOWN


def test_what_was_not_tested_is_not_judged():
    few = results({"kerple": LOSSES["alibi"]}, scaled={})
    assert {pattern.status for pattern in patterns(few)} == {UNKNOWN}


def test_published_numbers_are_those_of_the_papers():
    assert TABLE["rope"][1012] == 21.37 and TABLE["sinusoidal"][512] == 20.05
    (yarn,) = perplexity_rise("rope, yarn", 8)
    assert (yarn["rise"], yarn["times"]) == (pytest.approx(11.74 / 7.87), 8.0)
    assert [source["times"] for source in perplexity_rise("rope", 1.2)] == pytest.approx([712 / 512, 1400 / 1024])
    assert perplexity_rise("nobody", 2) == []
    assert all(source.get("reference") and source.get("setting") for source in PUBLISHED.values())


# -- is it still learning?


def curve(floor, scale, power, points=100):
    return [floor + scale * ((n + 0.5) / points) ** -power for n in range(points)]


@pytest.mark.parametrize(("scale", "power"), [(0.5, 0.5), (0.2, 1.0), (1.0, 0.25)])
def test_the_gain_of_doubling_is_that_of_the_curve(scale, power):
    assert gain_of_doubling(curve(1.0, scale, power)) == pytest.approx(scale * (1 - 2**-power), rel=1e-6)


def test_a_curve_that_rises_or_is_flat_has_nothing_to_gain_and_a_short_one_is_not_asked():
    assert gain_of_doubling([2.0] * 100) == pytest.approx(0.0, abs=1e-9)
    assert gain_of_doubling([n / 100 for n in range(100)]) == 0.0
    assert gain_of_doubling([3.0, 2.0, 1.0]) is None


def test_an_order_is_open_where_learning_could_turn_it():
    runs = [{"encoding": "a", "train_loss": curve(1, 0.5, 0.5)}, {"encoding": "b", "train_loss": curve(1, 0.5, 0.5)}]
    gain = 0.5 * (1 - 2**-0.5)
    assert unsettled(runs, {"a": 1.3, "b": 1.3 + 0.9 * gain}) == ["b"]
    assert unsettled(runs, {"a": 1.3, "b": 1.3 + 1.1 * gain}) == []


# -- best and worst


def with_windows(rises):
    found = copy.deepcopy(results({name: LOSSES[name] for name in rises}, scaled={}))
    for run in found["runs"]:
        rise = rises[run["encoding"]]
        run["loss_by_window"] = {"64": [1.0] * len(rise), "512": [1.0 + value for value in rise]}
        run["window_files"] = list(range(len(rise)))
    return found


def test_best_and_worst_are_named_only_where_they_are_apart():
    apart = with_windows({"alibi": [0.0, 0.1, 0.0, 0.1], "rope": [1.0, 1.1, 1.2, 1.1]})
    assert "alibi holds best" in answer(apart) and "rope worst" in answer(apart)
    same = with_windows({"alibi": [0.0, 1.0, 0.0, 1.0], "rope": [1.0, 0.0, 1.0, 0.1]})
    assert "no encoding can be told from another" in answer(same) and "holds best" not in answer(same)


def test_a_control_is_never_the_best_or_the_worst():
    given = with_windows({"alibi": [0.0, 0.1, 0.0, 0.1], "rope": [1.0, 1.1, 1.2, 1.1]})
    control = copy.deepcopy(next(run for run in given["runs"] if run["encoding"] == "alibi"))
    for row in control["loss_by_length"]:
        row["loss"] = 0.5  # the lowest of all, and it does not rise
    given["runs"].append({**control, "encoding": "rope as large as deberta"})
    assert answer(given) == answer(with_windows({"alibi": [0.0, 0.1, 0.0, 0.1], "rope": [1.0, 1.1, 1.2, 1.1]}))


# -- length generalisation


def test_the_reciprocal_rank_is_the_mean_over_tasks_and_equals_share_the_better_rank():
    by_task = {"sum": {"nope": 0.9, "rope": 0.5, "t5": 0.5}, "sort": {"nope": 0.1, "rope": 0.4, "t5": 0.2}}
    assert reciprocal_ranks(by_task) == pytest.approx({"nope": (1 + 1 / 3) / 2, "rope": (1 / 2 + 1) / 2, "t5": 1 / 2})
    assert reciprocal_ranks({}) == {}
    assert set(reciprocal_ranks({"sum": {"nope": 1.0, "rope": 0.0}, "sort": {"nope": 1.0}})) == {"nope"}


def test_exact_match_is_that_at_twice_the_length_and_published_ranks_stand_beside():
    found = results({}, scaled={})
    for name, share in (("nope", 0.75), ("rope", 0.25)):
        tasks = {"sum": [{"length": 64, "exact": 1.0}, {"length": 128, "exact": share}], "copy": []}
        found["runs"].append({"encoding": name, "strategy": "none", "seed": 0, "data": "sum", "tasks": tasks})
    head, rows = rank_table(found)
    assert head == ["encoding", "mean reciprocal rank", "published", "sum"]
    assert rows == [["nope", "1.00", "0.69", "75%"], ["rope", "0.50", "0.33", "25%"]]
