"""Encodings of hidden states, of values, of another softmax, and position maps keep what attend promises of the others:
any storage, nothing of what is hidden, and every derivative.
"""

import re

import pytest
import test_hidden
import test_layouts_of_memory
import test_transforms
import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

from milepost import Encoding, KVCache, Layout, attend, build
from milepost.encodings import catalogue
from milepost.encodings.catalogue import NAMES, page
from milepost.positions import grid
from milepost.testing import randomised_copy

B, H, L, D, C = 2, 2, 12, 8, 16
FEATURES = (
    "fox",
    "relative_logits(extent=5)",
    "selective_rope",
    "path",
    "dape",
    "grape_additive",
    "rope + fox + relative_logits(extent=5)",
)
OTHERS = (
    "vo_rope", "alibi + vo_rope", "stick_breaking", "ssmax", "pope", "fope", "learned_spectrum",
    "self_extend(rope=rope, group=2, window=4)", "rerope(rope=rope, window=4)",
    "streaming(rope=rope, sinks=2, window=4)", "dual_chunk(rope=rope, chunk=4, local=2)",
    "rope(scaling=dynamic(trained=6))", "grape", "rope_id", "cope", "temperature",
    "mrope", "xpos",
)  # fmt: skip
SPACE = ("axial", "mixed", "swin(sides=(3, 4))", "swin_v2", "alibi_2d", "axial + alibi_2d")
"""Places in a grid: those of 3 x 4 patches."""
SPECS = FEATURES + OTHERS + SPACE
LAYOUTS = {"whole": Layout.dense(L), "packed": Layout.packed([7, 5])}


def made(spec: str) -> Encoding:
    return randomised_copy(build(spec, heads=H, head_dim=D, width=C, length=L)).double()


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*(shape or (B, H, L, D)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def placed(spec: str, layout: str) -> Layout:
    at = LAYOUTS[layout]
    return at.with_positions(grid(3, 4)) if spec in SPACE else at


def of_hidden(enc: Encoding, at: Layout) -> Tensor | None:
    return enc.features(drawn(9, B, L, C), at.pos).detach() if enc.feature_count else None


def strided(t: Tensor) -> Tensor:
    return torch.stack([t, torch.full_like(t, 1e4), t], dim=-1)[..., 2]


def sliced(t: Tensor) -> Tensor:
    wide = torch.full((*t.shape[:-2], 2 * t.shape[-2] + 3, t.shape[-1] + 5), 1e4, dtype=t.dtype)
    wide[..., 3::2, 2:-3] = t
    return wide[..., 3::2, 2:-3]


def transposed(t: Tensor) -> Tensor:
    return t.transpose(-1, -2).contiguous().transpose(-1, -2)


def expanded(t: Tensor) -> Tensor:
    return t[..., :1, :].expand_as(t)


def overlapping(t: Tensor) -> Tensor:
    flat = t.flatten()[: t.shape[-2] + t.shape[-1]].clone()
    return flat.unfold(0, t.shape[-1], 1)[: t.shape[-2]].expand(t.shape)


def run(enc: Encoding, at: Layout, features: bool, backend: str = "auto"):
    def attention(*given: Tensor) -> Tensor:
        q, k, v = given[:3]
        return attend(q, k, v, enc, at=at, backend=backend, features=given[3] if features else None)

    return attention


def inputs(enc: Encoding, at: Layout) -> list[Tensor]:
    """q, k, v, and the features where there are some."""
    f = of_hidden(enc, at)
    return [drawn(0), drawn(1) / 2, drawn(2), *([] if f is None else [f])]


def test_no_encoding_is_left_out():
    """Those of the catalogue that do something in attention are here, or in the lists of the files that came before."""
    lists = (test_layouts_of_memory.SPECS, test_transforms.SPECS, test_hidden.SPECS)
    held = [{name for spec in specs for name in re.findall(r"[a-z]\w*", spec)} for specs in (SPECS, *lists)]
    in_attention = {name for name in [*NAMES, *catalogue.SPACE] if set(page(name).points) - {"embed"}}
    assert in_attention - (held[0] | set.intersection(*held[1:])) == set()


@pytest.mark.parametrize("store", [strided, sliced, transposed, expanded, overlapping], ids=lambda s: s.__name__)
@pytest.mark.parametrize("spec", SPECS)
def test_any_storage_of_tokens_and_features_gives_the_numbers_of_the_reference(spec, store):
    for layout in LAYOUTS:
        enc, at = made(spec), placed(spec, layout)
        stored = [store(t) for t in inputs(enc, at)]
        given = [t.detach().requires_grad_() for t in stored]
        same = [t.detach().clone(memory_format=torch.contiguous_format).requires_grad_() for t in stored]
        got = run(enc, at, bool(enc.feature_count))(*given)
        want = run(enc, at, bool(enc.feature_count), "reference")(*same)
        assert (got - want).abs().max() < 1e-10
        weight = drawn(7)
        grads = [torch.autograd.grad((out * weight).sum(), x) for out, x in ((got, given), (want, same))]
        assert all((g - w).abs().max() < 1e-9 * max(1.0, float(w.abs().max())) for g, w in zip(*grads, strict=True))


@pytest.mark.parametrize("store", [strided, sliced, transposed, expanded], ids=lambda s: s.__name__)
@pytest.mark.parametrize("spec", FEATURES + OTHERS)
@torch.no_grad()
def test_a_decode_takes_any_storage(spec, store):
    enc, at = made(spec), LAYOUTS["whole"]
    q, k, v, *f = inputs(enc, at)
    caches = KVCache(enc), KVCache(enc)
    for n in range(L):
        token = [t[..., n : n + 1, :].clone() for t in (q, k, v, *f)]
        out = []
        for cache, some in zip(
            caches, ([store(t) for t in token], [store(t).contiguous() for t in token]), strict=True
        ):
            more = {"features": some[3]} if f else {}
            out.append(cache.decode(*some[:3], **more))
        assert (out[0] - out[1]).abs().max() < 1e-12


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_a_broken_token_spoils_the_rows_that_see_it_and_no_other(spec, layout, value):
    enc, at = made(spec), placed(spec, layout)
    clean = inputs(enc, at)
    seen = at.mask(causal=True).expand(B, 1, L, L)[0, 0]
    weight = drawn(7)
    for which in range(len(clean)):
        given = [t.clone() for t in clean]
        given[which][0, ..., 9, 3 % given[which].shape[-1]] = value
        rows = torch.zeros(B, H, L, dtype=torch.bool)
        alone = which == 0 or (which == 3 and enc.keyless)  # what only its own row reads
        rows[0] = torch.arange(L) == 9 if alone else seen[:, 9]
        for backend in ("auto", "reference", "chunked"):
            leaves, same = [t.clone().requires_grad_() for t in given], [t.clone().requires_grad_() for t in clean]
            got = run(enc, at, len(clean) > 3, backend)(*leaves)
            want = run(enc, at, len(clean) > 3, "reference")(*same)
            assert got[rows].isnan().all(), (which, backend)
            assert torch.allclose(got[~rows], want[~rows], atol=1e-10), (which, backend)
            kept = weight.masked_fill(rows[..., None], 0.0)
            learned = [p for p in enc.parameters() if p.requires_grad]
            a = torch.autograd.grad((got.nan_to_num() * kept).sum(), [*leaves, *learned], allow_unused=True)
            b = torch.autograd.grad((want * kept).sum(), [*same, *learned], allow_unused=True)
            for g, w in zip(a, b, strict=True):
                assert (g is None) == (w is None) and (g is None or torch.allclose(g, w, atol=1e-9)), (which, backend)


@pytest.mark.parametrize("spec", SPECS)
def test_forward_mode_torch_func_and_vmap_agree_with_differences_and_loops(spec):
    enc = made(spec).requires_grad_(False)
    for layout in LAYOUTS:
        at = placed(spec, layout)
        given = inputs(enc, at)
        f = run(enc, at, len(given) > 3)
        along = [drawn(20 + n, *t.shape) for n, t in enumerate(given)]
        ahead, behind = (f(*(t + s * 1e-6 * d for t, d in zip(given, along, strict=True))) for s in (1, -1))
        slope = (ahead - behind) / 2e-6
        assert torch.allclose(
            jvp(f, tuple(given), tuple(along))[1], slope, atol=1e-6 * max(1.0, float(slope.abs().max()))
        )
        assert slope.abs().max() > 0.05
        leaves = [t.clone().requires_grad_() for t in given]
        want = torch.autograd.grad(f(*leaves).pow(2).sum(), leaves)
        got = grad(lambda *x, f=f: f(*x).pow(2).sum(), argnums=tuple(range(len(given))))(*given)
        assert all(torch.allclose(a, b, atol=1e-9) for a, b in zip(got, want, strict=True))
        many = [torch.stack([t, t / 2]) for t in given]
        mapped = vmap(f)(*many)
        assert torch.allclose(mapped[0], f(*given), atol=1e-11)
        assert torch.allclose(mapped[1], f(*(t / 2 for t in given)), atol=1e-11)


@pytest.mark.parametrize("spec", SPECS)
def test_gradients_of_gradients_are_the_references(spec):
    enc, at = made(spec), placed(spec, "packed")
    leaves = [t.requires_grad_() for t in inputs(enc, at)]
    learned = [*leaves, *(p for p in enc.parameters() if p.requires_grad)]

    def twice(backend: str) -> list[Tensor | None]:
        out = run(enc, at, len(leaves) > 3, backend)(*leaves)
        first = torch.autograd.grad(out.pow(2).sum(), learned, create_graph=True, allow_unused=True)
        total = sum(g.pow(2).sum() for g in first if g is not None)
        return list(torch.autograd.grad(total, learned, allow_unused=True))

    for a, b in zip(twice("auto"), twice("reference"), strict=True):
        assert (a is None or not a.abs().max()) if b is None else torch.allclose(a, b, atol=1e-7, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_an_exported_program_gives_the_same(spec):
    enc, at = made(spec).requires_grad_(False), placed(spec, "whole")
    given = inputs(enc, at)

    class Attending(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = enc

        def forward(self, *x: Tensor) -> Tensor:
            return run(self.enc, at, len(x) > 3)(*x)

    program = torch.export.export(Attending(), tuple(given), strict=False)
    other = [t + 0.1 for t in given]
    assert torch.allclose(program.module()(*other), run(enc, at, len(given) > 3)(*other), atol=1e-11)
