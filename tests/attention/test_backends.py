"""Every encoding x backend x layout x dtype against the reference in float64, within budgets derived from the dtype."""

import pytest
import torch

from milepost import Encoding, Layout, attend, build
from milepost.attention import explain
from milepost.encodings import NAMES
from milepost.testing import randomised_copy
from milepost.testing.engine import layouts
from milepost.testing.layer import both, draw_features

SIZES = {"heads": 4, "head_dim": 16, "width": 32, "length": 4096}
EPS = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8}


def attention(enc, at, to, batch, dtype, backend, groups=4, causal=True):
    """Output and gradients to q, k, v and the parameters, and the budget of this dtype for each."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(batch, 4, at.length, 16), (batch, groups, to.length, 16), (batch, groups, to.length, 16)]
    q, k, v = (torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes)
    out = attend(q, k, v, enc, at=at, to=to, causal=causal, backend=backend, features=features(enc, at, to, batch))
    weight = torch.randn(out.shape, generator=generator).to(out.dtype)
    learn = [q, k, v, *(p for p in enc.parameters() if p.requires_grad)]
    grads = torch.autograd.grad((out.float() * weight.float()).sum(), learn, allow_unused=True)
    return [out.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(learn, grads, strict=True))], (
        q,
        k,
        v,
    )


def features(enc, at, to, batch):
    """Of random hidden states of the queries' tokens and of the keys', where the encoding asks for them."""
    dtype = next((p.dtype for p in enc.parameters()), torch.float32)
    given = [draw_features(enc, batch, t, dtype=dtype, seed=seed)[1] for seed, t in enumerate((at, to))]
    return both(*given)


def exact(enc, at, to, batch, dtype, groups=4, causal=True):
    """The reference in float64 from the same rounded numbers."""
    wide = randomised_copy(enc).double()
    wide.load_state_dict(enc.state_dict())
    generator = torch.Generator().manual_seed(1)
    shapes = [(batch, 4, at.length, 16), (batch, groups, to.length, 16), (batch, groups, to.length, 16)]
    q, k, v = (torch.randn(s, generator=generator).to(dtype).double().requires_grad_() for s in shapes)
    out = attend(
        q, k, v, wide, at=at, to=to, causal=causal, backend="reference", features=features(wide, at, to, batch)
    )
    weight = torch.randn(out.shape, generator=generator).to(dtype).double()
    learn = [q, k, v, *(p for p in wide.parameters() if p.requires_grad)]
    grads = torch.autograd.grad((out * weight).sum(), learn, allow_unused=True)
    return [out.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(learn, grads, strict=True))]


def permitted(value, dtype, terms, factor=1):
    """Rounding of logits of size ~10 (2 x 10 eps each way), and of a sum of ``terms`` products of size ``factor``."""
    return EPS[dtype] * (40 + terms**0.5) * max(1.0, factor, value.abs().max().item())


def for_groups(name, groups):
    """The spec for so many key heads: FoPE's tables and GRAPE's planes are those of the key heads."""
    return f"{name}(key_heads={groups})" if name in ("fope", "grape") else name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", list(NAMES))
def test_every_backend_and_layout_stays_within_the_budget_of_its_dtype(name, dtype):
    # the gradient of a learned frequency is a sum of gradients of angles, each times its position
    factor = 24 if name in ("learned_spectrum", "grape") else 1
    for what, at, to, batch in layouts(24):
        for groups in (4, 2):
            enc = randomised_copy(build(for_groups(name, groups), **SIZES)).float()
            wanted = exact(enc, at, to, batch, dtype, groups)
            for backend in ("sdpa", "toeplitz", "keyed", "chunked"):
                try:
                    found, _ = attention(enc, at, to, batch, dtype, backend, groups)
                except ValueError as error:
                    assert "can't do this" in str(error)
                    continue
                for n, (a, b) in enumerate(zip(wanted, found, strict=True)):
                    worst = (a - b.double()).abs().max().item()
                    assert worst <= permitted(a, dtype, 24 * batch, factor), (
                        f"{backend}, {what}, {groups} key heads, gradient {n}: {worst:.1e}"
                    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alibi", "t5", "kerple(kind='power')", "sandwich", "rope + alibi", "nope"])
@pytest.mark.parametrize(
    ("queries", "keys", "window"),
    [(1500, 1500, None), (1100, 2300, None), (1500, 1500, 100), (600, 600, None), (2100, 2100, 2000)],
)
def test_strips_beyond_one_thousand_rows_equal_the_reference(name, queries, keys, window):
    enc = randomised_copy(build(name, heads=2, head_dim=16))
    at, to = Layout.dense(queries, start=keys - queries, window=window), Layout.dense(keys)
    q, k, v = (torch.randn(1, 2, n, 16, dtype=torch.float64, requires_grad=True) for n in (queries, keys, keys))
    learn = [q, k, v, *(p for p in enc.parameters() if p.requires_grad)]
    weight = torch.randn(1, 2, queries, 16, dtype=torch.float64)
    results = []
    for backend in ("reference", "toeplitz"):
        out = attend(q, k, v, enc, at=at, to=to, backend=backend)
        grads = torch.autograd.grad((out * weight).sum(), learn, allow_unused=True)
        results.append([out, *(g for g in grads if g is not None)])
    for a, b in zip(*results, strict=True):
        assert (a - b).abs().max() <= 2.0**-52 * 64 * keys * max(1.0, a.abs().max().item())


@pytest.mark.parametrize("name", ["alibi", "t5", "kerple", "sandwich"])
def test_both_ways_over_a_long_text(name):
    enc = randomised_copy(
        build(
            name + ("(mode='symmetric')" if name == "alibi" else "(mode='bidirectional')" if name == "t5" else ""),
            heads=2,
        )
    )
    q, k, v = (torch.randn(2, 2, 1200, 16, dtype=torch.float64) for _ in range(3))
    one, two = (attend(q, k, v, enc, causal=False, backend=b) for b in ("reference", "toeplitz"))
    assert (one - two).abs().max() < 2.0**-52 * 64 * 1200


@pytest.mark.parametrize("short", [True, False])
def test_gradcheck_through_the_strips_of_a_learned_and_of_a_fixed_bias(short, monkeypatch):
    """A text whose weights are held, and one that goes by strips as long ones do."""
    monkeypatch.setattr("milepost.attention.backends.toeplitz.are_short", lambda *sizes: short)
    for name in ("t5", "kerple", "alibi", "sandwich(size=8)"):
        enc = randomised_copy(build(name, heads=2))
        names, values = (
            zip(*[(n, p.detach().requires_grad_()) for n, p in enc.named_parameters()], strict=True)
            if list(enc.parameters())
            else ((), ())
        )
        q, k, v = (torch.randn(1, 2, 6, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))

        class Run(torch.nn.Module):
            def __init__(self, enc):
                super().__init__()
                self.enc = enc

            def forward(self, q, k, v):
                return attend(q, k, v, self.enc, backend="toeplitz")

        run = Run(enc)

        def function(q, k, v, *values, run=run, names=names):
            return torch.func.functional_call(
                run, {f"enc.{n}": p for n, p in zip(names, values, strict=True)}, (q, k, v)
            )

        assert torch.autograd.gradcheck(function, (q, k, v, *values))


def test_a_learned_bias_gets_its_gradient_when_nothing_else_does():
    enc = build("t5", heads=2)
    q, k, v = (torch.randn(1, 2, 40, 8) for _ in range(3))
    grads = [
        torch.autograd.grad(attend(q, k, v, enc, backend=b).square().sum(), enc.table)[0]
        for b in ("reference", "toeplitz", "chunked")
    ]
    assert grads[0].abs().max() > 0
    for g in grads[1:]:
        assert torch.allclose(g, grads[0], rtol=1e-4, atol=1e-5 * grads[0].abs().max().item())


def test_the_gradient_of_a_learned_bias_is_deterministic():
    enc = build("t5", heads=2)
    q, k, v = (torch.randn(1, 2, 1300, 8) for _ in range(3))
    first, second = (
        torch.autograd.grad(attend(q, k, v, enc, backend="toeplitz").square().sum(), enc.table)[0] for _ in range(2)
    )
    assert torch.equal(first, second)


def test_a_shard_of_heads_gets_its_own_slopes():
    enc = build("alibi", heads=12)
    q, k, v = (torch.randn(1, 12, 30, 8, dtype=torch.float64) for _ in range(3))
    whole = attend(q, k, v, enc)
    for backend in ("reference", "toeplitz", "chunked"):
        part = attend(q[:, 4:8], k[:, 4:8], v[:, 4:8], enc, first_head=4, backend=backend)
        assert (part - whole[:, 4:8]).abs().max() < 1e-12


def test_auto_takes_the_fast_path_and_says_why():
    q = torch.randn(1, 4, 8, 16)
    at = Layout.dense(8)
    scattered = at.take(torch.randperm(8))
    told = at.with_positions(at.index // 2)
    cases = [
        ("nope", at, "sdpa"), ("rope", at, "sdpa"), ("learned(length=8, width=4)", at, "sdpa"), ("rope", told, "sdpa"),
        ("alibi", at, "toeplitz"), ("t5", at, "toeplitz"), ("rope + alibi", at, "toeplitz"), ("alibi", told, "chunked"),
        ("alibi", scattered, "chunked"), ("fire", at, "by_row"), ("shaw", at, "relative"), ("cope", at, "counted"),
            ("transformer_xl", at, "relative"), ("deberta", at, "relative"), ("rope + shaw + t5", at, "relative"),
            ("shaw", told, "chunked"), ("shaw + deberta", at, "chunked"), ("shaw + fire", at, "chunked"),
    ]  # fmt: skip
    for spec, where, backend in cases:
        choice = explain(q, q, q, build(spec, heads=4, head_dim=16, width=32), at=where)
        assert choice.backend == backend, spec
        assert len(choice.why) > 20
        if backend != "sdpa":
            assert "not sdpa" in choice.why


@pytest.mark.parametrize(
    ("spec", "backend", "reason"),
    [
        ("alibi", "sdpa", "changes logits"),
        ("fire", "toeplitz", "not a function of i - j"),
        ("shaw", "toeplitz", "depends on content"),
        ("cope", "flex", "depends on content"),
    ],
)
def test_a_backend_asked_for_by_name_never_falls_back(spec, backend, reason):
    q = torch.randn(1, 4, 8, 16)
    with pytest.raises(ValueError, match=reason):
        attend(q, q, q, build(spec, heads=4, head_dim=16), backend=backend)


def test_flex_refuses_gradients_on_the_cpu_with_the_reason():
    q = torch.randn(1, 4, 8, 16, requires_grad=True)
    with pytest.raises(ValueError, match="no backward on the CPU"):
        attend(q, q, q, build("alibi", heads=4), backend="flex")


@pytest.mark.parametrize("spec", ["alibi", "t5", "sandwich", "kerple", "fire", "nope"])
def test_flex_forward_equals_the_reference(spec):
    enc = randomised_copy(build(spec, heads=4)).float()
    q, k, v = (torch.randn(2, 4, 40, 16) for _ in range(3))
    with torch.no_grad():
        one, two = (attend(q, k, v, enc, backend=b) for b in ("reference", "flex"))
    assert (one - two).abs().max() < 2.0**-23 * 100


@pytest.mark.parametrize("backend", ["reference", "sdpa", "toeplitz", "chunked"])
def test_rows_that_see_nothing_are_zeros_and_inf_and_nan_are_passed_on(backend):
    enc = Encoding() if backend == "sdpa" else build("alibi", heads=2)
    mask = torch.ones(1, 8, dtype=torch.bool)
    mask[0, :3] = False
    at = Layout.padded(mask)
    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    out = attend(q, k, v, enc, at=at, backend=backend)
    assert not out[:, :, :3].any() and out.isfinite().all()
    for bad in (float("nan"), float("inf")):
        spoilt = q.clone()
        spoilt[0, 0, 5] = bad
        out = attend(spoilt, k, v, enc, at=at, backend=backend)
        assert out[0, 0, 5].isnan().any()
        assert out[0, 1].isfinite().all() and out[0, 0, 6:].isfinite().all()


def test_values_may_be_of_another_width_than_keys():
    q, k, v = torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 8), torch.randn(1, 2, 9, 5)
    for enc in (None, build("alibi", heads=2), build("shaw", heads=2, head_dim=8)):
        assert torch.allclose(attend(q, k, v, enc), attend(q, k, v, enc, backend="reference"), atol=1e-5)


def test_tensors_on_another_device_are_refused():
    q = torch.randn(1, 2, 4, 8)
    elsewhere = torch.empty(1, 2, 4, 8, device="meta")
    for given in ((elsewhere, q, q), (q, elsewhere, elsewhere)):
        with pytest.raises(ValueError, match="on one device"):
            attend(*given)
    with pytest.raises(ValueError, match="on one device"):
        attend(q, q, q, at=Layout.dense(4, device="meta"))
