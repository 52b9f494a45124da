"""Models that score by themselves, texts that begin with a token, and where a model is."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from milepost.measure.losses import device_of, same_targets, token_losses, with_first_token

WINDOWS = np.random.default_rng(0).integers(0, 16, (3, 21))
TABLE = torch.randn(16, 16, generator=torch.Generator().manual_seed(0))


class Scorer:
    """The logits of a token are a row of a table; it refuses to give them all."""

    def __init__(self):
        self.asked = []

    def __call__(self, ids):
        raise AssertionError("logits of a whole text are not to be held")

    def losses(self, ids):
        self.asked.append(ids.clone())
        return F.cross_entropy(TABLE[ids[:, :-1]].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(
            len(ids), -1
        )


def test_a_model_that_scores_by_itself_is_asked_for_losses_alone():
    assert np.array_equal(token_losses(Scorer(), WINDOWS), token_losses(lambda ids: TABLE[ids], WINDOWS))


def test_the_first_token_of_a_text_is_the_one_that_the_model_wants():
    model = Scorer()
    found = same_targets(model, WINDOWS, 12, 4, begin=3)
    (ids,) = model.asked
    assert ids.shape == (3, 13) and (ids[:, 0] == 3).all() and np.array_equal(ids[:, 1:].numpy(), WINDOWS[:, -12:])
    assert np.array_equal(
        found, same_targets(Scorer(), WINDOWS, 12, 4)
    )  # a model of one token back does not see the first
    assert (
        with_first_token(WINDOWS, None) is WINDOWS
        and (with_first_token(WINDOWS, 3)[:, 0] == 3).all()
        and np.array_equal(with_first_token(WINDOWS, 3)[:, 1:], WINDOWS[:, 1:])
    )


def test_a_model_is_where_it_says():
    class There:
        device = torch.device("meta")

    assert device_of(There()) == torch.device("meta") and device_of(lambda ids: ids) == torch.device("cpu")
    assert device_of(torch.nn.Linear(2, 2, device="meta")) == torch.device("meta")


@pytest.mark.parametrize("begin", [None, 5])
def test_windows_are_not_changed(begin):
    before = WINDOWS.copy()
    with_first_token(WINDOWS, begin)
    assert np.array_equal(WINDOWS, before)
