"""Tiny real checkpoints resized: loaded in plain transformers, run beside the source, and bad input."""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from milepost import resize_table
from milepost.checkpoints import resize
from milepost.cli import app
from milepost.rope.engines.written import Refused

transformers = importlib.import_module("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

IMAGE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_channels": 1,
    "patch_size": 2,
    "image_size": 8,
    "initializer_range": 0.3,
}
TEXT = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
}
VIT = {**IMAGE, "intermediate_size": 16}


def save(folder: Path, name: str, config, **how) -> Path:
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "position_embeddings" in key:
                p.normal_()
    model.save_pretrained(folder, **how)
    return folder


@pytest.fixture
def vit(tmp_path) -> Path:
    return save(tmp_path / "vit", "ViTForImageClassification", transformers.ViTConfig(**VIT, num_labels=3))


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def run(*words: str):
    return CliRunner().invoke(app, ["resize", *map(str, words)])


FAMILIES = {
    "ViTModel": lambda: transformers.ViTConfig(**VIT),
    "DeiTModel": lambda: transformers.DeiTConfig(**VIT),
    "DeiTForImageClassificationWithTeacher": lambda: transformers.DeiTConfig(**VIT),
    "Dinov2Model": lambda: transformers.Dinov2Config(**IMAGE),
    "Dinov2WithRegistersModel": lambda: transformers.Dinov2WithRegistersConfig(**IMAGE, num_register_tokens=2),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("grid", [(6, 6), (3, 3)])
@torch.no_grad()
def test_the_written_model_equals_transformers_own_interpolation(name, grid, tmp_path):
    source = save(tmp_path / "old", name, FAMILIES[name]())
    before = digest(source)
    done = resize(source, grid=grid, out=tmp_path / "new")
    assert done.ok, done.checks
    assert [check["passed"] for check in done.checks] == [True, True, True]
    assert digest(source) == before and not list(tmp_path.glob(".*"))
    old, new = (getattr(transformers, name).from_pretrained(folder).eval() for folder in (source, tmp_path / "new"))
    assert new.config.image_size == 2 * grid[0]
    pixels = torch.randn(2, 1, 2 * grid[0], 2 * grid[1])
    how = {} if name.startswith("Dino") else {"interpolate_pos_encoding": True}
    assert torch.equal(new(pixels)[0], old(pixels, **how)[0])
    small = torch.randn(2, 1, 8, 8)
    assert not torch.allclose(old(small)[0], new(small, **how)[0], atol=1e-3)  # and not the table as it was


@pytest.mark.parametrize("name", ["ViTModel", "DeiTModel"])
@torch.no_grad()
def test_a_grid_that_is_no_square_is_written_and_read_back(name, tmp_path):
    source = save(tmp_path / "old", name, FAMILIES[name]())
    wide = resize(source, grid=(3, 6), out=tmp_path / "wide")
    assert wide.ok and [c["passed"] for c in wide.checks] == [True, True, True]
    old, new = (getattr(transformers, name).from_pretrained(folder).eval() for folder in (source, tmp_path / "wide"))
    assert list(new.config.image_size) == [6, 12]
    pixels = torch.randn(1, 1, 6, 12)
    assert torch.equal(new(pixels)[0], old(pixels, interpolate_pos_encoding=True)[0])
    prefix = 1 if name == "ViTModel" else 2
    again = resize(
        tmp_path / "wide", grid=(6, 3), out=tmp_path / "tall"
    )  # from 3 x 6, which transformers itself can't read
    assert again.ok and again.checks[2]["passed"] is None and again.source == (3, 6)
    third = getattr(transformers, name).from_pretrained(tmp_path / "tall")
    want = resize_table(new.embeddings.position_embeddings, source=(3, 6), target=(6, 3), prefix=prefix)
    assert torch.equal(third.embeddings.position_embeddings, want)


def test_dinov2_of_another_shape_is_refused_for_transformers_would_misread_it(tmp_path):
    source = save(tmp_path / "old", "Dinov2Model", FAMILIES["Dinov2Model"]())
    with pytest.raises(
        Refused, match="reads the table of dinov2 as a square, and resamples it by itself for an image of 4 x 9 patches"
    ):
        resize(source, grid=(4, 9), out=tmp_path / "new")
    config = json.loads((source / "config.json").read_text())
    odd = tmp_path / "odd"  # trained on 2 x 8: its grid is in the config, and a square may be made of it
    odd.mkdir()
    (odd / "config.json").write_text(json.dumps(config | {"image_size": [4, 16]}))
    save_file(load_file(source / "model.safetensors"), odd / "model.safetensors", metadata={"format": "pt"})
    done = resize(odd, grid=(4, 4), out=tmp_path / "square")
    table = load_file(source / "model.safetensors")[done.table]
    assert torch.equal(
        load_file(tmp_path / "square" / "model.safetensors")[done.table],
        resize_table(table, source=(2, 8), target=(4, 4), prefix=1),
    )
    assert (
        done.ok
        and done.checks[2]["passed"] is None
        and not torch.equal(table, load_file(tmp_path / "square" / "model.safetensors")[done.table])
    )


@pytest.mark.parametrize("how", [{"mode": "bilinear"}, {"antialias": True}])
def test_another_way_of_resampling_is_used_and_said(how, vit, tmp_path):
    done = resize(vit, grid=(3, 3), out=tmp_path / "new", **how)
    table = load_file(vit / "model.safetensors")[done.table]
    assert torch.equal(
        load_file(tmp_path / "new" / "model.safetensors")[done.table],
        resize_table(table, source=(4, 4), target=(3, 3), prefix=1, **how),
    )
    assert done.ok and done.checks[2]["passed"] is None and ("bilinear" in done.how or ", antialiased" in done.how)


def test_all_other_weights_keep_their_bits_and_sizes_of_processors_follow(vit, tmp_path):
    (vit / "preprocessor_config.json").write_text(
        json.dumps({"size": {"height": 8, "width": 8}, "crop_size": {"height": 6, "width": 6}})
    )
    (vit / "pytorch_model.bin").write_bytes(b"no")
    done = resize(vit, grid=(5, 7), out=tmp_path / "new")
    old, new = (load_file(folder / "model.safetensors") for folder in (vit, tmp_path / "new"))
    assert old.keys() == new.keys() and all(torch.equal(old[key], new[key]) for key in old if key != done.table)
    assert new[done.table].shape == (1, 36, 16) and torch.equal(new[done.table][:, 0], old[done.table][:, 0])
    said = json.loads((tmp_path / "new" / "preprocessor_config.json").read_text())
    assert said == {"size": {"height": 10, "width": 14}, "crop_size": {"height": 6, "width": 6}}
    assert (
        any("crop_size was" in note and "left so" in note for note in done.notes)
        and "pytorch_model.bin" in done.left_out
    )
    told = json.loads((tmp_path / "new" / "milepost.json").read_text())["resized"]
    assert told["target"] == [5, 7] and "alike" not in told, (
        "the picture's numbers have one home: milepost/resized.json"
    )
    assert done.changed == {"image_size": [8, [10, 14]]}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_half_and_is_resampled_in_float32(dtype, vit, tmp_path):
    tensors = {key: value.to(dtype) for key, value in load_file(vit / "model.safetensors").items()}
    save_file(tensors, vit / "model.safetensors", metadata={"format": "pt"})
    done = resize(vit, grid=(6, 6), out=tmp_path / "new")
    made = load_file(tmp_path / "new" / "model.safetensors")[done.table]
    assert done.ok and made.dtype == dtype
    assert torch.equal(
        made, resize_table(tensors[done.table].float(), source=(4, 4), target=(6, 6), prefix=1).to(dtype)
    )


def test_sharded_weights_stay_sharded(tmp_path):
    source = save(tmp_path / "old", "ViTModel", FAMILIES["ViTModel"](), max_shard_size="6KB")
    index = json.loads((source / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    assert resize(source, grid=(9, 9), out=tmp_path / "new").ok
    made = json.loads((tmp_path / "new" / "model.safetensors.index.json").read_text())
    assert made["weight_map"] == index["weight_map"]
    assert made["metadata"]["total_size"] - index["metadata"]["total_size"] == 4 * 16 * (81 - 16)


BERTS = {
    "BertModel": (lambda: transformers.BertConfig(**TEXT), 0),
    "RobertaForMaskedLM": (lambda: transformers.RobertaConfig(**{**TEXT, "max_position_embeddings": 34}), 2),
    "ElectraModel": (lambda: transformers.ElectraConfig(**TEXT, embedding_size=16), 0),
    "DistilBertModel": (
        lambda: transformers.DistilBertConfig(
            vocab_size=40, dim=16, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=32
        ),
        0,
    ),
}


@pytest.mark.parametrize("name", BERTS)
@torch.no_grad()
def test_a_text_table_is_stretched_and_reads_longer_texts(name, tmp_path):
    config, prefix = BERTS[name]
    source = save(tmp_path / "old", name, config())
    (source / "tokenizer_config.json").write_text('{"model_max_length": 32}')
    done = resize(source, length=48, out=tmp_path / "new")
    assert done.ok and [c["name"] for c in done.checks] == ["loads", "the table", "runs"]
    old, new = (load_file(folder / "model.safetensors")[done.table] for folder in (source, tmp_path / "new"))
    assert new.shape[0] == prefix + 48 and torch.equal(new[:prefix], old[:prefix])
    for p in range(48):  # middles of 48 cells on 32: by hand
        at = min(max((p + 0.5) * 32 / 48 - 0.5, 0.0), 31.0)
        low = int(at)
        want = old[prefix + low] * (1 - (at - low)) + old[prefix + min(low + 1, 31)] * (at - low)
        assert (new[prefix + p] - want).abs().max() < 1e-5
    model = getattr(transformers, name).from_pretrained(tmp_path / "new")
    assert (
        model.config.max_position_embeddings == prefix + 48
        and torch.isfinite(model(torch.randint(5, 40, (1, 48)))[0]).all()
    )
    assert json.loads((tmp_path / "new" / "tokenizer_config.json").read_text())["model_max_length"] == 48
    assert "measure, and tune" in done.notes[-1]


def test_stored_position_ids_of_old_checkpoints_are_left_out(tmp_path):
    source = save(tmp_path / "old", "BertModel", BERTS["BertModel"][0]())
    tensors = load_file(source / "model.safetensors") | {"embeddings.position_ids": torch.arange(32)[None]}
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    done = resize(source, length=64, out=tmp_path / "new")
    assert done.ok and "embeddings.position_ids" not in load_file(tmp_path / "new" / "model.safetensors")
    assert any("position_ids were left out" in note for note in done.notes)


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_command_prints_json_alone_or_a_table(vit, tmp_path):
    done = run(vit, "--grid", "6x6", "--out", tmp_path / "one", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert (
        data["ok"] and data["target"] == [6, 6] and data["source"] == [4, 4] and data["provenance"]["versions"]["torch"]
    )
    done = run(vit, "--grid", "6 X 3", "--out", tmp_path / "two")
    assert done.exit_code == 0 and "PASS" in done.stdout and "table of 4 x 4 for 6 x 3" in " ".join(done.stdout.split())


def test_help_has_an_example():
    done = run("--help")
    assert done.exit_code == 0 and "milepost resize path/to/vit --grid 24x24 --out vit-384" in " ".join(
        done.stdout.split()
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--grid", "24"], "rows x columns of patches, such as 24x24, got '24'"),
        (["--grid", "0x4"], "such as 24x24, got '0x4'"),
        (["--grid", "6x6x6"], "such as 24x24"),
        ([], "say either the new grid"),
        (["--grid", "6x6", "--length", "64"], "say either the new grid"),
        (["--length", "64", "--antialias"], "mode and antialias are for grids"),
    ],
)
def test_wrong_words_exit_with_two_and_a_sentence(words, said, vit, tmp_path):
    done = run(vit, *words, "--out", tmp_path / "new")
    assert done.exit_code == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


def change_config(folder: Path, **new) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | new))


def change_tensors(folder: Path, change) -> None:
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})


TABLE = "vit.embeddings.position_embeddings"
SPOILT = {
    "the config is of another grid": (
        lambda f: change_config(f, image_size=12),
        2,
        "6 x 6 cells and 1 rows before them make 37, and vit.embeddings",
    ),
    "the sides are exchanged for others": (
        lambda f: change_config(f, image_size=[4, 18]),
        2,
        "2 x 9 cells and 1 rows before them make 19",
    ),
    "no image size": (
        lambda f: change_config(f, image_size=None),
        2,
        "image_size in config.json must be a number of pixels, or two",
    ),
    "no table": (
        lambda f: change_tensors(f, lambda t: {k: v for k, v in t.items() if k != TABLE}),
        2,
        "must have one table of positions",
    ),
    "two tables": (
        lambda f: change_tensors(f, lambda t: t | {"other.embeddings.position_embeddings": t[TABLE].clone()}),
        2,
        "got 2: ",
    ),
    "quantised": (lambda f: change_config(f, quantization_config={"quant_method": "awq"}), 2, "the model is quantised"),
    "a table of integers": (
        lambda f: change_tensors(f, lambda t: t | {TABLE: t[TABLE].to(torch.int8)}),
        2,
        "stored as I8, which is quantised",
    ),
    "another family": (
        lambda f: change_config(f, model_type="llama"),
        1,
        "has no table of a grid that resize knows: it knows vit, deit",
    ),
    "a text model": (lambda f: change_config(f, model_type="bert"), 1, "this model takes --length"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), 2, "has no weights"),
    "cut short": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-100]),
        2,
        "not a whole safetensors file",
    ),
    "no config": (lambda f: (f / "config.json").unlink(), 2, "has no config.json"),
    "not finite": (lambda f: change_tensors(f, lambda t: t | {TABLE: t[TABLE] * float("nan")}), 2, "not finite"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_spoilt_source_is_refused_in_a_sentence(what, vit, tmp_path):
    spoil, code, said = SPOILT[what]
    spoil(vit)
    before = digest(vit)
    done = run(vit, "--grid", "5x5", "--out", tmp_path / "new", "--json")
    assert done.exit_code == code and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert json.loads(done.stdout)["refused"] if code == 1 else not done.stdout
    assert not (tmp_path / "new").exists() and digest(vit) == before and not list(tmp_path.glob(".*"))


def test_what_is_there_already_is_never_written_to(vit, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    for out, said in (
        (full, "is there already, and not an empty folder"),
        (vit, "is the source folder"),
        (vit / "inside", "or inside of it"),
    ):
        done = run(vit, "--grid", "5x5", "--out", out)
        assert done.exit_code == 2 and said in done.stderr
    assert (full / "mine.txt").read_text() == "mine"


def test_what_needs_no_resizing_is_refused(vit, tmp_path):
    done = run(vit, "--grid", "4x4", "--out", tmp_path / "new")
    assert done.exit_code == 1 and "the table is for 4 x 4 already" in done.stderr
    bert = save(tmp_path / "bert", "BertModel", BERTS["BertModel"][0]())
    done = run(bert, "--length", "16", "--out", tmp_path / "new")
    assert done.exit_code == 1 and "its first 16 serve a text of 16 tokens as they are" in done.stderr
    done = run(bert, "--grid", "5x5", "--out", tmp_path / "new")
    assert done.exit_code == 1 and "this model takes --length" in done.stderr


def test_a_folder_that_does_not_load_is_kept_and_says_so(vit, tmp_path):
    change_tensors(vit, lambda t: {k: v for k, v in t.items() if k != "classifier.bias"})
    done = run(vit, "--grid", "5x5", "--out", tmp_path / "new", "--json")
    data = json.loads(done.stdout)
    assert done.exit_code == 1 and not data["ok"] and "misses 1 weights" in data["checks"][0]["sentence"]
    assert (tmp_path / "new" / "config.json").is_file()
