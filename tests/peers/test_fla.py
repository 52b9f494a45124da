"""FoX, PaTH and stick-breaking against the plain torch code of flash-linear-attention.

Its fast kernels are Triton, and so is what `import fla` imports; the files of its naive references need torch and
einops alone, and are loaded by themselves.
"""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

from milepost import FoX, Layout, StickBreaking, attend, build
from milepost.testing import randomised_copy

B, H, D, C = 2, 4, 8, 12


def naive(folder):
    """The module fla/ops/{folder}/naive.py, without the packages that it lies in."""
    (package,) = importlib.util.find_spec("fla").submodule_search_locations
    spec = importlib.util.spec_from_file_location(f"fla_{folder}", Path(package) / "ops" / folder / "naive.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(n, *, groups=H, dtype=torch.float32):
    """q, k, v (B H N D) and hidden states (B N C)."""
    generator = torch.Generator().manual_seed(n)
    shapes = (B, H, n, D), (B, groups, n, D), (B, groups, n, D), (B, n, C)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def theirs(run, *tensors, **more):
    """What code that has tokens before heads gives, with heads before tokens."""
    found = run(*(t.transpose(1, 2) for t in tensors), **more)
    return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)


def rounding(logits, v, dtype=torch.float32):
    """How far two ways of attention may lie apart: each rounds logits of this size to half a step, and weights and sums
    a few times more."""
    return torch.finfo(dtype).eps * (16 + logits) * v.abs().max().item()


@pytest.mark.parametrize("window", [None, 1, 7, 64])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("n", [1, 65, 300])
@torch.no_grad()
def test_forgetting_attention(n, groups, window):
    enc = randomised_copy(FoX(H, C)).float()
    q, k, v, x = drawn(n, groups=groups)
    f = enc.features(x, torch.arange(n))
    wanted = theirs(naive("forgetting_attn").naive_forgetting_attn, q, k, v, g=f, window_size=window)
    sums = f.cumsum(1).abs().max().item()  # its running sums are float32's
    for backend in ("reference", "auto"):
        ours = attend(q, k, v, enc, at=Layout.dense(n, window=window), features=f, backend=backend)
        assert (ours - wanted).abs().max() <= rounding(sums, v)


@pytest.mark.parametrize("n", [1, 63, 65, 150])
@pytest.mark.parametrize("spec", ["path", "path + fox"])
@torch.no_grad()
def test_path_attention(spec, n):
    """Its gates are added before the scale, ours after it, as the paper of FoX has them."""
    enc = randomised_copy(build(spec, heads=H, head_dim=D, width=C)).float()
    q, k, v, x = drawn(n)
    f = enc.features(x, torch.arange(n))
    axes, strength, gates = f.split([H * D, H, f.shape[-1] - H * (D + 1)], dim=-1)
    scale = 1 / math.sqrt(D)
    g = gates / scale if gates.shape[-1] else torch.zeros(B, n, H)
    w = axes.reshape(B, n, H, D).transpose(1, 2)
    run = naive("path_attn").naive_path_attn
    wanted = theirs(run, q, k, v, w, beta=strength, g=g, scale=scale)
    ours = attend(q, k, v, enc, features=f)
    sizes = (q.norm(dim=-1).max() * k.norm(dim=-1).max()).item() * n + g.cumsum(1).abs().max().item()  # n reflections
    assert (ours - wanted).abs().max() <= rounding(scale * sizes, v)
    plain = attend(q, k, v)
    assert n == 1 or (ours - plain).abs().max() > 0.1  # it is not attention without a path


@pytest.mark.parametrize("current", [False, True])
@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("n", [1, 65, 300])
@torch.no_grad()
def test_stick_breaking(n, groups, current):
    q, k, v, _ = drawn(n, groups=groups, dtype=torch.float64)
    run = naive("stickbreaking_attn").naive_stickbreaking_attn
    wanted = theirs(run, q, k, v, attend_current=current)
    ours = attend(q, k, v, StickBreaking(current))
    left = torch.log1p(torch.exp((q.norm(dim=-1).max() * k.norm(dim=-1).max()) / math.sqrt(D))).item() * n
    assert (ours - wanted).abs().max() <= rounding(left, v, torch.float64)
    low = attend(q.float(), k.float(), v.float(), StickBreaking(current))
    assert (low - wanted).abs().max() <= rounding(left, v)
