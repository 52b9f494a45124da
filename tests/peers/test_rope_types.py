"""transformers' rope types against our scalings: frequencies and m for parameters of every kind, and where theirs go
wrong.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from milepost import RoPE
from milepost.scaling import Dynamic, Linear, Llama3, LongRoPE, Proportional, YaRN
from milepost.spectrum import Spectrum, geometric

transformers = importlib.import_module("transformers")
rope_utils = importlib.import_module("transformers.modeling_rope_utils")
llama = importlib.import_module("transformers.models.llama.modeling_llama")
phi3 = importlib.import_module("transformers.models.phi3.modeling_phi3")
transformers.logging.set_verbosity_error()

FIXED = "peer fixed it: move to parity"
ULP = 2.0**-24  # half a unit in the last place of float32, relatively
SOME = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)

heads = st.sampled_from(
    [(64, 1.0), (72, 1.0), (80, 1.0), (96, 1.0), (128, 1.0), (192, 1.0), (256, 1.0), (128, 0.75), (80, 0.4), (128, 0.5)]
)
bases = st.sampled_from([10000.0, 150000.0, 500000.0, 1e6]) | st.floats(500.0, 1e7)
factors = st.sampled_from([1.0, 2.0, 4, 8.0, 32.0, 40]) | st.floats(1.0, 64.0)
lengths = st.sampled_from([2048, 4096, 8192, 32768, 131072]) | st.integers(64, 1 << 19)
turns = st.tuples(st.floats(0.25, 4.0), st.floats(1.5, 40.0)).map(
    lambda both: (both[0], both[0] * both[1])
)  # slow, fast


def config(head_dim: int, served: int, **rope: Any) -> Any:
    return transformers.LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=served,
        rope_parameters=dict(rope),
    )


def theirs(head_dim: int, served: int, length: int | None = None, **rope: Any) -> tuple[Tensor, float]:
    return rope_utils.ROPE_INIT_FUNCTIONS[rope["rope_type"]](config(head_dim, served, **rope), seq_len=length)


def float32(base: float, size: int) -> list[float]:
    """How far each frequency of the peer may be off, relatively, since it works in float32.

    The base and the exponent x = 2i/d are rounded once each, which moves base^x by x and by x ln(base) roundings; the
    power has two, the reciprocal and the product with a factor one each. Blending two such numbers adds four.
    """
    return [(x * (1 + math.log(base)) + 8) * ULP for x in (2 * i / size for i in range(size // 2))]


def agree(ours: Spectrum, frequencies: Tensor, m: float, room: list[float]) -> None:
    assert len(ours.frequencies) == len(frequencies) == len(room)
    for i, (a, b, r) in enumerate(zip(ours.frequencies, frequencies.double().tolist(), room, strict=True)):
        assert abs(b - a) <= r * a, f"pair {i}: ours {a}, theirs {b}, off by {b / a - 1:.2e}, allowed {r:.2e}"
    assert math.isclose(ours.temperature, m * m, rel_tol=1e-15)  # m goes on cos and on sin, of q and of k


def blended(room: list[float], shares: list[float], off: list[float], factor: float) -> list[float]:
    """w (1 - y)/f + w y moves by off (1 - 1/f) where y does by ``off``, relative to (1 - y)/f + y; a share at either
    end is exact.
    """
    return [r + o * (1 - 1 / factor) / ((1 - y) / factor + y) for r, y, o in zip(room, shares, off, strict=True)]


def yarn_room(
    size: int, base: float, factor: float, trained: int, fast: float, slow: float, truncate: bool | None
) -> list[float] | None:
    """How far each frequency of the peer's YaRN may be off; None where the bounds of its ramp cross."""
    low, high = (size * math.log(trained / (r * 2 * math.pi)) / (2 * math.log(base)) for r in (fast, slow))
    if truncate is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    if high < low:
        return None
    width = high - low or 0.001
    room = []
    for i, r in enumerate(float32(base, size)):
        kept = 1 - min(1.0, max(0.0, (i - low) / width))
        # whole bounds leave the quotient's rounding and one more; others are rounded to float32, and so is i less one
        # of them
        off = 3 * ULP if truncate is not False else (3 + (i + low + abs(i - low)) / width) * ULP
        ends = (
            i < low - 0.01 or i > low + width + 0.01 or width == 0.001
        )  # far from the slope a share is 0 or 1, exactly
        room.append(r if ends else r + off * (1 - 1 / factor) / ((1 - kept) / factor + kept))
    return room


# -- the same numbers
# ----------------------------------------------------------------------------------------------------


def test_every_rope_type_of_the_peer_is_compared_here():
    assert set(rope_utils.ROPE_INIT_FUNCTIONS) == {"linear", "dynamic", "yarn", "longrope", "llama3", "proportional"}


def test_the_room_of_float32_is_about_a_millionth():
    assert max(float32(10000.0, 128)) < 1.1e-6 and max(float32(500000.0, 128)) < 1.4e-6


@SOME
@given(heads, bases, factors)
def test_linear(head, base, factor):
    size = int(head[0] * head[1])
    found = theirs(head[0], 4096, rope_type="linear", rope_theta=base, factor=factor, partial_rotary_factor=head[1])
    agree(Linear(factor)(geometric(size, base)), *found, float32(base, size))


@SOME
@given(heads, bases, factors, lengths, st.floats(0.1, 16.0) | st.sampled_from([1.0, 2.0, 4.0]), st.integers(-1, 1))
def test_dynamic(head, base, factor, trained, times, beside):
    size, length = int(head[0] * head[1]), max(1, int(trained * times) + beside)
    found = theirs(
        head[0], trained, length, rope_type="dynamic", rope_theta=base, factor=factor, partial_rotary_factor=head[1]
    )
    scaled = Dynamic(trained, factor, length)(geometric(size, base))
    agree(scaled, *found, float32(scaled.base, size))


attention = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"attention_factor": st.floats(0.1, 4.0) | st.sampled_from([1.0, 1])}),
    st.fixed_dictionaries(
        {
            "mscale": st.sampled_from([0, 0.0, 1, 1.0, 0.707]),
            "mscale_all_dim": st.sampled_from([0, 1, 1.0, 0.707]) | st.floats(0.1, 2.0),
        }
    ),
    st.fixed_dictionaries({"mscale": st.floats(0.1, 2.0)}),
    st.fixed_dictionaries({"mscale_all_dim": st.floats(0.1, 2.0)}),
    st.fixed_dictionaries(
        {"mscale": st.floats(0.1, 2.0), "mscale_all_dim": st.floats(0.1, 2.0), "attention_factor": st.floats(0.1, 4.0)}
    ),
)


@settings(SOME, max_examples=200)
@given(heads, bases, factors, lengths, turns, st.sampled_from([None, True, False]), attention)
def test_yarn(head, base, factor, trained, bounds, truncate, m):
    size, (slow, fast) = int(head[0] * head[1]), bounds
    said = {
        "rope_type": "yarn",
        "rope_theta": base,
        "factor": factor,
        "original_max_position_embeddings": trained,
        "partial_rotary_factor": head[1],
    }
    said |= {"beta_fast": fast, "beta_slow": slow} | m | ({} if truncate is None else {"truncate": truncate})
    found = theirs(head[0], int(trained * factor), **said)
    room = yarn_room(size, base, factor, trained, fast, slow, truncate)
    assume(room is not None)  # where the bounds cross, see below
    scaling = YaRN(factor, trained, beta_fast=fast, beta_slow=slow, truncate=truncate, **m)
    agree(scaling(geometric(size, base)), *found, room)


@SOME
@given(heads, bases, factors, lengths, turns)
def test_llama3(head, base, factor, trained, bounds):
    size, (low, high) = int(head[0] * head[1]), bounds
    said = {
        "rope_type": "llama3",
        "rope_theta": base,
        "factor": factor,
        "original_max_position_embeddings": trained,
        "partial_rotary_factor": head[1],
    }
    found = theirs(head[0], int(trained * factor) + 1, **said, low_freq_factor=low, high_freq_factor=high)
    plain, room = geometric(size, base), float32(base, size)
    made = [trained * w / (2 * math.pi) for w in plain.frequencies]
    shares = [min(1.0, max(0.0, (r - low) / (high - low))) for r in made]
    # turns carry the error of the frequency and three roundings of their own; the step at either end is continuous
    off = [(min(r, high) * (e + 3 * ULP) + low * ULP) / (high - low) + 3 * ULP for r, e in zip(made, room, strict=True)]
    agree(Llama3(factor, trained, low, high)(plain), *found, blended(room, shares, off, factor))


@SOME
@given(
    st.data(),
    heads,
    bases,
    factors,
    lengths,
    st.sampled_from([-1, 0, 1]) | st.integers(2, 100000),
    st.none() | st.floats(0.1, 4.0),
)
def test_longrope(data, head, base, factor, trained, beyond, m):
    size = int(head[0] * head[1])
    lists = st.lists(st.floats(0.5, 80.0), min_size=size // 2, max_size=size // 2)
    short, long = data.draw(lists), data.draw(lists)
    said = {
        "rope_type": "longrope",
        "rope_theta": base,
        "factor": factor,
        "original_max_position_embeddings": trained,
        "partial_rotary_factor": head[1],
    }
    said |= {"short_factor": short, "long_factor": long} | ({} if m is None else {"attention_factor": m})
    found = theirs(head[0], int(trained * factor), trained + beyond, **said)
    scaling = LongRoPE(tuple(short), tuple(long), trained, factor, attention_factor=m)
    agree(scaling.at(trained + beyond)(geometric(size, base)), *found, float32(base, size))


@SOME
@given(
    st.sampled_from([64, 72, 80, 96, 128, 192, 256]),
    bases,
    factors,
    st.sampled_from([0.25, 0.3, 0.5, 0.58, 0.7, 0.75, 1.0]) | st.floats(0.05, 1.0),
)
def test_proportional(size, base, factor, share):
    found = theirs(size, 4096, rope_type="proportional", rope_theta=base, factor=factor, partial_rotary_factor=share)
    agree(Proportional(share, factor)(geometric(size, base)), *found, float32(base, size))


# -- at work
# -------------------------------------------------------------------------------------------------------------

TRAINED = 4096
PLACES = torch.tensor([[0, 1, 2, 255, 256, 257, TRAINED - 1]])
FAR = torch.tensor([[0, 1, 257, TRAINED - 1, TRAINED, TRAINED + 1, 4 * TRAINED]])
SHORT = tuple(1.0 + 0.02 * i for i in range(48))
LONG = tuple(1.0 + 1.3 * i for i in range(48))


def phi_4_mini() -> Any:
    return transformers.Phi3Config(
        hidden_size=256,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=131072,
        original_max_position_embeddings=TRAINED,
        partial_rotary_factor=0.75,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": list(SHORT),
            "long_factor": list(LONG),
        },
    )


@pytest.mark.parametrize("pos", [PLACES, FAR], ids=["short", "long"])
def test_logits_where_three_quarters_of_the_head_turn_with_a_temperature(pos):
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, 7, 128, dtype=torch.float64), torch.randn(1, 2, 7, 128, dtype=torch.float64)
    cos, sin = phi3.Phi3RotaryEmbedding(phi_4_mini())(q, pos)
    assert cos.shape[-1] == 96
    turned_q, turned_k = phi3.apply_rotary_pos_emb(q, k, cos, sin)
    enc = RoPE(head_dim=128, rotary=96, scaling=LongRoPE(SHORT, LONG, TRAINED, 131072 / TRAINED)).at(int(pos.max()) + 1)
    got = enc.query(q, pos) @ enc.key(k, pos).transpose(-1, -2)
    want = turned_q @ turned_k.transpose(-1, -2)
    # a pair's angle at p is off by p w roundings of float32, as many as its frequency has and one; cos, sin and m add
    # six at most
    angle = (
        pos[0].double()[:, None] * enc.inv_freq * (torch.tensor(float32(10000.0, 96), dtype=torch.float64) + ULP)
        + 6 * ULP
    )
    size_q, size_k = (torch.hypot(x[..., :48], x[..., 48:96]) for x in (q, k))
    room = enc.spectrum.temperature * (
        (size_q * angle) @ size_k.transpose(-1, -2) + size_q @ (size_k * angle).transpose(-1, -2)
    )
    assert ((got - want).abs() <= room).all()
    everything = enc.query(q, pos) + 0.0  # m^2 on the channels that do not turn as well would be seen
    everything[..., 96:] *= enc.spectrum.temperature
    assert ((everything @ enc.key(k, pos).transpose(-1, -2) - want).abs() > 10 * room).any(-1).all()


# -- where the peer is wrong
# ---------------------------------------------------------------------------------------------


def test_frequencies_in_float32_miss_a_fiftieth_of_a_radian_at_a_million_tokens():
    """The rounding of a frequency alone, before any angle is rounded; ours is off by less than 1e-9."""
    found, _ = theirs(128, 4096, rope_type="linear", rope_theta=10000.0, factor=1.0)
    truth = [10000.0 ** (-i / 64) for i in range(64)]
    assert max(abs(a - b) for a, b in zip(found.double().tolist(), truth, strict=True)) * 1048575 > 0.01, FIXED
    ours = Linear(1.0)(geometric(128)).frequencies
    assert max(abs(a - b) for a, b in zip(ours, truth, strict=True)) * 1048575 < 1e-9


@pytest.mark.parametrize(
    ("base", "trained", "truncate", "kept"),
    [(100.0, 10**8, True, 0.25), (10000.0, 6, False, 1.0), (10000.0, 3, True, 1.0)],
)
def test_yarn_turns_its_ramp_round_where_the_bounds_cross(base, trained, truncate, kept):
    """Pairs that all make over 32 turns are to be kept, and get divided; pairs that all make less than one are to be
    divided, and get kept.
    """
    said = {
        "rope_type": "yarn",
        "rope_theta": base,
        "factor": 4.0,
        "original_max_position_embeddings": trained,
        "truncate": truncate,
    }
    found, _ = theirs(64, 4 * trained, **said)
    plain = geometric(64, base).frequencies
    made = [trained * w / (2 * math.pi) for w in plain]
    assert min(made) > 32 if kept == 0.25 else max(made) < 1
    assert all(abs(a / b - kept) < 1e-5 for a, b in zip(found.tolist(), plain, strict=True)), FIXED
    with pytest.raises(ValueError, match="cross"):
        YaRN(4.0, trained, truncate=truncate)(geometric(64, base))
    right = YaRN(4.0, trained, preset="paper")(geometric(64, base)).frequencies  # a ramp over turns has no such bounds
    assert [a / b for a, b in zip(right, plain, strict=True)] == [1.0 if kept == 0.25 else 0.25] * 32


def test_a_list_of_one_factor_is_spread_over_all_pairs():
    said = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
        "long_factor": [4.0],
    }
    found, _ = theirs(64, 16384, 4096, **said, short_factor=[2.0])
    assert torch.allclose(found.double() * 2, geometric(64).tensor(), rtol=1e-6), FIXED
    with pytest.raises(ValueError, match="1 factors for 32 pairs"):
        LongRoPE((2.0,), (4.0,), 4096, 4.0, length=4096)(geometric(64))


@pytest.mark.parametrize(
    ("rope_type", "scaling"),
    [("linear", Linear), ("dynamic", lambda f: Dynamic(4096, f, 8192)), ("yarn", lambda f: YaRN(f, 4096))],
)
def test_an_inverse_factor_is_taken_and_shrinks_the_context(rope_type, scaling):
    said = {"rope_type": rope_type, "rope_theta": 10000.0, "factor": 0.25} | (
        {"original_max_position_embeddings": 4096} if rope_type == "yarn" else {}
    )
    found, _ = theirs(64, 4096, 8192, **said)
    slowest = geometric(64).frequencies[-1]
    if rope_type == "dynamic":  # 1.25, where the text has doubled: below what any factor of 1 and more gives
        assert found[-1] > theirs(64, 4096, 8192, **said | {"factor": 1.0})[0][-1], FIXED
    else:
        assert math.isclose(found[-1].item() / slowest, 4.0, rel_tol=1e-5), FIXED
    with pytest.raises(ValueError, match=r"0\.25 is the inverse of 4"):
        scaling(0.25)


def test_a_beta_of_zero_becomes_the_default():
    said = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 4096}
    assert torch.equal(theirs(64, 16384, **said, beta_slow=0)[0], theirs(64, 16384, **said, beta_slow=1)[0]), FIXED
    with pytest.raises(ValueError, match="0 < beta_slow"):
        YaRN(4.0, 4096, beta_slow=0)


def test_dynamic_keeps_a_longer_texts_base_at_exactly_the_trained_length():
    rotary = llama.LlamaRotaryEmbedding(config(64, 32, rope_type="dynamic", rope_theta=10000.0, factor=4.0))
    x = torch.zeros(1, 1, 1, 64)
    first = rotary(x, torch.arange(32)[None])[0]
    rotary(x, torch.arange(128)[None])
    again, shorter = rotary(x, torch.arange(32)[None])[0], rotary(x, torch.arange(31)[None])[0]
    assert (again - first).abs().max() > 0.1, FIXED
    assert torch.equal(shorter, first[:, :31])  # one token less, and it is reset
    scaling = Dynamic(32, 4.0)
    for length in (32, 128, 32, 31):
        assert (scaling.at(length)(geometric(64)) == geometric(64)) is (length <= 32)


def nested(truncate: bool) -> Tensor:
    yarn = {
        "rope_type": "yarn",
        "factor": 8.0,
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 4096,
        "truncate": truncate,
    }
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64, "max_position_embeddings": 32768}
    made = transformers.Gemma3TextConfig(
        **sizes,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": yarn, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
    )
    return rope_utils.ROPE_INIT_FUNCTIONS["yarn"](made, layer_type="full_attention")[0]


@pytest.mark.parametrize("truncate", [True, False])
def test_truncate_is_lost_where_each_layer_type_has_its_own_parameters(truncate):
    """The key is looked for beside the layer types, and not inside: whole bounds, whatever is asked. In a flat
    config it counts (above).
    """
    found, ours = nested(truncate), YaRN(8.0, 4096, truncate=truncate)(geometric(64))
    room = yarn_room(64, 10000.0, 8.0, 4096, 32.0, 1.0, True)
    agree(YaRN(8.0, 4096)(geometric(64)), found, YaRN(8.0, 4096).m, room)
    apart = max(abs(a / b - 1) for a, b in zip(found.tolist(), ours.frequencies, strict=True))
    assert apart <= max(room) if truncate else apart > 0.1, FIXED
