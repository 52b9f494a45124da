"""A fair start: tokens and codes have equal shares, whatever the code; and what trains what."""

import numpy as np
import pytest
import torch

import milepost
from milepost.encoding import parts_of
from milepost.lab import checkpoint
from milepost.lab.model import Decoder, Shape
from milepost.lab.space.encoder import Encoder, EncoderShape
from milepost.lab.training.linear import RoundedLinear, feed_forward, rounded_products
from milepost.lab.training.optimizers import ADAMW_RATE, MUON_RATE, Batched, Optimizers, split
from milepost.layout import Layout

SHAPE = Shape(256, 2, 96, 4, 64)
CODES = [
    "sinusoidal", "learned", "integer", "binary", 'integer(over="length")', 'sinusoidal(width=24, how="concat")',
    "learned + rope", "sinusoidal + alibi", "sinusoidal + learned",
]  # fmt: skip


@pytest.mark.parametrize("spec", CODES)
def test_the_code_has_the_variance_of_the_tokens(spec):
    model = Decoder(SHAPE, spec).start(3)
    enc = model.encodings[0]
    with torch.no_grad():
        code = model.code(enc) / model.code_spread
        tokens = model.tokens.weight.detach()
        both = model._embedded(torch.arange(256).view(4, 64), Layout.dense(64))
    assert float(code.var()) == pytest.approx(1.0, rel=2e-3)
    assert float(tokens.var()) == pytest.approx(1.0, rel=0.03)  # 256 x 96 draws: a deviation of 0.9%
    if enc.added_width == 0:  # what the first layer reads is the sum of both, each with half of the variance
        assert torch.allclose(both, tokens.view(4, 64, 96) + code, atol=1e-5)
        assert float(code.var() / both.var()) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("spec", ["nope", "rope", "t5", "alibi", "shaw"])
def test_an_encoding_without_a_code_leaves_the_tokens_alone(spec):
    model = Decoder(SHAPE, spec).start(3)
    ids = torch.arange(64)[None]
    assert model.code_spread == 1.0 and torch.equal(model._embedded(ids, Layout.dense(64)), model.tokens(ids))


def test_a_code_of_images_has_unit_variance_too():
    shape = EncoderShape((4, 4), 12, 10, 2, 32, 4)
    for spec in ("grid", "sinusoidal"):
        model = Encoder(shape, spec).start(0)
        with torch.no_grad():
            assert float(model.code(model.encodings[0]).std()) / model.code_spread == pytest.approx(1.0, rel=2e-3)


def test_what_is_outside_of_the_encoding_starts_the_same_for_every_encoding():
    first = Decoder(SHAPE, "nope").start(5).state_dict()
    for spec in ("learned", "t5", "rope", "shaw", "deberta"):
        other = Decoder(SHAPE, spec).start(5).state_dict()
        assert all(torch.equal(value, other[name]) for name, value in first.items())


def test_the_spread_of_a_code_is_stored_with_the_model_and_models_of_version_0_1_have_none(tmp_path):
    model = Decoder(SHAPE, "integer").start(1).eval()
    ids = torch.arange(64)[None]
    checkpoint.save(model, tmp_path)
    again = checkpoint.load(tmp_path)
    assert again.code_spread == model.code_spread > 10 and torch.equal(again(ids), model(ids))
    file = tmp_path / "model.json"
    file.write_text(file.read_text().replace('"code_spread"', '"something_else"'))
    assert checkpoint.load(tmp_path).code_spread == 1.0
    assert Decoder(SHAPE, "rope").start(1).with_encoding("nope").code_spread == 1.0


# -- optimizers


@pytest.mark.parametrize("spec", ["rope", "t5", "shaw", "deberta", "transformer_xl", "learned", "fire", "cope"])
def test_muon_trains_the_matrices_of_the_layers_alone(spec):
    model = Decoder(SHAPE, spec)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices, others = split(model)
    assert sorted(names[id(p)] for p in matrices) == sorted(
        f"blocks.{layer}.{name}.weight" for layer in range(2) for name in ("qkv", "out", "up", "down")
    )
    assert len(matrices) + len(others) == len(names)
    for enc in model.encodings:
        for part in parts_of(enc):
            assert not {id(p) for p in part.parameters()} & {id(p) for p in matrices}


class WithAnOut(milepost.Encoding):
    """A stranger's encoding, with a matrix that is called as one of a layer is."""

    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(4, 4)


def test_a_matrix_of_an_encoding_is_adamw_s_whatever_its_name():
    model = Decoder(SHAPE, "nope")
    model.blocks[0].enc = WithAnOut()
    matrices, others = split(model)
    assert len(matrices) == 8 and any(p is model.blocks[0].enc.out.weight for p in others)


def test_the_last_losses_are_those_of_the_whole_text():
    model = Decoder(SHAPE, "rope").start(0).eval()
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (3, 33)))
    with torch.no_grad():
        each = torch.nn.functional.cross_entropy(
            model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        )
        for count in (1, 7, 32):
            assert torch.allclose(model.last_losses(ids, count), each.view(3, 32)[:, -count:], atol=1e-5)


def test_both_optimizers_follow_one_schedule_and_nothing_decays_but_the_matrices():
    model = Decoder(SHAPE, "t5").start(0)
    optimizers = Optimizers(model)
    model(torch.zeros(1, 8, dtype=torch.int64)).sum().backward()
    optimizers.step(0.5)
    (muon, _), (adamw, _) = optimizers.both
    assert muon.param_groups[0]["lr"] == 0.5 * MUON_RATE and adamw.param_groups[0]["lr"] == 0.5 * ADAMW_RATE
    assert muon.param_groups[0]["weight_decay"] == 0.01 and adamw.param_groups[0]["weight_decay"] == 0.0
    assert all(parameter.grad is None for parameter in model.parameters())


# -- products of bfloat16


def test_a_rounded_product_and_its_gradients_are_those_of_rounded_numbers():
    torch.manual_seed(0)
    layer, exact = RoundedLinear(48, 32), RoundedLinear(48, 32).double()
    exact.load_state_dict({name: value.bfloat16().double() for name, value in layer.state_dict().items()})
    x = torch.randn(2, 7, 48, requires_grad=True)
    wide = x.detach().bfloat16().double().requires_grad_()
    out_grad = torch.randn(2, 7, 32)
    with rounded_products(layer, True):
        y = layer(x)
        y.backward(out_grad)
    z = exact(wide)
    z.backward(out_grad.bfloat16().double())
    ulp = 2.0**-8  # a result is rounded to bfloat16 once; the bias is added in float32
    pairs = (
        (y - layer.bias, z - exact.bias), (x.grad, wide.grad), (layer.weight.grad, exact.weight.grad),
    )  # fmt: skip
    for ours, theirs in pairs:
        assert ours.dtype == torch.float32
        assert torch.all((ours.double() - theirs).abs() <= ulp * theirs.abs() + 1e-4)
    assert torch.allclose(layer.bias.grad, out_grad.sum((0, 1)), atol=1e-5)


def test_a_rounded_feed_forward_part_and_its_gradients_stay_within_the_roundings_of_its_steps():
    torch.manual_seed(0)
    layers = torch.nn.ModuleList([RoundedLinear(24, 96), RoundedLinear(96, 24)])
    exact = torch.nn.ModuleList([RoundedLinear(24, 96), RoundedLinear(96, 24)]).double()
    exact.load_state_dict({name: value.bfloat16().double() for name, value in layers.state_dict().items()})
    (up, down), (wide_up, wide_down) = layers, exact
    x = torch.randn(2, 40, 24, requires_grad=True)
    out_grad = torch.randn(2, 40, 24)
    with rounded_products(layers, True):
        y = feed_forward(x, up, down)
        y.backward(out_grad)

    rows = x.detach().flatten(0, 1).bfloat16().double().requires_grad_()
    wanted = out_grad.flatten(0, 1).bfloat16().double()
    inner = wide_up(rows)
    hidden = torch.nn.functional.gelu(inner)
    z = wide_down(hidden)
    z.backward(wanted)
    ulp, slope, bend = 2.0**-8, 1.13, 0.8  # of bfloat16; the largest first and second derivatives of gelu
    to_hidden = (wanted @ wide_down.weight).abs()
    off_inner = ulp * inner.abs()
    off_hidden = slope * off_inner + ulp * hidden.abs()
    off_grad = to_hidden * (bend * off_inner + 2 * slope * ulp)
    bounds = (
        (y - down.bias, z - wide_down.bias, off_hidden @ wide_down.weight.abs().T),
        (x.grad, rows.grad, off_grad @ wide_up.weight.abs()),
        (up.weight.grad, wide_up.weight.grad, off_grad.T @ rows.abs()),
        (up.bias.grad, wide_up.bias.grad, off_grad.sum(0)),
        (down.weight.grad, wide_down.weight.grad, wanted.abs().T @ off_hidden),
    )
    for ours, theirs, bound in bounds:
        assert ours.dtype == torch.float32
        assert torch.all((ours.double().reshape(theirs.shape) - theirs).abs() <= bound + ulp * theirs.abs() + 1e-6)
        assert bound.mean() < 0.2 * theirs.abs().mean()  # a sign or a missing term would show
    assert torch.allclose(down.bias.grad, out_grad.sum((0, 1)), atol=1e-5)
    assert torch.equal(feed_forward(x, up, down), down(torch.nn.functional.gelu(up(x))))  # in float32, as it was


def test_products_are_of_float32_outside_of_training():
    model = Decoder(SHAPE, "rope").start(0)
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (1, 64)))
    before = model(ids)
    with rounded_products(model, True):
        assert not torch.equal(model(ids), before)
    assert torch.equal(model(ids), before)
    with pytest.raises(RuntimeError, match="stopped"), rounded_products(model, True):
        raise RuntimeError("stopped")
    assert torch.equal(model(ids), before)


def test_batched_matrices_step_as_torch_s_own_muon_does():
    torch.manual_seed(0)
    shapes = [(12, 36), (36, 12), (12, 36), (12, 12), (36, 12)]
    theirs = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    ours = [torch.nn.Parameter(parameter.detach().clone()) for parameter in theirs]
    about = {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.01}
    pair = torch.optim.Muon(theirs, **about), Batched(ours, **about)
    for _ in range(3):
        for one, other in zip(theirs, ours, strict=True):
            before = one.detach().clone()
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
            other.data.copy_(before)  # each step from the same numbers: what is compared is one step
        before = [one.detach().clone() for one in theirs]
        for optimizer in pair:
            optimizer.step()
        for start, one, other in zip(before, theirs, ours, strict=True):
            moved = (one - start).norm()
            # five iterations of three products in bfloat16, whose sums may go in another order
            assert (one - other).norm() <= 5 * 3 * 2**-8 * moved, one.shape
    states = [optimizer.state_dict() for optimizer in pair]
    for number, held in states[0]["state"].items():
        assert torch.equal(held["momentum_buffer"], states[1]["state"][number]["momentum_buffer"])
    pair[1].load_state_dict(states[0])  # runs that torch's own began go on with this one
