"""The same passage elsewhere: exact for schemes of distances, found where positions themselves matter, and paired by
window.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from milepost.lab.model import Decoder, Shape
from milepost.layout import Layout
from milepost.measure.shifted import choose_firsts, shifted

RNG = np.random.default_rng(0)
WINDOWS = RNG.integers(0, 32, (5, 17))
GROUPS = np.arange(5)


def reader(spec):
    """A float64 model of random weights that are large enough for positions to matter, as a scorer at any place."""
    torch.manual_seed(0)
    model = Decoder(Shape(32, 2, 16, 2, 64), spec).double().eval()

    def losses(ids, first):
        logits = model(ids[:, :-1], Layout.dense(ids.shape[1] - 1, start=first))
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)

    return losses


@pytest.mark.parametrize("spec", ["rope", "alibi", "t5", "nope", "rope + alibi"])
def test_a_scheme_of_distances_is_exact_up_to_rounding(spec):
    for one in shifted(reader(spec), WINDOWS, [0, 1, 16, 4000], GROUPS):
        assert one.largest < 1e-9 and abs(one.difference.value) < 1e-9, (
            one.first
        )  # float64: 16 digits, angles below 4000


@pytest.mark.parametrize("spec", ["learned", "sinusoidal"])
def test_a_scheme_of_places_is_not(spec):
    for one in shifted(reader(spec), WINDOWS, [1, 16, 40], GROUPS):
        assert one.largest > 1e-3, one.first


def test_a_planted_bug_of_positions_is_seen_from_where_it_begins():
    """Positions that stop growing at 24: a passage that reaches past it is read otherwise, one before it is not."""
    torch.manual_seed(0)
    model = Decoder(Shape(32, 2, 16, 2, 64), "rope").double().eval()

    def stuck(ids, first):
        at = Layout.dense(ids.shape[1] - 1, start=first)
        wrong = Layout(at.index, at.segment, at.pos.clamp(max=24))
        logits = model(ids[:, :-1], wrong)
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)

    largest = {one.first: one.largest for one in shifted(stuck, WINDOWS, [0, 1, 8, 16, 40], GROUPS)}
    assert max(largest[n] for n in (0, 1, 8)) < 1e-9
    assert min(largest[n] for n in (16, 40)) > 1e-3


def test_the_sign_and_the_pairing_are_those_of_a_difference_to_position_0():
    hard = np.array([0.0, 5.0, 1.0, 9.0, 2.0])

    def losses(ids, first):
        which = [int((row.numpy() == WINDOWS).all(1).argmax()) for row in ids]
        return (
            torch.tensor(hard[which])[:, None].expand(-1, 16) + first / 100
        )  # later is worse; windows differ by far more than that

    home, later = shifted(losses, WINDOWS, [0, 10], GROUPS)
    assert home.difference.value == 0 == home.largest
    assert (
        later.difference.value == pytest.approx(0.1)
        and later.difference.low == pytest.approx(0.1) == later.difference.high
    )
    assert later.loss.value == pytest.approx(hard.mean() + 0.1) and later.loss.tokens == 80


def test_places_are_within_the_text_and_around_the_trained_length():
    assert choose_firsts(16, 256, 32) == [0, 1, 16, 32, 64, 128, 192, 240]
    for length, longest, trained in ((16, 256, 32), (128, 4096, 8192), (5, 10, None), (32, 32, 64), (2, 100, 3)):
        found = choose_firsts(length, longest, trained)
        assert found == sorted(set(found)) and found[0] == 0 and found[-1] == longest - length and len(found) <= 10
        assert all(0 <= first <= longest - length for first in found)
    assert choose_firsts(128, 4096, 8192) == [0, 1, 3968]


def test_a_place_before_the_text_is_refused():
    with pytest.raises(ValueError, match="at least 0, got -1"):
        shifted(reader("rope"), WINDOWS, [0, -1], GROUPS)
