"""Vision models of transformers against milepost: tables of ViT and DINOv2, biases of Swin and Swin v2, rotations of
Qwen-VL, Pixtral, DINOv3 and Llama 4.
"""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from torch import Tensor, nn

from milepost import Axial, Grid, Layout, MRoPE, SinusoidalND, Swin, SwinV2, attend, resize_table
from milepost.positions import augmented, grid, multimodal, normalised, prefixed
from milepost.testing import randomised_copy

transformers = importlib.import_module("transformers")


def peer(name: str):
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gap(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def room(reach: float, norm: float) -> float:
    """The peers' angles are float32: off by its rounding of the angle, and a few roundings of the product."""
    return 2.0**-24 * (2 * reach + 16) * norm


SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "num_channels": 1,
    "patch_size": 2,
}


def vit(sides: tuple[int, int]):
    made = transformers.ViTModel(transformers.ViTConfig(image_size=(2 * sides[0], 2 * sides[1]), **SMALL)).eval()
    nn.init.normal_(made.embeddings.position_embeddings)
    return made


# -- tables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", [(4, 4), (3, 5)])
@torch.no_grad()
def test_a_grid_with_a_class_token_is_the_table_of_vit(sides):
    model = vit(sides)
    enc = Grid(width=16, sides=sides, prefix=1)
    enc.table.copy_(model.embeddings.position_embeddings[0])
    pixels = torch.randn(2, 1, 2 * sides[0], 2 * sides[1])
    theirs = model.embeddings(pixels)
    patches = model.embeddings.patch_embeddings(pixels)
    x = torch.cat([model.embeddings.cls_token.expand(2, -1, -1), patches], dim=1)
    assert torch.equal(enc.embed(x, prefixed(grid(*sides), 1)), theirs)


@torch.no_grad()
def test_registers_of_dinov2_come_after_the_class_token_and_get_nothing():
    config = transformers.Dinov2WithRegistersConfig(
        image_size=8, num_register_tokens=3, **{k: v for k, v in SMALL.items() if k != "intermediate_size"}
    )
    model = peer("dinov2_with_registers").Dinov2WithRegistersEmbeddings(config).eval()
    for p in model.parameters():
        p.normal_()
    enc = Grid(width=16, sides=(4, 4), prefix=1, bare=3)
    enc.table.copy_(model.position_embeddings[0])
    pixels = torch.randn(1, 1, 8, 8)
    x = torch.cat([model.cls_token, model.register_tokens, model.patch_embeddings(pixels)], dim=1)
    assert torch.equal(enc.embed(x, prefixed(grid(4, 4), 4)), model(pixels))


@pytest.mark.parametrize("target", [(4, 4), (7, 7), (6, 3), (2, 8), (5, 12)])
@torch.no_grad()
def test_a_square_table_is_resized_as_vit_and_dinov2_do_it(target):
    old = vit((4, 4)).embeddings
    new = resize_table(old.position_embeddings, source=(4, 4), target=target, prefix=1)
    tokens = torch.zeros(1, 1 + target[0] * target[1], 16)
    assert torch.equal(new, old.interpolate_pos_encoding(tokens, 2 * target[0], 2 * target[1]))
    config = transformers.Dinov2Config(image_size=8, **{k: v for k, v in SMALL.items() if k != "intermediate_size"})
    dino = peer("dinov2").Dinov2Embeddings(config)
    dino.position_embeddings.copy_(old.position_embeddings)
    assert torch.equal(new, dino.interpolate_pos_encoding(tokens, 2 * target[0], 2 * target[1]))
    half = dino.bfloat16().interpolate_pos_encoding(tokens, 2 * target[0], 2 * target[1])
    assert torch.equal(resize_table(old.position_embeddings.bfloat16(), source=(4, 4), target=target, prefix=1), half)


@torch.no_grad()
def test_a_table_of_another_shape_is_where_transformers_goes_wrong():
    table = vit((2, 8)).embeddings  # trained on 2 x 8
    said = table.interpolate_pos_encoding(
        torch.zeros(1, 17, 16), 8, 8
    )  # asked for 4 x 4: as many cells, so it is not resampled at all
    assert torch.equal(said, table.position_embeddings)
    assert gap(resize_table(table.position_embeddings, source=(2, 8), target=(4, 4), prefix=1), said) > 0.1
    said = table.interpolate_pos_encoding(torch.zeros(1, 37, 16), 12, 12)  # asked for 6 x 6: 2 x 8 is read as 4 x 4
    assert torch.equal(said, resize_table(table.position_embeddings, source=(4, 4), target=(6, 6), prefix=1))
    assert gap(resize_table(table.position_embeddings, source=(2, 8), target=(6, 6), prefix=1), said) > 0.1


@pytest.mark.parametrize("sides", [(4, 4), (3, 6)])
def test_codes_of_vit_mae_in_transformers_are_rows_first_unlike_the_authors(sides):
    theirs = peer("vit_mae").build_2d_sinusoidal_position_embedding(*sides, embed_dim=24)
    enc = SinusoidalND(24, order="halves")
    assert gap(theirs, enc.code(grid(*sides))[0]) <= room(0, 1.0)  # made in float64, rounded once
    assert gap(theirs, enc.code(grid(*sides).flip(0))[0]) > 1  # the authors' checkpoints hold columns first


@pytest.mark.parametrize("sides", [(4, 4), (3, 6)])
def test_codes_of_detr_are_rows_first_and_count_from_one(sides):
    made = peer("detr").DetrSinePositionEmbedding(num_position_features=12)
    theirs = made.build_sine_position_embedding((1, 1, *sides), "cpu", torch.float32, 12)
    assert gap(theirs.flatten(2).transpose(1, 2), SinusoidalND(24).code(grid(*sides) + 1)) <= room(max(sides) + 1, 1.0)


# -- biases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", [(7, 7), (3, 5)])
@torch.no_grad()
def test_the_bias_of_swin(sides):
    theirs = peer("swin").SwinRelativePositionBias(3, sides)
    theirs.relative_position_bias_table.normal_()
    enc = Swin(3, sides=sides)
    enc.table.copy_(theirs.relative_position_bias_table)
    n = sides[0] * sides[1]
    q, k, v = torch.randn(3, 2, 3, n, 8).unbind()
    logits = q @ k.transpose(-1, -2) / 8**0.5 + theirs()
    got = attend(q, k, v, enc, at=Layout.dense(n).with_positions(grid(*sides)), causal=False, details=True)
    assert gap(got.logits, logits) <= 2.0**-23 * 16 * logits.abs().max().item()
    assert gap(got.output, torch.softmax(logits, dim=-1) @ v) <= 2.0**-23 * 64 * v.abs().max().item()


@pytest.mark.parametrize(("window", "trained"), [((4, 4), (0, 0)), ((6, 6), (4, 4)), ((3, 5), (0, 0))])
@torch.no_grad()
def test_the_attention_of_swin_v2(window, trained):
    config = transformers.Swinv2Config()
    theirs = peer("swinv2").Swinv2SelfAttention(config, 24, 3, list(window), list(trained)).eval()
    for p in theirs.continuous_position_bias_mlp.parameters():
        p.normal_(std=0.3)
    enc = SwinV2(3, trained=trained if trained[0] else window)
    enc.inner.load_state_dict(theirs.continuous_position_bias_mlp[0].state_dict())
    enc.outer.load_state_dict(theirs.continuous_position_bias_mlp[2].state_dict())
    n = window[0] * window[1]
    x = torch.randn(2, n, 24)
    q, k, v = (part(x).view(2, n, 3, 8).transpose(1, 2) for part in (theirs.query, theirs.key, theirs.value))
    warm = theirs.logit_scale.clamp(max=math.log(100)).exp()
    ours = attend(
        nn.functional.normalize(q, dim=-1) * warm,
        nn.functional.normalize(k, dim=-1),
        v,
        enc,
        at=Layout.dense(n).with_positions(grid(*window)),
        causal=False,
        scale=1.0,
    )
    assert (
        gap(ours.transpose(1, 2).flatten(-2), theirs(x)[0]) < 2.0**-23 * 1000
    )  # biases go up to 16, through a network of 512


# -- rotations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", [(5, 5), (3, 9)])
def test_the_eye_of_qwen2_vl_is_axial(sides):
    modeling = peer("qwen2_vl")
    config = transformers.Qwen2VLConfig(vision_config={"embed_dim": 32, "num_heads": 2, "depth": 1}).vision_config
    rotary = modeling.Qwen2VLVisionRotaryEmbedding(config)
    n = sides[0] * sides[1]
    q = torch.randn(n, 2, 16)
    cos, sin = rotary(q, grid(*sides)[:, 0].T)
    theirs, _ = modeling.apply_rotary_pos_emb_vision(q, q, cos, sin)
    ours = Axial(16).query(q.transpose(0, 1)[None], grid(*sides))
    assert gap(ours[0].transpose(0, 1), theirs) <= room(max(sides), q.abs().max().item())


@pytest.mark.parametrize("sides", [(5, 5), (3, 9)])
def test_pixtral_deals_one_spectrum_out_to_rows_and_columns(sides):
    modeling = peer("pixtral")
    config = transformers.PixtralVisionConfig(hidden_size=32, num_attention_heads=2, head_dim=16)
    n = sides[0] * sides[1]
    q = torch.randn(1, 2, n, 16)
    cos, sin = modeling.PixtralVisionRotaryEmbedding(config)(q, grid(*sides)[:, 0].T)
    theirs, _ = modeling.apply_rotary_pos_emb(q, q, cos, sin, unsqueeze_dim=0)
    enc = Axial(16, spectra="dealt", base=config.rope_parameters["rope_theta"])
    assert gap(enc.query(q, grid(*sides)), theirs) <= room(max(sides), q.abs().max().item())
    assert gap(Axial(16).query(q, grid(*sides)), theirs) > 0.1


def test_dinov3_moves_and_stretches_its_places_in_training_as_we_do():
    modeling, sides = peer("dinov3_vit"), (4, 7)
    centres = modeling.get_patches_center_coordinates(*sides, torch.float64, torch.device("cpu"))
    for drawn in (
        {"shift": 0.3},
        {"jitter": 1.5},
        {"rescale": 2.0},
        {"shift": 0.3, "jitter": 1.5, "rescale": 2.0},
    ):
        torch.manual_seed(3)
        theirs = modeling.augment_patches_center_coordinates(centres, **drawn)
        torch.manual_seed(3)
        ours = augmented(normalised(*sides), **drawn)
        assert (ours[:, 0].T - theirs).abs().max() <= 8 * 2.0**-52 * 4, drawn  # the same draws, in the same order
        assert (ours - normalised(*sides)).abs().max() > 1e-2


@pytest.mark.parametrize("sides", [(4, 4), (3, 7)])
def test_dinov3_turns_patches_by_normalised_places_and_leaves_the_others(sides):
    modeling = peer("dinov3_vit")
    config = transformers.DINOv3ViTConfig(hidden_size=32, num_attention_heads=2, patch_size=2)
    cos, sin = modeling.DINOv3ViTRopePositionEmbedding(config).eval()(torch.zeros(1, 3, 2 * sides[0], 2 * sides[1]))
    q = torch.randn(1, 2, 5 + sides[0] * sides[1], 16)
    theirs, _ = modeling.apply_rotary_pos_emb(q, q, cos, sin)
    pos = prefixed(normalised(*sides, reach=math.tau), 5, place="zero")
    assert gap(Axial(16, base=100.0).query(q, pos), theirs) <= room(8, q.abs().max().item())


def test_the_eye_of_llama_4_counts_columns_first_from_one():
    modeling = peer("llama4")
    config = transformers.Llama4VisionConfig(hidden_size=32, num_attention_heads=2, image_size=10, patch_size=2)
    q = torch.randn(1, 26, 2, 16)
    theirs, _ = modeling.vision_apply_rotary_emb(q, q, modeling.Llama4VisionRotaryEmbedding(config)(q))
    pos = torch.cat(
        [grid(5, 5).flip(0) + 1, torch.zeros(2, 1, 1, dtype=torch.long)], dim=-1
    )  # the class token is the last
    ours = Axial(16, pairing="interleaved", base=config.rope_parameters["rope_theta"]).query(q.transpose(1, 2), pos)
    assert gap(ours.transpose(1, 2), theirs) <= room(6, q.abs().max().item())


TEXT = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    "vocab_size": 64,
}


@pytest.mark.parametrize(
    ("name", "cls", "sections", "order"),
    [
        ("qwen2_vl", "Qwen2VLRotaryEmbedding", (4, 6, 6), "chunked"),
        ("qwen3_vl", "Qwen3VLTextRotaryEmbedding", (6, 5, 5), "interleaved"),
    ],
)
def test_mrope_of_qwen(name, cls, sections, order):
    modeling = peer(name)
    made = {"qwen2_vl": "Qwen2VLConfig", "qwen3_vl": "Qwen3VLConfig"}[name]
    parameters = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": list(sections)}
    config = getattr(transformers, made)(
        text_config={**TEXT, "head_dim": 32, "rope_parameters": parameters}
    ).text_config
    pos = multimodal(3, (2, 5), 2, (3, 2, 2), 4)
    q = torch.randn(1, 2, pos.shape[-1], 32)
    cos, sin = getattr(modeling, cls)(config)(q, pos)
    theirs, _ = modeling.apply_rotary_pos_emb(q, q, cos, sin)
    enc = MRoPE(32, sections=sections, order=order, base=1e6)
    assert gap(enc.query(q, pos), theirs) <= room(int(pos.max()), q.abs().max().item())
    assert gap(MRoPE(32, sections=(6, 5, 5), order="chunked", base=1e6).query(q, pos), theirs) > 0.1


def rope_index(parts):
    """What Qwen2-VL's own code makes of the same parts."""
    modeling = peer("qwen2_vl")
    config = transformers.Qwen2VLConfig(
        text_config=TEXT, vision_config={"embed_dim": 16, "num_heads": 2, "depth": 1, "spatial_merge_size": 2}
    )
    kinds, images, videos = [], [], []
    for part in parts:
        sides = (part,) if isinstance(part, int) else part
        kinds += [{1: 0, 2: 1, 3: 2}[len(sides)]] * math.prod(sides)
        if len(sides) == 2:
            images.append([1, 2 * sides[0], 2 * sides[1]])
        elif len(sides) == 3:
            videos.append([sides[0], 2 * sides[1], 2 * sides[2]])
    model = modeling.Qwen2VLModel.__new__(modeling.Qwen2VLModel)
    nn.Module.__init__(model)
    model.config = config
    kinds = torch.tensor(kinds)[None]
    return model.get_rope_index(
        torch.zeros_like(kinds),
        kinds,
        torch.tensor(images) if images else None,
        torch.tensor(videos) if videos else None,
    )


@pytest.mark.parametrize(
    "parts", [(3, (2, 5), 4), ((4, 4), 2), (1, (3, 2), 1, (1, 6), 2, (2, 3, 4), 5), (2, (3, 3, 2), 1)]
)
def test_places_of_text_with_images_are_those_of_qwen2_vl(parts):
    theirs, delta = rope_index(parts)
    ours = multimodal(*parts)
    assert torch.equal(ours, theirs)
    assert int(ours.max()) + 1 == ours.shape[-1] + int(delta[0])  # where generation goes on


def test_after_a_long_video_transformers_counts_text_into_it():
    parts = (2, (5, 2, 2), 3)  # more frames than rows or columns
    theirs, _ = rope_index(parts)
    ours = multimodal(*parts)
    assert torch.equal(ours[..., :22], theirs[..., :22])
    assert ours[0, 0, 22:].tolist() == [7, 8, 9]  # after the last frame, at 6
    assert theirs[0, 0, 22:].tolist() == [4, 5, 6]  # among the frames


def test_pictures_are_attended_the_same_by_every_backend():
    enc = randomised_copy(Swin(2, sides=(4, 4))) + Axial(8)
    x = torch.randn(1, 2, 16, 8, dtype=torch.float64)
    pos = grid(4, 4)
    at = Layout.dense(16).with_positions(pos)
    with torch.no_grad():
        want, *others = (
            attend(x, x, x, enc, at=at, causal=False, backend=backend)
            for backend in ("reference", "chunked", "flex", "auto")
        )
    assert all(gap(want, other) < 1e-12 for other in others)
