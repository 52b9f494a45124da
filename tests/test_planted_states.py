"""Mistakes at the points of hidden states and of values, planted one by one: features that are lost, rounded, summed
wrongly or cached wrongly, values that are turned once too often or too seldom. The named check must fail with each,
and pass without.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_planted import Mistake, Plant, close, law, put, refused
from torch import Tensor

import milepost.attention.backends.keyed
import milepost.attention.cache
import milepost.attention.running
from milepost import FoX, KVCache, Layout, PaTH, RelativeLogits, RoPE, SelectiveRoPE, StickBreaking, VORoPE, attend
from milepost.attention.lanes.lane import Lane
from milepost.testing import randomised_copy


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- oracles ------------------------------------------------------------------------------------------------------


def every_gate_between_fades() -> None:
    enc, x = randomised_copy(FoX(2, 4)), drawn(1, 8, 4)
    with torch.no_grad():
        for backend in ("reference", "keyed"):
            values = torch.eye(8, dtype=torch.float64).expand(1, 2, 8, 8)
            q = torch.zeros(1, 2, 8, 8, dtype=torch.float64)
            out = attend(q, q, values, enc, features=enc.features(x, torch.arange(8)), backend=backend)
            for h in range(2):
                for i in range(8):
                    faded = [1.0] * (i + 1)
                    for j in range(i + 1):
                        for t in range(j + 1, i + 1):
                            logit = float(enc.to_gates.weight[h] @ x[0, t] + enc.to_gates.bias[h])
                            faded[j] /= 1 + math.exp(-logit)
                    for j in range(i + 1):
                        close(out[0, h, i, j].item(), faded[j] / sum(faded), (backend, h, i, j))


def padding_between_tokens_adds_nothing() -> None:
    enc, x, q = randomised_copy(FoX(2, 4)), drawn(1, 6, 4), drawn(1, 2, 6, 8, seed=2)
    gaps = torch.tensor([[True, False, True, True, False, True]])
    here = gaps[0].nonzero()[:, 0]
    with torch.no_grad():
        f = enc.features(x, torch.arange(6))
        out = attend(q, q, q, enc, at=Layout.padded(gaps), features=f)[:, :, here]
        alone = attend(*[q[:, :, here]] * 3, enc, features=f[:, here])
    assert (out - alone).abs().max() < 1e-13


def long_sums_keep_their_differences(backend: str) -> Callable[[], None]:
    """The last 600 tokens after 2400 whose gates add up to 120000, where float32 has steps of 0.008."""

    def check() -> None:
        n, some = 3000, 600
        f = torch.full((1, n, 1), -0.01)
        f[:, : n - some] = -50.0
        q, k, v = (drawn(1, 1, n, 8, seed=seed).float() for seed in range(3))
        at = Layout.dense(some, start=n - some)
        with torch.no_grad():
            how = {"at": at, "to": Layout.dense(n), "features": (f[:, -some:], f), "backend": backend}
            out = attend(q[:, :, -some:], k, v, FoX(1, 1), **how)[0, 0, -1]
        keys, values = (t[0, 0, -some:].double() for t in (k, v))
        distance = torch.arange(some - 1, -1, -1)
        logits = keys @ q[0, 0, -1].double() / math.sqrt(8) + float(f[0, -1, 0]) * distance
        wanted = torch.softmax(logits, dim=0) @ values
        assert (out - wanted).abs().max() < 1e-5, (out - wanted).abs().max()

    check.__name__ = f"long_sums_keep_their_differences {backend}"
    return check


def a_shard_has_the_gates_of_its_own_heads() -> None:
    enc, x, q = randomised_copy(FoX(4, 4)), drawn(1, 6, 4), drawn(1, 4, 6, 8, seed=2)
    f = enc.features(x, torch.arange(6))
    whole = attend(q, q, q, enc, features=f)
    assert (attend(*[q[:, 2:]] * 3, enc, features=f, first_head=2) - whole[:, 2:]).abs().max() < 1e-13


def missing_features_are_refused_and_nothing_is_cached() -> None:
    enc, q = FoX(2, 4), torch.zeros(1, 2, 3, 8)
    refused(lambda: attend(q, q, q, enc), "features")
    cache = KVCache(enc)
    refused(lambda: cache.decode(q, q, q), "features")
    assert len(cache) == 0


def profiles_are_by_distance_up_to_the_extent() -> None:
    enc, x = randomised_copy(RelativeLogits(2, 4, size=3, extent=4, floor=2, alpha=0.5)), drawn(1, 9, 4)
    zero = torch.zeros(1, 2, 9, 8, dtype=torch.float64)
    with torch.no_grad():
        got = attend(zero, zero, zero, enc, features=enc.features(x, torch.arange(9)), details=True).logits[0].tolist()
        for h in range(2):
            for i in range(9):
                t = 1 + 0.5 * math.log(max(1.0, (i + 1) / 2))
                mix = [float(enc.mix.weight[3 * h + r] @ x[0, i]) for r in range(3)]
                for j in range(i + 1):
                    wanted = sum(mix[r] * float(enc.profiles[r, i - j]) for r in range(3)) if i - j < 4 else 0.0
                    close(got[h][i][j], t * wanted, (h, i, j))


def the_last_channels_of_a_value_turn() -> None:
    enc, v = VORoPE(6, rotary=2), drawn(1, 1, 1, 6)
    got, x = enc.value(v, torch.tensor([3]))[0, 0, 0].tolist(), v[0, 0, 0].tolist()
    wanted = [*x[:4], x[4] * math.cos(3) - x[5] * math.sin(3), x[4] * math.sin(3) + x[5] * math.cos(3)]
    for c in range(6):
        close(got[c], wanted[c], c)


def clocks_that_move_by_one_are_rope() -> None:
    enc = SelectiveRoPE(2, 6, 4, base=10000.0).double()
    q, k, v = (drawn(1, 2, 9, 6, seed=seed) for seed in range(3))
    ones = torch.ones(1, 9, enc.feature_count, dtype=torch.float64)
    assert (attend(q, k, v, enc, features=ones) - attend(q, k, v, RoPE(6))).abs().max() < 1e-12


def keys_take_one_reflection_after_another() -> None:
    enc = randomised_copy(PaTH(1, 4, 4, rank=3))
    q, k, x = drawn(1, 1, 6, 4, seed=2), drawn(1, 1, 6, 4, seed=3), drawn(1, 6, 4)
    with torch.no_grad():
        f = enc.features(x, torch.arange(6))
        got, held = attend(q, k, k, enc, features=f, details=True).logits[0, 0], torch.zeros(0, 4, dtype=torch.float64)
        for t in range(6):
            w, b = f[0, t, :4], f[0, t, 4]
            held = torch.cat([held - b * torch.outer(held @ w, w), k[0, 0, t : t + 1]])
            for j in range(t + 1):
                close(got[t, j].item(), float(held[j] @ q[0, 0, t]) / 2, (t, j))


def the_nearest_key_takes_first_and_the_rest_is_lost() -> None:
    weights = attend(*[torch.zeros(1, 1, 4, 8, dtype=torch.float64)] * 3, StickBreaking(), details=True).weights
    for j, wanted in enumerate((1 / 8, 1 / 4, 1 / 2, 0.0)):
        close(weights[0, 0, 3, j].item(), wanted, j)


# -- plants -------------------------------------------------------------------------------------------------------

RUN_ALONG, ATTEND = milepost.attention.running.run_along, sys.modules["milepost.attention.attend"]
CALLS, KEYED = milepost.attention.backends.keyed._calls, milepost.attention.backends.keyed
WEIGH, TOKEN, REORDER, MOVE = RelativeLogits.weigh, Lane.token, KVCache.reorder, KVCache._move
TRANSFORM = milepost.attention.cache.transform


def summed(change: Callable[[Any, Any], Any]) -> Plant:
    """Sums that ``change`` makes of a call before and after they are summed."""
    return put(ATTEND, "run_along", lambda call: change(call, RUN_ALONG(call)))


def without_own(call: Any, done: Any) -> Any:
    return replace(done, f=done.f - call.f, g=done.g - call.g)


def rounded(call: Any, done: Any) -> Any:
    return replace(done, f=done.f.float().double(), g=done.g.float().double())


def with_padding(call: Any, done: Any) -> Any:
    return replace(done, f=call.f.double().cumsum(1), g=call.g.double().cumsum(1))


def lost(self: KVCache, change: Callable[[], Any]) -> Any:
    held = self._f.clone()
    change()
    self._f[: len(held), :, : held.shape[2]] = held[: len(self._f), :, : self._f.shape[2]]


def forgetful(self: Lane, q: Tensor, k: Tensor, v: Tensor, features: Tensor | None, *more: Any) -> Tensor:
    if self.row is not None:
        self.total.zero_()
    return TOKEN(self, q, k, v, features, *more)


def no_gate_gradient(*given: Any, **how: Any) -> tuple[Tensor, ...]:
    dq, dk, dv = milepost.attention.kernel.flash_backward(*given, **how)
    return dq, dk.index_fill(-1, torch.arange(dk.shape[-1] - 8, dk.shape[-1]), 0.0), dv


def zeros(call: Any) -> None:
    for name, t in (("f", call.q), ("g", call.k)):
        object.__setattr__(call, name, t.new_zeros(t.shape[0], t.shape[2], call.enc.feature_count))


def from_zero(queries: int, gates: Tensor, *more: Any) -> Any:
    for some, seen, flag, mask in CALLS(queries, gates, *more):
        row = (-gates[..., seen]).to(mask.dtype)
        yield some, seen, flag, row[:, :, None].expand(mask.shape)


def repeated(self: RelativeLogits, h: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return WEIGH(self, h, f, g, i, torch.maximum(j, i - self.extent + 1))


def cool(self: RelativeLogits, h: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return WEIGH(self, h, f, g, i, j) / self.temperature(i)


def first_channels(self: VORoPE, v: Tensor, pos: Tensor) -> Tensor:
    return self._turn(v.roll(self.turned, -1), pos, +1).roll(-self.turned, -1)


MISTAKES = (
    # gates
    Mistake("Gates sharpen instead of fading", "formula", every_gate_between_fades,
            put(FoX, "gate", lambda self, h, f: -f[..., h].transpose(-1, -2))),
    Mistake("The key's own gate counts and the query's does not", "formula", every_gate_between_fades,
            summed(without_own)),
    Mistake("Gates are summed where they lie in memory", "P2", law("sharded", "fox"), summed(with_padding)),
    Mistake("Padding has gates", "A5", padding_between_tokens_adds_nothing, summed(with_padding)),
    Mistake("Long sums are rounded before they are subtracted", "A2", long_sums_keep_their_differences("reference"),
            summed(rounded)),
    Mistake("A row of gates starts at the beginning of the text", "A2", long_sums_keep_their_differences("keyed"),
            put(KEYED, "_calls", from_zero)),
    Mistake("No gradient reaches the gates", "formula", law("backends_agree", "fox"),
            put(KEYED, "flash_backward", no_gate_gradient)),
    Mistake("Every shard has the gates of the first heads", "formula", a_shard_has_the_gates_of_its_own_heads,
            put(FoX, "gate", lambda self, h, f: f[..., : len(h)].transpose(-1, -2))),
    # the cache
    Mistake("A decode forgets the gates since it began", "P3", law("decode_agrees", "fox"),
            put(Lane, "token", forgetful)),
    Mistake("Beams change places and their gates do not", "P3", law("beams_agree", "fox"),
            put(KVCache, "reorder", lambda self, beams: lost(self, lambda: REORDER(self, beams)))),
    Mistake("Evicted tokens leave their gates behind", "P3", law("eviction_agrees", "fox"),
            put(KVCache, "_move", lambda self, *more: lost(self, lambda: MOVE(self, *more)))),
    Mistake("Missing features are zeros", "B1", missing_features_are_refused_and_nothing_is_cached,
            put(ATTEND, "_check_features", zeros)),
    # relative logits
    Mistake("The distance is taken backwards", "formula", profiles_are_by_distance_up_to_the_extent,
            put(RelativeLogits, "weigh", lambda self, h, f, g, i, j: WEIGH(self, h, f, g, i, 2 * i - j))),
    Mistake("The last profile goes on past the extent", "formula", profiles_are_by_distance_up_to_the_extent,
            put(RelativeLogits, "weigh", repeated)),
    Mistake("The temperature is the query's alone", "formula", profiles_are_by_distance_up_to_the_extent,
            put(RelativeLogits, "weigh", cool)),
    # values
    Mistake("The output is not turned back", "formula", law("shift", "vo_rope"),
            put(VORoPE, "restore", lambda self, y, pos: y)),
    Mistake("The output is turned on instead of back", "formula", law("shift", "vo_rope"),
            put(VORoPE, "restore", lambda self, y, pos: self._turn(y, pos, +1))),
    Mistake("A cache keeps values as they came", "P3", law("decode_agrees", "vo_rope"),
            put(milepost.attention.cache, "transform",
                lambda hook, enc, x, pos: x if hook == "value" else TRANSFORM(hook, enc, x, pos))),
    Mistake("Values stay as they were when tokens move", "P3", law("eviction_agrees", "vo_rope"),
            put(VORoPE, "revalue", lambda self, v, pos, was_pos: v)),
    Mistake("The first channels of a value turn", "C1", the_last_channels_of_a_value_turn,
            put(VORoPE, "value", first_channels)),
    # the others
    Mistake("Angles are not summed along the text", "formula", clocks_that_move_by_one_are_rope,
            put(SelectiveRoPE, "running", False)),
    Mistake("Keys take no reflection", "formula", keys_take_one_reflection_after_another,
            put(PaTH, "relate", lambda self, s, q, k, f, g, i, j: s)),
    Mistake("The stick is shared out by a softmax", "formula", the_nearest_key_takes_first_and_the_rest_is_lost,
            put(StickBreaking, "spread", lambda self, logits, i, j: torch.softmax(logits, dim=-1))),
)  # fmt: skip
NAMED = pytest.mark.parametrize(
    "mistake", MISTAKES, ids=[f"{m.name} [{m.fault}] by {m.check.__name__}" for m in MISTAKES]
)


@NAMED
def test_the_named_check_catches_the_mistake(mistake, monkeypatch):
    mistake.plant(monkeypatch)
    with pytest.raises(AssertionError):
        mistake.check()


@NAMED
def test_the_named_check_passes_without_the_mistake(mistake):
    mistake.check()


def test_no_mistake_stands_twice():
    names = [m.name for m in MISTAKES]
    assert len(set(names)) == len(names) >= 12
