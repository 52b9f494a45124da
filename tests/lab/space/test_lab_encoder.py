"""The encoder: it is told the right places, sees all tokens, starts alike under every encoding, and goes to another
grid as it should.
"""

import math

import pytest
import torch

from milepost import lab
from milepost.encoding import Encoding
from milepost.encodings.resize_table import resize_table
from milepost.lab import checkpoint
from milepost.lab.space.encoder import Encoder, EncoderShape
from milepost.positions import grid

SHAPE = EncoderShape((3, 5), 4, 7, layers=2, width=16, heads=2)
BASIC = [
    "nope",
    "learned",
    "grid",
    'grid(how="sum")',
    "sinusoidal_nd",
    "axial(base=100.0)",
    "mixed",
    "alibi_2d",
    "swin",
    "rope",
    "grid + axial",
]
EXACT = 1e-12
"""float64, sums of some hundred numbers of size 1."""
TOLD = {}


class Seen(Encoding):
    """Two axes, and nothing done: it keeps the places that it is told."""

    axes = 2

    def embed(self, x, pos):
        TOLD["embed"] = pos
        return x

    def key(self, k, pos):
        TOLD["key"] = pos
        return k


def made(spec, shape=SHAPE):
    return Encoder(shape, spec).start(3).double()


def tokens(shape=SHAPE, batch=2, seed=0):
    return torch.randn(
        batch,
        math.prod(shape.sides),
        shape.channels,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(seed),
    )


def test_a_place_is_a_row_and_a_column_and_tokens_come_row_by_row():
    made(f"{__name__}:Seen")(tokens())
    for where in ("embed", "key"):
        rows, columns = TOLD[where][:, 0]
        assert rows.tolist() == [n // 5 for n in range(15)] and columns.tolist() == [n % 5 for n in range(15)]


@pytest.mark.parametrize("spec", BASIC)
def test_weights_outside_the_encoding_are_the_same_for_every_encoding(spec):
    mine, plain = made(spec).state_dict(), made("nope").state_dict()
    assert plain.keys() == {name for name in mine if ".enc." not in name}
    assert all(torch.equal(mine[name], value) for name, value in plain.items())
    other = Encoder(SHAPE, spec).start(4).double().state_dict()
    assert not torch.equal(other["blocks.0.qkv.weight"], mine["blocks.0.qkv.weight"])


@pytest.mark.parametrize("spec", ["grid", "sinusoidal_nd", "axial(base=100.0)", "mixed", "alibi_2d", "swin"])
def test_tokens_in_another_order_with_their_places_are_the_same_image(spec):
    """Every token sees every other, and only its place says where it is."""
    model, x, pos = made(spec), tokens(), grid(*SHAPE.sides)
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (model(x[:, order], pos[..., order]) - model(x, pos)).abs().max() < EXACT
        assert (model(x[:, order], pos) - model(x, pos)).abs().max() > 1e-4  # it is the place that counts


def test_without_positions_an_image_is_a_bag_of_patches():
    model, x = made("nope"), tokens()
    with torch.no_grad():
        assert (model(x.flip(1)) - model(x)).abs().max() < EXACT


def test_rows_taken_for_columns_are_seen():
    """The same image on its side is another one, unless axes are swapped too: the mistake that a square grid hides."""
    model, pos = made("axial(base=(10.0, 1000.0))"), grid(*SHAPE.sides)
    with torch.no_grad():
        right, swapped = model(tokens(), pos), model(tokens(), pos.flip(0))
    assert (right - swapped).abs().max() > 1e-3


def test_learned_and_grid_are_one_model_at_the_trained_grid_and_two_elsewhere():
    one, two, x = made("learned"), made("grid"), tokens()
    with torch.no_grad():
        assert torch.equal(one(x), two(x))
        small = EncoderShape((2, 4), 4, 7)
        y = tokens(small)
        a, b = one.on_grid(2, 4), two.on_grid(2, 4)
        assert (a(y) - b(y)).abs().max() > 1e-3
        assert torch.allclose(
            a.embedded(y, a.layouts(y)[0]) - a.tokens(y), one.encodings[0].table[:8], atol=EXACT
        )  # its first rows, as they come


# -- other grids
# --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", [(6, 10), (2, 4), (3, 7)])
def test_a_grid_s_table_is_resized_and_the_source_stays(sides):
    model = made("grid")
    before = model.encodings[0].table.clone()
    other = model.on_grid(*sides)
    assert torch.equal(other.encodings[0].table, resize_table(before, source=(3, 5), target=sides))
    assert torch.equal(model.encodings[0].table, before) and model.sides == (3, 5)
    with torch.no_grad():
        assert other(tokens(EncoderShape(sides, 4, 7))).shape == (2, 7)


def test_tables_of_rows_and_of_columns_are_resized_each_along_itself():
    model = made('grid(how="sum")')
    other = model.on_grid(6, 4)
    rows, columns = model.encodings[0].table.split([3, 5])
    for mine, table in zip(other.encodings[0].table.split([6, 4]), (rows, columns), strict=True):
        assert torch.equal(mine, resize_table(table, source=(len(table),), target=(len(mine),)))


def test_the_part_of_a_sum_that_is_a_table_is_resized():
    other = made("grid + axial").on_grid(6, 10)
    assert [type(part).__name__ for part in other.encodings[0].parts] == ["Grid", "Axial"] and other.encodings[0].parts[
        0
    ].sides == (6, 10)


@pytest.mark.parametrize("spec", BASIC)
def test_the_trained_grid_changes_nothing(spec):
    model, x = made(spec), tokens()
    with torch.no_grad():
        assert torch.equal(model.on_grid(3, 5)(x), model(x))


def test_only_tables_end():
    assert {spec for spec in BASIC if made(spec).on_grid(6, 10).ends()} == {"learned", "swin"}
    assert not any(made(spec).on_grid(2, 4).ends() for spec in BASIC)
    assert made("swin").on_grid(2, 6).ends()  # fewer places, and one axis too long


# -- bad input
# ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("axial(axes=3, split=(2, 2, 4))", "for places of 3 axes, and these have 2: write axes=2"),
        ("grid(sides=(14, 14))", "a table for 14 x 14 places, and the model is trained on 3 x 5: leave sides= out"),
        ("cope", "has no meaning for keys after the query"),
        ("learned + axial", "count places on different numbers of axes"),
        ("axal", "did you mean 'axial'"),
        (["grid", "sinusoidal_nd"], "mixes position into the embedding, which is done once"),
        (["axial"], "a model of 2 layers wants one encoding, or 2; got 1"),
    ],
)
def test_what_does_not_fit_is_said(spec, said):
    with pytest.raises(ValueError, match=said):
        Encoder(SHAPE, spec)


def test_a_shape_that_can_not_be_is_said():
    for sizes in ({"sides": (15,)}, {"sides": (0, 3)}, {"sides": (3, 5), "width": 6}):
        with pytest.raises(ValueError, match="two axes or more"):
            EncoderShape(**{"channels": 4, "classes": 7, "heads": 2, **sizes})


def test_tokens_of_another_grid_are_said():
    with pytest.raises(ValueError, match="14 tokens were given for a grid of 3 x 5"):
        made("axial")(tokens()[:, :14])


# -- on disk
# ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", BASIC)
def test_a_saved_encoder_is_the_same_model(spec, tmp_path):
    model = Encoder(SHAPE, spec).start(1)
    back = checkpoint.load_encoder(checkpoint.save(model, tmp_path / "one", classes=["a"]))
    x = tokens().float()
    with torch.no_grad():
        assert torch.equal(back(x), model(x)) and back.shape == SHAPE and isinstance(back, Encoder)


def test_an_encoder_is_not_taken_for_a_model_of_text(tmp_path):
    checkpoint.save(Encoder(SHAPE, "grid"), tmp_path)
    with pytest.raises(ValueError, match=r"holds no lab model: model\.json is not there"):
        lab.load(tmp_path)
    (tmp_path / "encoder.json").write_text('{"shape": {"sides": [3, 5], "colour": 1}, "encodings": []}')
    with pytest.raises(ValueError, match="no whole lab model"):
        checkpoint.load_encoder(tmp_path)
