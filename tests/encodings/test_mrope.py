"""M-RoPE: text alone is RoPE to the last bit; which pair is whose, by hand; places of text with images."""

import cmath
import functools
import importlib
import types

import pytest
import torch

from milepost import Layout, MRoPE, RoPE, attend, build
from milepost.lab.model import Decoder, Shape
from milepost.positions import multimodal, xd
from milepost.scaling import YaRN

T, H, W = 0, 1, 2


@pytest.mark.parametrize("order", ["chunked", "interleaved", "tail", "balanced"])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary", [None, 12])
def test_text_alone_is_rope_to_the_last_bit(order, pairing, rotary):
    enc, plain = (
        MRoPE(24, order=order, pairing=pairing, rotary=rotary, base=1e6),
        RoPE(24, pairing=pairing, rotary=rotary, base=1e6),
    )
    x, pos = torch.randn(2, 3, 6, 24), torch.tensor([[0, 1, 2, 255, 257, 1048575], [3, 4, 5, 6, 131071, 9]])
    for told in (pos, pos.expand(3, -1, -1)):
        assert torch.equal(enc.query(x, told), plain.query(x, pos)) and torch.equal(enc.key(x, told), plain.key(x, pos))
    assert torch.equal(enc.key(x, pos[0]), plain.key(x, pos[0]))


def test_a_scaling_is_that_of_rope():
    yarn = YaRN(4.0, 128)
    enc, plain = MRoPE(24, rotary=16, scaling=yarn), RoPE(24, rotary=16, scaling=yarn)
    x, pos = torch.randn(1, 2, 5, 24), torch.tensor([0, 1, 127, 128, 511])
    assert torch.equal(enc.query(x, pos), plain.query(x, pos)) and torch.equal(enc.key(x, pos), plain.key(x, pos))
    assert not enc.rotation


def test_whose_pair_it_is():
    assert MRoPE(128, sections=(16, 24, 24)).axis_of_pair == (T,) * 16 + (H,) * 24 + (W,) * 24
    assert MRoPE(128).axis_of_pair == MRoPE(128, sections=(16, 24, 24)).axis_of_pair
    assert MRoPE(256, rotary=64, sections=(11, 11, 10)).axis_of_pair == (T,) * 11 + (H,) * 11 + (W,) * 10
    interleaved = MRoPE(256, rotary=64, sections=(11, 11, 10), order="interleaved").axis_of_pair
    assert interleaved == (T, H, W) * 10 + (T, H)
    qwen3 = MRoPE(128, sections=(24, 20, 20), order="interleaved").axis_of_pair
    assert qwen3 == (T, H, W) * 20 + (T,) * 4


def test_whose_pair_it_is_in_ernie_bailing_and_pangu():
    assert MRoPE(128, sections=(20, 22, 22), order="tail").axis_of_pair == (H, W) * 22 + (T,) * 20
    assert MRoPE(12, sections=(2, 2, 2), order="tail").axis_of_pair == (H, W, H, W, T, T)  # as vLLM's own test has it
    for sections, want in (  # what vLLM's own list gives for openPangu
        ((8, 12, 12), "01212012120121201201212012120120"),
        ((24, 20, 20), "0120120120120120120120102012012012012012012010201201201201201200"),
        ((3, 3, 2), "01210210"),
        ((1, 2, 2), "12120"),
        ((5, 3), "01010100"),
    ):
        enc = MRoPE(2 * sum(sections), sections=sections, order="balanced")
        assert "".join(map(str, enc.axis_of_pair)) == want
    with pytest.raises(ValueError, match=r"equal sections, got \(2, 3, 1\)"):
        MRoPE(12, sections=(2, 3, 1), order="tail")
    with pytest.raises(ValueError, match=r"needs one at least, got \(0, 3, 3\)"):
        MRoPE(12, sections=(0, 3, 3), order="balanced")


@pytest.mark.parametrize("order", ["chunked", "interleaved", "tail", "balanced"])
def test_each_pair_turns_by_its_axis(order):
    enc = MRoPE(16, sections=(4, 2, 2) if order == "tail" else (3, 3, 2), order=order)
    whose = {
        "chunked": [T, T, T, H, H, H, W, W],
        "interleaved": [T, H, W, T, H, W, T, H],
        "tail": [H, W, H, W, T, T, T, T],
        "balanced": [T, H, W, H, T, W, H, T],
    }[order]
    pos = [[0, 5, 131071], [7, 257, 2], [1, 3, 1048575]]
    x = torch.randn(1, 1, 3, 16, dtype=torch.float64)
    y = enc.query(x, torch.tensor(pos)[:, None])
    for t in range(3):
        for i, axis in enumerate(whose):
            z = complex(x[0, 0, t, i], x[0, 0, t, i + 8])
            want = z * cmath.exp(1j * pos[axis][t] * 10000 ** (-i / 8))
            assert abs(complex(y[0, 0, t, i], y[0, 0, t, i + 8]) - want) <= 8 * 2.0**-52 * (1 + pos[axis][t]) * abs(
                z
            ), (t, i)


def turned(enc: MRoPE, cos: torch.Tensor, sin: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """``x`` (B H L D) by tables of whole heads (B L D), as transformers applies them: neighbours, or halves."""
    half = x.shape[-1] // 2
    if enc.pairing == "interleaved":
        other = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    else:
        other = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos[:, None] + other * sin[:, None]


PLACES = torch.tensor([[3, 3, 3, 3, 9, 200], [3, 4, 5, 3, 9, 200], [3, 3, 4, 7, 9, 200]])[:, None]


def test_ernie_turns_as_we_do():
    peer = importlib.import_module("transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe")
    transformers = importlib.import_module("transformers")
    rope = {"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [22, 22, 20]}
    config = transformers.Ernie4_5_VLMoeTextConfig(
        hidden_size=256, num_attention_heads=2, head_dim=128, rope_parameters=rope, num_hidden_layers=1
    )
    ours = MRoPE(128, sections=(20, 22, 22), order="tail", base=500000.0, pairing="interleaved")
    x = torch.randn(1, 2, 6, 128)
    theirs = turned(ours, *peer.Ernie4_5_VLMoeTextRotaryEmbedding(config)(x, PLACES), x)
    off = (ours.query(x, PLACES) - theirs).abs().max()
    assert off <= 4 * 200 * 2**-24 * 2 * x.abs().max()  # their angles are float32
    chunked = MRoPE(128, sections=(20, 22, 22), base=500000.0, pairing="interleaved")
    assert (chunked.query(x, PLACES) - theirs).abs().max() > 0.1


def hunyuan(sections: list[int]) -> object:
    peer = importlib.import_module("transformers.models.hunyuan_vl.modeling_hunyuan_vl")
    transformers = importlib.import_module("transformers")
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": sections}
    config = transformers.HunYuanVLTextConfig(
        hidden_size=256, num_attention_heads=2, head_dim=128, rope_parameters=rope, num_hidden_layers=1
    )
    return peer.HunYuanVLRotaryEmbedding(config)


def test_transformers_turns_the_partners_of_xd_by_different_axes():
    ours, x = MRoPE(128, sections=(16, 16, 16, 16)), torch.randn(1, 2, 6, 128)
    text = torch.tensor([[0, 1, 2, 77, 255, 300]]).expand(4, 1, -1)
    off = (ours.query(x, text) - turned(ours, *hunyuan([16] * 4)(x, text), x)).abs().max()
    assert off <= 4 * 300 * 2**-24 * 2 * x.abs().max()  # texts are alike
    image = torch.cat([PLACES, PLACES[:1] * 0], dim=0)
    theirs = turned(ours, *hunyuan([16] * 4)(x, image), x)
    assert (theirs.norm(dim=-1) - x.norm(dim=-1)).abs().max() > 0.1, "peer fixed it: move to parity"
    assert (ours.query(x, image).norm(dim=-1) - x.norm(dim=-1)).abs().max() < 1e-4


def test_places_on_the_four_axes_of_xd():
    pos = xd(2, (2, 1), 1, (1, 2), 1)[:, 0].tolist()
    assert pos[0] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert pos[1] == [0, 1, 0, 1, 0, 1, 6, 0, 1, 2, 10]  # columns, the one that ends a row too
    assert pos[2] == [0, 1, 0, 0, 1, 1, 6, 0, 0, 0, 10]  # rows
    assert pos[3] == [0, 1, 0, 0, 0, 0, 6, 1, 1, 1, 10]  # images
    for wrong in ((), ((2,), (0, 1)), ((1, 2, 3),), (True,), ("3",)):
        with pytest.raises(
            ValueError, match=r"a part is a number of text tokens or \(rows, columns\)|nothing to place"
        ):
            xd(*wrong)


def test_hunyuan_places_its_images_as_we_do():
    peer = importlib.import_module("transformers.models.hunyuan_vl.modeling_hunyuan_vl")
    model, rope = peer.HunYuanVLModel, {"mrope_section": [16] * 4}
    fake = types.SimpleNamespace(
        config=types.SimpleNamespace(
            text_config=types.SimpleNamespace(rope_parameters=rope),
            vision_config=types.SimpleNamespace(spatial_merge_size=2),
        )
    )
    fake.get_vision_position_ids = functools.partial(model.get_vision_position_ids, fake)
    want = xd(3, (2, 3), 2, (4, 1), 2)
    kinds = torch.tensor([[0] * 3 + [1] * 8 + [0] * 2 + [1] * 8 + [0] * 2])
    sides = torch.tensor([[1, 4, 6], [1, 8, 2]])
    got, _ = model.get_rope_index(fake, torch.zeros(1, 23, dtype=torch.long), kinds, sides)
    assert torch.equal(got, want)


def test_places_of_text_an_image_text_a_video_and_text():
    pos = multimodal(2, (2, 3), 1, (2, 1, 2), 2)[:, 0].tolist()
    assert pos[T] == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 6, 7, 7, 8, 9]
    assert pos[H] == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 6, 6, 6, 8, 9]
    assert pos[W] == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9]


@pytest.mark.parametrize(("image", "next_at"), [((4, 6), 9), ((6, 4), 9), ((1, 1), 4), ((2, 20), 23), ((7, 2, 3), 10)])
def test_an_image_advances_by_its_longer_side(image, next_at):
    pos = multimodal(3, image, 2)
    assert pos[:, 0, -2].tolist() == [next_at] * 3 and int(pos[:, :, :-2].max()) == next_at - 1


def test_a_picture_is_moved_by_the_text_before_it_and_looks_the_same():
    enc = MRoPE(16)
    x = torch.randn(1, 2, 12, 16, dtype=torch.float64)
    one, two = (
        attend(x, x, x, enc, at=Layout.dense(12).with_positions(p))
        for p in (multimodal((3, 4)), multimodal((3, 4), start=1000))
    )
    assert (one - two).abs().max() < 64 * 2.0**-52 * 1000


@pytest.mark.parametrize("part", [0, -1, (2,) * 4, (2, 0), True, 1.5, "text", ()])
def test_parts_that_are_none_are_refused(part):
    with pytest.raises(ValueError, match="a part is a number of text tokens"):
        multimodal(1, part)
    with pytest.raises(ValueError, match="nothing to place"):
        multimodal()


def test_the_lab_reads_text_with_it_and_refuses_other_encodings_of_space():
    torch.manual_seed(0)
    shape, ids = Shape(256, 2, 32, 2, 16), torch.randint(256, (1, 12))
    assert torch.equal(Decoder(shape, "mrope").start(0)(ids), Decoder(shape, "rope").start(0)(ids))
    for spec in ("axial", "grid", "swin", "alibi_2d", "rope + axial"):
        with pytest.raises(ValueError, match="is for places of 2 axes, such as patches of an image, and text has one"):
            Decoder(shape, spec)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 7}, "must be even"),
        ({"head_dim": 16, "sections": (3, 3, 3)}, r"add up to 8 \(half of 16 channels\); got \(3, 3, 3\)"),
        ({"head_dim": 16, "sections": (8,)}, "one for each axis"),
        ({"head_dim": 16, "sections": (4.0, 2, 2)}, "whole numbers of pairs"),
        ({"head_dim": 16, "sections": (1, 3, 4), "order": "interleaved"}, "can't be dealt in turn"),
        ({"head_dim": 16, "order": "chunks"}, "order must be"),
        ({"head_dim": 16, "base": 0.5}, "base must be"),
        ({"head_dim": 16, "scaling": 2.0}, "scaling must be one of"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MRoPE(**arguments)


def test_a_scaling_that_waits_for_the_length_is_refused():
    with pytest.raises(ValueError, match="does not depend on the length"):
        build("mrope(scaling=dynamic(trained=128))", head_dim=16)


def test_its_text_builds_it_again():
    text = "mrope(head_dim=128, sections=(24, 20, 20), order='interleaved', base=5000000.0)"
    assert repr(build(text)) == text
