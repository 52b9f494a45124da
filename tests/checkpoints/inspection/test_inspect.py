"""`inspect`: tiny checkpoints of every family, held to what the loaded transformers model really has; what tensors say;
bad input.

Weights are random, then made random again: nothing may depend on how transformers initialises.
"""

from __future__ import annotations

import importlib
import json
import math
import struct
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_writer import gguf_bytes
from planted_tables import NEAR, noise, planted, walk
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from milepost.checkpoints import Inspection, inspect
from milepost.checkpoints.inspection.families import mpt_slopes, published_slopes
from milepost.cli import app
from milepost.encodings.alibi import slopes
from milepost.lab.checkpoint import save
from milepost.lab.model import Decoder, Shape
from milepost.rope import ConfigError
from milepost.spectrum import geometric

transformers = importlib.import_module("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore", module="transformers")

TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    **TOKENS,
}
SHARED = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 256}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64}
LINES = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
ROTARY: dict[str, dict[str, Any]] = {
    "llama": SHARED | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "mistral": SHARED | {"sliding_window": 16},
    "mistral, no window": SHARED | {"sliding_window": None},
    "qwen2": SHARED | {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
    "qwen2, yarn": SHARED | {"rope_parameters": YARN},
    "qwen3": SHARED | {"head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "gemma2": SHARED | {"head_dim": 16, "sliding_window": 16},
    "gemma3_text": SHARED | {"head_dim": 16, "sliding_window": 16, "num_hidden_layers": 7},
    "phi3": SHARED | {"sliding_window": 16},
    "gpt_neox": SMALL | {"max_position_embeddings": 128, "hidden_size": 64},
    "gptj": {"vocab_size": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "rotary_dim": 8, **TOKENS},
    "falcon": SMALL | {"alibi": False},
    "modernbert": SMALL | {"cls_token_id": 1, "sep_token_id": 2, "local_attention": 32},
}
LLAMA2 = {
    "context_length": 4096,
    "embedding_length": 4096,
    "block_count": 32,
    "attention.head_count": 32,
    "rope.dimension_count": 128,
    "rope.freq_base": 1e4,
}
QWEN = {
    "context_length": 131072,
    "embedding_length": 3584,
    "block_count": 28,
    "attention.head_count": 28,
    "rope.freq_base": 1e6,
}
QWEN_YARN = {
    **QWEN,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32768,
}
LEARNED: dict[str, tuple[dict[str, Any], str, int, int]] = {
    "gpt2": (
        {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96, **TOKENS},
        "wpe.weight",
        96,
        96,
    ),
    "opt": (
        SMALL | {"max_position_embeddings": 96, "ffn_dim": 48, "word_embed_proj_dim": 32},
        "decoder.embed_positions.weight",
        98,
        96,
    ),
    "bert": (SMALL | {"max_position_embeddings": 96}, "embeddings.position_embeddings.weight", 96, 96),
    "roberta": (
        SMALL | {"max_position_embeddings": 98, "pad_token_id": 1},
        "embeddings.position_embeddings.weight",
        98,
        96,
    ),
}


def made(folder: Path, kind: str, given: dict[str, Any], **how: Any) -> Any:
    """A tiny model of a kind in a folder, every parameter random; and the model as transformers loads it again."""
    config = transformers.AutoConfig.for_model(kind.split(",", maxsplit=1)[0], **given)
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    model.save_pretrained(folder, **how)
    return transformers.AutoModel.from_pretrained(folder).eval()


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(f.relative_to(folder)): (f.stat().st_mtime_ns, f.read_bytes())
        for f in sorted(folder.rglob("*"))
        if f.is_file()
    }


# -- every family, held to the model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ROTARY)
def test_a_rotary_family(tmp_path, kind):
    model = made(tmp_path, kind, ROTARY[kind])
    found = inspect(tmp_path)
    config, name = model.config, kind.split(",")[0]
    assert (found.family, found.known, found.where) == (name, True, ("q and k",))
    assert len(found.layers) == config.num_hidden_layers
    buffers = dict(model.named_buffers())
    for layer in found.layers:
        assert layer.scheme == "rope"
        part = next(
            (b for n, b in buffers.items() if n.endswith(f"rotary_emb.{layer.kind}_inv_freq")),
            buffers.get("rotary_emb.inv_freq"),
        )
        if part is not None and layer.scaling == "none":
            assert torch.allclose(
                geometric(layer.rotary, layer.base).tensor(), part.double(), rtol=1e-6, atol=0
            )  # float32 powers: a few of 2^-24
    if name == "gptj":  # sin and cos, side by side
        table = model.h[0].attn.embed_positions[7].double()
        assert torch.allclose((geometric(8, found.layers[0].base).tensor() * 7).sin(), table[:4], atol=1e-6)
    assert {layer.pairing for layer in found.layers} == {"interleaved" if name == "gptj" else "half"}
    live = [
        getattr(part, "sliding_window", None)
        for n, part in model.named_modules()
        if n.endswith(("self_attn", "attn", "attention")) and "." in n
    ]
    if name == "modernbert":  # there it is one more than half of both sides
        live = [None if window is None else 2 * (window - 1) for window in live]
    if name in ("mistral", "phi3"):  # the mask reads the config
        live = [config.sliding_window] * config.num_hidden_layers
    assert [layer.window for layer in found.layers] == live
    assert found.served.tokens == config.max_position_embeddings


def test_a_scaling_and_its_temperature_are_those_of_the_model(tmp_path):
    model = made(tmp_path, "qwen2", ROTARY["qwen2, yarn"])
    found = inspect(tmp_path)
    assert found.layers[0].temperature == pytest.approx(model.rotary_emb.attention_scaling**2, rel=1e-12)
    assert "yarn(factor=4.0" in found.layers[0].scaling
    assert (found.trained.tokens, found.scaled.tokens, found.served.tokens) == (64, 256, 256)
    assert found.trained.source == "rope_parameters.original_max_position_embeddings"
    assert not any("pairs meet angles" in warning for warning in found.warnings)
    beyond = inspect(tmp_path, target_length=4096)
    assert beyond.analysis[0].unseen_pairs and any("pairs meet angles" in warning for warning in beyond.warnings)


@pytest.mark.parametrize("kind", LEARNED)
def test_a_learned_table(tmp_path, kind):
    given, tensor, rows, usable = LEARNED[kind]
    model = made(tmp_path, kind, given)
    found = inspect(tmp_path)
    [table] = found.tables
    live = model.get_parameter(tensor)
    assert (table.rows, table.width) == tuple(live.shape) == (rows, 32)
    assert (table.usable, table.offset) == (usable, rows - usable)
    assert table.tensor is not None and table.tensor.endswith(tensor.split(".", 1)[-1])
    assert (found.family, found.where, {layer.scheme for layer in found.layers}) == (kind, ("the embedding",), {"none"})
    assert found.trained.tokens == found.served.tokens == usable
    ids = torch.full((1, usable + 1), 5)
    with torch.no_grad():
        model(ids[:, :-1])  # the usable length is read
        with pytest.raises((IndexError, RuntimeError)):
            model(ids)  # and not one more
    past = inspect(tmp_path / "config.json", target_length=usable + 1)
    assert f"positions {usable} to {usable} have no row" in past.warnings[-1]
    assert past.tables[0].rows == rows  # from the config alone


@pytest.mark.parametrize("heads", [4, 6])
def test_bloom(tmp_path, heads):
    model = made(
        tmp_path, "bloom", {"vocab_size": 64, "hidden_size": 24 * heads // 4, "n_layer": 2, "n_head": heads, **TOKENS}
    )
    found = inspect(tmp_path)
    live = model.build_alibi_tensor(torch.ones(1, 3), heads, torch.float32)[:, 0, 1]
    assert torch.allclose(torch.tensor(found.layers[0].slopes), live, rtol=1e-6)
    assert (found.where, [layer.scheme for layer in found.layers]) == (("logits, by position",), ["alibi"] * 2)


@pytest.mark.parametrize("heads", [4, 6])
def test_mpt(tmp_path, heads):
    model = made(
        tmp_path,
        "mpt",
        {"vocab_size": 64, "d_model": 8 * heads, "n_layers": 2, "n_heads": heads, "max_seq_len": 64, **TOKENS},
    )
    found = inspect(tmp_path)
    bias = model.build_mpt_alibi_tensor(heads, 64)[:, 0]
    assert torch.allclose(torch.tensor(found.layers[1].slopes), bias[:, -1] - bias[:, -2], rtol=1e-6)
    assert found.served.tokens == 64 and any("max_seq_len" in warning for warning in found.warnings)


def test_falcon_with_alibi(tmp_path):
    made(tmp_path, "falcon", SMALL | {"alibi": True, "num_attention_heads": 6, "hidden_size": 48})
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor

    found = inspect(tmp_path)
    live = build_alibi_tensor(torch.ones(1, 3), 6, torch.float32)[:, 0, 1]
    assert torch.allclose(torch.tensor(found.layers[0].slopes), live, rtol=2**-8)  # made in bfloat16
    assert any("2.828 times gentler" in warning for warning in found.warnings)


def test_slopes_for_any_number_of_heads():
    assert all(published_slopes(heads) == slopes(heads) for heads in range(1, 130))
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    for heads in (1, 2, 3, 5, 12, 40, 71):
        assert torch.allclose(torch.tensor(mpt_slopes(heads)), -build_mpt_alibi_tensor(heads, 2)[:, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["t5", "mt5"])
def test_t5(tmp_path, kind):
    sizes = {
        "vocab_size": 64,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 4,
    }
    model = made(tmp_path, kind, sizes | {"relative_attention_num_buckets": 16, "relative_attention_max_distance": 40})
    found = inspect(tmp_path)
    for stack, layers, both in (("encoder", 2, True), ("decoder", 3, False)):
        own = [layer for layer in found.layers if layer.stack == stack]
        live = getattr(model, stack).block[0].layer[0].SelfAttention
        assert len(own) == len(getattr(model, stack).block) == layers
        assert (
            {layer.buckets for layer in own}
            == {live.relative_attention_num_buckets}
            == {live.relative_attention_bias.weight.shape[0]}
            == {16}
        )
        assert {layer.max_distance for layer in own} == {live.relative_attention_max_distance} == {40}
        assert {layer.both_sides for layer in own} == {both}
    assert any("share the last bucket" in word for word in inspect(tmp_path, target_length=100).at_target)


@pytest.mark.parametrize("buckets", [-1, 8])
def test_deberta(tmp_path, buckets):
    given = {
        "relative_attention": True,
        "position_buckets": buckets,
        "pos_att_type": ["p2c", "c2p"],
        "max_position_embeddings": 48,
    }
    model = made(tmp_path, "deberta-v2", SMALL | given)
    found = inspect(tmp_path)
    assert {layer.rows for layer in found.layers} == {len(model.encoder.rel_embeddings.weight)}
    assert {layer.max_distance for layer in found.layers} == {
        model.encoder.layer[0].attention.self.max_relative_positions
    }
    assert {layer.buckets for layer in found.layers} == {None if buckets < 0 else buckets}
    assert found.tables[0].rows == len(model.embeddings.position_embeddings.weight)
    assert found.where == ("the embedding", "logits, by content too")
    bare = json.loads((tmp_path / "config.json").read_text()) | {"position_biased_input": False}
    (tmp_path / "config.json").write_text(json.dumps(bare))
    assert inspect(tmp_path / "config.json").tables == ()


@pytest.mark.parametrize("kind", ["vit", "dinov2"])
def test_images(tmp_path, kind):
    model = made(tmp_path, kind, LINES | {"image_size": [32, 48]} if kind == "vit" else LINES)
    found = inspect(tmp_path)
    [table] = found.tables
    assert table.rows == model.embeddings.position_embeddings.shape[1]
    assert table.grid == ((4, 6) if kind == "vit" else (4, 4))
    assert (table.prefix, table.width, found.where) == (1, 32, ("the embedding",))
    assert inspect(tmp_path, weights=True).weights.tables == ()


def test_swin(tmp_path):
    given = {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 8,
        "depths": [2, 2],
        "num_heads": [2, 2],
        "window_size": 4,
        "use_absolute_embeddings": True,
    }
    model = made(tmp_path, "swin", given)
    with torch.no_grad():
        model(torch.zeros(1, 3, 32, 32))  # it settles its windows as it runs
    found = inspect(tmp_path)
    blocks = [block for stage in model.encoder.layers for block in stage.blocks]
    assert [(layer.window, layer.shift) for layer in found.layers] == [
        (block.window_size, block.shift_size) for block in blocks
    ]
    live = [len(value) for name, value in model.named_parameters() if name.endswith("relative_position_bias_table")]
    assert [layer.rows for layer in found.layers] == live
    assert found.tables[0].rows == model.embeddings.position_embeddings.shape[1]


# -- what the tensors say --------------------------------------------------------------------------------------------


def with_table(folder: Path, ending: str, table: torch.Tensor) -> None:
    file = folder / "model.safetensors"
    held = load_file(file)
    [name] = [name for name in held if name.endswith(ending)]
    held[name] = table.to(held[name].dtype).contiguous()
    save_file(held, file, {"format": "pt"})


def test_a_gpt2_that_declares_512_and_trained_160(tmp_path):
    made(tmp_path, "gpt2", LEARNED["gpt2"][0] | {"n_positions": 512, "n_embd": 64})
    with_table(tmp_path, "wpe.weight", planted(160, 64))
    assert inspect(tmp_path).trained.tokens == 512
    found = inspect(tmp_path, weights=True, target_length=300)
    assert abs(found.trained.tokens - 160) <= NEAR and "the table itself" in found.trained.source
    assert found.served.tokens == 512
    assert any("declares 512 positions, and about 16" in warning for warning in found.warnings)
    assert any("never trained" in warning for warning in found.warnings)
    assert found.weights.tables[0].initial_norm == pytest.approx(0.02 * 8)


@pytest.mark.parametrize(("kind", "offset"), [("roberta", 2), ("opt", 2)])
def test_rows_before_the_first_position_are_not_counted(tmp_path, kind, offset):
    given = LEARNED[kind][0] | {"max_position_embeddings": 258 if kind == "roberta" else 256}
    made(tmp_path, kind, given)
    with_table(tmp_path, LEARNED[kind][1], torch.cat([noise(offset, 32, seed=9), walk(100, 32), noise(156, 32)]))
    found = inspect(tmp_path, weights=True)
    assert found.weights.tables[0].usable == 256
    assert abs(found.trained.tokens - 100) <= 2 * NEAR  # half the channels of the smallest table in test_trained_rows


def test_the_bucket_at_25_is_told_and_ordinary_ones_are_not(tmp_path):
    made(tmp_path, "t5", {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4})
    assert inspect(tmp_path, weights=True).weights.buckets == ()
    table = torch.randn(32, 4, generator=torch.Generator().manual_seed(0)) * 0.1 - 0.6
    table[31, 2] = 25.0
    with_table(tmp_path, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", table)
    found = inspect(tmp_path, weights=True)
    [one] = found.weights.buckets
    assert (one.stack, one.head, one.bucket, one.first, one.last) == ("decoder", 2, 31, 113, None)
    assert any("+25" in warning for warning in found.warnings)


def test_frequencies_that_were_saved_are_held_to_the_config(tmp_path):
    made(tmp_path, "llama", ROTARY["llama"])
    held = load_file(tmp_path / "model.safetensors")
    right = geometric(8, 5e5).tensor()
    for base, want in ((right, 0), (geometric(8, 1e4).tensor(), 1)):
        save_file(
            held | {"layers.0.self_attn.rotary_emb.inv_freq": base.bfloat16()},
            tmp_path / "model.safetensors",
            {"format": "pt"},
        )
        found = inspect(tmp_path, weights=True)
        assert len(found.weights.frequencies) == want
        assert any("engines follow the config" in warning for warning in found.warnings) == bool(want)


def test_a_model_without_tensors_of_positions_says_so(tmp_path):
    made(tmp_path, "llama", ROTARY["llama"])
    assert "computed, from the config alone" in inspect(tmp_path, weights=True).weights.word


def test_a_table_of_another_size_than_the_config_says(tmp_path):
    made(tmp_path, "gpt2", LEARNED["gpt2"][0])
    given = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(given | {"n_positions": 128}))
    found = inspect(tmp_path)
    assert found.tables[0].rows == 96 and any(
        "means 128 rows" in warning and "has 96" in warning for warning in found.warnings
    )


# -- what MODEL may be -----------------------------------------------------------------------------------------------


def test_sharded_weights(tmp_path):
    made(tmp_path / "one", "gpt2", LEARNED["gpt2"][0])
    made(tmp_path / "many", "gpt2", LEARNED["gpt2"][0], max_shard_size="20KB")
    assert (tmp_path / "many" / "model.safetensors.index.json").is_file()
    one, many = (inspect(tmp_path / name, weights=True).to_json() | {"model": ""} for name in ("one", "many"))
    assert one == many and one["weights"]["read"]


def gguf(path: Path, arch: str, keys: dict[str, Any], tensors: Any = ()) -> Path:
    path.write_bytes(gguf_bytes(arch, keys, tensors))
    return path


def test_gguf_of_a_rotary_model(tmp_path):
    file = gguf(tmp_path / "model.gguf", "qwen2", QWEN_YARN)
    found = inspect(file)
    assert (found.family, found.form, len(found.layers)) == ("qwen2", "gguf", 28)
    assert found.layers[0].pairing == "half" and "yarn" in found.layers[0].scaling
    assert (found.trained.tokens, found.served.tokens) == (32768, 131072)
    assert (found.trained.source, found.served.source) == (
        "qwen2.rope.scaling.original_context_length",
        "qwen2.context_length",
    )
    plain = inspect(gguf(tmp_path / "model.gguf", "llama", LLAMA2))
    assert (plain.layers[0].pairing, plain.trained.source) == ("interleaved", "llama.context_length")
    assert inspect(tmp_path).family == "llama"  # the folder's only file


def test_gguf_of_a_gpt2_with_its_table(tmp_path):
    table = planted(160, 64)
    keys = {"context_length": 512, "embedding_length": 64, "block_count": 2, "attention.head_count": 4}
    file = gguf(tmp_path / "model.gguf", "gpt2", keys, [("position_embd.weight", (64, 512), table.flatten().tolist())])
    found = inspect(file, weights=True)
    assert found.tables[0].rows == 512 and found.tables[0].source == "gpt2.context_length"
    assert abs(found.trained.tokens - 160) <= NEAR


def test_gguf_of_other_families(tmp_path):
    common = {"context_length": 64, "embedding_length": 48, "block_count": 2, "attention.head_count": 6}
    assert inspect(gguf(tmp_path / "a.gguf", "bloom", common)).layers[0].slopes == published_slopes(6)
    assert inspect(gguf(tmp_path / "b.gguf", "mpt", common)).layers[0].slopes == mpt_slopes(6)
    found = inspect(gguf(tmp_path / "c.gguf", "t5", common | {"attention.relative_buckets_count": 16}))
    assert {layer.buckets for layer in found.layers} == {16}
    other = inspect(gguf(tmp_path / "d.gguf", "mamba", common))
    assert not other.known and len(other.layers) == 2 and "'mamba' has no positions" in other.warnings[0]


def test_quantised_tensors_are_said_and_not_decoded(tmp_path):
    raw = bytearray(
        gguf_bytes("gpt2", {"context_length": 32, "block_count": 2}, [("position_embd.weight", (32, 32), [0.0] * 1024)])
    )
    at = raw.index(b"position_embd.weight") + len(b"position_embd.weight") + 4 + 16
    raw[at : at + 4] = struct.pack("<I", 8)  # Q8_0
    (tmp_path / "model.gguf").write_bytes(raw)
    found = inspect(tmp_path / "model.gguf", weights=True)
    assert found.weights.tables == () and any("not decoded" in warning for warning in found.warnings)


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes"])
def test_a_quantised_checkpoint(tmp_path, method):
    made(tmp_path, "gpt2", LEARNED["gpt2"][0])
    given = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(given | {"quantization_config": {"quant_method": method, "bits": 4}})
    )
    held = load_file(tmp_path / "model.safetensors")
    held["wpe.weight"] = torch.zeros(96, 32, dtype=torch.uint8)
    save_file(held, tmp_path / "model.safetensors")
    found = inspect(tmp_path, weights=True)
    assert found.weights.tables == ()
    assert any(method in warning for warning in found.warnings) and any(
        "wpe.weight is quantised (U8)" in warning for warning in found.warnings
    )


@pytest.mark.parametrize(
    "spec",
    [
        "rope(base=500.0, scaling=yarn(factor=4.0, trained=64))",
        "learned",
        "alibi",
        "t5",
        "learned + rope",
        "nope",
        "fire",
    ],
)
def test_a_lab_model(tmp_path, spec):
    model = Decoder(Shape(layers=2), spec)
    save(model, tmp_path, seed=0)
    found = inspect(tmp_path, weights=True)
    assert (found.form, inspect(tmp_path).trained.tokens, len(found.layers)) == ("lab", 64, 2)
    if "rope" in spec:
        live = next(part for part in model.blocks[1].enc.modules() if type(part).__name__ == "RoPE")
        assert found.layers[1].base == live.base and found.analysis[0].pairs[1].frequency == pytest.approx(
            live.spectrum.frequencies[1], rel=1e-12
        )
    if spec == "alibi":
        assert found.layers[0].slopes == slopes(4)
    if spec == "t5":
        assert (found.layers[0].buckets, len(found.weights.read)) == (32, 2)
    if "learned" in spec:
        assert found.tables[0].rows == 64 and found.weights.tables[0].trained == 0  # it was never trained
    assert found.layers[0].scheme == {"learned": "none", "learned + rope": "rope", "nope": "none"}.get(
        spec, spec.split("(")[0]
    )


def test_a_lab_run_names_its_models(tmp_path):
    save(Decoder(Shape(layers=1), "rope"), tmp_path / "trials" / "rope-0")
    with pytest.raises(ConfigError, match=r"holds 1 lab models: name one of their folders, such as .*rope-0"):
        inspect(tmp_path)


def test_an_unknown_family_is_said_to_be_unknown(tmp_path):
    made(tmp_path, "gpt2", LEARNED["gpt2"][0])
    given = {
        "model_type": "homegrown",
        "num_hidden_layers": 2,
        "max_position_embeddings": 96,
        "pos_bias": 3,
        "auto_map": {"AutoModel": "code.Mine"},
    }
    (tmp_path / "config.json").write_text(json.dumps(given))
    found = inspect(tmp_path)
    assert (found.family, found.known, found.where) == ("homegrown", False, ())
    assert found.found["max_position_embeddings"] == "96" and found.found["tensor wpe.weight"] == "1 of shape [96, 32]"
    assert any("not one that milepost knows" in warning for warning in found.warnings)
    assert any("auto_map" in warning and "not run" in warning for warning in found.warnings)
    turns = given | {"rope_theta": 1e4, "hidden_size": 32, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(turns))
    found = inspect(tmp_path)
    assert (found.known, found.layers[0].base) == (False, 1e4)


def test_a_model_inside_of_a_model(tmp_path):
    inner = {"model_type": "llama", "rope_theta": 1e4, **SHARED}
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "llava", "text_config": inner, "vision_config": {"model_type": "clip_vision_model"}})
    )
    found = inspect(tmp_path)
    assert found.family == "llama" and any("vision_config" in warning for warning in found.warnings)


# -- bad input -------------------------------------------------------------------------------------------------------


def cut(file: Path, keep: int) -> None:
    file.write_bytes(file.read_bytes()[:keep])


def damage(folder: Path, how: str) -> None:
    weights = folder / "model.safetensors"
    if how == "missing config":
        (folder / "config.json").unlink()
    elif how == "config is cut":
        cut(folder / "config.json", 40)
    elif how == "config is no object":
        (folder / "config.json").write_text("[1, 2]")
    elif how == "config is empty":
        (folder / "config.json").write_text("{}")
    elif how == "value is no number":
        (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_positions": "many"}))
    elif how == "header is cut":
        cut(weights, 100)
    elif how == "file is cut":
        cut(weights, weights.stat().st_size - 1)
    elif how == "first bytes only":
        cut(weights, 3)
    elif how == "header is no JSON":
        weights.write_bytes(struct.pack("<Q", 4) + b"????")
    elif how == "sizes can't be":
        weights.write_bytes(
            struct.pack("<Q", 66) + b'{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,8]}}'.ljust(66) + bytes(8)
        )
    elif how == "pointer":
        weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    elif how == "missing shard":
        index = {
            "weight_map": {"wpe.weight": "model-00001-of-00002.safetensors", "x": "model-00002-of-00002.safetensors"}
        }
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        weights.rename(folder / "model-00001-of-00002.safetensors")
    elif how == "index names another tensor":
        weights.rename(folder / "model-00001-of-00001.safetensors")
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"y": "model-00001-of-00001.safetensors"}})
        )
    elif how == "one file, and an index":
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"y": "model.safetensors"}}))
    elif how == "not finite":
        with_table(folder, "wpe.weight", torch.full((96, 32), math.nan))
    elif how == "only a pickle":
        weights.rename(folder / "pytorch_model.bin")
    elif how == "no weights":
        weights.unlink()


BAD = {
    "missing config": "holds none of config.json",
    "config is cut": "is not whole JSON",
    "config is no object": "must hold a JSON object",
    "config is empty": "says nothing about positions",
    "value is no number": "n_positions must be a whole number",
    "header is cut": "not a whole safetensors file",
    "file is cut": "incomplete metadata, file not fully covered",
    "first bytes only": "not a whole safetensors file",
    "header is no JSON": "invalid JSON in header",
    "sizes can't be": "invalid shape, data type, or offset for tensor",
    "pointer": "Git LFS pointer",
    "missing shard": "names 1 files that are not there, the first is 'model-00002",
    "index names another tensor": "don't agree about 1 tensors",
    "one file, and an index": "which of them holds the model? keep one",
    "not finite": "not finite",
    "only a pickle": "a pickle",
    "no weights": "has no weights",
}


@pytest.mark.parametrize("how", BAD)
def test_bad_input_is_one_sentence_and_leaves_all_as_it_was(tmp_path, how):
    made(tmp_path / "model", "gpt2", LEARNED["gpt2"][0])
    damage(tmp_path / "model", how)
    if how in ("missing config", "config is empty"):
        (tmp_path / "model" / "model.safetensors").unlink()
    before = snapshot(tmp_path)
    asked = (
        [] if how in ("config is empty", "header is cut", "file is cut", "missing shard") else ["--weights"]
    )  # a broken checkpoint is one without, too
    done = CliRunner().invoke(app, ["inspect", str(tmp_path / "model"), *asked, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2, done.output
    assert BAD[how] in done.output
    assert len(done.output.strip().splitlines()) == 1 and "Traceback" not in done.output
    assert snapshot(tmp_path) == before and not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", ["only a pickle", "no weights"])
def test_without_weights_a_config_is_enough(tmp_path, how):
    made(tmp_path, "gpt2", LEARNED["gpt2"][0])
    damage(tmp_path, how)
    found = inspect(tmp_path)
    assert found.tables[0].rows == 96 and any("pickle" in warning for warning in found.warnings) == (
        how == "only a pickle"
    )


def test_other_bad_input(tmp_path):
    for words, why in (
        (["nowhere.gguf"], "there is no file or folder"),
        ([str(tmp_path)], "holds none of config.json"),
        (["nowhere.json", "--target-length", "long"], "lengths are numbers"),
    ):
        done = CliRunner().invoke(app, ["inspect", *words])
        assert done.exit_code == 2 and why in done.output
    with pytest.raises(ValueError, match="number of tokens"):
        inspect("x", target_length=0)
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "llama", **SHARED, "rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}})
    )
    with pytest.raises(ConfigError, match="contradictory"):
        inspect(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    for folder in (tmp_path, tmp_path / "inside"):
        done = CliRunner().invoke(app, ["inspect", str(tmp_path), "--out", str(folder)])
        assert done.exit_code == 2 and "OUT (" in done.output
    (tmp_path / "config.json").unlink()
    shape = {"layers": 1, "width": 8, "heads": 2, "length": 16}
    for encodings in (
        None,
        [],
        ["rope("],
        ["1 + rope"],
        ["learned(length=rope)"],
        ["rope(base=0.5)"],
        ["rope(scaling=yarn(factor=4.0, trained=16, wrong=1))"],
    ):
        (tmp_path / "model.json").write_text(json.dumps({"shape": shape, "encodings": encodings}))
        with pytest.raises(ConfigError, match=r"model\.json"):
            inspect(tmp_path)


# -- the command, and what it shows ----------------------------------------------------------------------------------


def test_the_command_writes_a_report(tmp_path):
    made(tmp_path / "model", "qwen2", ROTARY["qwen2, yarn"])
    before = snapshot(tmp_path / "model")
    out = tmp_path / "new" / "out"
    done = CliRunner().invoke(
        app, ["inspect", str(tmp_path / "model"), "--target-length", "4k", "--out", str(out), "--json"]
    )
    assert done.exit_code == 0, done.output
    data = json.loads((out / "inspection.json").read_text())
    assert sorted(path.name for path in out.iterdir()) == ["inspection.json", "report.html", "report.md"]
    assert data["layers"][0]["base"] == 1e6 and data["analysis"][0]["unseen_pairs"] and data["provenance"]["versions"]
    assert json.loads(done.stdout) == data
    page, words = (out / "report.html").read_text(), (out / "report.md").read_text()
    assert "yarn(factor=4.0" in words and "yarn(factor=4.0" in page and "Turns of each pair" in page
    assert snapshot(tmp_path / "model") == before


def test_names_from_a_config_can_not_break_out_of_the_page(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "<script>alert(1)</script>|", "num_hidden_layers": 2, "n_ctx": 5})
    )
    found = inspect(tmp_path)
    assert "<script>" not in found._repr_html_()
    done = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert done.exit_code == 0 and "unknown to milepost" in done.output


@pytest.mark.parametrize("kind", ["t5", "swin", "bloom", "roberta"])
def test_every_kind_of_result_is_drawn(tmp_path, kind):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": kind, "n_head": 8} if kind == "bloom" else {"model_type": kind})
    )
    found = inspect(tmp_path, target_length=4096)
    assert isinstance(found, Inspection)
    json.dumps(found.to_json(), allow_nan=False)
    done = CliRunner().invoke(app, ["inspect", str(tmp_path), "--target-length", "4k"])
    assert done.exit_code == 0
    assert {"t5": "32 to distance", "swin": "shifted", "bloom": "8 heads", "roberta": "512"}[kind] in " ".join(
        done.output.split()
    )


@pytest.mark.parametrize(
    "names, slow",
    [
        (("hf", "table", "lab"), {"torch", "transformers"}),
        (("hf/config.json", "m.gguf"), {"torch", "transformers", "numpy", "safetensors"}),
    ],
    ids=["folders", "files"],
)
def test_neither_torch_nor_transformers_is_imported_without_weights(tmp_path, names, slow):
    made(tmp_path / "hf", "qwen2", ROTARY["qwen2"])
    made(tmp_path / "table", "roberta", LEARNED["roberta"][0])
    save(Decoder(Shape(layers=1), "rope(base=500.0, scaling=yarn(factor=4.0, trained=64))"), tmp_path / "lab")
    gguf(tmp_path / "m.gguf", "llama", LLAMA2)
    places = [str(tmp_path / name) for name in names]
    code = f"""
import sys
from milepost.cli import app
for place in {places!r}:
    try:
        app(["inspect", place, "--target-length", "8k"])
    except SystemExit as end:
        assert not end.code, end.code
sys.exit(3 if {slow!r} & set(sys.modules) else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_smollm3_none_of_whose_layers_turns_has_no_positions(tmp_path):
    config = {
        "model_type": "smollm3",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "max_position_embeddings": 512,
        "rope_theta": 1e4,
    }
    (tmp_path / "config.json").write_text(json.dumps(config | {"no_rope_layers": [0, 0, 0]}))
    found = inspect(tmp_path / "config.json")
    assert [layer.scheme for layer in found.layers] == ["none"] * 3 and found.where == () and not found.tables
    assert any("causal mask alone" in note for note in found.warnings) and found.trained.tokens == 512
    (tmp_path / "config.json").write_text(json.dumps(config | {"no_rope_layers": [0, 1, 0]}))
    assert [layer.scheme for layer in inspect(tmp_path / "config.json").layers] == ["none", "rope", "none"]
