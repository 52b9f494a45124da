"""The model: shapes, encodings per layer, caches, initial weights, and the file."""

import json

import pytest
import torch

from milepost import lab
from milepost.attention import BACKENDS
from milepost.lab import checkpoint
from milepost.lab.model import Decoder, Shape
from milepost.layout import Layout
from milepost.spec import build

SHAPE = Shape(vocabulary=64, layers=2, width=32, heads=2, length=24)
EVERY = (
    "nope",
    "integer",
    "binary",
    "sinusoidal",
    'sinusoidal(width=8, how="concat")',
    "learned",
    "shaw",
    "transformer_xl",
    "t5",
    "deberta",
    "alibi",
    "kerple",
    "sandwich",
    "fire",
    "cope",
    "pope",
    "xpos",
    "temperature",
    "fope",
    "learned_spectrum",
    "grape",
    "rope_id",
    "grape_additive",
    "ssmax",
    "rope",
    "rope + alibi",
    "learned + alibi",
    "rope(scaling=yarn(factor=2.0, trained=24))",
    "rope(scaling=staged(trained=8))",
    "self_extend(rope=rope, group=4, window=8)",
    "rerope(rope=rope, window=8)",
)
IDS = torch.randint(0, 64, (2, 24), generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=EVERY)
def spec(request):
    return request.param


@torch.no_grad()
def test_logits_have_the_shape_of_the_tokens_and_no_token_sees_the_next(spec):
    model = Decoder(SHAPE, spec).start(0).eval()
    logits = model(IDS)
    assert logits.shape == (2, 24, 64)
    other = IDS.clone()
    other[:, 12:] = (other[:, 12:] + 1) % 64
    assert torch.allclose(model(other)[:, :12], logits[:, :12], atol=1e-5)
    assert not torch.allclose(model(other)[:, 12:], logits[:, 12:], atol=1e-3)


@torch.no_grad()
def test_a_cached_decode_says_what_a_full_pass_says(spec):
    torch.manual_seed(3)
    model = Decoder(SHAPE, spec).double().eval()  # weights of size one: positions matter
    full, caches = model(IDS), model.caches()
    parts = [model(IDS[:, :9], caches=caches), *(model(IDS[:, n : n + 1], caches=caches) for n in range(9, 24))]
    gap = (torch.cat(parts, dim=1) - full).abs().max()
    assert gap < 1e-9  # float64 has 16 digits, logits here are below 10; fast paths keep tables in float64 too


@torch.no_grad()
@pytest.mark.parametrize("spec", ["nope", "rope", "alibi", "t5", "shaw"])
def test_any_backend_gives_the_same_logits(spec):
    model = Decoder(SHAPE, spec).start(1).eval()
    want = model(IDS, backend="reference")
    done = []
    for backend in BACKENDS:
        if backend == "flex":  # for GPUs; its forward is compared in tests/attention
            continue
        try:
            got = model(IDS, backend=backend)
        except ValueError as error:
            assert "can't do this" in str(error)
            continue
        assert torch.allclose(got, want, atol=1e-5)
        done.append(backend)
    assert {"auto", "reference", "chunked"} <= set(done)


def test_a_cache_chooses_its_own_backend():
    model = Decoder(SHAPE, "rope")
    with pytest.raises(ValueError, match="chooses its own backend"):
        model(IDS, caches=model.caches(), backend="reference")


@torch.no_grad()
def test_each_layer_can_have_an_encoding_of_its_own():
    model = Decoder(SHAPE, ["rope", "alibi"]).start(0).eval()
    assert [enc.spec_name() for enc in model.encodings] == ["rope", "alibi"]
    rope, alibi = (Decoder(SHAPE, spec).start(0).eval() for spec in ("rope", "alibi"))
    x = rope.blocks[0](model.tokens(IDS), Layout.dense(24))
    want = model.head(model.norm(alibi.blocks[1](x, Layout.dense(24))))
    assert torch.equal(model(IDS), want)


def test_the_embedding_is_the_first_layers_alone():
    model = Decoder(SHAPE, "learned + alibi")
    assert [repr(enc) for enc in model.encodings] == ["learned(length=24, width=32) + alibi(heads=2)", "alibi(heads=2)"]
    assert sum("table" in name for name, _ in model.named_parameters()) == 1
    with pytest.raises(ValueError, match="give it to layer 0"):
        Decoder(SHAPE, ["rope", "learned"])
    with pytest.raises(ValueError, match="2 layers wants one encoding, or 2; got 3"):
        Decoder(SHAPE, ["rope"] * 3)


@torch.no_grad()
def test_an_embedding_that_depends_on_the_length_is_for_the_length_at_hand():
    model = Decoder(SHAPE, 'integer(over="length")').start(0).eval()
    plain = Decoder(SHAPE, "integer(over=24.0)").start(0).eval()
    assert model.length_dependent
    assert torch.equal(model(IDS), plain(IDS))
    with pytest.raises(ValueError, match="without caches"):
        model(IDS, caches=model.caches())


@torch.no_grad()
def test_a_number_added_to_all_channels_is_what_layer_norm_takes_away():
    """So the integer code is no position at all to this model: `integer` and `nope` are the same experiment, up to rounding."""
    logits = [Decoder(SHAPE, spec).start(0).double().eval()(IDS) for spec in ("nope", "integer")]
    assert torch.allclose(*logits, atol=1e-9)


def test_all_encodings_start_from_the_same_weights():
    plain = Decoder(SHAPE, "nope").start(5)
    for spec in EVERY:
        model = Decoder(SHAPE, spec).start(5)
        for name, value in plain.named_parameters():
            mine = model.get_parameter(name)
            assert torch.equal(mine, value[:, : mine.shape[1]] if name == "tokens.weight" else value), (spec, name)


def test_the_seed_alone_decides_the_weights_of_the_encoding_too(spec):
    torch.manual_seed(1)
    a = Decoder(SHAPE, spec).start(5).state_dict()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    b = Decoder(SHAPE, spec)
    torch.set_rng_state(before)
    b = b.start(5).state_dict()
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's random numbers are touched
    assert all(torch.equal(a[name], b[name]) for name in a)
    c = Decoder(SHAPE, spec).start(6).state_dict()
    drawn = [name for name in a if "norm" not in name and not name.endswith("bias") and ".enc." not in name]
    assert all(not torch.equal(a[name], c[name]) for name in drawn)


def test_a_learned_table_is_another_one_for_another_seed():
    tables = [Decoder(SHAPE, "learned").start(seed).encodings[0].table for seed in (0, 0, 1)]
    assert torch.equal(tables[0], tables[1]) and not torch.equal(tables[0], tables[2])


@torch.no_grad()
def test_the_same_weights_under_another_encoding():
    model = Decoder(SHAPE, "rope").start(0)
    other = model.with_encoding("rope(base=500.0)")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in other.state_dict().items())
    assert not torch.equal(other(IDS), model(IDS))
    assert torch.equal(model.with_encoding("rope")(IDS), model(IDS))
    with pytest.raises(ValueError, match="has parameters of its own"):
        model.with_encoding("learned")


def test_where_a_text_must_end():
    assert Decoder(SHAPE, "learned").end == 24
    assert Decoder(SHAPE, "rope").end is None
    with pytest.raises(ValueError, match="past the end"):
        Decoder(SHAPE, "learned")(torch.zeros(1, 25, dtype=torch.int64))


def test_sizes_that_make_no_model():
    with pytest.raises(ValueError, match="multiple of twice its heads"):
        Shape(width=30, heads=4)
    with pytest.raises(ValueError, match="leaves none"):
        Decoder(SHAPE, 'sinusoidal(how="concat")')  # as wide as the embedding itself


# -- on disk ------------------------------------------------------------------------------------------------------------------------------


def test_a_saved_model_is_the_same_model(spec, tmp_path):
    model = Decoder(SHAPE, spec).start(0).eval()
    back = lab.load(checkpoint.save(model, tmp_path / "model", steps=3))
    assert back.specs == model.specs and back.shape == SHAPE and not back.training
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in model.state_dict().items())
    assert torch.equal(back(IDS), model(IDS))
    assert json.loads((tmp_path / "model" / "model.json").read_text())["steps"] == 3
    assert not list((tmp_path / "model").glob(".*"))


def test_the_spec_stands_in_the_weights_file_too(tmp_path):
    from safetensors import safe_open

    checkpoint.save(Decoder(SHAPE, ["rope", "alibi"]), tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        about = json.loads(file.metadata()["milepost"])
    assert about["encodings"] == ["rope", "alibi"]
    assert repr(build(about["encodings"][0], head_dim=16)) == "rope(head_dim=16)"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "model.json").unlink(), "holds no lab model: model.json is not there"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is not there"),
        (lambda folder: (folder / "model.json").write_text("{"), "no whole lab model"),
        (lambda folder: (folder / "model.json").write_text("[]"), "no whole lab model"),
        (lambda folder: (folder / "model.json").write_bytes(b"\xff\xfe{"), "no whole lab model"),
        (lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]), "no whole lab model"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"hello"), "no whole lab model"),
        (lambda folder: checkpoint.save(Decoder(SHAPE, "learned"), folder) and _rename(folder, "rope"), "is not of the model in model.json"),
        (lambda folder: _rename(folder, "rpoe"), "did you mean 'rope'"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused_with_a_sentence(tmp_path, spoil, said):
    checkpoint.save(Decoder(SHAPE, "rope"), tmp_path)
    spoil(tmp_path)
    with pytest.raises(ValueError, match=said):
        lab.load(tmp_path)


def _rename(folder, spec):
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**about, "encodings": [spec, spec]}))
