"""Experiments on planted results: what a claim calls better is better. Every number here would turn with its sign."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from milepost.claims.groups.absolute import added_trained, tasks
from milepost.claims.groups.practice import choosing, scaling
from milepost.claims.groups.relative import frequencies, functions, heads, pairs
from milepost.claims.rule import Number
from milepost.lab.model import Decoder, Shape

HOME = 16
WINDOWS = 6


class Planted:
    """A lab whose models lose what they are told to: home and far by encoding (and strategy), or share of right
    answers."""

    def __init__(self, lost=None, right=None):
        self.lost, self.right = lost or {}, right or {}

    def runs(self, need, encoding, strategy="none"):
        base = {
            "encoding": encoding,
            "strategy": strategy,
            "seed": 0,
            "trained_length": HOME,
            "parameters": 1000 + len(encoding),
            "tasks": {},
        }
        if encoding in self.right:
            row = {"length": HOME, "accuracy": self.right[encoding], "rows": 400}
            return [{**base, "tasks": {need.data: [row]}}]
        home, far, *fixed = self.lost[encoding if strategy == "none" else f"{encoding}, {strategy}"]
        by = {str(HOME): home, str(2 * HOME): far, str(8 * HOME): far}
        held = {
            "loss_by_window": {n: [v + 0.01 * i for i in range(WINDOWS)] for n, v in by.items()},
            "window_files": list(range(WINDOWS)),
        }
        paid = {"fixed_by_window": {str(HOME): [fixed[0] + 0.01 * i for i in range(WINDOWS)]}} if fixed else {}
        return [{**base, **held, **paid}]

    def models(self, need, encoding):
        return []

    def source(self, *needs):
        return ()


def test_appending_is_behind_by_what_it_loses_more_and_the_picture_has_all_three():
    lab = Planted({"sinusoidal": (2.0, 9.0), added_trained.CONCATENATED: (2.3, 9.0), added_trained.NARROW: (1.9, 9.0)})
    found = added_trained.measure_both(lab)
    assert {name: one.value for name, one in found.numbers.items()} == pytest.approx({"behind": 0.3, "equal": -0.1})
    (figure,) = found.figures
    mean = 0.01 * (WINDOWS - 1) / 2
    (values,) = figure.lines.values()
    assert dict(zip(figure.x, values, strict=True)) == pytest.approx(
        {"added": 2.0 + mean, "appended, a quarter": 2.3 + mean, "appended, 8 channels": 1.9 + mean}
    )


def test_first_codes_are_behind_by_what_they_lose_more():
    lab = Planted(
        {"sinusoidal": (2.0, 9.0), "integer": (1.6, 9.0), "binary": (2.2, 9.0), added_trained.NORMALISED: (2.5, 9.0)}
    )
    found = {name: one.value for name, one in added_trained.measure_first(lab).numbers.items()}
    assert found == pytest.approx({"integer": -0.4, "binary": 0.2, "normalised": 0.5})


def test_a_larger_base_is_behind_by_what_it_loses_more():
    small, middle, large = frequencies.TRIED.encodings
    assert [float(name.partition("base=")[2].strip(")") or 1e4) for name in (small, middle, large)] == sorted(
        [100.0, 1e4, 5e5]
    )
    found = frequencies.measure_bases(Planted({small: (2.0, 3.0), middle: (2.5, 9.0), large: (2.2, 3.7)})).numbers
    assert {name: one.value for name, one in found.items()} == pytest.approx({"far": 0.7, "home": 0.2})


def test_more_heads_cover_what_the_fewest_cover_less(monkeypatch):
    class Headed(Planted):
        def models(self, need, encoding):
            return [
                SimpleNamespace(
                    shape=SimpleNamespace(length=HOME), covers=math.log2(int(need.sweep.removeprefix("heads-")))
                )
            ]

    monkeypatch.setattr(heads, "_windows", lambda lab, length: None)
    monkeypatch.setattr(heads, "_octaves", lambda model, windows: [model.covers + 0.1 * n for n in range(WINDOWS)])
    found = heads.measure_bands(Headed({"alibi": (2.0, 2.0)}))
    assert found.numbers["trained"].value == pytest.approx(3.0)  # log2 of 16 over 2
    (figure,) = found.figures
    assert (figure.x, figure.lines["trained"]) == ([2, 4, 8, 16], pytest.approx([n + 0.25 for n in (1, 2, 3, 4)]))


def test_choosing_asks_what_the_other_loses_more():
    lab = Planted(
        {
            "alibi": (2.2, 2.3),
            "rope": (2.0, 3.0),
            "rope, self-extend": (2.0, 2.4),
            "sinusoidal": (2.5, 4.0),
            "learned": (1.9, 9.0),
        }
    )
    found = {name: one.value for name, one in choosing.measure_choose(lab).numbers.items()}
    assert found == pytest.approx(
        {"far, rope": 0.7, "far, sinusoidal": 1.7, "far, stretched": 0.1, "home": 0.2, "short": 0.1}
    )


def test_sharing_costs_what_the_shared_one_loses_more():
    lost = {
        "t5": (2.0, 2.0),
        "t5(shared=True)": (2.3, 2.0),
        "kerple": (2.0, 2.0),
        "kerple(shared=True)": (1.9, 2.0),
        "alibi": (2.0, 2.0),
    }
    found = functions.measure_shared(Planted({**lost, functions.EQUAL: (2.1, 2.0)})).numbers
    mean = 2.0 + 0.01 * (WINDOWS - 1) / 2
    assert found["most"].value == pytest.approx(0.3 / mean) and found["least"].value == pytest.approx(-0.1 / mean)


def test_the_function_is_ahead_where_the_table_s_loss_rises_more():
    found = functions.measure_kinds(
        Planted({"t5": (2.0, 2.6), "shaw": (2.0, 2.4), "kerple": (2.0, 2.1), "fire": (2.0, 2.9)})
    ).numbers
    mean = 2.0 + 0.01 * (WINDOWS - 1) / 2
    assert found["ahead"].value == pytest.approx((0.4 - 0.1) / mean)  # the better of each
    assert found["fewer"] == len("fire") - len("t5")  # the planted sizes


def test_a_stretched_model_gains_what_the_plain_one_loses_more_and_pays_what_it_loses_more():
    found = scaling.gains(Planted({"rope": (2.0, 3.0), "rope, linear": (2.0, 2.5, 2.2)}), "linear")
    assert found["gain"].value == pytest.approx(0.5)
    assert found["cost"].value == pytest.approx(0.2 / (2.0 + 0.01 * (WINDOWS - 1) / 2))


def test_absolute_schemes_are_ahead_where_they_lose_less(monkeypatch):
    class Answering(Planted):
        def models(self, need, encoding):
            return [SimpleNamespace(shape=SimpleNamespace(length=HOME), answers=self.right[encoding])]

    def scores(model, ids, scored):
        loss, share = model.answers
        texts = np.arange(100)
        return loss + 0.001 * texts, (texts < 100 * share).astype(float)

    monkeypatch.setattr(tasks, "scores", scores)
    both = {"learned": (0.1, 0.9), "sinusoidal": (0.4, 0.6), "rope": (0.3, 0.7), "alibi": (0.8, 0.2)}
    found = tasks.measure_index(Answering(right=both)).numbers
    assert found["ahead"].value == pytest.approx(0.2) and found["ahead"].sides[0] > 0
    assert found["best"].value == pytest.approx(0.9)
    both = {"learned": (0.7, 0.3), "sinusoidal": (0.5, 0.5), "rope": (0.3, 0.7), "alibi": (0.2, 0.8)}
    other = tasks.measure_index(Answering(right=both)).numbers
    assert other["ahead"].value == pytest.approx(-0.3) and other["best"].value == pytest.approx(0.8)


def test_fast_pairs_are_missed_near_and_slow_ones_far(monkeypatch):
    right = {("previous", None): 1.0, ("previous", (0.0, 0.5)): 0.2, ("previous", (0.5, 1.0)): 0.9}
    right |= {("copy", None): 1.0, ("copy", (0.0, 0.5)): 0.7, ("copy", (0.5, 1.0)): 0.4}
    monkeypatch.setattr(pairs, "answers", lambda models, task, stop: Number(right[task, stop]))
    found = {name: one.value for name, one in pairs.measure_scales(Planted()).numbers.items()}
    assert found == pytest.approx({"near learned": 1.0, "far learned": 1.0, "near": 0.7, "far": 0.3})


def test_a_temperature_gains_what_is_lost_without_it(monkeypatch):
    shape = Shape(256, 1, 32, 2, HOME)
    texts = SimpleNamespace(windows=None, files=np.arange(WINDOWS))
    lab = Planted({"rope": (2.0, 3.0), "rope, yarn": (2.0, 2.5, 2.2)})
    lab.plans = {"text": SimpleNamespace(shape=shape, targets=8, read=lambda: None)}
    lab.models = lambda need, encoding: [Decoder(shape, "rope").start(0)]
    monkeypatch.setattr(scaling, "Texts", SimpleNamespace(of=lambda plan, text: texts))
    monkeypatch.setattr(
        scaling,
        "same_targets",
        lambda reader, *rest: np.full(
            (WINDOWS, 8), 2.0 if "attention_factor=1.0" in repr(reader.encodings[0]) else 1.5
        ),
    )
    found = scaling.measure_temperature(lab).numbers
    assert found["temperature"].value == pytest.approx(0.5) and found["gain"].value == pytest.approx(0.5)
