"""RopeSpec and parity: what they hold, how a model is extended, and when two tables are the same."""

import dataclasses
import json
import math

import pytest
import torch

from milepost import RopeSpec
from milepost.rope import LayerRope
from milepost.rope.engines.parity import differences
from milepost.scaling import NTK, Linear, Staged, YaRN

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_hidden_layers": 4,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
}
GEMMA = {
    "model_type": "gemma3_text",
    "head_dim": 256,
    "num_hidden_layers": 12,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
}
METHODS = ["base", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3"]


def spec(**more):
    return RopeSpec.from_config({**QWEN, **more})


@pytest.mark.parametrize("method", METHODS)
def test_extending_twice_is_extending_once(method):
    """32k to 64k to 128k equals 32k to 128k: each time from the trained length, never on top of a scaling."""
    once, twice = spec().extended(131072, method), spec().extended(65536, method).extended(131072, method)
    assert once == twice and not differences(once, twice)
    if method != "dynamic":  # which goes by the length of each text
        assert differences(once, spec().extended(65536, method)), "the length has no effect"


@pytest.mark.parametrize("method", METHODS)
def test_extending_replaces_another_scaling_and_starts_from_the_original_length(method):
    scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    already = spec(max_position_embeddings=131072, rope_scaling=scaled)
    assert already.trained == 32768
    assert not differences(already.extended(262144, method), spec().extended(262144, method))


def test_extending_to_the_trained_length_is_no_scaling():
    for method in METHODS:
        assert spec().extended(65536).extended(32768, method).main.scaling is None


def test_sliding_layers_are_left_alone_by_an_extension():
    before, after = RopeSpec.from_config(GEMMA), RopeSpec.from_config(GEMMA).extended(131072, "yarn")
    assert after.ropes()["sliding_attention"] == before.ropes()["sliding_attention"]
    assert after.ropes()["full_attention"].scaling == YaRN(4.0, 32768)


def test_what_can_not_be_extended_is_said():
    with pytest.raises(ValueError, match="1000 tokens are fewer than the 32768"):
        spec().extended(1000)
    with pytest.raises(ValueError, match="unknown method 'yarm'"):
        spec().extended(65536, "yarm")
    with pytest.raises(ValueError, match="trained length is not known"):
        RopeSpec.from_config({k: v for k, v in QWEN.items() if k != "max_position_embeddings"}).extended(65536)


def test_the_three_lengths_are_apart():
    found = spec(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16384})
    assert (found.trained, found.scaled, found.served) == (16384, 65536, 32768)


def test_each_layer_has_its_own_rope():
    found = RopeSpec.from_config(GEMMA)
    bases = [found.layer(n).base for n in range(12)]
    assert bases == [1e4, 1e4, 1e4, 1e4, 1e4, 1e6] * 2 and found.layer(-1).base == 1e6
    with pytest.raises(ValueError, match="layers 0 to 11, got 12"):
        found.layer(12)


def test_layers_without_rotation_are_none():
    found = RopeSpec.from_config(
        {
            "model_type": "smollm3",
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "num_hidden_layers": 8,
            "max_position_embeddings": 65536,
        }
    )
    assert [found.layer(n) is None for n in range(8)] == [False, False, False, True] * 2


def test_the_encoding_of_a_rope_turns_with_its_frequencies_and_temperature():
    rope = spec().extended(131072, "yarn").main
    enc = rope.encoding()
    assert enc.spectrum == rope.spectrum() and math.isclose(rope.temperature(), (0.1 * math.log(4) + 1) ** 2)
    q = torch.randn(1, 1, 3, 128, dtype=torch.float64)
    pos = torch.tensor([0, 257, 131071])
    angle = pos[:, None].double() * torch.tensor(rope.spectrum().frequencies, dtype=torch.float64)
    a, b = q[..., :64], q[..., 64:]
    expected = (
        torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1) * rope.temperature()
    )
    assert (enc.query(q, pos) - expected).abs().max() < 1e-9  # 131071 * 2^-53 radians, and some
    assert (enc.key(q, pos) - expected / rope.temperature()).abs().max() < 1e-9


def test_a_spec_is_a_value_and_plain_data():
    found = spec()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.trained = 1
    assert found == spec() and hash(found) == hash(spec()) and found != spec(rope_theta=1e5)
    assert json.loads(json.dumps(found.to_json()))["kinds"][0]["rope"]["base"] == 1e6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rotary": 7}, "even, from 2 to head_dim=64, got 7"),
        ({"rotary": 128}, "even, from 2 to head_dim=64, got 128"),
        ({"sections": (16, 24, 24)}, r"must add up to 32 pairs, got \[16, 24, 24\], which is 64"),
    ],
)
def test_a_rope_refuses_sizes_that_do_not_fit(given, words):
    with pytest.raises(ValueError, match=words):
        LayerRope(**{"head_dim": 64, "base": 1e4, "rotary": 64, **given})


def test_a_spec_refuses_kinds_that_are_not_there():
    rope = LayerRope(64, 1e4, 64)
    with pytest.raises(ValueError, match="at least one kind of layer that rotates"):
        RopeSpec((("all", None),))
    with pytest.raises(ValueError, match="the kinds are"):
        RopeSpec((("all", rope),), layers=("other",))


def made(scaling=None, **more):
    return RopeSpec(
        (("all", LayerRope(**{"head_dim": 64, "base": 1e4, "rotary": 64, "scaling": scaling, **more})),),
        ("all",) * 2,
        4096,
        4096,
    )


def test_the_same_table_written_in_two_ways_is_the_same():
    stretched = 1e4 * 4 ** (64 / 62)
    assert not differences(made(NTK(4.0)), made(base=stretched))
    assert differences(made(NTK(4.0)), made(base=stretched * (1 + 1e-4)))


def test_a_difference_says_where_and_how_much():
    found = differences(made(), made(Linear(4.0)))
    assert (
        len(found) == 32
        and {d.pair for d in found} == set(range(32))
        and all(math.isclose(d.relative, 0.75) for d in found)
    )
    assert found[1].sentence("mine", "yours") == "frequency of pair 1: 0.749894 (mine), 0.187474 (yours)"


def test_pairing_sizes_temperature_and_layers_are_compared():
    assert [d.what for d in differences(made(), made(pairing="interleaved"))] == ["pairing"]
    assert [d.what for d in differences(made(), made(rotary=32))] == ["rotary size"]
    assert [d.what for d in differences(made(), made(softmax=1.5))] == ["temperature on logits"]
    more = RopeSpec(made().kinds, ("all",) * 3, 4096, 4096)
    assert [d.what for d in differences(made(), more)] == ["number of layers"]
    still = RopeSpec((*made().kinds, ("no_rope", None)), ("all", "no_rope"), 4096, 4096)
    assert [(d.what, d.a, d.b) for d in differences(made(), still)] == [("rotation", "rotary", "none")]


def test_lengths_at_which_a_scaling_changes_are_looked_at():
    from milepost.scaling import Dynamic

    found = differences(made(Dynamic(4096, 2.0)), made())
    assert {d.length for d in found} == {4097, 8192, 16384}
    assert not differences(made(Dynamic(4096, 2.0)), made(Dynamic(4096, 2.0)))
    staged = differences(made(Dynamic(4096)), made(Staged(4096)))
    assert {d.length for d in staged} == {4097}, "stages are dynamic NTK at powers of two of the trained length"


def test_changing_a_number_by_less_than_float32_can_hold_is_no_difference():
    assert not differences(made(), made(base=1e4 * (1 + 1e-7)))
