"""Mistakes in space, planted one by one: exchanged axes, wrong spectra, guessed grids. The named check must fail
with each, and pass without.
"""

import cmath
import math
from collections.abc import Callable

import pytest
import torch
from test_planted import Mistake, after_init, close, law, put, refused
from torch import Tensor
from torch.nn import functional as F

import milepost.encodings.mrope
import milepost.encodings.resize_table
import milepost.positions
from milepost import Axial, Encoding, Grid, Mixed, MRoPE, RoPE, SinusoidalND, Swin, SwinV2
from milepost.encodings.alibi_2d import ALiBi2D
from milepost.encodings.resize_table import resize_table
from milepost.positions import grid
from milepost.testing import randomised_copy

PLACES = [(0, 0), (1, 0), (0, 1), (3, 5), (257, 2), (4, 1000)]


def spot(place: tuple[float, ...]) -> Tensor:
    return torch.tensor(place)[:, None, None]


def axial_turns_rows_first_each_with_its_own_spectrum() -> None:
    x = torch.randn(1, 1, 1, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for place in PLACES:
        got = Axial(16, base=100.0).key(x, spot(place))[0, 0, 0].tolist()
        for i in range(8):
            z = complex(x[0, 0, 0, i], x[0, 0, 0, i + 8]) * cmath.exp(1j * place[i // 4] * 100.0 ** (-(i % 4) / 4))
            close(got[i], z.real, (place, i), 1e-10)
            close(got[i + 8], z.imag, (place, i), 1e-10)


def every_head_mixes_the_axes_by_itself() -> None:
    enc = randomised_copy(Mixed(2, 8))
    x = torch.randn(1, 2, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for place in PLACES:
        got = enc.key(x, spot(place)).detach()
        for h in range(2):
            for i in range(4):
                angle = sum(p * enc.frequencies[a, h, i].item() for a, p in enumerate(place))
                z = complex(*x[0, h, 0, 2 * i : 2 * i + 2]) * cmath.exp(1j * angle)
                close(got[0, h, 0, 2 * i].item(), z.real, (place, h, i), 1e-10)


def text_alone_is_rope() -> None:
    x, pos = torch.randn(1, 1, 4, 16, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 257, 4096])
    for order in ("chunked", "interleaved"):
        for told in (pos, pos.expand(3, 1, 4)):
            assert torch.equal(MRoPE(16, order=order).key(x, told), RoPE(16).key(x, pos)), order


def pairs_are_dealt_as_qwen_deals_them() -> None:
    assert MRoPE(128, sections=(16, 24, 24)).axis_of_pair == (0,) * 16 + (1,) * 24 + (2,) * 24
    assert MRoPE(128, sections=(24, 20, 20), order="interleaved").axis_of_pair == (0, 1, 2) * 20 + (0,) * 4


def sections_must_add_up() -> None:
    refused(lambda: MRoPE(128, sections=(16, 24, 16)), "64")


def an_image_advances_by_its_longer_side() -> None:
    assert milepost.positions.multimodal(2, (3, 5), 1)[:, 0, -1].tolist() == [7, 7, 7]
    assert milepost.positions.multimodal(2, (5, 3), 1)[:, 0, -1].tolist() == [7, 7, 7]


def patches_are_placed_by_their_middles() -> None:
    for n, want in enumerate((-0.75, -0.25, 0.25, 0.75)):
        close(milepost.positions.normalised(1, 4)[1, 0, n].item(), want, n)


def codes_are_rows_first() -> None:
    for row, column in PLACES:
        got = SinusoidalND(8).code(spot((row, column)))[0, 0].tolist()
        for a, p in enumerate((row, column)):
            for i in range(2):
                close(got[4 * a + 2 * i], math.sin(p * 100.0**-i), (row, column, a, i), 1e-10)


def cells_are_counted_row_by_row_after_the_class_token() -> None:
    enc = Grid(width=2, sides=(3, 5), prefix=1)
    for row, column, at in ((0, 0, 1), (0, 4, 5), (1, 0, 6), (2, 3, 14), (-1, 0, 0)):
        assert enc.embed(torch.zeros(1, 1, 2), spot((row, column)))[0, 0].tolist() == enc.table[at].tolist(), (
            row,
            column,
        )


def a_cell_past_its_row_is_refused() -> None:
    refused(lambda: Grid(width=2, sides=(3, 5)).embed(torch.zeros(1, 1, 2), spot((0, 5))), "position 5 on axis 1")


def bias_at(enc: Encoding, i: tuple[int, int], j: tuple[int, int]) -> float:
    return enc.bias(
        torch.zeros(1, 1, dtype=torch.long), torch.tensor(i)[:, None, None], torch.tensor(j)[:, None, None]
    ).item()


def swin_reads_query_minus_key_rows_slowest() -> None:
    enc = randomised_copy(Swin(1, sides=(2, 4)))
    for i in ((0, 0), (1, 3), (0, 2)):
        for j in ((0, 1), (1, 0), (1, 3)):
            assert bias_at(enc, i, j) == enc.table[(i[0] - j[0] + 1) * 7 + i[1] - j[1] + 3, 0].item(), (i, j)


def swin_v2_asks_its_network_in_logarithms_to_base_8() -> None:
    enc = randomised_copy(SwinV2(1, trained=(3, 9), hidden=4))
    enc.inner.bias.data[0] = 3.0  # one unit at least is alive at every offset: else none is seen
    w, b, outer = enc.inner.weight.tolist(), enc.inner.bias.tolist(), enc.outer.weight[0].tolist()
    for i, j in (((0, 0), (0, 0)), ((2, 1), (0, 5)), ((0, 8), (1, 0))):
        c = [math.copysign(math.log(1 + abs(8 * (x - y) / n), 8), x - y) for x, y, n in zip(i, j, (2, 8), strict=True)]
        said = sum(o * max(0.0, u[0] * c[0] + u[1] * c[1] + add) for o, u, add in zip(outer, w, b, strict=True))
        close(bias_at(enc, i, j), 16 / (1 + math.exp(-said)), (i, j))


def alibi_2d_is_minus_slope_times_the_straight_line() -> None:
    for i, j in (((0, 0), (3, 4)), ((2, 7), (2, 1)), ((5, 0), (0, 12))):
        close(bias_at(ALiBi2D(1), i, j), -math.dist(i, j) / 256, (i, j))


def tables_are_resampled_between_middles_of_cells() -> None:
    row = torch.arange(4.0, dtype=torch.float64)[:, None]
    two = resize_table(
        torch.cat([torch.tensor([[9.0]]), row]), source=(1, 4), target=(1, 8), prefix=1, mode="bilinear"
    )[:, 0].tolist()
    assert two == [9.0, 0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]


def tables_come_out_at_the_size_that_was_asked() -> None:
    for new in (39, 43, 78, 86, 115, 123):
        assert resize_table(torch.zeros(37 * 37, 1), source=(37, 37), target=(new, new)).shape[0] == new * new, new


def another_shape_of_as_many_cells_is_resampled() -> None:
    table = torch.arange(16.0)[:, None]
    assert not torch.equal(resize_table(table, source=(2, 8), target=(4, 4)), table)


def a_grid_that_is_no_square_keeps_its_rows() -> None:
    columns = torch.arange(16.0).remainder(8)[:, None]  # 2 x 8, each cell its column's number: both rows alike
    done = resize_table(columns, source=(2, 8), target=(2, 4)).view(2, 4)
    assert (done[0] - done[1]).abs().max() < 1e-5 and (done[:, 1:] > done[:, :-1] + 1).all()


RESIZE, DEAL, MANY = resize_table, milepost.encodings.mrope.deal, milepost.positions.multimodal
TURN, MIX, CHECK, ROW, ANSWER, PLANE, CELL = (
    Axial.turn,
    Mixed.turn,
    Encoding.check,
    Swin.row,
    SwinV2.answers,
    ALiBi2D.bias,
    Grid.embed,
)
INTERPOLATE, CODE, ANGLES = F.interpolate, SinusoidalND.code, milepost.encodings.mrope.cos_sin


def resized(wrong: Callable[..., Tensor]) -> Callable[[pytest.MonkeyPatch], None]:
    """A resize_table that is another one, here where the checks call it."""
    return lambda patch: patch.setitem(globals(), "resize_table", wrong)


def by_factor(image: Tensor, size: tuple[int, ...], **how: object) -> Tensor:
    return INTERPOLATE(
        image, scale_factor=tuple(new / old for new, old in zip(size, image.shape[2:], strict=True)), **how
    )


def only_by_count(table: Tensor, *, source: tuple[int, int], target: tuple[int, int], **how: object) -> Tensor:
    return table if math.prod(source) == math.prod(target) else RESIZE(table, source=source, target=target, **how)


def squared(table: Tensor, *, source: tuple[int, int], target: tuple[int, int], **how: object) -> Tensor:
    side = math.isqrt(math.prod(source))
    return RESIZE(table, source=(side, side), target=target, **how)


def one_spectrum(self: Axial) -> None:
    whole = torch.tensor([100.0 ** (-2 * i / 16) for i in range(8)], dtype=torch.float64)
    self.frequencies[0, :4], self.frequencies[1, 4:] = whole[:4], whole[4:]
    self.table = "one spectrum"


def by_tokens(*parts: object, start: int = 0) -> Tensor:
    found, here = [], start
    for part in parts:
        found.append(MANY(part, start=here))
        here += found[-1].shape[-1]
    return torch.cat(found, dim=-1)


def frames_alone(pos: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    told = pos if pos.dim() == 3 else torch.stack([pos[None], 0 * pos[None], 0 * pos[None]])
    return ANGLES(told * torch.tensor([1, 0, 0])[:, None, None], frequencies, dtype)


def by_columns(self: Grid, x: Tensor, pos: Tensor) -> Tensor:
    cell = torch.where(pos[0] < 0, 0, 1 + pos[1] * self.sides[0] + pos[0])
    return x + self.table[cell]


def class_token_last(self: Grid, x: Tensor, pos: Tensor) -> Tensor:
    return x + self.table[torch.where(pos[0] < 0, len(self.table) - 1, pos[0] * self.sides[1] + pos[1])]


def by_the_first_head(self: Mixed, x: Tensor, pos: Tensor) -> Tensor:
    return torch.cat([MIX(self, x[:, [h] * self.heads], pos)[:, :1] for h in range(self.heads)], dim=1)


def corners(*sides: int, reach: float = 1.0) -> Tensor:
    return grid(*sides).double() * 2 / torch.tensor([max(1, n - 1) for n in sides])[:, None, None] - 1


MISTAKES = (
    Mistake(
        "Axial exchanges rows and columns",
        "V6",
        axial_turns_rows_first_each_with_its_own_spectrum,
        put(Axial, "turn", lambda s, x, p: TURN(s, x, p.flip(0))),
    ),
    Mistake(
        "Axial gives rows the fast half of one spectrum",
        "N2",
        axial_turns_rows_first_each_with_its_own_spectrum,
        after_init(Axial, one_spectrum),
    ),
    Mistake(
        "Axial turns keys the other way",
        "N4",
        law("shift", "axial"),
        put(Axial, "key", lambda self, k, pos: TURN(self, k, -pos)),
    ),
    Mistake(
        "Axial counts places in memory",
        "N6",
        law("sharded", "axial"),
        put(Axial, "turn", lambda s, x, p: TURN(s, x, torch.arange(p.shape[-1]).expand(p.shape))),
    ),
    Mistake(
        "Mixed turns all heads by the first one's frequencies",
        "formula",
        every_head_mixes_the_axes_by_itself,
        put(Mixed, "turn", by_the_first_head),
    ),
    Mistake(
        "Mixed exchanges rows and columns",
        "V6",
        every_head_mixes_the_axes_by_itself,
        put(Mixed, "turn", lambda s, x, p: MIX(s, x, p.flip(0))),
    ),
    Mistake(
        "M-RoPE deals its pairs out in turn where they are chunked",
        "N2",
        pairs_are_dealt_as_qwen_deals_them,
        put(milepost.encodings.mrope, "deal", lambda s, order: tuple(i % 3 for i in range(sum(s)))),
    ),
    Mistake(
        "M-RoPE reads interleaved sections as chunks",
        "N2",
        pairs_are_dealt_as_qwen_deals_them,
        put(milepost.encodings.mrope, "deal", lambda s, order: DEAL(s, "chunked")),
    ),
    Mistake(
        "M-RoPE takes sections of any sum",
        "N5",
        sections_must_add_up,
        lambda patch: patch.setattr(milepost.encodings.mrope, "sum", lambda given: 64, raising=False),
    ),
    Mistake(
        "M-RoPE's text has a frame alone",
        "N1",
        text_alone_is_rope,
        put(milepost.encodings.mrope, "cos_sin", frames_alone),
    ),
    Mistake(
        "An image advances by its tokens",
        "N3",
        an_image_advances_by_its_longer_side,
        put(milepost.positions, "multimodal", by_tokens),
    ),
    Mistake(
        "Normalised places go from corner to corner",
        "formula",
        patches_are_placed_by_their_middles,
        put(milepost.positions, "normalised", corners),
    ),
    Mistake(
        "Codes are columns first",
        "V6",
        codes_are_rows_first,
        put(SinusoidalND, "code", lambda self, pos, dtype=torch.float64: CODE(self, pos.flip(0), dtype)),
    ),
    Mistake(
        "Cells are counted column by column",
        "V6",
        cells_are_counted_row_by_row_after_the_class_token,
        put(Grid, "embed", by_columns),
    ),
    Mistake(
        "The class token has the last row",
        "V4",
        cells_are_counted_row_by_row_after_the_class_token,
        put(Grid, "embed", class_token_last),
    ),
    Mistake(
        "A cell past its row is in the next one",
        "V3",
        a_cell_past_its_row_is_refused,
        put(Encoding, "check", lambda self, where: None),
    ),
    Mistake(
        "Swin reads key minus query",
        "formula",
        swin_reads_query_minus_key_rows_slowest,
        put(Swin, "row", lambda self, i, j: ROW(self, j, i)),
    ),
    Mistake(
        "Swin counts columns slowest",
        "V6",
        swin_reads_query_minus_key_rows_slowest,
        put(Swin, "row", lambda self, i, j: (i[1] - j[1] + 3) * 3 + i[0] - j[0] + 1),
    ),
    Mistake(
        "Swin v2's logarithm is to base 2",
        "formula",
        swin_v2_asks_its_network_in_logarithms_to_base_8,
        put(milepost.encodings.swin_v2.math, "log2", lambda x: 1.0),
    ),
    Mistake(
        "Swin v2 exchanges rows and columns",
        "V6",
        swin_v2_asks_its_network_in_logarithms_to_base_8,
        put(SwinV2, "answers", lambda self, offset: ANSWER(self, offset.flip(0))),
    ),
    Mistake(
        "2-D ALiBi adds up rows and columns",
        "formula",
        alibi_2d_is_minus_slope_times_the_straight_line,
        after_init(ALiBi2D, lambda self: setattr(self, "distance", "manhattan")),
    ),
    Mistake(
        "2-D ALiBi's sign is flipped",
        "formula",
        alibi_2d_is_minus_slope_times_the_straight_line,
        put(ALiBi2D, "bias", lambda self, h, i, j: -PLANE(self, h, i, j)),
    ),
    Mistake(
        "A table is resized by a factor",
        "V1",
        tables_come_out_at_the_size_that_was_asked,
        put(F, "interpolate", by_factor),
    ),
    Mistake(
        "As many cells are not resampled", "V2", another_shape_of_as_many_cells_is_resampled, resized(only_by_count)
    ),
    Mistake("Every table is read as a square", "V3", a_grid_that_is_no_square_keeps_its_rows, resized(squared)),
    Mistake(
        "Rows and columns are exchanged in a resize",
        "V6",
        a_grid_that_is_no_square_keeps_its_rows,
        resized(lambda t, *, source, target, **how: RESIZE(t, source=source[::-1], target=target, **how)),
    ),
    Mistake(
        "The corners of a table are aligned",
        "formula",
        tables_are_resampled_between_middles_of_cells,
        put(F, "interpolate", lambda image, *, align_corners, **how: INTERPOLATE(image, align_corners=True, **how)),
    ),
)

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


def test_every_fault_of_space_is_planted():
    planted = {m.fault for m in MISTAKES}
    assert {"V1", "V2", "V3", "V4", "V6", "N1", "N2", "N3", "N4", "N5", "N6"} <= planted
    assert len({m.name for m in MISTAKES}) == len(MISTAKES)
