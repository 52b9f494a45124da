"""resize_table against interpolation by hand: kernels written out, one matrix for rows and one for columns."""

import pytest
import torch

from milepost import resize_table


def cubic(x: float, a: float) -> float:
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def weights(old: int, new: int, mode: str, antialias: bool) -> torch.Tensor:
    """new x old: what each old row gives to each new one. Middles of pixels are aligned; past the edge is the edge
    (cut off, where antialiased).
    """
    found = torch.zeros(new, old, dtype=torch.float64)
    step = old / new
    stretch = max(1.0, step) if antialias else 1.0
    reach = (2 if mode == "bicubic" else 1) * stretch
    for n in range(new):
        middle = (n + 0.5) * step - 0.5
        for at in range(int(middle - reach) - 2, int(middle + reach) + 3):
            x = (at - middle) / stretch
            w = cubic(x, -0.5 if antialias else -0.75) if mode == "bicubic" else max(0.0, 1 - abs(x))
            if antialias and not 0 <= at < old:
                continue
            found[n, min(max(at, 0), old - 1)] += w
    return found / found.sum(1, keepdim=True)


def by_hand(table, source, target, prefix=0, mode="bicubic", antialias=False):
    image = table[prefix:].double().view(*source, -1)
    down, across = (weights(o, n, mode, antialias) for o, n in zip(source, target, strict=True))
    done = torch.einsum("ai,bj,ijc->abc", down, across, image)
    return torch.cat([table[:prefix].double(), done.reshape(target[0] * target[1], -1)])


def gap(a, b):
    return (a.double() - b.double()).abs().max().item()


@pytest.mark.parametrize("new", [39, 43, 78, 86, 115, 123])
def test_v1_sizes_that_a_factor_rounds_down_come_out_whole(new):
    table = torch.randn(37 * 37, 2, dtype=torch.float64)
    done = resize_table(table, source=(37, 37), target=(new, new))
    assert done.shape == (new * new, 2)
    assert gap(done, by_hand(table, (37, 37), (new, new))) < 1e-12


def test_v2_as_many_cells_in_another_shape_are_resampled():
    table = torch.randn(16, 3, dtype=torch.float64)
    done = resize_table(table, source=(2, 8), target=(4, 4))
    assert gap(done, by_hand(table, (2, 8), (4, 4))) < 1e-12 and gap(done, table) > 0.1


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize(
    ("source", "target"),
    [((3, 5), (6, 4)), ((6, 4), (3, 9)), ((2, 8), (8, 2)), ((14, 14), (24, 24)), ((9, 9), (4, 4)), ((1, 7), (3, 2))],
)
def test_v3_any_grid_goes_to_any_other(source, target, mode, antialias):
    table = torch.randn(1 + source[0] * source[1], 3, dtype=torch.float64)
    done = resize_table(table, source=source, target=target, prefix=1, mode=mode, antialias=antialias)
    assert gap(done, by_hand(table, source, target, 1, mode, antialias)) < 1e-12


@pytest.mark.parametrize("prefix", [1, 2, 5])
def test_v4_rows_before_the_grid_keep_their_bits(prefix):
    table = torch.randn(1, prefix + 196, 4).bfloat16()
    done = resize_table(table, source=(14, 14), target=(16, 10), prefix=prefix)
    assert done.shape == (1, prefix + 160, 4) and done.dtype == torch.bfloat16
    assert torch.equal(done[:, :prefix], table[:, :prefix])


def test_v4_196_rows_are_14_by_14_and_a_class_token_must_be_said():
    table = torch.randn(196, 2)
    assert resize_table(table, source=(14, 14), target=(7, 7)).shape == (49, 2)
    for given in ({"source": (14, 14), "prefix": 1}, {"source": (13, 15)}, {"source": (13, 13), "prefix": 1}):
        with pytest.raises(ValueError, match=r"and the table has 196: say the grid that it was trained on"):
            resize_table(table, target=(7, 7), **given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_v5_the_same_grid_gives_the_same_bits_in_other_memory(dtype):
    table = torch.randn(1 + 37 * 37, 3).to(dtype)
    done = resize_table(table, source=(37, 37), target=(37, 37), prefix=1)
    assert torch.equal(done, table) and done.data_ptr() != table.data_ptr()


def test_v6_rows_stay_rows():
    rows = torch.arange(12.0, dtype=torch.float64).div(4, rounding_mode="floor")[
        :, None
    ]  # 3 x 4, each cell its row's number
    done = resize_table(rows, source=(3, 4), target=(6, 2)).view(6, 2)
    assert gap(done[:, 0], done[:, 1]) < 1e-14 and (done[1:, 0] > done[:-1, 0]).all()
    columns = torch.arange(12.0, dtype=torch.float64).remainder(4)[:, None]
    done = resize_table(columns, source=(3, 4), target=(6, 2)).view(6, 2)
    assert gap(done[0], done[5]) < 1e-14 and (done[:, 1] > done[:, 0] + 1).all()


def test_half_precision_is_resampled_in_float32_and_rounded_once():
    table = torch.randn(64, 3).bfloat16()
    done = resize_table(table, source=(8, 8), target=(12, 12))
    assert torch.equal(done, resize_table(table.float(), source=(8, 8), target=(12, 12)).bfloat16())


@pytest.mark.parametrize("new", [1024, 700, 300])
def test_one_axis_is_resampled_linearly(new):
    table = torch.randn(2 + 512, 3, dtype=torch.float64)
    done = resize_table(table, source=(512,), target=(new,), prefix=2)
    assert torch.equal(done[:2], table[:2]) and gap(done[2:], weights(512, new, "bilinear", False) @ table[2:]) < 1e-12


def test_gradients_go_back_to_the_old_table():
    table = torch.randn(12, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: resize_table(t, source=(3, 4), target=(5, 6)), (table,))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": 14, "target": (7, 7)}, "source must be"),
        ({"source": (14, 14), "target": (7, 0)}, "target must be"),
        ({"source": (14, 14), "target": (7.0, 7)}, "target must be"),
        ({"source": (14, 14), "target": (49,)}, "as many axes"),
        ({"source": (14, 14), "target": (7, 7), "mode": "nearest"}, "mode must be"),
        ({"source": (14, 14), "target": (7, 7), "prefix": -1}, "and the table has 196"),
    ],
)
def test_bad_arguments_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        resize_table(torch.randn(196, 2), **given)


@pytest.mark.parametrize("table", [torch.zeros(196), torch.zeros(2, 196, 3), torch.zeros(196, 3, dtype=torch.long)])
def test_what_is_no_table_is_refused(table):
    with pytest.raises(ValueError, match=r"a table has floating numbers of shape \(rows, C\) or \(1, rows, C\)"):
        resize_table(table, source=(14, 14), target=(7, 7))
