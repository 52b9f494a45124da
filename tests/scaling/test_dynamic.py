"""Dynamic NTK and our staged one: golden bases, and what they refuse."""

import math

import pytest
import torch

from milepost import KVCache, Layout, RoPE, attend, build
from milepost.scaling import Dynamic, Staged
from milepost.spectrum import geometric


@pytest.mark.parametrize(("length", "base"), [(4097, 10004.960), (8192, 30527.737), (16384, 72195.860)])
def test_the_base_of_dynamic_ntk_is_the_published_one(length, base):
    scaled = Dynamic(trained=4096, factor=2.0, length=length)(geometric(128))
    assert abs(scaled.base - base) < 5e-4
    for i in (0, 1, 31, 63):
        assert math.isclose(scaled.frequencies[i], base ** (-2 * i / 128), rel_tol=1e-7)


@pytest.mark.parametrize("length", [1, 512, 4095, 4096])
def test_up_to_the_trained_length_nothing_changes_to_the_bit(length):
    plain = geometric(128)
    assert Dynamic(trained=4096, factor=2.0, length=length)(plain) == plain
    assert torch.equal(RoPE(head_dim=128, scaling=Dynamic(4096, 2.0, length)).inv_freq, RoPE(head_dim=128).inv_freq)


def test_a_served_length_far_below_the_trained_one_never_turns_the_base_negative():
    scaled = Dynamic(trained=2048, factor=2.0, length=512)(geometric(64))
    assert scaled.base == 10000.0 and all(w > 0 for w in scaled.frequencies)


def test_pairs_that_stand_still_stay_still():
    enc = RoPE(head_dim=64, rotary=16, partial="proportional", scaling=Dynamic(16, 2.0, 64))
    assert enc.spectrum.frequencies[8:] == (0.0,) * 24 and all(w > 0 for w in enc.spectrum.frequencies[:8])


def test_stages_begin_where_a_power_of_two_of_the_trained_length_is_passed():
    rule = Staged(trained=100)
    assert [rule.stage(m) for m in (0, 99, 100, 199, 200, 399, 400, 1048575)] == [0, 0, 1, 1, 2, 2, 3, 14]
    for stage in range(1, 12):
        assert rule.stage(rule.start(stage)) == stage and rule.stage(rule.start(stage) - 1) == stage - 1
    for m in (0, 1, 255, 256, 257, 4095, 4096, 131071):
        assert rule.stage(m) == max(0, math.ceil(math.log2((m + 1) / 100)))


def test_the_two_have_their_own_names_in_specs():
    for spec in (
        "rope(head_dim=8, scaling=dynamic(trained=16, factor=2.0))",
        "rope(head_dim=8, scaling=staged(trained=16))",
    ):
        assert repr(build(spec)) == spec
    assert "staged" not in repr(build("rope(scaling=dynamic(trained=16))", head_dim=8))


def test_an_encoding_that_waits_for_the_length_does_not_guess():
    enc = build("rope(scaling=dynamic(trained=16))", head_dim=8)
    q = torch.randn(1, 2, 4, 8)
    for hook in (enc.query, enc.key):
        with pytest.raises(ValueError, match=r"depends on the length.*attend\(\).*enc.at\(length\)"):
            hook(q, torch.arange(4))
    scattered = Layout.dense(40).take(torch.randperm(40))
    q = torch.randn(1, 2, 40, 8)
    with pytest.raises(ValueError, match="needs to know each text's length"):
        attend(q, q, q, enc, at=scattered)
    with pytest.raises(ValueError, match="several encodings in one pass"):
        attend(q, q, q, enc, details=True)
    with pytest.raises(ValueError, match="is staged"):
        KVCache(build("rope(scaling=staged(trained=16))", head_dim=8), policy="hf")


def test_the_numbers_depend_on_the_length_and_on_nothing_before():
    enc = RoPE(head_dim=64, scaling=Dynamic(trained=32, factor=2.0))
    tables = {n: enc.at(n).inv_freq for n in (31, 32, 33, 64, 128)}
    assert torch.equal(tables[31], tables[32]) and not torch.equal(tables[32], tables[33])
    assert (tables[128][1:] < tables[64][1:]).all() and tables[128][0] == 1
    for n in (128, 33, 64, 31):
        assert torch.equal(enc.at(n).inv_freq, tables[n])
