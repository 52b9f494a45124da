"""The rotation kernel against complex multiplication, pair by pair in Python numbers; its gradients against finite
differences.
"""

import cmath

import pytest
import torch

from milepost.angles import cos_sin
from milepost.rotation import _formula, pairs_of, permutation, rotate
from milepost.spectrum import Spectrum, geometric

EPS = torch.finfo(torch.float64).eps


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20)


def tables(
    batch: int, length: int, pairs: int, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    angle = torch.rand(batch, 1, length, pairs, dtype=torch.float64) * 6
    return angle, angle.cos().to(dtype), angle.sin().to(dtype)


def turned(x: list[float], angles: list[float], size: int, pairing: str) -> list[float]:
    out = list(x)
    for i, angle in enumerate(angles):
        a, b = (i, i + size // 2) if pairing == "half" else (2 * i, 2 * i + 1)
        z = complex(x[a], x[b]) * cmath.exp(1j * angle)
        out[a], out[b] = z.real, z.imag
    return out


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(("head_dim", "size", "pairs"), [(8, 8, 4), (10, 6, 3), (10, 10, 3), (12, 8, 2), (2, 2, 1)])
@pytest.mark.parametrize("heads", [1, 2, 5])
def test_pairs_turn_like_complex_numbers_and_the_rest_stays_bit_equal(pairing, head_dim, size, pairs, heads):
    angle, cos, sin = tables(2, 3, pairs)
    x = torch.randn(2, heads, 3, head_dim, dtype=torch.float64)
    kept, y = x.clone(), rotate(x, cos, sin, size, pairing)
    assert torch.equal(x, kept)
    touched = [c for i in range(pairs) for c in ((i, i + size // 2) if pairing == "half" else (2 * i, 2 * i + 1))]
    still = [c for c in range(head_dim) if c not in touched]
    assert torch.equal(y[..., still], x[..., still])
    for b in range(2):
        for h in range(heads):
            for t in range(3):
                want = turned(x[b, h, t].tolist(), angle[b, 0, t].tolist(), size, pairing)
                room = 4 * EPS * x[b, h, t].abs().max().item() * 2  # two products and a sum
                assert max(abs(g - w) for g, w in zip(y[b, h, t].tolist(), want, strict=True)) <= room, (b, h, t)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_the_formula_for_compilers_gives_the_kernels_numbers(pairing):
    _, cos, sin = tables(2, 4, 3)
    x = torch.randn(2, 3, 4, 10, dtype=torch.float64)
    torch.testing.assert_close(
        _formula(x, cos, sin, 8, pairing), rotate(x, cos, sin, 8, pairing), rtol=0, atol=4 * EPS * x.abs().max().item()
    )
    through_a_transform = torch.func.vmap(lambda row: rotate(row[None], cos[:1], sin[:1], 8, pairing)[0])(x)
    torch.testing.assert_close(
        through_a_transform, rotate(x, cos[:1], sin[:1], 8, pairing), rtol=0, atol=4 * EPS * x.abs().max().item()
    )


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_inputs_that_are_views_are_turned_like_their_copies(pairing):
    _, cos, sin = tables(1, 4, 4)
    wide = torch.randn(2, 4, 3, 8, dtype=torch.float64).transpose(1, 2)
    repeated = torch.randn(2, 1, 4, 8, dtype=torch.float64).expand(2, 3, 4, 8)
    for x in (wide, repeated):
        assert torch.equal(rotate(x, cos, sin, 8, pairing), rotate(x.contiguous(), cos, sin, 8, pairing))


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_turned_and_rounded_once(pairing, dtype):
    _, cos, sin = tables(1, 4, 4, torch.float32)
    x = torch.randn(1, 3, 4, 8).to(dtype)
    wide = rotate(x.float(), cos, sin, 8, pairing)
    assert torch.equal(rotate(x, cos, sin, 8, pairing), wide.to(dtype))
    assert torch.equal(_formula(x, cos, sin, 8, pairing), wide.to(dtype))


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_gradients_and_their_gradients_agree_with_finite_differences(pairing):
    _, cos, sin = tables(1, 3, 2)
    x = torch.randn(2, 3, 3, 6, dtype=torch.float64, requires_grad=True)
    learned = [t.clone().requires_grad_() for t in (cos, sin)]
    assert torch.autograd.gradcheck(lambda x: rotate(x, cos, sin, 6, pairing), (x,))
    assert torch.autograd.gradcheck(lambda x, c, s: rotate(x, c, s, 6, pairing), (x, *learned))
    assert torch.autograd.gradgradcheck(lambda x: rotate(x, cos, sin, 6, pairing), (x,))


def test_pairs_are_views_of_the_channels_they_name():
    x = torch.arange(10)
    assert [p.tolist() for p in pairs_of(x, 2, 8, "half")] == [[0, 1], [4, 5]]
    assert [p.tolist() for p in pairs_of(x, 3, 8, "interleaved")] == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize("size", [2, 6, 8, 72])
def test_the_permutation_carries_one_pairing_into_the_other_and_back(size):
    there, back = permutation(size, to="interleaved").tolist(), permutation(size, to="half").tolist()
    assert there == [c for i in range(size // 2) for c in (i, i + size // 2)]
    assert [there[c] for c in back] == list(range(size))
    _, cos, sin = tables(1, 3, size // 2)
    x = torch.randn(1, 2, 3, size, dtype=torch.float64)
    half = rotate(x, cos, sin, size, "half")
    torch.testing.assert_close(
        rotate(x[..., there], cos, sin, size, "interleaved"),
        half[..., there],
        rtol=0,
        atol=4 * EPS * x.abs().max().item(),
    )
    if size > 2:
        assert (rotate(x, cos, sin, size, "interleaved") - half).abs().max() > 0.01


def test_an_odd_number_of_channels_has_no_pairs():
    with pytest.raises(ValueError, match="even number of channels, got 7"):
        permutation(7, to="half")
    with pytest.raises(ValueError, match="must be even and at least 2, got 9"):
        geometric(9)


def test_a_geometric_spectrum_falls_from_one_towards_its_base():
    spectrum = geometric(8, base=10000.0)
    assert spectrum.frequencies == pytest.approx((1, 0.1, 0.01, 0.001), rel=4 * EPS)
    assert geometric(8, base=10000.0, pairs=2).frequencies == pytest.approx((1, 0.1, 0, 0), rel=4 * EPS)
    assert geometric(8, pairs=1).wavelengths == (
        pytest.approx(6.283185307179586, rel=EPS),
        float("inf"),
        float("inf"),
        float("inf"),
    )
    with torch.device("meta"):
        assert spectrum.tensor().device.type == "cpu"


def test_tables_are_float64_inside_and_cast_last():
    pos, w = torch.tensor([[0, 257], [131071, 1048575]]), geometric(6).tensor()
    cos, sin = cos_sin(pos, w, torch.float64)
    assert cos.shape == (2, 2, 3) and cos.dtype == torch.float64
    assert cos[1, :, 0].tolist() == pytest.approx(
        [-0.817983499387949081, 0.788042239528927469], abs=2 * EPS
    )  # frequency 1: the angle is exact
    assert sin[1, :, 0].tolist() == pytest.approx([-0.575241683754789371, -0.615621173058750884], abs=2 * EPS)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        c, s = cos_sin(pos, w, dtype)
        assert c.dtype == torch.float32
        assert torch.equal(c, cos.float()) and torch.equal(s, sin.float())
    assert isinstance(geometric(6), Spectrum)


def test_the_opaque_table_of_compiled_graphs_is_the_same_table():
    pos, w = torch.tensor([0, 257, 1048575]), geometric(6).tensor()
    for double in (True, False):
        want = cos_sin(pos, w, torch.float64 if double else torch.float32)
        got = torch.ops.milepost.cos_sin(pos, w, double)
        assert all(torch.equal(g, t) for g, t in zip(got, want, strict=True))
