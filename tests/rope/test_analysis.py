"""What a rope does at a length: each number against arithmetic by hand, and against counting angles one by one."""

import math

import pytest

from milepost import RopeSpec
from milepost.rope.analysis import analyse

LLAMA2 = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 4,
    "max_position_embeddings": 4096,
    "rope_theta": 1e4,
}


def spec(**more):
    return RopeSpec.from_config({**LLAMA2, **more})


def test_turns_wavelengths_and_the_critical_pair_of_llama_2():
    (found,) = analyse(spec(), 4096)
    for i in (0, 1, 17, 45, 46, 63):
        w = 10000.0 ** (-2 * i / 128)
        pair = found.pairs[i]
        assert math.isclose(pair.frequency, w, rel_tol=1e-14) and math.isclose(
            pair.wavelength, 2 * math.pi / w, rel_tol=1e-14
        )
        assert math.isclose(pair.turns, 4096 * w / (2 * math.pi), rel_tol=1e-14)
    # the pair of one turn is 64 ln(4096 / 2π) / ln 10000 = 45.03: 45 still makes one, 46 is the first that does not
    assert found.critical_pair == 46 and found.pairs[45].turns > 1 > found.pairs[46].turns
    assert sum(1 for i in range(64) if 2 * math.pi * 10000 ** (2 * i / 128) > 4096) == 64 - found.critical_pair
    assert math.isclose(found.alias_distance, 2 * math.pi * 10000 ** (126 / 128), rel_tol=1e-14)
    assert found.temperature == 1 and found.layers == 4 and not found.unseen_pairs


@pytest.mark.parametrize("target", [4097, 8192, 16384, 1048576])
def test_past_the_trained_length_exactly_the_pairs_without_a_full_turn_meet_new_angles(target):
    (found,) = analyse(spec(), target)
    assert found.unseen_pairs == tuple(range(46, 64))
    assert "18 of 64 pairs meet angles that they have not seen in 4096" in found.sentence


@pytest.mark.parametrize("target", [60, 400, 5000])
def test_unseen_is_what_looking_at_every_angle_says(target):
    """An angle is new where it is farther than one token's step from every angle of training."""
    (found,) = analyse(spec(max_position_embeddings=40, hidden_size=256, num_attention_heads=8), target)
    for pair in found.pairs:
        turn, w = 2 * math.pi, pair.frequency
        seen = [p * w % turn for p in range(41)]
        far = (
            min(min(abs(a - s), turn - abs(a - s)) for s in seen) for a in (p * w % turn for p in range(41, target + 1))
        )
        assert pair.unseen == any(distance > w for distance in far), pair
    assert 0 < len(found.unseen_pairs) < len(found.pairs)


@pytest.mark.parametrize("method", ["linear", "yarn", "ntk_by_parts", "llama3"])
def test_interpolation_to_a_length_leaves_no_pair_with_new_angles_there_and_some_beyond(method):
    longer = spec().extended(16384, method)
    (there,), (beyond,) = analyse(longer, 16384), analyse(longer, 16385 + 164)
    assert not there.unseen_pairs, (method, there.unseen_pairs)
    assert beyond.unseen_pairs


def test_ntk_leaves_the_middle_pairs_with_new_angles_which_is_why_it_breaks_before_its_factor():
    (found,) = analyse(spec().extended(16384, "ntk"), 16384)
    assert found.unseen_pairs and 63 not in found.unseen_pairs and found.local_resolution == 1.0


def test_local_resolution_is_what_the_first_pair_keeps():
    assert analyse(spec().extended(16384, "linear"), 16384)[0].local_resolution == 0.25
    assert analyse(spec().extended(16384, "yarn"), 16384)[0].local_resolution == 1.0


def test_the_temperature_is_of_the_scaling_and_of_the_models_softmax():
    (yarn,) = analyse(spec().extended(16384, "yarn"))
    assert math.isclose(yarn.temperature, (0.1 * math.log(4) + 1) ** 2, rel_tol=1e-14)
    deepseek = {
        "model_type": "deepseek_v3",
        "qk_rope_head_dim": 64,
        "num_hidden_layers": 2,
        "max_position_embeddings": 163840,
        "rope_theta": 10000,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "original_max_position_embeddings": 4096,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }
    (found,) = analyse(RopeSpec.from_config(deepseek))
    assert math.isclose(found.temperature, (0.1 * math.log(40) + 1) ** 2, rel_tol=1e-14)


def test_a_length_that_matters_is_the_one_that_is_asked_for():
    dynamic = spec(rope_scaling={"type": "dynamic", "factor": 2.0})
    bases = [analyse(dynamic, n)[0].pairs[1].frequency ** -64 for n in (4096, 8192, 16384)]
    assert [round(b, 3) for b in bases] == [10000.0, 30527.737, 72195.860]


def test_kinds_of_layers_are_analysed_apart():
    gemma = {
        "model_type": "gemma3_text",
        "head_dim": 256,
        "num_hidden_layers": 12,
        "max_position_embeddings": 32768,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    found = {one.kind: one for one in analyse(RopeSpec.from_config(gemma), 131072)}
    assert (
        found["sliding_attention"].base == 1e4
        and found["sliding_attention"].layers == 10
        and found["sliding_attention"].local_resolution == 1
    )
    assert (
        found["full_attention"].base == 1e6
        and found["full_attention"].layers == 2
        and found["full_attention"].local_resolution == 0.125
    )


def test_pairs_that_stand_still_meet_nothing_new_and_have_no_wavelength():
    config = {
        "model_type": "llama",
        "head_dim": 64,
        "max_position_embeddings": 128,
        "rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e4},
    }
    (found,) = analyse(RopeSpec.from_config(config), 4096)
    assert (
        all(p.wavelength is None and not p.unseen for p in found.pairs[8:])
        and found.alias_distance == found.pairs[7].wavelength
    )


def test_without_a_trained_length_it_says_so():
    config = {k: v for k, v in LLAMA2.items() if k != "max_position_embeddings"}
    with pytest.raises(ValueError, match=r"trained length is not known.*--trained-length"):
        analyse(RopeSpec.from_config(config), 8192)
