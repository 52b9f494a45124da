"""The small languages: every scored answer follows from the tokens before it, by a rule written again here; chance
is what it says.
"""

import math
import re
from inspect import getsource

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from milepost.lab.model import Decoder, Shape
from milepost.lab.task_scores import TESTED, score, scores
from milepost.lab.tasks import GROWING, TASKS, batches, rows
from milepost.lab.train import Recipe
from milepost.lab.trial import Trial

LENGTHS = (8, 9, 10, 11, 16, 33, 64, 257, 2048)


def copy(said, length):
    half = length // 2
    return said[len(said) - half - 1], range(97, 123)


def previous(said, length):
    assert said[-1] == ord("=")
    return said[-2], range(97, 123)


def recall(said, length):
    assert said[-2] == ord("?")
    place = [n for n in range(len(said) - 2) if said[n] == ord("#") and said[n + 1] == said[-1]]
    assert len(place) == 1
    return said[place[0] + 2], range(128, 144)


def index(said, length):
    assert said[-1] == ord("?")
    return said[1 + said[0] - 128], range(97, 123)


def counting(said, length):
    assert said[-1] == ord("?")
    return 128 + said.count(ord("1")) % 8, range(128, 136)


def who(said, length):
    which, verb = said[-2:]
    place = [n for n in range(len(said) - 2) if said[n] == verb][-1]  # the last sentence with this verb
    return (said[place - 1] if which == ord("s") else said[place + 1]), (said[place - 1], said[place + 1])


def antecedent(said, length):
    assert said[-1] == ord("@")
    return [t for t in said if 65 <= t < 91][-1], range(65, 91)


def reverse(said, length):
    bar = said.index(ord("|"))
    return said[bar - 1 - (len(said) - bar - 1)], range(97, 123)


def sort(said, length):
    bar = said.index(ord("|"))
    return sorted(said[:bar])[len(said) - bar - 1], range(97, 123)


def summed(said, length):
    assert said[-1] == ord("|")
    return 48 + sum(token - 48 for token in said[:-1]) % 10, range(48, 58)


def parity(said, length):
    assert said[-1] == ord("|")
    return 48 + said.count(ord("1")) % 2, range(48, 50)


def addition(said, length):
    plus, equals = said.index(ord("+")), said.index(ord("="))
    digits = ("".join(map(chr, said[a:b]))[::-1] for a, b in ((0, plus), (plus + 1, equals)))
    total = str(sum(map(int, digits))).zfill(plus)[::-1]
    return ord(total[len(said) - equals - 1]), range(48, 58)


def chain(said, length):
    assert said[-2] == ord("?")
    value = {ord("1"): 1}
    for place in range(0, len(said) - 2, 3):
        name, sign, other = said[place : place + 3]
        value[name] = value[other] * (1 if sign == ord("+") else -1)
    return ord("+") if value[said[-1]] > 0 else ord("-"), (ord("+"), ord("-"))


RULES = {
    "reverse": reverse,
    "sort": sort,
    "sum": summed,
    "parity": parity,
    "addition": addition,
    "chain": chain,
    "copy": copy,
    "previous": previous,
    "recall": recall,
    "index": index,
    "counting": counting,
    "who": who,
    "antecedent": antecedent,
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("task", TASKS)
def test_every_scored_answer_follows_from_the_tokens_before_it(task, length):
    ids, scored, chance = rows(task, length, 5 if length > 300 else 60, seed=1)
    assert ids.shape == (len(ids), length + 1) and scored.shape == (len(ids), length)
    assert ids.min() >= 0 and ids.max() < 256 and scored.any(axis=1).all()
    loss = []
    for row, marks in zip(ids.tolist(), scored, strict=True):
        for place in np.flatnonzero(marks):
            want, allowed = RULES[task](row[: place + 1], length)
            assert row[place + 1] == want
            assert want in set(allowed) and len(set(allowed)) == len(allowed)
            loss.append(math.log(len(allowed)))  # of one who knows what may come, and guesses
    assert np.mean(loss) == pytest.approx(chance, rel=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_rows_are_decided_by_the_seed(task):
    a, b, c = (rows(task, 32, 4, seed=seed)[0] for seed in (3, 3, 4))
    assert np.array_equal(a, b) and not np.array_equal(a, c)


@pytest.mark.parametrize("task", TASKS)
def test_no_token_of_a_longer_text_is_new_to_a_trained_model(task):
    """What is longer is the text, not the language."""
    trained = np.concatenate([rows(task, 64, 64, seed=seed)[0].reshape(-1) for seed in range(10, 30)])
    assert set(rows(task, 512, 64, seed=1)[0].reshape(-1).tolist()) <= set(trained.tolist())


def test_the_pair_of_a_recall_stands_where_it_was_told_to():
    for depth, place in ((0.0, 0), (0.5, 29), (1.0, 58)):
        ids = rows("recall", 64, 8, seed=0, depth=depth)[0]
        assert (ids[:, place] == ord("#")).all()
    places = [int(np.flatnonzero(row == ord("#"))[0]) for row in rows("recall", 64, 400, seed=0)[0]]
    assert min(places) == 0 and max(places) == 58


def test_chance_is_not_beaten_by_one_who_knows_no_place():
    """Answers are spread evenly over what may come: no favourite is right more often than by luck (5 sigma)."""
    for task, size in (("copy", 26), ("recall", 16), ("index", 26), ("previous", 26), ("antecedent", 26)):
        ids, scored, _ = rows(task, 64, 1500, seed=2)
        answers = (
            ids[:, 1:][scored]
            if task not in ("copy", "previous", "antecedent")
            else ids[:, 1:][np.arange(1500), scored.argmax(1)]
        )
        share = np.bincount(answers, minlength=256) / len(answers)
        luck = math.sqrt(1 / size / len(answers))
        assert share.max() < 1 / size + 5 * luck, task
    ids, scored, _ = rows("who", 64, 1500, seed=2)
    first = np.mean([RULES["who"](row[:-1].tolist(), 64)[1][0] == row[-1] for row in ids])
    assert abs(first - 0.5) < 5 * math.sqrt(0.25 / 1500)


@pytest.mark.parametrize("task", TASKS)
def test_a_model_that_has_learned_nothing_is_far_from_chance_and_near_all_tokens(task):
    model = Decoder(Shape(256, 1, 16, 2, 32), "rope").start(0).eval()
    ids, scored, chance = rows(task, 32, 32, seed=0)
    lost, right = scores(model, ids, scored)
    loss = lost.sum() / scored.sum()
    assert (
        abs(loss - math.log(256)) < 0.05 and chance < math.log(256) - 1
    )  # logits of weights 0.02 are within 0.05 of each other
    assert right.sum() / scored.sum() < 0.5


def test_scores_are_those_of_a_loop():
    model = Decoder(Shape(256, 1, 16, 2, 32), "alibi").start(0).eval()
    ids, scored, _ = rows("antecedent", 24, 5, seed=0)
    lost, right = scores(model, ids, scored)
    for n in range(5):
        logits = model(torch.from_numpy(ids[n : n + 1, :-1]))[0].detach()
        each = F.cross_entropy(logits.double(), torch.from_numpy(ids[n, 1:]), reduction="none").numpy()
        assert lost[n] == pytest.approx(each[scored[n]].sum(), rel=1e-6)
        assert right[n] == (logits.argmax(-1).numpy() == ids[n, 1:])[scored[n]].sum()


def test_the_result_is_weighted_by_tokens_and_says_where_a_table_ends(small):
    plan = small(("learned",), tasks=("antecedent", "recall"))
    model = Decoder(plan.shape, "learned").start(0).eval()
    found = score(plan, Trial("learned", 0, "antecedent"), model)
    ids, scored, chance = rows("antecedent", 16, TESTED, seed=7)
    lost, right = scores(model, ids, scored)
    assert (
        found[0]["loss"] == pytest.approx(lost.sum() / scored.sum(), rel=1e-12)
        and found[0]["tokens"] == scored.sum() > TESTED
    )
    assert found[0]["accuracy"] == right.sum() / scored.sum() and found[0]["chance"] == chance == math.log(26)
    assert [row["length"] for row in found] == [16, 32, 64]
    assert [(row["loss"], row.get("note")) for row in found[1:]] == [(None, "table ends")] * 2
    depths = score(plan, Trial("learned", 0, "recall"), model)[0]["by_depth"]
    assert [row["depth"] for row in depths] == [0.0, 0.5, 1.0] and all(
        row["low"] <= row["loss"] <= row["high"] for row in depths
    )


def test_training_rows_are_new_at_every_step_and_never_those_of_the_test():
    made = batches("recall", Recipe(10, 4, 16, seed=0))
    assert np.array_equal(made(3)[0], made(3)[0]) and not np.array_equal(made(3)[0], made(4)[0])
    assert made(0)[0].shape == (4, 17) and made(0)[1].shape == (4, 16)
    other = batches("recall", Recipe(10, 4, 16, seed=1))
    assert not np.array_equal(made(3)[0], other(3)[0])


@pytest.mark.slow
def test_a_tiny_model_learns_a_task():
    """previous: one layer, a few seconds, and well below chance."""
    from milepost.lab.train import train

    shape, recipe = Shape(256, 1, 32, 2, 32), Recipe(150, 16, 32)
    model = Decoder(shape, "rope").start(0)
    train(model, batches("previous", recipe), recipe)
    ids, scored, chance = rows("previous", 32, 64, seed=7)
    assert scores(model, ids, scored)[0].sum() / scored.sum() < 0.5 * chance


def test_every_task_is_a_page_with_a_rule_and_its_chance():
    for task, page in TASKS.items():
        assert page.__name__ == f"milepost.lab.tasks.{task}" and page.__doc__.startswith(f"{task}: ")
        assert page.CHANCE > 0 and re.search(r'^CHANCE = .*\n"""The loss of one who .*\."""$', getsource(page), re.M)


# -- growing tasks


@pytest.mark.parametrize("task", GROWING)
def test_a_tested_problem_is_the_largest_that_fits_and_training_has_all_sizes(task):
    def sizes(length, **how):
        return (rows(task, length, 300, seed=5, **how)[0] != ord(".")).sum(1)

    whole, drawn = sizes(32, whole=True), sizes(32)
    assert len(set(whole)) == 1 and 30 <= whole[0] <= 33 and max(drawn) == whole[0] and len(set(drawn)) >= 5
    assert sizes(64, whole=True)[0] > 1.8 * whole[0]


def test_exact_match_asks_for_every_token_of_an_answer(small, monkeypatch):
    plan = small(("rope",), tasks=("reverse",), lengths="1x")
    counts = {}

    def made_up(model, ids, scored):
        counts["all"] = scored.sum(1)
        right = scored.sum(1).copy()
        right[: len(right) // 2] -= 1  # one token is wrong in half of the rows
        return np.ones(len(ids)), right

    monkeypatch.setattr("milepost.lab.task_scores.scores", made_up)
    (row,) = score(plan, Trial("rope", 0, "reverse"), Decoder(plan.shape, "rope").start(0))
    assert row["exact"] == 0.5 and row["accuracy"] == pytest.approx(1 - 0.5 / counts["all"][0])
