"""Trained heads by distance: rotations against positions told to the encoding itself, signs, octaves, and lengths
beyond the sweep."""

import json

import numpy as np
import pytest
import torch

from milepost.claims import needs
from milepost.claims.groups.absolute import added_trained
from milepost.claims.groups.relative import heads
from milepost.claims.judge import choose, judge
from milepost.claims.table import NEEDS
from milepost.lab.model import Decoder, Shape
from milepost.measure.attention import HeadStatistics


def test_scores_at_a_distance_are_those_of_tokens_that_far_apart():
    """Against the encoding with real places: the query at 100, all keys at 100 - d."""
    model = Decoder(Shape(256, 1, 32, 2, 16), "rope").start(0)
    ids = torch.randint(0, 256, (3, 16), generator=torch.Generator().manual_seed(1))
    found = heads.by_distance(model, ids, (1, 5, 40))
    enc = model.encodings[0]
    with torch.no_grad():
        q, k, _ = (x.double() for x in model.blocks[0].project(model.tokens(ids)))
        for n, d in enumerate((1, 5, 40)):
            query, keys = enc.query(q[..., -1:, :], torch.tensor([100])), enc.key(k, torch.full((16,), 100 - d))
            expected = (query * keys).sum(-1).mean((0, 2)) / 16**0.5
            # q and k are turned in float32 before they come here: 2^-24 of their size, for D products, and as much
            # again for coming back
            torch.testing.assert_close(
                torch.from_numpy(found[:, n]),
                expected,
                rtol=0,
                atol=4 * 16 * 2**-24 * float(q.abs().max() * k.abs().max()),
            )


def test_a_fall_is_above_zero_where_far_scores_are_smaller():
    assert heads.fall(np.array([[4.0, 2.0, 1.0, 1.0], [0.0, 0.0, 1.0, 3.0]]), 2).tolist() == [2.0, -2.0]


def test_octaves_are_of_each_layer_s_own_heads():
    def head(layer, mean):
        return HeadStatistics(layer, 0, (0, 1), (1.0,), mean, 0.0, 0.0)

    assert heads.octaves([head(0, 0.0), head(0, 3.0), head(1, 7.0), head(1, 7.0)]) == pytest.approx((2.0 + 0.0) / 2)
    assert heads.octaves([head(0, 1.0), head(0, 3.0), head(0, 7.0)]) == pytest.approx(2.0)


@pytest.mark.parametrize("profile", ["quick", "standard"])
def test_models_with_more_heads_are_as_wide(profile):
    known = needs.plans(profile, NEEDS)
    shapes = {n: known[f"heads-{n}"].shape for n in heads.BANDS}
    assert {n: shape.heads for n, shape in shapes.items()} == {n: n for n in shapes}
    assert (
        len({shape.width for shape in shapes.values()}) == 1
        and len({Decoder(shape, "alibi").count() for shape in shapes.values()}) == 1
    )


@pytest.mark.parametrize("profile", ["quick", "standard"])
def test_equal_parameters_are_equal_to_within_a_hundredth(profile):
    plan = needs.plans(profile, NEEDS)["text"]
    assert set(added_trained.EQUAL.encodings) <= set(plan.encodings)
    added, appended = (Decoder(plan.shape, spec).count() for spec in added_trained.EQUAL.encodings)
    assert 0.99 * added < appended < added


def test_what_exact_parts_decide_is_among_the_exact():
    names = {claim.id for claim in choose([], exact=True)}
    assert {"rope-decay", "alibi-heads", "rope-sign"} <= names and "causal-bag" not in names


def test_sixteen_times_is_the_rise_of_the_very_windows(small, in_this_process, shared):
    """The small plans test at 16 times too, by the lab's own measurement."""
    row = judge(["sin-extrapolates"], out=shared, resume=True)[0]
    results = [json.loads(file.read_text()) for file in (shared / "lab" / "text").rglob("result.json")]
    one = next(run for result in results for run in result["runs"] if run["encoding"] == "sinusoidal")
    home, far = (np.mean(one["loss_by_window"][str(n)]) for n in (16, 256))
    assert row["numbers"]["16 times"]["value"] == pytest.approx(far / home - 1, abs=1e-5)
