"""Drift: none beyond rounding in an honest cache; a cache that forgets, or miscounts, is seen; numbers as by hand."""

import math

import pytest
import torch

from milepost.lab.model import Decoder, Shape
from milepost.measure.drift import ALLOWANCE, drift

IDS = torch.randint(0, 32, (2, 40), generator=torch.Generator().manual_seed(1))


def made(spec):
    torch.manual_seed(0)
    return Decoder(Shape(32, 2, 16, 2, 64), spec).eval()


def read(model, said=6, spoil=None):
    """One drift of a model whose cached keys are spoilt by ``spoil``."""
    double = made(model.specs[0]).double()

    @torch.no_grad()
    def continued(ids, said):
        caches = model.caches()
        model(ids[:, :-said], caches=caches)
        if spoil is not None:
            spoil(caches)
        return torch.cat([model(ids[:, t : t + 1], caches=caches) for t in range(ids.shape[1] - said, ids.shape[1])], 1)

    with torch.no_grad():
        return drift(lambda ids: model(ids)[:, -1], continued, IDS, said, lambda ids: double(ids)[:, -1])


@pytest.mark.parametrize("spec", ["rope", "alibi", "t5", "learned"])
def test_an_honest_cache_differs_by_rounding_alone(spec):
    found = read(made(spec))
    assert found.length == 40 and found.stepped == 6
    assert found.largest <= found.allowed < 1e-3 and not found.beyond
    assert found.divergence < found.allowed


@pytest.mark.parametrize("spec", ["rope", "alibi"])
def test_a_cache_that_lost_its_past_is_seen(spec):
    model = made(spec)

    @torch.no_grad()
    def forgets(ids, said):
        caches = model.caches()
        model(ids[:, 10:-said], caches=caches)  # the first ten tokens are not there
        return torch.cat([model(ids[:, t : t + 1], caches=caches) for t in range(ids.shape[1] - said, ids.shape[1])], 1)

    double = made(spec).double()
    with torch.no_grad():
        found = drift(lambda ids: model(ids)[:, -1], forgets, IDS, 6, lambda ids: double(ids)[:, -1])
    assert found.beyond and found.largest > 100 * found.allowed and found.divergence > 1e-4


def test_numbers_are_those_by_hand():
    whole, cached, exact = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.5]]), torch.tensor([[0.0, 1.01]])
    found = drift(
        lambda ids: whole,
        lambda ids, said: torch.stack([torch.zeros(1, 2), cached], 1),
        torch.zeros(1, 5, dtype=torch.long),
        2,
        lambda ids: exact,
    )
    p, q = 1 / (1 + math.exp(-1.0)), 1 / (1 + math.exp(-1.5))
    assert found.largest == pytest.approx(0.5)
    assert found.divergence == pytest.approx(p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)), rel=1e-6)
    assert found.allowed == pytest.approx(ALLOWANCE * 0.01, rel=1e-4) and found.beyond


def test_without_an_exact_model_nothing_is_judged_and_no_number_is_beyond():
    ids = torch.zeros(1, 5, dtype=torch.long)
    far = drift(lambda ids: torch.zeros(1, 2), lambda ids, said: torch.ones(1, said, 2) * torch.arange(2.0), ids, 1)
    assert far.allowed is None and not far.beyond and far.largest == 1.0
    nan = drift(
        lambda ids: torch.zeros(1, 2),
        lambda ids, said: torch.full((1, said, 2), float("nan")),
        ids,
        1,
        lambda ids: torch.zeros(1, 2),
    )
    assert nan.beyond and math.isnan(nan.largest)


@pytest.mark.parametrize("said", [0, 5])
def test_some_tokens_come_one_by_one_and_some_do_not(said):
    with pytest.raises(ValueError, match=f"from 1 to 4 of 5 tokens can come one by one, got {said}"):
        drift(
            lambda ids: torch.zeros(1, 2),
            lambda ids, said: torch.zeros(1, said, 2),
            torch.zeros(1, 5, dtype=torch.long),
            said,
        )
