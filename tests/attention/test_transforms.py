"""Derivatives and maps of every kind over attend: forward mode, reverse mode, twice, vmap, torch.func, export.
Right, or refused aloud.
"""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap

from milepost import Encoding, Layout, attend, build
from milepost.attention.backends.key_row import key_row

B, H, L, D = 2, 2, 12, 4
SPECS = (
    "nope",
    "rope",
    "xpos",
    "alibi",
    "t5",
    "kerple",
    "sandwich",
    "fire",
    "shaw",
    "transformer_xl",
    "deberta",
    "rope + t5",
)
LAYOUTS = {"whole": Layout.dense(L), "window": Layout.dense(L, window=5), "packed": Layout.packed([7, 5])}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*(shape or (B, H, L, D)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(spec: str) -> Encoding:
    torch.manual_seed(3)
    enc = build(spec, heads=H, head_dim=D, width=8).double()
    for p in enc.parameters():
        torch.nn.init.uniform_(p, 0.2, 0.9)
    return enc


def run(enc: Encoding, at: Layout, backend: str = "auto"):
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, enc, at=at, backend=backend)

    return attention


def slope(f, given: list[Tensor], along: list[Tensor], step: float = 1e-5) -> Tensor:
    """The derivative by central differences."""
    ahead, behind = (f(*(t + sign * step * d for t, d in zip(given, along, strict=True))) for sign in (1, -1))
    return (ahead - behind) / (2 * step)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_forward_mode_gives_the_slope(spec, layout):
    enc, at = made(spec).requires_grad_(False), LAYOUTS[layout]
    given, along = [drawn(s) for s in range(3)], [drawn(s) for s in range(3, 6)]
    f = run(enc, at)
    want = slope(f, given, along)
    assert torch.allclose(jvp(f, tuple(given), tuple(along))[1], want, atol=1e-7)
    with forward_ad.dual_level():
        got = forward_ad.unpack_dual(
            f(*(forward_ad.make_dual(t, d) for t, d in zip(given, along, strict=True)))
        ).tangent
    assert got is not None and torch.allclose(got, want, atol=1e-7)
    assert want.abs().max() > 0.1


@pytest.mark.parametrize("backend", ["reference", "sdpa", "toeplitz", "chunked"])
def test_a_backend_that_is_asked_for_has_forward_mode_too(backend):
    f = run(made("rope"), LAYOUTS["window"], backend)
    given, along = [drawn(s) for s in range(3)], [drawn(s) for s in range(3, 6)]
    assert torch.allclose(jvp(f, tuple(given), tuple(along))[1], slope(f, given, along), atol=1e-7)


@pytest.mark.parametrize("spec", ["t5", "kerple", "shaw"])
def test_forward_mode_goes_through_the_encodings_own_parameters(spec):
    enc, given = made(spec), [drawn(s) for s in range(3)]
    values = {name: p.detach().clone() for name, p in enc.named_parameters()}
    along = {name: drawn(9, *p.shape) for name, p in values.items()}

    def f(parameters: dict[str, Tensor]) -> Tensor:
        class Call(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.enc = enc

            def forward(self) -> Tensor:
                return attend(*given, self.enc)

        return functional_call(Call(), {f"enc.{name}": p for name, p in parameters.items()}, ())

    step = 1e-6
    ahead, behind = (f({n: values[n] + sign * step * along[n] for n in values}) for sign in (1, -1))
    want = (ahead - behind).detach() / (2 * step)
    assert torch.allclose(jvp(f, (values,), (along,))[1], want, atol=1e-6)
    assert want.abs().max() > 1e-2


@pytest.mark.parametrize("spec", SPECS)
def test_torch_func_grad_vjp_and_jacobians_are_autograds(spec):
    enc = made(spec).requires_grad_(False)
    f, given = run(enc, LAYOUTS["whole"]), [drawn(s) for s in range(3)]
    leaves = [t.clone().requires_grad_() for t in given]
    want = torch.autograd.grad(f(*leaves).pow(2).sum(), leaves)
    got = grad(lambda *qkv: f(*qkv).pow(2).sum(), argnums=(0, 1, 2))(*given)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(got, want, strict=True))
    out, pull = vjp(f, *given)
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(pull(2 * out), want, strict=True))
    small = [t[:1, :, :4] for t in given]
    at = Layout.dense(4)
    assert torch.allclose(jacfwd(run(enc, at))(*small), jacrev(run(enc, at))(*small), atol=1e-10)


@pytest.mark.parametrize("spec", SPECS)
def test_vmap_is_a_loop(spec):
    enc = made(spec).requires_grad_(False)
    given = [drawn(s, 3, B, H, L, D) for s in range(3)]
    for at in LAYOUTS.values():
        f = run(enc, at)
        want = torch.stack([f(*(t[n] for t in given)) for n in range(3)])
        assert torch.allclose(vmap(f)(*given), want, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", ["rope", "alibi", "t5", "kerple", "fire", "shaw", "rope + t5"])
def test_gradients_of_gradients_are_the_references(spec, layout):
    """Torch's own kernel (no bias, one whole text) has none and says so; everything of ours has them."""
    enc, at = made(spec), LAYOUTS[layout]
    leaves = [drawn(s).requires_grad_() for s in range(3)]
    learned = [*leaves, *enc.parameters()]

    def twice(backend: str) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(run(enc, at, backend)(*leaves).pow(2).sum(), learned, create_graph=True)
        return torch.autograd.grad(sum(g.pow(2).sum() for g in first), learned)

    want = twice("reference")
    if spec == "rope" and layout == "whole":
        with pytest.raises(RuntimeError, match="not implemented"):
            twice("auto")
        return
    assert all(torch.allclose(a, b, atol=1e-8, rtol=1e-8) for a, b in zip(twice("auto"), want, strict=True))


def test_a_key_row_has_every_derivative():
    given, along, row = [drawn(s) for s in range(3)], [drawn(s) for s in range(3, 6)], drawn(8, B, H, 1, L)

    def f(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return key_row(q, k, v, row, scale=0.5)

    assert torch.allclose(jvp(f, tuple(given), tuple(along))[1], slope(f, given, along), atol=1e-7)
    leaves = [t.clone().requires_grad_() for t in given]
    assert torch.autograd.gradgradcheck(f, leaves, atol=1e-6)
    many = [drawn(s, 3, B, H, L, D) for s in range(3)]
    assert torch.allclose(vmap(f)(*many), torch.stack([f(*(t[n] for t in many)) for n in range(3)]), atol=1e-12)


@pytest.mark.parametrize("spec", ["nope", "rope", "alibi", "t5", "shaw"])
def test_an_exported_program_gives_the_same(spec):
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = made(spec)

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            at = Layout.dense(q.shape[2])
            return attend(q, k, v, self.enc, at=at)

    model, given = Attention(), tuple(drawn(s) for s in range(3))
    program = torch.export.export(model, given)
    other = tuple(drawn(s) for s in range(5, 8))
    assert torch.allclose(program.module()(*other), model(*other), atol=1e-12)


@pytest.mark.parametrize("spec", ["alibi", "rope", "t5"])
def test_forward_mode_in_a_compiled_graph_is_right_or_refused(spec):
    enc = made(spec).requires_grad_(False)
    f, given, along = (
        run(enc, LAYOUTS["whole"]),
        tuple(drawn(s) for s in range(3)),
        tuple(drawn(s) for s in range(3, 6)),
    )
    try:
        got = torch.compile(lambda: jvp(f, given, along)[1])()
    except Exception as error:
        assert str(error)
        return
    assert torch.allclose(got, slope(f, list(given), list(along)), atol=1e-7)
