"""Streaming against a cache that really drops tokens. Positions are places in the cache: both must say so in the
same numbers.
"""

import pytest
import torch
from by_hand import EPS, rolling, room

from milepost import KVCache, RoPE, Streaming, attend, build

PLAIN = RoPE(head_dim=8)
SIZES = [(0, 1), (0, 4), (1, 1), (2, 5), (4, 3), (3, 40)]


def random(tokens: int, batch: int = 2) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(batch, heads, tokens, 8, dtype=torch.float64) for heads in (4, 2, 2))


def off(q, k, v, places: int, turns: int) -> float:
    """An output's error: a key that was turned again and again is off by eps of its place each time."""
    return v.abs().max().item() * (turns + 4) * (4 * room(q, k, places) + 4 * k.shape[2] * EPS)


def read(cache: KVCache, q, k, v, t: int, step: int = 1) -> torch.Tensor:
    """The next tokens, through the cache."""
    return cache.decode(*(x[:, :, t : t + step] for x in (q, k, v)))


@pytest.mark.parametrize(("sinks", "window"), SIZES)
@pytest.mark.parametrize(
    "rope", ["rope", "rope(pairing='interleaved', rotary=4)", "rope(scaling=yarn(factor=4.0, trained=8))"]
)
def test_it_is_a_rope_cache_that_evicts_after_every_token(sinks, window, rope):
    plain, n = build(rope, head_dim=8), 27
    q, k, v = random(n)
    full = attend(q, k, v, Streaming(plain, sinks=sinks, window=window))
    cache, parts = KVCache(plain, capacity=4), []
    for t in range(n):
        assert int(cache.next().pos) == min(t, sinks + window)  # the query's place is that in the cache
        parts.append(read(cache, q, k, v, t))
        cache.evict(sinks=sinks, window=window)
        assert len(cache) == min(t + 1, sinks + window)
        assert cache.layout.pos.tolist() == [list(range(len(cache)))]
    assert (torch.cat(parts, dim=2) - full).abs().max() <= off(q, k, v, sinks + window, n)


@pytest.mark.parametrize(("sinks", "window"), SIZES)
@pytest.mark.parametrize("steps", [(1,) * 27, (5, 1, 1, 9, 2, 9), (20, 7)], ids=str)
def test_its_own_cache_may_evict_at_any_time(sinks, window, steps):
    enc, n = Streaming(PLAIN, sinks=sinks, window=window), sum(steps)
    q, k, v = random(n)
    full = attend(q, k, v, enc)
    for often in (1, 2, 3):
        cache, parts, t = KVCache(enc), [], 0
        for number, step in enumerate(steps):
            parts.append(read(cache, q, k, v, t, step))
            t += step
            if number % often == 0:
                cache.evict(sinks=sinks, window=window)
        assert (torch.cat(parts, dim=2) - full).abs().max() <= off(q, k, v, n, 1)
        held = rolling(sinks, window, n)[:-1]
        cache.evict(sinks=sinks, window=window)
        assert torch.equal(cache.k, k[:, :, list(held)])  # and the keys that it holds are as they came


def test_a_rope_cache_that_evicts_more_rarely_sees_more_and_is_another_thing():
    sinks, window, n, step = 2, 5, 24, 4
    q, k, v = random(n)
    full = attend(q, k, v, Streaming(PLAIN, sinks=sinks, window=window))
    cache, parts = KVCache(PLAIN), []
    for t in range(0, n, step):
        parts.append(read(cache, q, k, v, t, step))
        cache.evict(sinks=sinks, window=window)
    apart = (torch.cat(parts, dim=2) - full).abs().amax(dim=(0, 1, 3))
    permitted = off(q, k, v, n, n)
    alike = [t for t in range(n) if apart[t] <= permitted]
    # until the cache is full nothing is dropped; later the first of each step finds it as Streaming does, the others
    # find more
    assert alike == [t for t in range(n) if t <= sinks + window or t % step == 0]


def test_room_made_before_reading_is_a_window_shorter_by_one():
    sinks, window, n = 2, 5, 20
    q, k, v = random(n)
    cache, parts = KVCache(PLAIN), []
    for t in range(n):
        cache.evict(sinks=sinks, window=window - 1)  # the new token makes it `window`
        parts.append(read(cache, q, k, v, t))
    found, permitted = torch.cat(parts, dim=2), off(q, k, v, n, n)
    assert (found - attend(q, k, v, Streaming(PLAIN, sinks=sinks, window=window - 1))).abs().max() <= permitted
    assert (found - attend(q, k, v, Streaming(PLAIN, sinks=sinks, window=window))).abs().max() > 1e6 * permitted


def test_what_is_dropped_changes_nothing_and_gets_no_gradient():
    enc = Streaming(PLAIN, sinks=2, window=5)
    q, k, v = random(20)
    k.requires_grad_()
    v.requires_grad_()
    attend(q, k, v, enc)[:, :, -1].square().sum().backward()
    kept = set(rolling(2, 5, 19))
    for grad in (k.grad, v.grad):
        moved = grad.abs().amax(dim=(0, 1, 3))
        assert [t for t in range(20) if moved[t] > 0] == sorted(kept)
        assert grad.isfinite().all()
