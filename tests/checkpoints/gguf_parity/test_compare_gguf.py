"""A GGUF file against its source: a faithful one has nothing to say, and each planted fault is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from milepost.checkpoints import compare_gguf
from milepost.cli import app
from milepost.rope import ConfigError, open_config, read

SIZES = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2}
LLAMA = {"model_type": "llama", **SIZES, "rope_theta": 500000.0, "max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip


def source(folder: Path, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A folder with a config and the projections of q and k."""
    torch.manual_seed(0)
    weights = {}
    for layer in range(2):
        for name, heads in (("q_proj", 2), ("k_proj", 1)):
            weights[f"model.layers.{layer}.self_attn.{name}.weight"] = torch.randn(64 * heads, 128)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors")
    return weights


def neighbours(weight: torch.Tensor) -> torch.Tensor:
    """The rows of each head of 64 as llama.cpp's converter puts them."""
    return weight.reshape(-1, 2, 32, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def convert(
    folder: Path, weights: dict[str, torch.Tensor], *, arch: str = "llama", base: float | None = 500000.0,
    keys: dict[str, Any] | None = None, order: Any = neighbours, length: int = 8192,
    factors: list[float] | None = None, packed: gguf.GGMLQuantizationType | None = None,
) -> Path:  # fmt: skip
    """The file that a converter would write, or one that it got wrong."""
    file = folder / "model.gguf"
    out = gguf.GGUFWriter(file, arch)
    out.add_context_length(length)
    out.add_embedding_length(128)
    out.add_block_count(2)
    out.add_head_count(2)
    out.add_head_count_kv(1)
    if base is not None:
        out.add_rope_freq_base(base)
    for name, value in (keys or {}).items():
        add = (
            out.add_string if isinstance(value, str) else out.add_uint32 if isinstance(value, int) else out.add_float32
        )
        add(f"{arch}.{name}", value)
    if factors is not None:
        out.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    for name, weight in weights.items():
        _, _, layer, _, module, _ = name.split(".")
        moved = order(weight).numpy()
        named = f"blk.{layer}.attn_{module[0]}.weight"
        if packed is None:
            out.add_tensor(named, np.ascontiguousarray(moved))
        else:
            out.add_tensor(named, gguf.quantize(np.ascontiguousarray(moved), packed), raw_dtype=packed)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return file


def compared(folder: Path, file: Path) -> Any:
    return compare_gguf(open_config(folder), open_config(file))


YARN_KEYS = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 2048}


def test_a_faithful_file_has_nothing_to_say(tmp_path: Path) -> None:
    weights = source(tmp_path, {**LLAMA, "rope_scaling": YARN})
    parity = compared(tmp_path, convert(tmp_path, weights, keys=YARN_KEYS))
    assert parity.same and parity.lost == ()
    assert parity.notes == ("4 tensors of q and k were compared with the source's, number by number",)


def test_a_quantised_file_is_compared_by_the_nearest_order(tmp_path: Path) -> None:
    weights = source(tmp_path, LLAMA)
    assert compared(tmp_path, convert(tmp_path, weights, packed=gguf.GGMLQuantizationType.Q8_0)).same
    twice = convert(tmp_path, weights, packed=gguf.GGMLQuantizationType.Q4_0, order=lambda w: neighbours(neighbours(w)))
    assert any("permuted twice" in line for line in compared(tmp_path, twice).lost)


@pytest.mark.parametrize(
    ("order", "shown"),
    [
        (lambda w: w, "in the source's order"),
        (lambda w: neighbours(neighbours(w)), "permuted twice"),
        (lambda w: w.reshape(-1, 32, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape), "permuted back to halves"),
        (lambda w: w.flip(0), "other numbers"),
    ],
)
def test_rows_of_q_and_k_in_another_order_are_named(tmp_path: Path, order: Any, shown: str) -> None:
    parity = compared(tmp_path, convert(tmp_path, source(tmp_path, LLAMA), order=order))
    assert {row.what for row in parity.differences} == {
        "rows of attn_q.weight in 2 layers, from 0 on", "rows of attn_k.weight in 2 layers, from 0 on",
    }  # fmt: skip
    assert all(row.a == "permuted for neighbours" and shown in str(row.b) for row in parity.differences)


def test_an_engine_that_turns_halves_needs_the_rows_as_they_are(tmp_path: Path) -> None:
    weights = source(tmp_path, {**LLAMA, "model_type": "qwen2"})
    assert compared(tmp_path, convert(tmp_path, weights, arch="qwen2", order=lambda w: w)).same
    parity = compared(tmp_path, convert(tmp_path, weights, arch="qwen2"))
    assert {str(row.b) for row in parity.differences} == {"permuted for neighbours"}


def test_a_base_that_was_lost(tmp_path: Path) -> None:
    parity = compared(tmp_path, convert(tmp_path, source(tmp_path, LLAMA), base=None))
    assert parity.lost == ("the base 500000: the file says none, and llama.cpp takes 10000",)
    assert len([row for row in parity.differences if row.what == "frequency"]) == 31  # the first pair has none of it


def test_a_factor_tensor_that_is_missing(tmp_path: Path) -> None:
    config = {**LLAMA, "rope_scaling": LLAMA3, "max_position_embeddings": 65536}
    weights = source(tmp_path, config)
    rope = read(config).main
    factors = [a / b for a, b in zip(rope.plain().frequencies, rope.spectrum().frequencies, strict=True)]
    assert compared(tmp_path, convert(tmp_path, weights, factors=factors, length=65536)).same
    parity = compared(tmp_path, convert(tmp_path, weights, length=65536))
    assert parity.lost[0] == "rope_freqs.weight, the factors of llama3: not in the file"


def test_yarn_that_was_lost_in_part(tmp_path: Path) -> None:
    weights = source(tmp_path, {**LLAMA, "rope_scaling": YARN})
    parity = compared(tmp_path, convert(tmp_path, weights))
    assert parity.lost[0] == "yarn(factor=4.0, trained=2048): the file reads as None, it has no yarn"
    with_factor = {**LLAMA, "rope_scaling": {**YARN, "attention_factor": 1.0}}
    parity = compared(tmp_path, convert(tmp_path, source(tmp_path, with_factor), keys=YARN_KEYS))
    assert parity.lost[0].startswith("m = 1.0000: llama.cpp works out 1.1386 from the factor")


def test_a_yarn_ext_factor_that_turns_yarn_off(tmp_path: Path) -> None:
    """Where llama.cpp reads it, which is in few architectures."""
    weights = source(tmp_path, {**LLAMA, "rope_scaling": YARN})
    keys = {**YARN_KEYS, "rope.scaling.yarn_ext_factor": 0.0}
    off = compared(tmp_path, convert(tmp_path, weights, arch="grok", keys=keys, order=lambda w: w))
    assert "its yarn_ext_factor is 0, which turns yarn off" in off.lost[0]
    assert compared(tmp_path, convert(tmp_path, weights, keys=keys)).same  # llama's loader does not read it


def test_lengths_and_windows(tmp_path: Path) -> None:
    config = {**LLAMA, "model_type": "mistral", "sliding_window": 4096}
    parity = compared(tmp_path, convert(tmp_path, source(tmp_path, config), length=4096))
    assert parity.lost == (
        "served length: 8192 (source), 4096 (file)", "trained length: 8192 (source), 4096 (file)",
        "window: 4096 (source), not in the file (file)",
    )  # fmt: skip


def test_the_command_says_it_and_exits_1(tmp_path: Path) -> None:
    weights = source(tmp_path, LLAMA)
    good, run = convert(tmp_path, weights), CliRunner().invoke
    assert run(app, ["parity", str(tmp_path), str(good)]).exit_code == 0
    bad = convert(tmp_path, weights, base=None)
    result = run(app, ["parity", str(tmp_path / "config.json"), str(bad), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["lost"] == ["the base 500000: the file says none, and llama.cpp takes 10000"]


def test_bad_input(tmp_path: Path) -> None:
    weights = source(tmp_path, LLAMA)
    file = convert(tmp_path, weights)
    with pytest.raises(ConfigError, match=r"the folder, or its config\.json, comes first"):
        compared(file, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    parity = compared(tmp_path, file)
    assert parity.same and "were not compared" in parity.notes[0]
