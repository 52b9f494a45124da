"""Maps, one token at a time: a cache that keeps keys turned for each case gives what the whole gives, and turns no key again."""

import pytest
import torch
from torch import Tensor

from milepost import DualChunk, Encoding, KVCache, ReRoPE, RoPE, SelfExtend, Streaming, attend, build
from milepost.attention.lanes.map_lane import MapLane

B, H, G, L, D = 2, 4, 2, 50, 8
PLAIN = RoPE(head_dim=D)
MAPS: dict[str, Encoding] = {
    "self_extend": SelfExtend(PLAIN, group=3, window=7),
    "no groups": SelfExtend(PLAIN, group=1, window=4),
    "rerope": ReRoPE(PLAIN, window=5),
    "leaky": ReRoPE(PLAIN, window=5, leak=3.0),
    "dual_chunk": DualChunk(PLAIN, chunk=7, local=2),
    "no local": DualChunk(PLAIN, chunk=6, local=0),
    "streaming": Streaming(PLAIN, sinks=2, window=5),
    "no sinks": Streaming(PLAIN, sinks=0, window=3),
    "with log-n": build("rerope(rope=rope, window=4) + logn(length=6)", head_dim=D),
    "yarn": build("self_extend(rope=rope(scaling=yarn(factor=4.0, trained=8)), group=2, window=4)", head_dim=D),
    "interleaved": build("self_extend(rope=rope(pairing='interleaved', rotary=4), group=2, window=4)", head_dim=D),
}
each = pytest.mark.parametrize("enc", MAPS.values(), ids=MAPS)


def drawn(dtype: torch.dtype = torch.float64, length: int = L) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(B, heads, length, D, generator=generator, dtype=torch.float64).to(dtype) for heads in (H, G, G)]


def decoded(cache: KVCache, given: list[Tensor], first: int, stop: int) -> Tensor:
    return torch.cat([cache.decode(*(t[:, :, n : n + 1] for t in given)) for n in range(first, stop)], dim=2)


@each
def test_a_decode_is_the_whole(enc):
    given, cache = drawn(), KVCache(enc, capacity=4)  # the buffers grow on the way
    whole = attend(*given, enc, backend="reference")
    assert torch.allclose(cache.decode(*(t[:, :, :11] for t in given)), whole[:, :, :11], atol=1e-12)
    assert torch.allclose(decoded(cache, given, 11, L), whole[:, :, 11:], atol=1e-12)
    assert isinstance(cache._lane, MapLane)


@each
def test_single_precision(enc):
    given, cache = drawn(torch.float32), KVCache(enc)
    whole = attend(*given, enc, backend="reference")
    assert torch.allclose(decoded(cache, given, 0, L), whole, atol=5e-6)


@each
def test_no_key_is_turned_again(enc, monkeypatch):
    given, cache = drawn(), KVCache(enc, capacity=L)
    decoded(cache, given, 0, 30)
    rows = []
    real = RoPE.key.unmarked  # type: ignore[attr-defined]
    monkeypatch.setattr(RoPE.key, "unmarked", lambda self, k, pos: rows.append(k.shape[2]) or real(self, k, pos))
    decoded(cache, given, 30, L)
    assert rows and max(rows) == 1


@each
def test_what_changes_the_cache_opens_another_lane(enc):
    given, cache, other = drawn(), KVCache(enc, capacity=L), KVCache(enc, capacity=L)
    decoded(cache, given, 0, 20)
    cache.append(*(t[:, :, 20:25] for t in given[1:]))
    other.append(*(t[:, :, :25] for t in given[1:]))
    for c in (cache, other):
        c.reorder(torch.tensor([1, 0]))
    swapped = [t.flip(0) for t in given]
    got, want = decoded(cache, swapped, 25, L), attend(*swapped, enc, backend="reference")[:, :, 25:]
    assert torch.allclose(got, want, atol=1e-12)
    assert torch.allclose(decoded(other, swapped, 25, L), want, atol=1e-12)


def test_half_precision_strangers_and_other_parts_go_through_attend():
    half = [t.to(torch.bfloat16) for t in drawn()]
    for enc, given in ((MAPS["rerope"], half), (MAPS["rerope"] + build("alibi", heads=H), drawn())):
        cache = KVCache(enc)
        got = decoded(cache, given, 0, 20)
        assert cache._lane is None
        whole = attend(*(t[:, :, :20] for t in given), enc, backend="reference")
        assert torch.allclose(got, whole, atol=2e-2 if given is half else 1e-12)


def test_a_base_that_is_written_to_is_seen():
    rope = RoPE(head_dim=D)
    enc, given = SelfExtend(rope, group=3, window=7), drawn()
    cache = KVCache(enc, capacity=L)
    decoded(cache, given, 0, 30)
    rope.inv_freq.mul_(0.5)
    whole = attend(*given, enc, backend="reference")
    assert torch.allclose(decoded(cache, given, 30, L), whole[:, :, 30:], atol=1e-12)
