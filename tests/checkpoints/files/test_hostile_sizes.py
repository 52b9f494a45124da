"""Files of a few kilobytes that claim to be huge: refused in a sentence, and within 2 s and 500 MB of the same command on
a tiny valid input."""

from __future__ import annotations

import json
import resource
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gguf_llama import write_llama
from tiny_models import build

from milepost.checkpoints import inspect, verify
from milepost.checkpoints.files.tensors import StoredTensor, in_folder, in_gguf, values
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.text import read_text
from milepost.lab.checkpoint import load as load_lab
from milepost.lab.checkpoint import save
from milepost.lab.model import Decoder, Shape
from milepost.lab.report import load as load_results
from milepost.rope.config.gguf_header import metadata
from milepost.rope.config.keys import ConfigError

TEXT, ARRAY = 8, 9


def refused(words: str, call: Any, *given: Any, **named: Any) -> None:
    """Refused with these words, in one sentence, in little time and memory."""
    held, clock = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ValueError, match=words) as raised:
        call(*given, **named)
    spent, more = time.process_time() - clock, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held) / 1024
    assert spent < 2 and more < 500 and "\n" not in str(raised.value) and len(str(raised.value)) < 1000


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    build("llama").save_pretrained(tmp_path / "llama")
    load(tmp_path / "llama")  # what the command takes without the attack: imports
    return tmp_path / "llama"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("vocab_size", 30_000_000, r"config.json asks for \d+ numbers, and .* has \d+: its model.embed_tokens.weight"),
        ("intermediate_size", 10**9, "asks for .* numbers"),
        ("hidden_size", 2**40, "asks for .* numbers"),
        ("num_hidden_layers", 9000, r"has 9000 layers, and .* has 21 tensors"),
        ("num_hidden_layers", 250, r"has 250 layers, and .* has 21 tensors"),
        ("num_hidden_layers", 40, "weights of LlamaForCausalLM are not in"),
    ],
)
@pytest.mark.parametrize("command", [load, verify])
def test_a_config_is_compared_with_the_tensors_before_anything_is_built(llama, key, value, words, command):
    config = json.loads((llama / "config.json").read_text())
    load(llama)  # what a valid folder costs, imports of the model's class among it, is not counted
    (llama / "config.json").write_text(json.dumps({**config, key: value}))
    refused(words, command, llama)


def lab(folder: Path, **shape: Any) -> Path:
    save(Decoder(Shape(vocabulary=32, layers=2, width=32, heads=2, length=16), "learned").start(0), folder)
    about = json.loads((folder / "model.json").read_text())
    encodings = shape.pop("encodings", about["encodings"])
    (folder / "model.json").write_text(json.dumps({"shape": {**about["shape"], **shape}, "encodings": encodings}))
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"width": 2**40}, "shape.width must be a whole number from 1 to 1048576"),
        ({"layers": 2**40}, "shape.layers must be a whole number"),
        ({"heads": "4"}, "shape.heads must be a whole number"),
        ({"width": []}, "shape.width must be a whole number"),
        ({"encodings": ["rope(head_dim=1099511627776)"] * 2}, "a head has at most 65536 channels"),
        ({"encodings": ["rope(scaling=3)"] * 2}, "a scaling is a call"),
        ({"encodings": 7}, "encodings must be a list"),
    ],
)
def test_sizes_of_a_lab_model_have_bounds_and_types(tmp_path, changes, words):
    refused(words, inspect, lab(tmp_path / "lab", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 2**18}, {"vocabulary": 2**40}, {"length": 10**9}, {"encodings": ["learned(length=1000000000)"] * 2},
        {"layers": 2**40}, {"layers": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_lab_model_larger_than_its_weights_is_not_built(tmp_path, changes):
    load_lab(lab(tmp_path / "right"))
    words = r"many more than its file of weights has|layers, and 2 encodings|whole lab model"
    refused(words, load_lab, lab(tmp_path / "wrong", **changes))


@pytest.mark.parametrize(
    "spread", ["rope", None, 0, -1.0, True, [], float("nan"), float("inf"), 10**400], ids=lambda value: str(value)[:9]
)
def test_the_spread_of_a_lab_model_s_code_is_a_number_above_0(tmp_path, spread):
    folder = lab(tmp_path / "lab")
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**about, "code_spread": spread}))
    refused("code_spread in model.json is a number above 0 and below 1e12, got", load_lab, folder)


def safetensors_with(folder: Path, shape: list[int], offsets: list[int], size: int) -> Path:
    header = json.dumps({"transformer.wpe.weight": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}).encode()
    build("gpt2").save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    return folder


def test_a_shape_of_200_000_numbers_is_refused(tmp_path):
    folder = safetensors_with(tmp_path, [1] * 200_000, [0, 4], 4)
    refused("has 200000 axes, and no model has more than 16", in_folder, folder)
    refused("has 200000 axes", inspect, folder, weights=True)


def test_a_safetensors_header_that_does_not_fit_its_file_is_refused(tmp_path):
    refused("is not a whole safetensors file", in_folder, safetensors_with(tmp_path, [2**40], [0, 2**42], 64))


def gguf_with(file: Path, *arrays: tuple[int, int], tensor: tuple[int, ...] | None = None, size: int = 0) -> Path:
    """A GGUF file whose keys are arrays of (type, count); sparse up to ``size`` bytes."""
    name = struct.pack("<Q", 1) + b"a"
    pairs = b"".join(
        struct.pack("<Q", 2) + b"k%d" % n + struct.pack("<IIQ", ARRAY, *pair) for n, pair in enumerate(arrays)
    )
    held = b"" if tensor is None else name + struct.pack(f"<I{len(tensor)}QIQ", len(tensor), *tensor, 0, 0)
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensor is not None, len(arrays)) + pairs + held + bytes(64))
    if size:
        with file.open("r+b") as opened:
            opened.truncate(size)
    return file


def test_nested_arrays_of_a_sparse_file_are_not_walked_through(tmp_path):
    """It took 57 seconds."""
    file = gguf_with(tmp_path / "a.gguf", (ARRAY, 4_000_000), size=1 << 32)
    refused(r"has a header with more than 4194304 bytes of text and items of arrays", metadata, file)


def test_arrays_of_a_sparse_file_are_stepped_over_or_refused_in_little_time(tmp_path):
    """Half a gigabyte of texts took 5.8 GB."""
    refused("more than 4194304", metadata, gguf_with(tmp_path / "a.gguf", (TEXT, 60_000_000), size=1 << 30))
    clock, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert metadata(gguf_with(tmp_path / "b.gguf", (10, 60_000_000), size=1 << 30)) == {}
    assert time.process_time() - clock < 2 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 500 << 10


def test_a_gguf_tensor_larger_than_its_file_is_refused_before_it_is_read(tmp_path):
    for sizes in ((2**40, 2**20), (1 << 20,), (2**63, 2**63)):
        held = in_gguf(gguf_with(tmp_path / "a.gguf", tensor=sizes))
        refused(r"is cut short: tensor 'a' needs \d+ bytes, and \d+ are there", values, held["a"])


def test_tensors_of_a_gguf_file_are_compared_with_its_size_before_it_is_loaded(tmp_path):
    file = write_llama(build("llama"), tmp_path / "whole.gguf")
    load(file, tokenizer="bytes")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:-4096])
    refused(r"is cut short or damaged: tensor .* ends at byte \d+, and the file has \d+", load, cut)


def test_a_gguf_file_without_a_tokenizer_is_refused_in_a_sentence(tmp_path):
    """The tokenizers package panics there, and a panic is no Exception."""
    refused("no tokenizer can be loaded from", load, write_llama(build("llama"), tmp_path / "bare.gguf"))


def test_a_gguf_tensor_that_is_there_twice_is_refused(tmp_path):
    name = struct.pack("<Q", 1) + b"a"
    tensor = name + struct.pack("<IQIQ", 1, 4, 0, 0)
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + 2 * tensor + bytes(64))
    refused("has the tensor 'a' twice", metadata, tmp_path / "a.gguf")


def test_tokens_that_a_npy_file_claims_and_does_not_have(tmp_path):
    file = tmp_path / "text.npy"
    np.save(file, np.arange(16))
    raw, model = file.read_bytes(), SimpleNamespace(vocabulary=32, name="a model", tokenizer=None, begin=None)
    assert read_text(file, model).tokens == 16  # type: ignore[arg-type]
    too_large = "(100000000000000000000,)", "(-9223372036854775808,)"
    for shape in ("(10000000000000,)", "(4611686018427387904, 4)", "(17,)", *too_large):
        head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        file.write_bytes(raw[:8] + struct.pack("<H", len(head)) + head.encode() + raw[128:])
        refused(r"is no .npy file of token ids", read_text, file, model)


RESULTS = Path(__file__).parents[3] / "milepost" / "measured" / "lab.json"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("runs", 0, "loss_by_length", 0, "loss"), "low", r"runs\[0\].loss_by_length\[0\].loss must be a number"),
        (("runs", 0, "loss_by_length", 0, "length"), [1], "length must be a whole number"),
        (("runs", 0, "loss_by_position"), 7, "loss_by_position wants rows|must be a list of rows"),
        (("runs", 0, "attention", 0, "heads", 0, "distance"), None, "distance must be a list of numbers"),
        (("runs", 0, "attention", 0, "heads", 0, "entropy"), 10**6, "entropy must be a number up to 700"),
        (("runs", 0, "encoding"), ["rope"], "encoding"),
        (("comparisons", 0, "difference"), "x", "difference"),
        (("comparisons", 0, "low"), {}, "low must be a number"),
        (("runs", 0, "train_loss"), "abc", "train_loss must be a list of numbers"),
        (("runs", 0, "loss_by_length", 0, "loss"), float("nan"), "holds NaN"),
        (("runs", 0, "loss_by_window", "64"), "abc", "loss_by_window.'64'. must be 480 numbers, one for each of"),
        (("runs", 0, "loss_by_window", "64", 3), "abc", "loss_by_window.'64'. must be 480 numbers"),
        (("runs", 0, "window_files"), [0, 1], "loss_by_window.'64'. must be 2 numbers"),
        (("runs",), {"a": 1}, "runs is dict and not list"),
        (("provenance", "protocol", "plan", "lengths", 0), "64", "plan.lengths must be a list of whole numbers"),
        (("provenance", "protocol", "plan", "seeds", 0), None, "plan.seeds must be a list of whole numbers"),
        (("costs",), 7, "costs.rows is missing"),
        (("costs",), {"rows": {"rope": 3}, "about": ""}, "costs.rows wants times by encoding"),
        (("costs",), {"rows": {"rope": {"train": "much"}}, "about": ""}, "costs.rows wants times by encoding"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_results_with_wrong_types_are_refused_by_their_place(tmp_path, path, value, words):
    results = json.loads(RESULTS.read_text())
    results["runs"] = results["runs"][:4]  # the place is found in little time, so the file is a small one
    (tmp_path / "results.json").write_text(json.dumps(results))
    load_results(tmp_path)
    part = results
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    (tmp_path / "results.json").write_text(json.dumps(results))
    refused(words, load_results, tmp_path)


def test_an_empty_tensor_that_says_to_begin_past_every_file_is_refused_in_a_sentence(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="is empty, of shape"):
        values(StoredTensor("a", file, "F32", (0,), 2**70))
