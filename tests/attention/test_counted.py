"""Scores that look up a count of gates: the fast path is the reference, forward and backward, for every layout, type
and sum, whether all keys are near a query or few.
"""

import pytest
import torch
from torch import Tensor

from milepost import CoPE, Encoding, KVCache, Layout, attend, build
from milepost.attention import explain
from milepost.attention.backends import counts

B, L, D = 2, 180, 8
SPECS = (
    "cope(positions=5)",
    "cope(positions=9, shared=False)",
    "cope(positions=2)",
    "rope + cope(positions=6)",
    "cope(positions=6) + alibi",
    "rope + cope(positions=6, shared=False) + t5",
)
ONE_TEXT = Layout.dense(L)
LAYOUTS = {
    "whole": (ONE_TEXT, ONE_TEXT),
    "window": (Layout.dense(L, window=37), ONE_TEXT),
    "packed": (Layout.packed([150, 3, 27]), Layout.packed([150, 3, 27])),
    "padded": (Layout.padded(torch.arange(L) >= torch.tensor([[0], [31]])),) * 2,
    "goes on": (Layout.dense(20, start=L - 20), ONE_TEXT),
    "one query": (Layout.decode(L - 1), ONE_TEXT),
    "ends before the keys": (Layout.dense(100), ONE_TEXT),
}
GATES = {"half open": 0.0, "nearly closed": -2.5, "closed": -40.0}
"""What is added to q · k / sqrt(D): the keys near a query are few, many, or all."""


def drawn(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def made(spec: str, heads: int = 4, dtype: torch.dtype = torch.float64) -> Encoding:
    torch.manual_seed(7)
    enc = build(spec, heads=heads, head_dim=D).to(dtype)
    for p in enc.parameters():
        torch.nn.init.uniform_(p, -0.9, 0.9)
    return enc


def given(at: Layout, to: Layout, groups: int, gates: str, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    q, k, v = drawn(1, B, 4, at.length, D), drawn(2, B, groups, to.length, D), drawn(3, B, groups, to.length, D)
    q[..., 0], k[..., 0] = 1.0, k[..., 0] + GATES[gates] * D**0.5
    return [t.to(dtype).requires_grad_() for t in (q, k, v)]


def apart(enc: Encoding, at: Layout, to: Layout, some: list[Tensor]) -> list[float]:
    """Differences from the reference, over the reference's size: of the output, and of every gradient."""
    weight = drawn(4, B, 4, at.length, D, dtype=some[0].dtype)
    both = []
    for backend in ("counted", "reference"):
        out = attend(*some, enc, at=at, to=to, backend=backend)
        both.append((out, *torch.autograd.grad((out * weight).sum(), [*some, *enc.parameters()])))
    return [
        float((x - y).detach().double().abs().max() / max(1.0, float(y.detach().abs().max())))
        for x, y in zip(*both, strict=True)
    ]


@pytest.fixture(autouse=True)
def few_spare_keys(monkeypatch):
    """Bands begin narrow, so that some must widen in a short text."""
    for module in ("counts", "counted"):
        monkeypatch.setattr(f"milepost.attention.backends.{module}.SPARE", 2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_output_and_gradients_are_the_references(spec, layout):
    enc, (at, to) = made(spec), LAYOUTS[layout]
    for gates in GATES:
        for groups in (4, 2):
            assert max(apart(enc, at, to, given(at, to, groups, gates))) < 1e-11, (gates, groups)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", SPECS)
def test_other_types(spec, dtype):
    """bfloat16 has 8 bits: a rounding is 2^-9 of its size, and an output or a gradient has a few of them."""
    enc, (at, to) = made(spec, dtype=torch.float32), LAYOUTS["padded"]
    far = apart(enc, at, to, given(at, to, 2, "half open", dtype))
    assert max(far) < (2e-5 if dtype == torch.float32 else 2**-6)


@pytest.mark.parametrize("height", [1, 7, 500])
@pytest.mark.parametrize("gates", GATES)
def test_strips_of_any_height_and_groups_of_heads_give_the_same(gates, height, monkeypatch):
    monkeypatch.setattr(counts, "STRIP", height)
    monkeypatch.setattr("milepost.attention.backends.bands.HELD", 4000)
    enc, (at, to) = made("cope(positions=4)"), LAYOUTS["whole"]
    assert max(apart(enc, at, to, given(at, to, 2, gates))) < 1e-11


def test_only_keys_near_a_query_are_looked_up():
    """Half open gates have counted past 4 within some 2 x 5 keys: the band is far narrower than the text; closed
    gates never count, and the band is all of it.
    """
    e = made("cope(positions=5)").e
    for gates, widest in (("half open", 50), ("closed", 4 * L)):
        q, k, v = given(ONE_TEXT, ONE_TEXT, 4, gates)
        widths = counts.counts(q, k, v, e, None, D**-0.5, 0, 0)[2]
        assert widths.max() <= widest and (gates == "half open" or widths.max() >= L)


def test_gradcheck():
    """At places where no count is at a whole number, as drawn numbers never are."""
    enc = made("cope(positions=3)", heads=1)
    q, k, v = (drawn(s, 1, 1, 17, D).requires_grad_() for s in range(3))

    def run(*some: Tensor) -> Tensor:
        return attend(*some[:3], enc, backend="counted")[..., :3]

    assert torch.autograd.gradcheck(run, [q, k, v, enc.e], fast_mode=True)
    assert torch.autograd.gradgradcheck(run, [q, k, v, enc.e], fast_mode=True, atol=1e-6)


@pytest.mark.parametrize("gates", GATES)
def test_a_decode_is_the_whole(gates):
    enc = made("cope(positions=5)")
    for groups in (4, 2):
        q, k, v = given(ONE_TEXT, ONE_TEXT, groups, gates)
        cache = KVCache(enc, capacity=4)
        with torch.no_grad():
            whole = attend(q, k, v, enc, backend="reference")
            for n in range(0, L):
                got = cache.decode(*(t[:, :, n : n + 1] for t in (q, k, v)))
                assert torch.allclose(got, whole[:, :, n : n + 1], atol=1e-11), n


def test_explain_says_why_it_was_taken_or_not():
    q = torch.randn(1, 4, 16, D)
    chosen = explain(q, q, q, made("cope"))
    assert chosen.backend == "counted" and "only the keys near each query" in chosen.why
    moved = Layout.dense(16).with_positions(torch.arange(16) * 2)
    assert "not counted: the encoding is told other positions" in explain(q, q, q, made("cope"), at=moved).why
    past = explain(q, q, q, made("cope"), at=Layout.dense(16, start=20), to=Layout.dense(16))
    assert past.backend == "chunked" and "not counted: a query stands past the last key" in past.why
    assert "not counted: its score is not looked up by a count of gates" in explain(
        q, q, q, made("cope") + made("shaw")
    ).why  # fmt: skip


def test_a_subclass_with_a_score_of_its_own_is_not_looked_up():
    class Doubled(CoPE):
        def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return 2 * super().rescore(s, q, k, i, j)

    q, k, v = (drawn(s, B, 4, 30, D) for s in range(3))
    enc = Doubled(heads=4, head_dim=D).double()
    assert explain(q, k, v, enc).backend == "chunked"
    assert torch.allclose(attend(q, k, v, enc), attend(q, k, v, enc, backend="reference"), atol=1e-12)


def test_a_compiled_graph_holds_it_whole():
    enc, q = made("cope(positions=5)", dtype=torch.float32), torch.randn(1, 4, 70, D)
    compiled = torch.compile(lambda q: attend(q, q, q, enc), fullgraph=True, backend="eager")
    with torch.no_grad():
        assert torch.allclose(compiled(q), attend(q, q, q, enc), atol=1e-6)
