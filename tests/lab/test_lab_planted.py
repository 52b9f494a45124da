"""A positional bug, planted in an honest model, is seen in the numbers that the lab reports."""

import numpy as np
import pytest
import torch

from milepost.encodings.rope import RoPE
from milepost.lab.model import Decoder, Shape
from milepost.lab.train import Recipe, train
from milepost.layout import Layout
from milepost.measure.intervals import mean
from milepost.measure.losses import buckets, by_position, same_targets

HERE = __name__
PERIOD = 4
SHAPE = Shape(8, 1, 32, 2, 24)


class OneOff(RoPE):
    """Queries are told that they stand one place further on."""

    def query(self, q, pos):
        return super().query(q, pos + 1)


def repeating(rng, rows, length):
    """Every token stands four places further on again: to know the next one is to know distances."""
    return np.tile(rng.integers(0, 8, (rows, PERIOD)), (1, length // PERIOD + 1))[:, :length]


@pytest.fixture(scope="module")
def model():
    made = Decoder(SHAPE, "rope").start(0)
    train(made, lambda step: (repeating(np.random.default_rng((0, step)), 16, 25), None), Recipe(300, 16, 24))
    return made


@pytest.fixture(scope="module")
def windows():
    return repeating(np.random.default_rng(99), 24, 25)


def decoded(model, planted):
    """A model that reads eight tokens at once and decodes the rest; the planted bug is in the decode alone."""

    def read(ids):
        caches = model.caches()
        parts = [model(ids[:, :8], caches=caches)]
        for n in range(8, ids.shape[1]):
            at = caches[0].next(1)
            if planted:
                for block, cache in zip(model.blocks, caches, strict=True):
                    cache._lane = None
                    block.enc.query = lambda q, pos, enc=block.enc: RoPE.query(enc, q, pos + 1)
            parts.append(model(ids[:, n : n + 1], at, caches=caches))
            for block in model.blocks:
                block.enc.__dict__.pop("query", None)
        return torch.cat(parts, dim=1)

    return read


def last(model, windows, length=24):
    return mean(same_targets(model, windows, length, 8), np.arange(len(windows)))


def test_the_honest_model_knows_its_distances(model, windows):
    assert last(model, windows).high < 0.3 < np.log(8) / 3


def test_queries_one_place_off(model, windows):
    planted = last(model.with_encoding(f"{HERE}:OneOff"), windows)
    assert planted.low > last(model, windows).high + 0.5


def test_positions_halved_at_test(model, windows):
    planted = last(
        lambda ids: model(ids, Layout.dense(ids.shape[1]).with_positions(torch.arange(ids.shape[1])[None] / 2)), windows
    )
    assert planted.low > last(model, windows).high + 0.5


def test_a_decode_one_place_off(model, windows):
    honest, planted = (by_position(decoded(model, bug), windows, buckets(24, 24)) for bug in (False, True))
    full = by_position(model, windows, buckets(24, 24))
    assert max(np.abs(a - b).max() for a, b in zip(honest, full, strict=True)) < 1e-3  # float32, logits of some tens
    assert abs(planted[0] - full[0]).max() < 1e-3  # the eight tokens that were read at once
    assert planted[-1].mean() > full[-1].mean() + 0.5


def test_a_scaling_applied_where_none_was_asked_for(model, windows):
    planted = last(model.with_encoding("rope(scaling=linear(factor=2.0))"), windows)
    assert planted.low > last(model, windows).high + 0.5
