"""Training: the same numbers twice, after a kill, and for every encoding the same data; and what a trial records."""

import functools
import itertools
import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from stripped import same

import milepost
from milepost import lab
from milepost.lab.measure import Texts
from milepost.lab.model import Decoder, Shape
from milepost.lab.text_trial import run_text_trial
from milepost.lab.train import Diverged, Recipe, from_text, next_tokens, train
from milepost.measure.losses import disjoint, same_targets, sliding

SHAPE = Shape(64, 1, 16, 2, 16)
ROW = np.random.default_rng(0).choice([3, 3, 3, 5, 7, 9], 4000)  # some tokens come often: there is something to learn
HERE = __name__


class NotANumber(milepost.Encoding):
    """Spoils every loss from the first one on."""

    def query(self, q, pos):
        return q * float("nan")


class FarNotANumber(milepost.Encoding):
    """Is well up to position 31, and no number beyond."""

    def query(self, q, pos):
        return torch.where(pos[..., None] >= 32, torch.full_like(q, float("nan")), q)


class Ends(milepost.Encoding):
    """A stranger's table, with a sentence of its own for what is past it."""

    end = 20

    def bias(self, h, i, j):
        return torch.zeros_like(h + i - j, dtype=torch.float32)

    def past_end(self, position):
        return "no more rows"


class Killed(BaseException):
    pass


def trained(spec, recipe=None, state=None, tell=lambda step, loss, speed: None):
    recipe = recipe or Recipe(20, 4, 16, seed=2)
    model = Decoder(SHAPE, spec).start(recipe.seed)
    return model, train(model, from_text(ROW, recipe), recipe, state=state, tell=tell)


@pytest.mark.parametrize("spec", ["learned", "t5", "rope", "shaw"])
def test_two_runs_of_one_seed_are_equal_to_the_bit(spec):
    torch.manual_seed(1)
    a, one = trained(spec)
    torch.manual_seed(2)
    b, two = trained(spec)
    assert one["losses"] == two["losses"] and one["losses"][-1] < one["losses"][0]
    assert all(torch.equal(value, b.state_dict()[name]) for name, value in a.state_dict().items())
    assert trained(spec, Recipe(20, 4, 16, seed=3))[1]["losses"] != one["losses"]


@pytest.mark.parametrize("moments", [[3], [5, 11], [1, 2, 19], [20]])
def test_a_training_killed_and_gone_on_with_ends_with_the_same_bits(tmp_path, moments):
    whole, unbroken = trained("learned")
    steps = []
    for moment in [*moments, None]:

        def tell(step, loss, speed, moment=moment):
            steps.append(step)
            if step == moment:
                raise Killed

        try:
            model, done = trained("learned", state=tmp_path / "state.pt", tell=tell)
        except Killed:
            assert moment is not None
    assert done["losses"] == unbroken["losses"]
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in model.state_dict().items())
    assert len(steps) < 20 + 2 * len(moments) + 1  # it goes on from the last state, which is at most two steps old here
    assert not list(tmp_path.glob(".*"))


def test_a_finished_training_is_not_done_again(tmp_path):
    recipe = Recipe(20, 4, 16, seed=2)
    trained("rope", recipe, tmp_path / "state.pt")

    def never(step):
        raise AssertionError("no data is needed")

    model, told = Decoder(SHAPE, "rope").start(2), []
    train(model, never, recipe, state=tmp_path / "state.pt", tell=lambda *news: told.append(news))
    assert [step for step, _, _ in told] == [20]


def test_all_encodings_read_the_same_data_in_the_same_order():
    read = {}
    for spec in ("nope", "learned", "t5"):
        seen = read.setdefault(spec, [])
        recipe = Recipe(5, 4, 16, seed=2)
        batches = from_text(ROW, recipe)
        model = Decoder(SHAPE, spec).start(2)
        train(
            model,
            lambda step, batches=batches, seen=seen: seen.append(batches(step)[0].tolist()) or batches(step),
            recipe,
        )
    assert read["nope"] == read["learned"] == read["t5"] and len(read["nope"]) == 5


def test_only_the_tokens_that_count_are_learned():
    def batches(step):
        ids = np.full((2, 17), 7)
        ids[:, 8] = 9
        counted = np.zeros((2, 16), dtype=bool)
        counted[:, 7] = True
        return ids, counted

    model = Decoder(SHAPE, "rope").start(0)
    done = train(model, batches, Recipe(80, 2, 16))
    # a normed token of 16 channels times a head of 0.02 makes logits with a deviation of 0.08
    assert done["losses"][0] == pytest.approx(math.log(64), abs=3 * 0.08)
    assert done["losses"][-1] < 0.5  # the one token, not the 15 others
    logits = model(torch.full((1, 8), 7))
    assert logits[0, -1].argmax() == 9


def test_the_rate_rises_falls_and_never_ends_at_nothing():
    recipe = Recipe(200, 1, 1, rate=1.0)
    rates = [recipe.rate_at(step) for step in range(200)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == rates[9] == rates[10] == 1.0
    assert all(a > b for a, b in itertools.pairwise(rates[10:])) and 0.1 < rates[-1] < 0.102


def test_a_loss_that_is_no_number_ends_the_training():
    with pytest.raises(Diverged, match="the loss at step 0 is nan"):
        trained(f"{HERE}:NotANumber")
    with pytest.raises(Diverged, match=r"the loss at step \d+ is (nan|inf)"):
        trained("rope", Recipe(20, 4, 16, rate=1e25))


# -- a whole trial -----------------------------------------------------------------------------------------------------
# -------------------


def run(plan, folder, number=0):
    found = run_text_trial(plan, plan.trials()[number], folder)
    json.dumps(found, allow_nan=False)
    return found["runs"]


@pytest.fixture(scope="module")
def tried(texts, tmp_path_factory):
    """One rope trial with every strategy, two of them tuned, and what it recorded."""
    from milepost.lab.plan import make

    names = ("base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope")
    plan = make("tiny", encodings=["rope"], strategy_names=names, lengths="1x,2x,4x", text=str(texts), tune=2)
    plan = replace(plan, steps=30, windows=6)
    folder = tmp_path_factory.mktemp("trial")
    return plan, folder, {one["strategy"]: one for one in run(plan, folder)}


def test_a_trial_records_what_was_promised(tried):
    plan, _, runs = tried
    assert set(runs) == {"none", *plan.strategies[1:], *(f"{name} tuned" for name in plan.strategies[1:])}
    for one in runs.values():
        assert (one["encoding"], one["seed"], one["trained_length"]) == ("rope", 0, 16)
        assert one["parameters"] > 1000 and one["train_tokens_per_s"] > 0 and one["tasks"] == {} and one["peak_mb"] > 10
        assert [row["length"] for row in one["loss_by_length"]] == [16, 32, 64]
        for row in one["loss_by_length"]:
            assert row["low"] <= row["loss"] <= row["high"] and row["perplexity"] == math.exp(row["loss"])
            assert row["tokens"] == 6 * 8 and row["bits_per_byte"] == pytest.approx(row["loss"] / math.log(2))
        assert [(row["start"], row["end"]) for row in one["loss_by_position"]] == [(n, n + 4) for n in range(0, 64, 4)]
        assert all(row["low"] <= row["loss"] <= row["high"] for row in one["loss_by_position"])
    assert (
        "self_extend(" in runs["self-extend"]["spec"]
        and "rerope(" in runs["rerope"]["spec"]
        and "yarn" in runs["yarn"]["spec"]
    )
    assert [(row["length"], row["stride"]) for row in runs["none"]["sliding"]] == [(16, 8), (32, 16), (64, 32)]
    assert {len(one["fixed"]) for name, one in runs.items() if name in plan.strategies[1:]} == {3}


def test_its_numbers_are_those_of_the_saved_model(tried):
    plan, folder, runs = tried
    model, text = lab.load(folder), plan.read()
    texts = Texts.of(plan, text)
    plain = runs["none"]
    for row in plain["loss_by_length"]:
        lost = same_targets(model, texts.windows, row["length"], plan.targets)
        assert row["loss"] == pytest.approx(lost.mean(), rel=1e-12)
        assert plain["loss_by_window"][str(row["length"])] == [round(v, 6) for v in lost.mean(1)]
    for field, measure in (
        ("disjoint", lambda w, n: disjoint(model, w, n)),
        ("sliding", lambda w, n: sliding(model, w, n, n // 2)),
    ):
        for row in plain[field]:
            lost = [measure(window, row["length"]).reshape(-1) for window in texts.windows]
            assert row["loss"] == pytest.approx(np.mean(lost), rel=1e-12) and row["tokens"] == sum(map(len, lost))
    wide = model.with_encoding(runs["linear"]["spec"])
    assert runs["linear"]["loss_by_length"][-1]["loss"] == pytest.approx(
        same_targets(wide, texts.windows, 64, plan.targets).mean(), rel=1e-12
    )
    assert runs["linear"]["fixed"][0]["loss"] == pytest.approx(
        same_targets(wide, texts.windows, 16, plan.targets).mean(), rel=1e-12
    )


def test_up_to_the_trained_length_a_strategy_costs_nothing_unless_it_is_fixed(tried):
    _, _, runs = tried
    for name in ("base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope"):
        assert runs[name]["loss_by_length"][0] == runs["none"]["loss_by_length"][0]
    assert runs["dynamic"]["fixed"][0] == runs["none"]["loss_by_length"][0]  # it looks at the text's own length
    assert all(
        runs[name]["fixed"][0]["loss"] != runs["none"]["loss_by_length"][0]["loss"]
        for name in ("base", "linear", "ntk", "yarn")
    )


def test_tuning_trains_at_the_longest_length(tried):
    _, _, runs = tried
    for name in ("linear", "yarn", "self-extend"):
        tuned = runs[f"{name} tuned"]
        assert tuned["tuned_steps"] == 2 and tuned["spec"] == runs[name]["spec"]
        assert tuned["loss_by_length"][-1]["loss"] != runs[name]["loss_by_length"][-1]["loss"]
        assert set(tuned["loss_by_window"]) == {"16", "32", "64"}  # to be compared, pair by pair


def test_attention_is_there_at_the_trained_and_the_longest_length(tried):
    plan, _, runs = tried
    looks = runs["none"]["attention"]
    assert [look["length"] for look in looks] == [16, 64]
    for look in looks:
        assert len(look["heads"]) == plan.shape.layers * plan.shape.heads
        assert all(
            sum(head["distance"]) == pytest.approx(1, abs=1e-4) and head["edges"][-1] == look["length"]
            for head in look["heads"]
        )


def test_two_trials_of_one_seed_are_equal(small, tmp_path):
    plan = small(("t5",))
    same(run(plan, tmp_path / "a"), run(plan, tmp_path / "b"))


def test_past_a_learned_table_it_says_so(small, tmp_path):
    (one,) = run(small(("learned",)), tmp_path)
    first, *rest = one["loss_by_length"]
    assert (
        first["loss"] > 0
        and [(row["loss"], row["note"], row["tokens"]) for row in rest] == [(None, "table ends", 0)] * 2
    )
    assert [row["end"] for row in one["loss_by_position"]] == [4, 8, 12, 16]
    assert [look["length"] for look in one["attention"]] == [16]
    assert (
        [row["loss"] is None for row in one["disjoint"]]
        == [row["loss"] is None for row in one["sliding"]]
        == [False, True, True]
    )
    assert list(one["loss_by_window"]) == ["16"]


def test_a_strangers_table_ends_too(small, tmp_path):
    (one,) = run(small((f"{HERE}:Ends",)), tmp_path)
    assert [row.get("note") for row in one["loss_by_length"]] == [None, "table ends", "table ends"]
    assert one["loss_by_position"][-1]["end"] == 20


def test_a_loss_that_is_no_number_is_recorded_as_such(small, tmp_path):
    (one,) = run(small((f"{HERE}:NotANumber",)), tmp_path / "a")
    assert (
        one["failed"] == "the loss at step 0 is nan"
        and one["loss_by_length"] == []
        and one["strategy"] == "none"
        and one["parameters"] > 0
    )
    (one,) = run(small((f"{HERE}:FarNotANumber",)), tmp_path / "b")
    assert [row.get("note") for row in one["loss_by_length"]] == [None, None, "the loss is no number"]
    assert [row["loss"] for row in one["loss_by_position"]][8:] == [None] * 8
    assert [look["length"] for look in one["attention"]] == [16]
    assert list(one["loss_by_window"]) == ["16", "32"]


def test_a_tuning_that_diverges_is_recorded_and_the_rest_is_kept(small, tmp_path, monkeypatch):
    monkeypatch.setattr("milepost.lab.measure.TUNING_RATE", 1e25)
    found = {one["strategy"]: one for one in run(small(tune=5), tmp_path)}
    assert "the loss at step" in found["linear tuned"]["failed"] and found["linear"]["loss_by_length"][-1]["loss"] > 0


def test_tasks_are_asked_under_every_strategy(small, tmp_path):
    plan = small(tasks=("recall",))
    runs = run(plan, tmp_path, number=1)
    assert [one["strategy"] for one in runs] == ["none", "linear"] and all(one["data"] == "recall" for one in runs)
    plain, wide = (one["tasks"]["recall"] for one in runs)
    assert plain[0] == wide[0] and plain[-1]["loss"] != wide[-1]["loss"]
    assert all(row["chance"] == math.log(16) for row in plain)


def test_lengths_may_be_shorter_than_the_trained_one(small, tmp_path):
    (one, _) = run(small(lengths="8,12"), tmp_path)
    assert [row["length"] for row in one["loss_by_length"]] == [8, 12] and one["targets"] == 4
    assert [look["length"] for look in one["attention"]] == [12]


def test_this_module_is_known_by_the_name_in_its_specs():
    assert sys.modules[HERE].NotANumber is NotANumber


class Seen(torch.nn.Module):
    """A model that keeps the layouts that it is given."""

    def __init__(self):
        super().__init__()
        self.layouts = []

    def forward(self, ids, at=None):
        self.layouts.append(at)
        return torch.zeros(*ids.shape, 64)


@pytest.mark.parametrize("told", ["randomised", "pose"])
def test_texts_are_told_positions_up_to_the_limit_and_keep_their_order(told):
    seen, tokens = Seen(), np.stack([ROW[n : n + 17] for n in range(0, 400, 50)])
    for share in (slice(None), slice(1, None, 2), slice(None)):
        next_tokens(seen, (tokens, None), share, torch.device("cpu"), told=told, limit=100)
    whole, half, again = (at.pos for at in seen.layouts)
    assert whole.shape == (8, 16) and (whole.diff(dim=-1) > 0).all() and int(whole.max()) < 100
    assert int(whole.max()) > 60 and len({tuple(row) for row in whole.tolist()}) > 4  # far ones, and each row its own
    assert torch.equal(whole, again) and torch.equal(half, whole[1::2])  # drawn from the tokens, not from the clock
    assert torch.equal(seen.layouts[0].index.expand(8, -1)[3], torch.arange(16))  # masks go by the index
    steps = (whole.diff(dim=-1) > 1).sum(-1)
    assert (steps <= 1).all() if told == "pose" else (steps > 3).all()
    next_tokens(seen, (tokens, None), slice(None), torch.device("cpu"))
    assert seen.layouts[-1] is None


def test_a_model_that_was_told_far_positions_is_another_one_and_learns():
    recipe, losses = Recipe(20, 4, 16, seed=2), {}
    for told in ("index", "randomised", "pose"):
        model = Decoder(SHAPE, "rope").start(2)
        loss = functools.partial(next_tokens, told=told, limit=64)
        losses[told] = train(model, from_text(ROW, recipe), recipe, loss=loss)["losses"]
        assert losses[told][-1] < losses[told][0]
    assert losses["index"] == trained("rope")[1]["losses"]
    assert losses["index"] != losses["randomised"] != losses["pose"] != losses["index"]


def test_a_plan_refuses_positions_that_a_table_does_not_have_and_names_that_are_not_known():
    with pytest.raises(ValueError, match="learned has no position past 15, and --positions pose tells texts positions"):
        lab.plan.make("tiny", encodings=["rope", "learned"], told="pose")
    with pytest.raises(ValueError, match="unknown kind of positions 'posee'"):
        lab.plan.make("tiny", told="posee")
    assert lab.plan.make("tiny", encodings=["rope"], told="randomised").told == "randomised"
