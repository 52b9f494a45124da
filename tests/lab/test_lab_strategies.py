"""Strategies: real specs, with settings that fit the length; and comparisons, whose sign says who gained."""

import numpy as np
import pytest
import torch

from milepost.encodings.rope import RoPE
from milepost.lab.comparisons import comparisons
from milepost.lab.model import Decoder, Shape
from milepost.lab.strategies import NAMES, applies, served
from milepost.maps.rerope import ReRoPE
from milepost.maps.self_extend import SelfExtend

SHAPE = Shape(64, 2, 32, 2, 32)


@pytest.mark.parametrize("strategy", NAMES)
def test_up_to_the_trained_length_the_model_is_as_it_was(strategy):
    for length in (8, 32):
        assert served("rope(base=500.0)", strategy, SHAPE, length) == "rope(head_dim=16, base=500.0)"


@pytest.mark.parametrize("strategy", [name for name in NAMES if name != "none"])
def test_beyond_it_every_strategy_is_a_spec_that_a_model_takes(strategy):
    model = Decoder(SHAPE, "rope").start(0).eval()
    ids = torch.randint(0, 64, (1, 128), generator=torch.Generator().manual_seed(0))
    spec = served("rope", strategy, SHAPE, 128)
    with torch.no_grad():
        assert not torch.allclose(model.with_encoding(spec)(ids)[:, 64:], model(ids)[:, 64:], atol=1e-6)
    assert repr(SHAPE.build(spec)) == spec


def test_the_settings_are_those_of_the_formulas():
    assert served("rope", "linear", SHAPE, 128) == "rope(head_dim=16, scaling=linear(factor=4.0))"
    assert served("rope", "ntk", SHAPE, 128) == "rope(head_dim=16, scaling=ntk(factor=4.0))"
    assert served("rope", "yarn", SHAPE, 128) == "rope(head_dim=16, scaling=yarn(factor=4.0, trained=32))"
    assert served("rope", "dynamic", SHAPE, 128) == "rope(head_dim=16, scaling=dynamic(trained=32))"
    base = SHAPE.build(served("rope", "base", SHAPE, 128)).scaling.base
    assert base == pytest.approx(10000 ** (np.log(128 / (2 * np.pi)) / np.log(32 / (2 * np.pi))))


@pytest.mark.parametrize("trained", [8, 9, 32, 64, 100, 512])
@pytest.mark.parametrize("times", [1.1, 2, 4, 8, 33])
def test_maps_keep_every_distance_inside_the_trained_length(trained, times):
    shape, length = Shape(64, 1, 32, 2, trained), int(trained * times) + 1
    wide = shape.build(served("rope", "self-extend", shape, length))
    assert isinstance(wide, SelfExtend) and wide.reach(length) < trained * 2 / 3 and wide.window == trained // 2
    assert (
        wide.group == 1 or SelfExtend(wide.rope, wide.group - 1, wide.window).reach(length) >= trained * 2 / 3
    )  # no coarser than needed
    flat = shape.build(served("rope", "rerope", shape, length))
    assert isinstance(flat, ReRoPE) and flat.reach(length) == trained // 2


def test_strategies_are_for_a_plain_rope():
    assert applies("rope(base=500.0)", SHAPE)
    assert not any(
        applies(spec, SHAPE) for spec in ("alibi", "nope", "rope + alibi", "rope(scaling=linear(factor=2.0))")
    )
    with pytest.raises(ValueError, match="strategies are for a RoPE without a scaling, got alibi"):
        served("alibi", "yarn", SHAPE, 64)
    with pytest.raises(ValueError, match="unknown strategy 'yran'"):
        served("rope", "yran", SHAPE, 64)
    kept = SHAPE.build(served('rope(base=500.0, pairing="interleaved", rotary=8)', "linear", SHAPE, 64))
    assert isinstance(kept, RoPE) and (kept.base, kept.pairing, kept.rotary) == (500.0, "interleaved", 8)


# -- comparisons -------------------------------------------------------------------------------------------------------
# -------------------


def run(encoding, losses, strategy="none", seed=0):
    return {
        "encoding": encoding,
        "strategy": strategy,
        "seed": seed,
        "loss_by_window": {"64": losses},
        "window_files": [0, 1, 1, 2],
    }


def test_a_strategy_that_helps_has_a_negative_difference():
    runs = [
        run("nope", [5.0, 5, 5, 5]),
        run("rope", [4.0, 3, 3, 2]),
        run("rope", [3.5, 2.4, 2.6, 1.3], "yarn"),
        run("rope", [4.5, 4, 4, 4], "linear"),
    ]
    found = {(one["encoding"], one["strategy"]): one for one in comparisons(runs)}
    yarn = found["rope", "yarn"]
    assert yarn["against"] == "rope, none" and yarn["length"] == 64
    assert (
        yarn["difference"] == pytest.approx(np.mean([-0.5, -0.6, -0.4, -0.7]))
        and yarn["low"] < yarn["difference"] < yarn["high"] < 0
    )
    assert found["rope", "linear"]["difference"] == pytest.approx(1.125) and found["rope", "linear"]["low"] > 0
    assert found["rope", "none"]["against"] == "nope, none" and found["rope", "none"]["difference"] == -2.0
    assert ("nope", "none") not in found


def test_what_each_length_pays_for_the_setting_of_the_longest_is_a_row_of_its_own():
    plain, scaled = (
        run("rope", [4.0, 3, 3, 2]),
        {**run("rope", [3.5, 2.5, 2.5, 1.5], "yarn"), "fixed_by_window": {"64": [4.1, 3.2, 3.2, 2.1]}},
    )
    ours, fixed = [one for one in comparisons([plain, scaled]) if one["strategy"] == "yarn"]
    assert "fixed" not in ours and ours["difference"] == pytest.approx(-0.5)
    assert fixed["fixed"] is True and fixed["difference"] == pytest.approx(0.15) and 0 < fixed["low"] < fixed["high"]


def test_without_nope_the_first_encoding_is_what_the_others_are_set_against():
    found = comparisons([run("alibi", [2.0] * 4), run("rope", [3.0] * 4), run("t5", [1.0] * 4)])
    assert [(one["encoding"], one["against"], one["difference"]) for one in found] == [
        ("rope", "alibi, none", 1.0),
        ("t5", "alibi, none", -1.0),
    ]


def test_seeds_are_never_mixed_and_a_missing_length_is_no_comparison():
    found = comparisons(
        [
            run("nope", [2.0] * 4),
            run("rope", [3.0] * 4, seed=1),
            {**run("learned", [1.0] * 4), "loss_by_window": {"32": [1.0] * 4}},
        ]
    )
    assert found == []
    assert (
        comparisons([{"encoding": "rope", "strategy": "none", "seed": 0, "failed": "the loss at step 3 is nan"}]) == []
    )
