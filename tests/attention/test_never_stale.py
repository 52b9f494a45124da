"""Tables that are kept for later tokens and layers are never older than the numbers that they were made of, however
those were written.
"""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from milepost import Encoding, KVCache, Layout, RoPE, attend, build
from milepost.testing import randomised_copy

H, D, N = 4, 16, 24


def drawn(length: int = 1, seed: int = 0) -> Tensor:
    return torch.randn(1, H, length, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_vector(enc: Encoding) -> None:
    vector_to_parameters(parameters_to_vector(enc.parameters()).detach() * -3 + 1, enc.parameters())


def by_data_copy(enc: Encoding) -> None:
    for p in enc.parameters():
        p.data.copy_(p.data * -3 + 1)


def by_data(enc: Encoding) -> None:
    for p in enc.parameters():
        p.data = p.data * -3 + 1


def by_numpy(enc: Encoding) -> None:
    for p in enc.parameters():
        p.detach().numpy()[...] = p.detach().numpy() * -3 + 1


def by_state(enc: Encoding) -> None:
    enc.load_state_dict({name: value * -3 + 1 for name, value in enc.state_dict().items()})


def by_no_grad(enc: Encoding) -> None:
    with torch.no_grad():
        for p in enc.parameters():
            p.mul_(-3).add_(1)


WRITES = [by_vector, by_data_copy, by_data, by_numpy, by_state, by_no_grad]


class Buffered(Encoding):
    """A stranger's encoding whose numbers lie in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.linspace(0.1, 0.9, H, dtype=torch.float64))

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return -self.slopes[h] * (i - j).abs()


class Listed(Encoding):
    """One whose numbers lie in a list, and in a part that is no Encoding."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.part = [0.3] * H, nn.Linear(1, 1).double()

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return -torch.tensor(self.values, dtype=torch.float64)[h] * (i - j).abs() * self.part.bias


def decoded(enc: Encoding, cache: KVCache, first: int, stop: int) -> Tensor:
    q, k, v = (drawn(N, seed) for seed in (1, 2, 3))
    return torch.cat([cache.decode(*(t[:, :, n : n + 1] for t in (q, k, v))) for n in range(first, stop)], dim=2)


def whole(enc: Encoding) -> Tensor:
    q, k, v = (drawn(N, seed) for seed in (1, 2, 3))
    at = Layout.dense(N)
    return attend(q, k, v, enc, at=at, backend="reference")


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize(
    "spec", ["t5", "kerple", "t5 + kerple", "shaw", "transformer_xl", "deberta", "fire", "cope", "ssmax(length=8)"]
)
@torch.no_grad()
def test_the_next_token_sees_every_write_to_a_parameter(spec, write):
    enc = build(spec, heads=H, head_dim=D, width=H * D).double()
    for p in enc.parameters():
        nn.init.uniform_(p, 0.2, 0.9)
    cache = KVCache(enc)
    decoded(enc, cache, 0, 12)
    before = whole(enc)
    write(enc)
    if "kerple" in spec:
        for p in enc.parameters():
            p.data.abs_()
    assert torch.allclose(decoded(enc, cache, 12, N), whole(enc)[:, :, 12:], atol=1e-12)
    assert not torch.allclose(whole(enc), before, atol=1e-2)


@torch.no_grad()
def test_the_next_token_sees_every_write_to_an_attribute_of_alibi():
    enc = build("alibi", heads=H)
    cache = KVCache(enc)
    decoded(enc, cache, 0, 12)
    enc.past_slopes.numpy()[...] *= 3
    assert torch.allclose(decoded(enc, cache, 12, N), whole(enc)[:, :, 12:], atol=1e-12)


@torch.no_grad()
def test_a_strangers_buffers_lists_and_parts_are_read_anew():
    enc = Buffered()
    cache = KVCache(enc)
    decoded(enc, cache, 0, 12)
    enc.load_state_dict({"slopes": torch.linspace(2.0, 0.3, H, dtype=torch.float64)})
    assert torch.allclose(decoded(enc, cache, 12, 16), whole(enc)[:, :, 12:16], atol=1e-12)
    enc.slopes.numpy()[...] = 0.05
    assert torch.allclose(decoded(enc, cache, 16, N), whole(enc)[:, :, 16:], atol=1e-12)
    other = Listed()
    cache = KVCache(other)
    decoded(other, cache, 0, 12)
    other.values[2] = 5.0
    other.part.bias.data.fill_(0.7)
    assert torch.allclose(decoded(other, cache, 12, N), whole(other)[:, :, 12:], atol=1e-12)


@torch.no_grad()
def test_one_encoding_serves_caches_of_several_heads_types_and_shards_at_once():
    enc = build("alibi", heads=H)
    q, k, v = (drawn(N, seed) for seed in (1, 2, 3))
    for dtype, heads, first in (
        (torch.float64, H, None),
        (torch.float32, H, None),
        (torch.float64, 2, 2),
        (torch.float64, H, None),
    ):
        part = slice(first or 0, (first or 0) + heads)
        given = [t[:, part].to(dtype) for t in (q[:, :, -1:], k, v)]
        got = attend(*given, enc, first_head=first)
        assert torch.allclose(got.double(), whole(enc)[:, part, -1:], atol=1e-5)


def changed_by_numpy(pos: Tensor, numbers: np.ndarray) -> None:
    numbers[...] = numbers * 3 + 5


def changed_by_data(pos: Tensor, numbers: np.ndarray) -> None:
    pos.data.mul_(3).add_(5)


def changed_by_new_data(pos: Tensor, numbers: np.ndarray) -> None:
    pos.data = pos.data * 3 + 5


def changed_to_fractions(pos: Tensor, numbers: np.ndarray) -> None:
    pos.data = pos.data * 1.5


@pytest.mark.parametrize(
    "change", [changed_by_numpy, changed_by_data, changed_by_new_data, changed_to_fractions], ids=lambda c: c.__name__
)
@pytest.mark.parametrize("spec", ["rope", "xpos", "sinusoidal", "mrope", "axial"])
def test_angles_follow_positions_that_are_written_behind_torchs_back(spec, change):
    axes = {"axial": 2}.get(spec, 1)
    numbers = np.arange(10) if axes == 1 else np.arange(20).reshape(2, 1, 10)
    pos = torch.from_numpy(numbers)
    enc = build(spec, head_dim=D, width=D)
    x = torch.randn(1, 10, D, dtype=torch.float64) if spec == "sinusoidal" else drawn(10)
    turn = enc.embed if spec == "sinusoidal" else enc.query
    turn(x, pos)
    change(pos, numbers)
    assert torch.equal(turn(x, pos), turn(x, pos.clone()))


@torch.no_grad()
def test_frequencies_that_are_written_to_are_seen_by_the_next_token():
    enc = RoPE(head_dim=D)
    cache, pos = KVCache(enc), torch.arange(10)
    decoded(enc, cache, 0, 12)
    enc.query(drawn(10), pos)
    enc.inv_freq.numpy()[...] *= 0.5
    assert torch.equal(enc.query(drawn(10), pos), enc.query(drawn(10), pos.clone()))
    token = drawn(1, 7)
    got = copy.copy(cache).decode(token, token, token)
    at = Layout.decode(12)
    want = attend(
        enc.query(token, at.pos),
        torch.cat([cache.k[:, :, :12], enc.key(token, at.pos)], 2),
        torch.cat([cache.v[:, :, :12], token], 2),
        enc,
        turned=True,
    )
    assert torch.allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("spec", ["learned_spectrum", "fope", "grape", "xpos", "rope_id"])
@torch.no_grad()
def test_the_next_token_is_turned_by_what_was_written(spec, write):
    """Against an encoding that was built after the write, and has kept nothing."""
    sizes = {"heads": H, "head_dim": D, "width": H * D, "length": N}
    enc, fresh = (randomised_copy(build(spec, **sizes)).double() for _ in range(2))
    cache = KVCache(enc)
    decoded(enc, cache, 0, 12)
    token, at = drawn(1, 7), Layout.decode(12)
    before = enc.query(token, at.pos)
    if any(True for _ in enc.parameters()):
        write(enc)
        fresh.load_state_dict(enc.state_dict())
    else:
        enc.inv_freq.numpy()[...] *= 0.5
        fresh.inv_freq.mul_(0.5)
    got = copy.copy(cache).decode(token, token, token)
    keys = torch.cat([cache.k[:, :, :12], fresh.key(token, at.pos)], 2)
    values = torch.cat([cache.v[:, :, :12], token], 2)
    want = attend(fresh.query(token, at.pos), keys, values, fresh, at=at, to=Layout.dense(13), turned=True)
    assert torch.allclose(got, want, atol=1e-12)
    assert not torch.allclose(before, fresh.query(token, at.pos), atol=1e-2)
