"""Maps in the engine: every law, every backend that takes them, caches read in any steps, short texts that are plain
RoPE, and how much is turned for a chunk."""

import pytest
import torch
from by_hand import EPS, room

from milepost import DualChunk, KVCache, Layout, ReRoPE, RoPE, SelfExtend, Streaming, attend, build
from milepost.attention.backends import chunked
from milepost.testing import LAWS, check_encoding

PLAIN = RoPE(head_dim=8)
MAPS = {
    "self_extend": SelfExtend(PLAIN, group=3, window=7),
    "rerope": ReRoPE(PLAIN, window=5),
    "leaky": ReRoPE(PLAIN, window=5, leak=3.0),
    "dual_chunk": DualChunk(PLAIN, chunk=7, local=2),
    "streaming": Streaming(PLAIN, sinks=2, window=5),
}
each = pytest.mark.parametrize("enc", MAPS.values(), ids=MAPS)
VARIANTS = (
    "self_extend(rope=rope(pairing='interleaved', rotary=4), group=2, window=4)",
    "self_extend(rope=rope(scaling=yarn(factor=4.0, trained=8)), group=1, window=4)",
    "rerope(rope=rope(rotary=4, partial='proportional'), window=3, leak=2)",
    "dual_chunk(rope=rope(base=500000.0), chunk=6, local=0)",
    "streaming(rope=rope(rotary=4), sinks=0, window=3)",
    "rerope(rope=rope, window=4) + temperature(length=6)",
    "self_extend(rope=rope, group=2, window=4) + alibi",
)
SLOW = ("compiles", "backends_agree", "gradients")
"""Laws that the variants leave to the maps above, whose code they run."""
TRIED = [
    (name, enc, law) for name, enc in MAPS.items() for law in LAWS if (name, law.__name__) != ("rerope", "compiles")
]  # leaky is the same page
TRIED += [(text, text, law) for text in VARIANTS for law in LAWS if law.__name__ not in SLOW]


def tried(name, enc, law):
    marks = [pytest.mark.slow] if law.__name__ in SLOW else []
    return pytest.param(enc, law, id=f"{name} {law.__name__}", marks=marks)


@pytest.mark.parametrize(("enc", "law"), [tried(*case) for case in TRIED])
def test_every_map_obeys_every_law(enc, law):
    enc = build(enc, heads=4, head_dim=8) if isinstance(enc, str) else enc
    (found,) = check_encoding(enc, [law]).verdicts
    assert found.passed is not False, found.detail
    excused = law.__name__ in ("rotation", "every_axis_is_seen") or (
        law.__name__ == "toeplitz" and "bias" not in enc.points
    )
    assert (found.passed is None) == excused, found.detail


def test_what_is_declared_follows_the_arguments():
    assert ReRoPE(PLAIN).shift_invariant and ReRoPE(PLAIN, leak=16).shift_invariant
    assert not SelfExtend(PLAIN).shift_invariant and SelfExtend(PLAIN, group=1).shift_invariant
    assert not Streaming(PLAIN).shift_invariant and Streaming(PLAIN, sinks=0).shift_invariant
    assert not DualChunk(PLAIN, chunk=8, local=2).shift_invariant
    for enc in MAPS.values():
        assert enc.points == ("rescore",) and enc.causal_only and enc.cacheable and enc.content_dependent
        assert not enc.rotation and not enc.length_dependent and enc.head_dim == 8
        assert not list(enc.parameters()) and not enc.state_dict()


def random(
    tokens: int, heads: int = 4, shared: int = 2, batch: int = 1, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, ...]:
    shapes = [(batch, h, tokens, 8) for h in (heads, heads // shared, heads // shared)]
    return tuple(torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes)


def off(q, k, v, places: float) -> float:
    """How far an output may be off: logits by `room`, weights by twice that, times the largest value, and a sum of
    as many weights.
    """
    return v.abs().max().item() * (4 * room(q, k, places) + 4 * k.shape[2] * EPS)


def layouts(n: int):
    dense = Layout.dense(n)
    yield dense, dense, 1
    yield dense[n - 20 :], dense, 2
    packed = Layout.packed([n // 3, n - n // 3])
    yield packed, packed, 1
    mask = torch.ones(2, n, dtype=torch.bool)
    mask[0, :9], mask[1, n - 7 :] = False, False
    padded = Layout.padded(mask)
    yield padded, padded, 2
    order = torch.randperm(n)
    yield dense.take(order), dense.take(order.flip(0)), 1


@each
def test_chunks_of_rows_give_the_reference_and_its_gradients(enc, monkeypatch):
    monkeypatch.setattr(chunked, "NUMBERS", 1)  # 16 rows a chunk
    n = 53
    for at, to, batch in layouts(n):
        q, k, v = random(n, batch=batch)
        q = q[:, :, n - at.length :]
        weight = torch.randn(batch, 4, at.length, 8, dtype=torch.float64)
        found = []
        for backend in ("reference", "chunked"):
            learn = [t.clone().requires_grad_() for t in (q, k, v)]
            out = attend(*learn, enc, at=at, to=to, backend=backend)
            found.append([out.detach(), *torch.autograd.grad((out * weight).sum(), learn)])
        for which, (a, b) in enumerate(zip(*found, strict=True)):
            largest = max(1.0, a.abs().max().item())
            assert (a - b).abs().max() <= largest * n * off(q, k, v, n), which


@each
def test_fused_kernels_are_refused_by_name_and_passed_over_by_auto(enc):
    q, k, v = random(9)
    for backend in ("sdpa", "toeplitz", "flex"):
        with pytest.raises(ValueError, match="can't do this for"):
            attend(q, k, v, enc, backend=backend)
    assert torch.equal(attend(q, k, v, enc), attend(q, k, v, enc, backend="chunked"))


@each
@pytest.mark.parametrize("steps", [(1,) * 29, (4, 1, 1, 2, 3, 7, 1, 10), (13, 1, 15), (28, 1)], ids=str)
def test_a_cache_read_in_any_steps_gives_the_full_pass(enc, steps):
    n = sum(steps)
    q, k, v = random(n, batch=2)
    whole = attend(q, k, v, enc, backend="reference")
    one, two, parts, t = KVCache(enc, capacity=2), KVCache(enc, capacity=64), [[], []], 0
    for step in steps:
        new = [x[:, :, t : t + step] for x in (q, k, v)]
        parts[0].append(one.decode(*new))
        at = two.next(step)
        keys, values, to = two.append(new[1], new[2], at)
        parts[1].append(attend(new[0], keys, values, enc, at=at, to=to))
        t += step
    for found in parts:
        assert (torch.cat(found, dim=2) - whole).abs().max() <= off(q, k, v, n)
    assert torch.equal(one.k, k)  # raw, whatever was read


@each
def test_rows_of_a_cache_may_have_different_pasts(enc):
    mask = torch.ones(2, 14, dtype=torch.bool)
    mask[0, :5] = False
    q, k, v = random(20, batch=2)
    cache = KVCache(enc)
    cache.append(k[:, :, :14], v[:, :, :14], Layout.padded(mask))
    last = torch.cat([cache.decode(*(x[:, :, t : t + 1] for x in (q, k, v))) for t in range(14, 20)], dim=2)
    for row, first in ((0, 5), (1, 0)):
        alone = attend(*(x[row : row + 1, :, first:] for x in (q, k, v)), enc)
        assert (last[row] - alone[0, :, 14 - first :]).abs().max() <= off(q, k, v, 20)


LONGEST = (
    (SelfExtend(PLAIN, group=3, window=7), 7),
    (SelfExtend(PLAIN, group=4, window=8), 9),  # with G a divisor of W, distance W is W still
    (ReRoPE(PLAIN, window=5), 6),
    (ReRoPE(PLAIN, window=5, leak=3.0), 6),
    (DualChunk(PLAIN, chunk=7, local=2), 8),
    (DualChunk(PLAIN, chunk=8, local=6), 4),
    (DualChunk(PLAIN, chunk=6, local=0), 7),
    (Streaming(PLAIN, sinks=2, window=5), 8),
    (Streaming(PLAIN, sinks=0, window=4), 5),
)


@pytest.mark.parametrize(("enc", "longest"), LONGEST, ids=str)
def test_a_short_text_is_plain_rope_and_a_longer_one_is_not(enc, longest):
    q, k, v = random(longest + 6)
    want = attend(q, k, v, PLAIN)
    found = attend(q, k, v, enc)
    permitted = off(q, k, v, longest)
    assert (found - want)[:, :, :longest].abs().max() <= permitted
    assert (found - want)[:, :, longest:].abs().max() > 1e6 * permitted


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@each
def test_narrow_numbers_are_widened_for_the_work_and_rounded_once(enc, dtype):
    narrow = random(29, dtype=dtype)
    wide = [t.double() for t in narrow]
    exact, rough = attend(*wide, enc, backend="reference"), attend(*narrow, enc)
    assert rough.dtype == dtype
    work = (
        torch.finfo(torch.float32).eps / EPS * off(*wide, 4)
    )  # angles are float64; cosines, products and sums float32
    assert ((rough.double() - exact).abs() <= work + torch.finfo(dtype).eps * exact.abs()).all()


TURNS = {"self_extend": (2, 2), "rerope": (2, 1), "leaky": (2, 2), "dual_chunk": (3, 1), "streaming": (2, 1)}


@pytest.mark.parametrize("name", MAPS)
def test_keys_are_turned_once_for_each_case_and_not_for_each_row(name, monkeypatch):
    turned: list[int] = []
    turn = RoPE.turn

    def counted(self, x, pos):
        turned.append(x.shape[2])
        return turn(self, x, pos)

    monkeypatch.setattr(RoPE, "turn", counted)
    q, k, v = random(41)
    attend(q[:, :, -7:], k, v, MAPS[name], backend="reference")
    queries, keys = TURNS[name]
    assert sorted(turned) == [7] * queries + [41] * keys


@each
def test_a_key_after_its_query_is_refused(enc):
    q, k, v = random(5)
    with pytest.raises(ValueError, match="no meaning for keys after the query"):
        attend(q, k, v, enc, causal=False)
    with pytest.raises(ValueError, match="is for head_dim=8, q has 4"):
        attend(q[..., :4], k[..., :4], v, enc)
