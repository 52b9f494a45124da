"""A stack: text and objects there and back, which layer does what, what is refused; a decoder made of one."""

import pytest
import torch

from milepost import Layout, NoPE, RoPE, Stack, Sum, Temperature, attend, build
from milepost.lab.checkpoint import load, save
from milepost.lab.model import Decoder, Shape
from milepost.stack import Group, layer_of

SIZES = {"heads": 2, "head_dim": 8, "width": 16, "length": 64}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("layers(rope)", "layers(rope(head_dim=8))"),
        (
            "layers(3 * rope in window(16), temperature)",
            "layers(3 * rope(head_dim=8) in window(16), temperature(length=64))",
        ),
        (
            "layers(2 * (rope + alibi) in window(4), nope)",
            "layers(2 * (rope(head_dim=8) + alibi(heads=2)) in window(4), nope())",
        ),
        ("layers(rope + alibi, 1 * nope)", "layers(rope(head_dim=8) + alibi(heads=2), nope())"),
        ("layers(rope(head_dim=4), rope(base=5e5))", "layers(rope(head_dim=4), rope(head_dim=8, base=500000.0))"),
        ("layers(rope(scaling=linear(factor=2.0)))", "layers(rope(head_dim=8, scaling=linear(factor=2.0)))"),
        ("layers(logn, nope in window(1))", "layers(temperature(length=64, form='logn'), nope() in window(1))"),
    ],
)
def test_text_and_objects_go_there_and_back(given, text):
    made = build(given, **SIZES)
    assert isinstance(made, Stack) and repr(made) == text and repr(build(text)) == text


def test_the_pattern_repeats_and_every_layer_has_its_own_parameters():
    stack = build("layers(2 * t5 in window(5), rope, temperature)", **SIZES)
    assert stack.period == 4
    wanted = ["t5", "t5", "rope", "temperature"]
    for number in range(11):
        enc, window = stack.layer(number)
        assert type(enc).spec_name() == wanted[number % 4] and window == (5 if number % 4 < 2 else None)
    assert stack.layer(0)[0].table is not stack.layer(1)[0].table
    assert layer_of(stack, 6)[0].head_dim == 8 and layer_of(build("rope", **SIZES), 6)[1] is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("layers()", "encodings with commas between"),
        ("layers(rope, base=3)", "encodings with commas between"),
        ("layers(3 * rope + alibi)", r"written '3 \* \(rope \+ alibi\)'"),
        ("layers(0 * rope)", "whole number of at least 1, got 0"),
        ("layers('x' * rope)", "whole number of at least 1, got 'x'"),
        ("layers(True * rope)", "whole number of at least 1, got True"),
        ("layers(2000 * rope)", "from 1 to 1024 layers, got 2000"),
        ("layers(rope in 5)", r"written 'rope in window\(4096\)'"),
        ("layers(rope in window(0))", "at least 1, got 0"),
        ("layers(rope in window(1.5))", "at least 1, got 1.5"),
        ("layers(rope in window(n=4))", r"written 'rope in window\(4096\)'"),
        ("layers(rope not in window(4))", r"written 'rope in window\(4096\)'"),
        ("layers(rope in window(4) in window(3))", r"written 'rope in window\(4096\)'"),
        ("layers(ropee)", "did you mean 'rope'"),
        ("layers(layers(rope))", "can't|arguments are given by name"),
        ("rope + layers(rope)", "can't|arguments are given by name"),
    ],
)
def test_what_is_no_pattern_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        build(text, **SIZES)


def test_a_stack_is_never_taken_for_one_encoding():
    stack, x = build("layers(nope, rope)", **SIZES), torch.randn(1, 2, 4, 8)
    with pytest.raises(ValueError, match=r"differs from layer to layer: give each layer its own, stack\.layer\(n\)"):
        attend(x, x, x, stack)
    at = torch.arange(4)
    for use in (
        lambda: stack.query(x, at),
        lambda: stack.key(x, at),
        lambda: stack.embed(x[0], at),
        lambda: stack.check(Layout.dense(4)),
        lambda: stack.at(4),
    ):
        with pytest.raises(ValueError, match="differs from layer to layer"):
            use()
    with pytest.raises(ValueError, match="add the other encoding inside of them"):
        stack + RoPE(8)
    with pytest.raises(ValueError, match="no pattern inside"):
        Stack(Group(1, stack))


SHAPE = Shape(vocabulary=64, layers=5, width=32, heads=2, length=24)
TEXT = "layers(rope in window(4), temperature(length=8))"
IDS = torch.randint(0, 64, (2, 24), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_a_decoder_does_in_each_layer_what_the_pattern_says():
    model = Decoder(SHAPE, TEXT).start(0).eval()
    assert [repr(enc) for enc in model.encodings] == ["rope(head_dim=16)", "temperature(length=8)"] * 2 + [
        "rope(head_dim=16)"
    ]
    assert model.windows == [4, None, 4, None, 4]
    wide = Decoder(SHAPE, [repr(enc) for enc in model.encodings]).start(0).eval()
    wide.load_state_dict(model.state_dict())
    assert not torch.allclose(model(IDS), wide(IDS), atol=1e-3)  # the windows are at work
    x, at = model.tokens(IDS), Layout.dense(24)
    for number, block in enumerate(wide.blocks):
        x = block(x, at.windowed(4 if number % 2 == 0 else None))
    assert torch.allclose(model(IDS), wide.head(wide.norm(x)), atol=1e-5)


@torch.no_grad()
def test_it_decodes_what_it_reads_and_no_token_sees_the_next():
    model = Decoder(SHAPE, TEXT).start(0).eval()
    whole, caches = model(IDS), model.caches()
    parts = [model(IDS[:, a:b], caches=caches) for a, b in ((0, 9), *((t, t + 1) for t in range(9, 20)), (20, 24))]
    assert torch.allclose(torch.cat(parts, dim=1), whole, atol=1e-5)
    other = IDS.clone()
    other[:, 12:] = (other[:, 12:] + 1) % 64
    assert torch.allclose(model(other)[:, :12], whole[:, :12], atol=1e-5)


@torch.no_grad()
def test_local_layers_alone_see_no_further_than_their_windows_reach():
    model = Decoder(SHAPE, "layers(rope in window(4))").start(0).eval()
    other = IDS.clone()
    other[:, 2] = (other[:, 2] + 1) % 64
    reach = 2 + 5 * 3  # five layers, each three tokens back
    changed = (model(other) - model(IDS)).abs().amax((0, 2)) > 1e-6
    assert changed[2] and changed[reach] and not changed[reach + 1 :].any()


@torch.no_grad()
def test_a_model_of_layers_comes_back_from_disk(tmp_path):
    model = Decoder(SHAPE, TEXT).start(3).eval()
    save(model, tmp_path / "model")
    again = load(tmp_path / "model").eval()
    assert again.windows == model.windows and torch.equal(again(IDS), model(IDS))


def test_a_later_layer_that_embeds_is_refused():
    with pytest.raises(ValueError, match="of layer 1 mixes position into the embedding"):
        Decoder(SHAPE, "layers(rope, learned)")


def test_parts_are_what_was_given():
    stack = Stack(Group(3, RoPE(8), 16), Group(1, Sum(NoPE(), Temperature(64))))
    assert repr(stack) == "layers(3 * rope(head_dim=8) in window(16), nope() + temperature(length=64))"
