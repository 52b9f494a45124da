"""convert_layout (fault R9): logits before and after, the way back bit by bit, what must not move, and bad input that
leaves nothing.

Every parameter is random, norms and biases too: transformers makes them 1 and 0, which would hide that they were not
moved.
"""

from __future__ import annotations

import importlib
import json
import shutil
import struct
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from milepost.checkpoints import Conversion, ProofError, convert_layout
from milepost.checkpoints.layout_conversion import heads, proof
from milepost.measure import folder as folder_code
from milepost.rope import ConfigError, RopeSpec
from milepost.rope.config.families import FAMILIES
from milepost.rope.config.files import load

transformers = importlib.import_module("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore", module="transformers")
code = sys.modules["milepost.checkpoints.layout_conversion.convert_layout"]

OTHER = {"half": "interleaved", "interleaved": "half"}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SMALL = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    **TOKENS,
}
EXPERTS = {
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
GPTJ = {"vocab_size": 64, "n_embd": 64, "n_layer": 2, "n_positions": 512, **TOKENS}
WIDE = {"hidden_size": 64, "num_key_value_heads": 4}

CASES: dict[str, dict[str, Any]] = {
    "llama, as many keys as queries": {"model_type": "llama", **SMALL, "num_key_value_heads": 4},
    "llama, shared keys": {"model_type": "llama", **SMALL},
    "llama, biases, llama3": {
        "model_type": "llama",
        **SMALL,
        "attention_bias": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 1e4,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    },
    "mistral": {"model_type": "mistral", **SMALL, "head_dim": 8},
    "ministral": {"model_type": "ministral", **SMALL, "head_dim": 8},
    "mixtral": {"model_type": "mixtral", **SMALL, **EXPERTS},
    "arcee": {"model_type": "arcee", **SMALL},
    "seed_oss": {"model_type": "seed_oss", **SMALL, "head_dim": 12},
    "starcoder2": {"model_type": "starcoder2", **SMALL},
    "smollm3": {"model_type": "smollm3", **SMALL, "num_hidden_layers": 5, "no_rope_layers": [1, 0, 1, 1, 0]},
    "granite": {"model_type": "granite", **SMALL},
    "granitemoe": {"model_type": "granitemoe", **SMALL, **EXPERTS},
    "qwen2, biases": {"model_type": "qwen2", **SMALL},
    "qwen2_moe": {"model_type": "qwen2_moe", **SMALL, **EXPERTS},
    "qwen3, norms": {"model_type": "qwen3", **SMALL, "head_dim": 20},
    "qwen3_moe": {"model_type": "qwen3_moe", **SMALL, **EXPERTS, "head_dim": 12},
    "gemma, one key head": {"model_type": "gemma", **SMALL, "num_key_value_heads": 1, "head_dim": 12},
    "gemma2": {"model_type": "gemma2", **SMALL, "head_dim": 12},
    "gemma3, two kinds of layers": {
        "model_type": "gemma3_text",
        **SMALL,
        "head_dim": 12,
        "num_hidden_layers": 3,
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
    "gpt_oss": {"model_type": "gpt_oss", **SMALL, **EXPERTS, "head_dim": 12},
    "olmo": {"model_type": "olmo", **SMALL},
    "olmo2, wide norms": {"model_type": "olmo2", **SMALL},
    "olmo3": {"model_type": "olmo3", **SMALL},
    "olmoe": {"model_type": "olmoe", **SMALL, **EXPERTS},
    "phi, part of the head": {"model_type": "phi", **SMALL, **WIDE},
    "phi, norms": {"model_type": "phi", **SMALL, **WIDE, "qk_layernorm": True},
    "phimoe": {"model_type": "phimoe", **SMALL, **EXPERTS, "attention_bias": True},
    "stablelm, a norm a head": {
        "model_type": "stablelm",
        **SMALL,
        "hidden_size": 64,
        "qk_layernorm": True,
        "use_qkv_bias": True,
    },
    "nemotron": {"model_type": "nemotron", **SMALL, "hidden_size": 64},
    "gptj": {"model_type": "gptj", **GPTJ, "n_head": 4, "rotary_dim": 8},
    "cohere": {"model_type": "cohere", **SMALL, "use_qk_norm": True},
    "cohere2, full layers do not turn": {"model_type": "cohere2", **SMALL, "num_hidden_layers": 4, "head_dim": 12},
    "glm": {"model_type": "glm", **SMALL, "head_dim": 16, "attention_bias": True},
    "glm4": {"model_type": "glm4", **SMALL, "head_dim": 16},
    "helium": {"model_type": "helium", **SMALL, "head_dim": 12},
    "ernie4_5": {"model_type": "ernie4_5", **SMALL},
    "gpt_neox": {
        "model_type": "gpt_neox",
        **SMALL,
        "hidden_size": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    },
    "persimmon": {"model_type": "persimmon", **SMALL, "hidden_size": 64},
    "falcon, one key head": {"model_type": "falcon", **SMALL, "multi_query": True},
    "falcon, as many keys as queries, biases": {"model_type": "falcon", **SMALL, "multi_query": False, "bias": True},
    "falcon, new decoder": {
        "model_type": "falcon",
        **SMALL,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "bias": True,
    },
    "phi3": {"model_type": "phi3", **SMALL},
    "phi3, part of the head": {
        "model_type": "phi3",
        **SMALL,
        "hidden_size": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75},
    },
    "modernbert": {"model_type": "modernbert", **{**SMALL, "num_key_value_heads": 4}},
    "codegen": {"model_type": "codegen", **GPTJ, "n_head": 8, "rotary_dim": 4},
}


def randomise(model: Any) -> Any:
    """Other numbers in every parameter: around 1 where a norm multiplies, around 0 elsewhere."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(
                torch.randn(p.shape, generator=draw) * 0.15
                + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
            )
    return model


def make(given: dict[str, Any]) -> Any:
    config = transformers.AutoConfig.for_model(**given)
    auto = (
        transformers.AutoModelForMaskedLM if given["model_type"] == "modernbert" else transformers.AutoModelForCausalLM
    )
    return randomise(auto.from_config(config))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def tensors(folder: Path) -> dict[str, Tensor]:
    return {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}


def own(folder: Path) -> Any:
    return RopeSpec.from_config(folder).main.pairing


Made = tuple[Path, Path, Conversion]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """A case's folder, its converted folder, and what was said; made once."""
    kept: dict[str, Made] = {}

    def get(case: str) -> Made:
        if case not in kept:
            home = tmp_path_factory.mktemp("model")
            make(CASES[case]).save_pretrained(home / "source")
            kept[case] = (
                home / "source",
                home / "out",
                convert_layout(home / "source", OTHER[own(home / "source")], home / "out"),
            )
        return kept[case]

    return get


@pytest.fixture
def source(made: Callable[[str], Made], tmp_path: Path) -> Callable[..., Path]:
    """A copy of a case's folder, in a folder of its own."""

    def get(case: str = "llama, shared keys") -> Path:
        shutil.copytree(made(case)[0], tmp_path / "home" / "source")
        return tmp_path / "home" / "source"

    return get


def refused(
    folder: Path, match: str, error: type[BaseException] = ConfigError, to: Any = "interleaved", out: Path | None = None
) -> None:
    """Refused, with nothing written anywhere."""
    home = folder.parent
    before, there = files(home), set(home.rglob("*"))
    with pytest.raises(error, match=match):
        convert_layout(folder, to, home / "deep" / "out" if out is None else out)
    assert files(home) == before
    assert set(home.rglob("*")) == there


# -- right -----------------------------------------------------------------------------------------------------------


def test_every_model_type_in_the_table_has_a_case():
    assert {given["model_type"] for given in CASES.values()} == set(heads.MODELS) <= set(FAMILIES)


@pytest.mark.parametrize("case", CASES)
def test_logits_are_equal(made, case):
    _, out, done = made(case)
    assert done.proof.difference <= done.proof.tolerance < 1e-3 * done.proof.unconverted
    assert done.proof.farthest >= 256 and done.proof.tokens > 256
    assert done.proof.layers == done.proof.of
    assert own(out) == done.target == OTHER[done.source]


@pytest.mark.parametrize("case", CASES)
def test_there_and_back_is_bit_exact(made, case, tmp_path):
    folder, out, done = made(case)
    back = convert_layout(out, done.source, tmp_path / "back")
    assert back.tensors == done.tensors
    first, last = files(folder), files(tmp_path / "back")
    configs = [json.loads(found.pop("config.json")) for found in (first, last)]
    assert first == last
    assert configs[1].pop("rope_interleave") is (done.source == "interleaved")
    assert configs[0] == configs[1]


@pytest.mark.parametrize("case", CASES)
def test_only_q_and_k_move(made, case):
    folder, out, done = made(case)
    before, after = tensors(folder), tensors(out)
    assert list(before) == list(after)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == set(done.tensors) and done.count == len(changed)
    assert not any(".v_proj." in name for name in changed)
    for name in changed:
        rows = [held[name].flatten()[:, None] if "norm" in name else held[name] for held in (before, after)]
        assert before[name].shape == after[name].shape and torch.equal(rows[0].sort(0).values, rows[1].sort(0).values)


VALUES: dict[str, tuple[int, ...]] = {
    "gpt_neox": (4, 3, 16),
    "persimmon": (4, 3, 16),
    "falcon, one key head": (1, 6, 12),
    "falcon, as many keys as queries, biases": (4, 3, 12),
    "falcon, new decoder": (2, 4, 12),
    "phi3": (1, 4, 24),
    "modernbert": (1, 3, 48),
}
"""The rows of fused projections in parts of so many, of which the last is v: from the models' own code."""


@pytest.mark.parametrize("case", VALUES)
def test_v_inside_a_fused_projection_stays(made, case):
    folder, out, done = made(case)
    before, after = tensors(folder), tensors(out)
    for name in (name for name in done.tensors if "norm" not in name):
        old, new = (held[name].unflatten(0, VALUES[case]) for held in (before, after))
        assert torch.equal(old[:, -1], new[:, -1])
        assert not any(torch.equal(old[:, n], new[:, n]) for n in range(old.shape[1] - 1))


def test_v_of_codegen_stays(made):
    """Four times q, v, k."""
    folder, out, done = made("codegen")
    before, after = tensors(folder), tensors(out)
    for name in done.tensors:
        old, new = (held[name].unflatten(0, (4, 3, 16)) for held in (before, after))
        assert [torch.equal(old[:, n], new[:, n]) for n in range(3)] == [False, True, False]


def turned_by_hand(q: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    """Rotation as a product of complex numbers: q B H L D; cos and sin B L D, as Llama's code makes them."""
    pairs = cos.shape[-1] // 2
    turn = torch.complex(cos[..., :pairs], sin[..., :pairs])[:, None]
    part, rest = q[..., : 2 * pairs], q[..., 2 * pairs :]
    number = (
        torch.complex(*(part.unflatten(-1, (pairs, 2)).unbind(-1) if pairing == "interleaved" else part.chunk(2, -1)))
        * turn
    )
    both = [number.real, number.imag]
    return torch.cat([torch.stack(both, -1).flatten(-2) if pairing == "interleaved" else torch.cat(both, -1), rest], -1)


@pytest.mark.parametrize(
    "case",
    ["llama, shared keys", "qwen3, norms", "gpt_neox", "phi3, part of the head", "falcon, new decoder", "phi, norms"],
)
def test_logits_are_equal_by_another_rotation(made, case, monkeypatch):
    """The proof again, without the proof: loaded here, and turned by complex numbers."""
    folder, out, done = made(case)
    ids = torch.randint(3, 64, (2, 300), generator=torch.Generator().manual_seed(1))

    def logits(where: Path) -> Tensor:
        model = transformers.AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32).eval().double()
        if where == out:
            name = "apply_rotary_pos_emb"

            def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, ...]:
                return tuple(turned_by_hand(t, cos, sin, done.target) for t in (q, k))

            monkeypatch.setattr(sys.modules[type(model).__module__], name, both)
        with torch.no_grad():
            found: Tensor = model(ids).logits
        return found

    before = logits(folder)
    assert (logits(out) - before).abs().max() <= done.proof.tolerance


def test_a_wrongly_paired_model_gives_other_logits(made):
    """What transformers makes of the converted weights: the difference that a proof must see, and why the result
    carries a note."""
    folder, out, done = made("llama, shared keys")
    ids = torch.randint(3, 64, (1, 64), generator=torch.Generator().manual_seed(1))
    models = [transformers.AutoModelForCausalLM.from_pretrained(where) for where in (folder, out)]
    with torch.no_grad():
        a, b = (model(ids).logits for model in models)
    assert (a - b).abs().max() > 1000 * done.proof.tolerance
    assert any("transformers" in note and "half" in note for note in done.notes)


def test_rows_of_grouped_and_partial_heads_by_hand():
    order = heads.HeadRows("qkv", head_dim=6, rotary=4).order("interleaved").tolist()
    assert order == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17]
    assert heads.HeadRows("k", head_dim=8, rotary=8).order("half").tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert heads.HeadRows("k", head_dim=8, rotary=8).order("interleaved").tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_layers_without_rotation_are_left_alone(made):
    done = made("smollm3")[2]
    assert done.still == (1, 4) and done.layers == 3
    assert {name.split(".")[2] for name in done.tensors} == {"0", "2", "3"}
    assert made("cohere2, full layers do not turn")[2].still == (3,)


def test_both_kinds_of_layers_are_converted(made):
    done = made("gemma3, two kinds of layers")[2]
    assert done.still == () and {name.split(".")[2] for name in done.tensors} == {"0", "1", "2"}
    assert {name.split(".")[4] for name in done.tensors} == {"q_proj", "k_proj", "q_norm", "k_norm"}


def test_biases_and_norms_are_among_the_tensors(made):
    def parts(case: str) -> set[str]:
        return {name.split("self_attn.")[1] for name in made(case)[2].tensors if ".0." in name}

    assert parts("qwen2, biases") == {"q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias"}
    assert parts("olmo2, wide norms") == {"q_proj.weight", "k_proj.weight", "q_norm.weight", "k_norm.weight"}
    assert {"q_layernorm.weight", "q_layernorm.bias", "k_layernorm.bias"} <= parts("phi, norms")
    assert {"q_layernorm.norms.0.weight", "k_layernorm.norms.0.weight"} <= parts("stablelm, a norm a head")


def test_the_text_model_of_a_model_that_sees(tmp_path):
    """The key goes where the text model's config is, and the tower for images, with its own q_proj, stays."""
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
    }
    text = {name: value for name, value in CASES["gemma3, two kinds of layers"].items() if name != "model_type"}
    config = transformers.Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=60,
        boi_token_index=61,
        eoi_token_index=62,
    )
    randomise(transformers.Gemma3ForConditionalGeneration(config)).save_pretrained(tmp_path / "source")
    done = convert_layout(tmp_path / "source", "interleaved", tmp_path / "out")
    before, after = tensors(tmp_path / "source"), tensors(tmp_path / "out")
    assert any("vision" in name and "q_proj" in name for name in before)
    assert {name for name in before if not torch.equal(before[name], after[name])} == set(done.tensors)
    assert done.count == 12 and all("language_model" in name for name in done.tensors)
    assert load(tmp_path / "out" / "config.json")["text_config"]["rope_interleave"] is True
    assert own(tmp_path / "out") == "interleaved"


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_sharded_checkpoint(tmp_path, made):
    folder = tmp_path / "source"
    make(CASES["qwen3, norms"]).save_pretrained(folder, max_shard_size="20KB")
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    assert len(names) > 3
    told: list[str] = []
    done = convert_layout(folder, "interleaved", tmp_path / "out", tell=told.append)
    assert [text.removeprefix("converting ") for text in told if text.startswith("converting")] == names
    whole = made("qwen3, norms")
    assert set(done.tensors) == set(whole[2].tensors)
    assert (tmp_path / "out" / code.INDEX).read_bytes() == (folder / code.INDEX).read_bytes()
    one, parts = tensors(whole[1]), tensors(tmp_path / "out")
    assert one.keys() == parts.keys() and all(torch.equal(one[name], parts[name]) for name in one)


def header(file: Path) -> bytes:
    data = file.read_bytes()
    return data[: 8 + struct.unpack("<Q", data[:8])[0]]


def test_dtype_metadata_and_order_stay(source, tmp_path):
    """bfloat16, with metadata of its own, and tensors in an order that safetensors would not write."""
    folder = source()
    file = folder / code.ONE
    held = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(file).items()}
    names = sorted(held, reverse=True)
    at, entries = 0, {}
    for name in names:
        size = held[name].numel() * 2
        entries[name] = {"dtype": "BF16", "shape": list(held[name].shape), "data_offsets": [at, at + size]}
        at += size
    said = json.dumps({"__metadata__": {"format": "pt", "by": "somebody"}, **entries}).encode()
    file.write_bytes(
        struct.pack("<Q", len(said)) + said + b"".join(held[name].view(torch.uint8).numpy().tobytes() for name in names)
    )
    convert_layout(folder, "interleaved", tmp_path / "out")
    assert header(tmp_path / "out" / code.ONE) == header(file)
    with safe_open(tmp_path / "out" / code.ONE, "pt") as f:
        assert f.metadata() == {"format": "pt", "by": "somebody"}
        assert {f.get_slice(name).get_dtype() for name in names} == {"BF16"}
    convert_layout(tmp_path / "out", "half", tmp_path / "back")
    assert (tmp_path / "back" / code.ONE).read_bytes() == file.read_bytes()


def test_other_files_are_copied_and_other_weights_are_not(source, tmp_path):
    folder = source()
    for name in (
        "tokenizer.json",
        "sub/words.txt",
        ".cache/huggingface/x",
        "consolidated.safetensors",
        "pytorch_model.bin.index.json",
        "original/a.pth",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}" + name.encode())
    before = files(folder)
    done = convert_layout(folder, "interleaved", tmp_path / "out")
    assert set(files(tmp_path / "out")) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "sub/words.txt",
    }
    assert files(tmp_path / "out")["sub/words.txt"] == before["sub/words.txt"]
    assert done.left_out == ("consolidated.safetensors", "original/a.pth", "pytorch_model.bin.index.json")
    assert any("3 files" in note for note in done.notes)
    assert files(folder) == before


def test_a_read_only_source_and_an_empty_out(source, tmp_path):
    folder = source()
    for path in folder.iterdir():
        path.chmod(0o444)
    (tmp_path / "out").mkdir()
    convert_layout(str(folder), "interleaved", str(tmp_path / "out"))
    assert own(tmp_path / "out") == "interleaved"
    assert {path.name for path in tmp_path.iterdir()} == {"home", "out"}


def test_folders_above_out_are_made(source, tmp_path):
    convert_layout(source(), "interleaved", tmp_path / "a" / "b" / "out")
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {"out"}


def test_older_keys_of_the_config_are_kept_in_agreement(source, tmp_path):
    folder = source()
    edit(folder, rope_interleaved=False)
    convert_layout(folder, "interleaved", tmp_path / "out")
    config = load(tmp_path / "out" / "config.json")
    assert config["rope_interleaved"] is True and config["rope_interleave"] is True


def test_what_was_done_is_plain_data(made):
    done = made("llama, shared keys")[2]
    data = json.loads(json.dumps(asdict(done)))
    assert (
        data["source"] == "half" and data["target"] == "interleaved" and data["provenance"]["versions"]["transformers"]
    )
    assert data["proof"]["of"] == 2 and data["provenance"]["protocol"]["seed"] == 0
    with pytest.raises(AttributeError):
        done.model = "another"


# -- the proof -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", ["llama, shared keys", "gpt_neox", "phi3", "falcon, one key head", "falcon, new decoder", "codegen"]
)
def test_converting_v_as_well_is_seen(source, case, monkeypatch):
    """A test of the test: v moved like k changes the logits."""
    folder = source(case)
    kind = CASES[case]["model_type"]
    right = heads.MODELS[kind]

    def wrong(config: Any) -> dict[str, str]:
        found = right(config)
        return (
            {**found, "v_proj": found["k_proj"]}
            if "k_proj" in found
            else {name: letters.replace("v", "k") for name, letters in found.items()}
        )

    monkeypatch.setitem(heads.MODELS, kind, wrong)
    refused(folder, "logits differ by", ProofError, OTHER[own(folder)])


def _slow_pairs_swapped(size: int, to: str) -> Tensor:
    """The permutation, but for the two slowest pairs, which trade places: the smallest mistake there is."""
    rows = torch.arange(size)
    pairs = rows.reshape(2, -1).T.clone() if to == "interleaved" else rows.reshape(-1, 2).clone()
    pairs[[-1, -2]] = pairs[[-2, -1]]
    return pairs.reshape(-1) if to == "interleaved" else pairs.T.reshape(-1)


RIGHT = heads.permutation
PERMUTATIONS: dict[str, Callable[..., Tensor]] = {
    "none at all": lambda size, to: torch.arange(size),
    "the way back": lambda size, to: RIGHT(size, to=OTHER[to]),
    "rolled": lambda size, to: RIGHT(size, to=to).roll(1),
    "the slowest pairs swapped": _slow_pairs_swapped,
    "pairs turned round": lambda size, to: RIGHT(size, to=to).flip(0),
}


@pytest.mark.parametrize("name", PERMUTATIONS)
@pytest.mark.parametrize("case", ["llama, shared keys", "phi3, part of the head", "glm"])
def test_a_wrong_permutation_is_caught(source, monkeypatch, name, case):
    monkeypatch.setattr(heads, "permutation", PERMUTATIONS[name])
    folder = source(case)
    refused(folder, "logits differ by", ProofError, OTHER[own(folder)])


@pytest.mark.parametrize(
    ("case", "left"),
    [
        ("qwen2, biases", "q_proj.bias"),
        ("qwen3, norms", "k_norm.weight"),
        ("olmo2, wide norms", "q_norm.weight"),
        ("phi, norms", "k_layernorm.bias"),
        ("stablelm, a norm a head", "q_layernorm.norms.1.weight"),
        ("gptj", "k_proj.weight"),
        ("smollm3", "layers.3.self_attn.q_proj.weight"),
        ("falcon, new decoder", "query_key_value.bias"),
    ],
)
def test_one_tensor_left_out_is_caught(source, monkeypatch, case, left):
    right = code.find_head_rows
    monkeypatch.setattr(
        code,
        "find_head_rows",
        lambda *given: {name: turn for name, turn in right(*given).items() if not name.endswith(left)},
    )
    folder = source(case)
    refused(folder, "logits differ by", ProofError, OTHER[own(folder)])


def test_turning_the_whole_head_of_a_partial_model_is_caught(source, monkeypatch):
    right = code.find_head_rows
    monkeypatch.setattr(
        code,
        "find_head_rows",
        lambda *given: {n: heads.HeadRows(t.heads, t.head_dim, t.head_dim) for n, t in right(*given).items()},
    )
    refused(source("gpt_neox"), "logits differ by", ProofError)


def test_heads_shared_out_wrongly_are_caught(source, monkeypatch):
    monkeypatch.setitem(heads.MODELS, "falcon", lambda config: {"query_key_value": "qqqqkkvv"})
    refused(source("falcon, new decoder"), "logits differ by", ProofError)


def test_weights_that_prove_nothing_are_refused(source):
    folder = source()
    held = load_file(folder / code.ONE)
    save_file(
        {n: torch.zeros_like(t) if "q_proj" in n else t for n, t in held.items()}, folder / code.ONE, {"format": "pt"}
    )
    refused(folder, "nothing can be proved", ProofError)


def test_a_large_model_is_proved_on_its_first_layers(monkeypatch, source, tmp_path):
    monkeypatch.setattr(proof, "WHOLE", 1000)
    done = convert_layout(source("smollm3"), "interleaved", tmp_path / "out")
    assert (done.proof.layers, done.proof.of) == (2, 5)
    assert any("first 2 layers of 5" in note for note in done.notes)
    assert done.layers == 3 and own(tmp_path / "out") == "interleaved"


def test_the_first_layers_hold_every_kind(monkeypatch, source, tmp_path):
    monkeypatch.setattr(proof, "WHOLE", 1000)
    done = convert_layout(source("cohere2, full layers do not turn"), "half", tmp_path / "out")
    assert (done.proof.layers, done.proof.of) == (4, 4)
    given = {
        **CASES["gemma3, two kinds of layers"],
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 2,
    }
    make(given).save_pretrained(tmp_path / "gemma")
    done = convert_layout(tmp_path / "gemma", "interleaved", tmp_path / "out2")
    assert (done.proof.layers, done.proof.of) == (3, 4)


def test_a_short_model_is_proved_on_as_many_tokens_as_it_serves(tmp_path):
    make({**CASES["gptj"], "n_positions": 40}).save_pretrained(tmp_path / "source")
    done = convert_layout(tmp_path / "source", "half", tmp_path / "out")
    assert (done.proof.tokens, done.proof.farthest) == (40, 39)


def test_transformers_is_left_as_it_was(source, tmp_path, monkeypatch):
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    before = llama.apply_rotary_pos_emb
    level = transformers.logging.get_verbosity()
    convert_layout(folder := source(), "interleaved", tmp_path / "out")
    assert llama.apply_rotary_pos_emb is before and transformers.logging.get_verbosity() == level
    monkeypatch.setattr(proof, "rotate", lambda *given: 1 / 0)
    refused(folder, "division", ZeroDivisionError)
    assert llama.apply_rotary_pos_emb is before and transformers.logging.get_verbosity() == level


# -- bad input, and bad luck -----------------------------------------------------------------------------------------


def edit(folder: Path, **keys: Any) -> None:
    config = {**load(folder / "config.json"), **keys}
    (folder / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if value is not None}), encoding="utf-8"
    )


def change(folder: Path, how: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    save_file(how(load_file(folder / code.ONE)), folder / code.ONE, {"format": "pt"})


Q = "model.layers.1.self_attn.q_proj."
BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "quantised": (
        lambda d: edit(d, quantization_config={"quant_method": "gptq", "bits": 4}),
        "quantised .*gptq.*Convert the unquantised model",
    ),
    "unknown model type": (
        lambda d: edit(d, model_type="deepseek_v3"),
        "'deepseek_v3' keeps q and k is not known; convert_layout knows arcee, codegen, ",
    ),
    "no model type": (lambda d: edit(d, model_type=None), "of type None"),
    "no rotation": (lambda d: edit(d, model_type="gpt2", rope_parameters=None), "'gpt2'"),
    "already so": (lambda d: edit(d, rope_interleave=True), "interleaved pairs already"),
    "no config": (lambda d: (d / "config.json").unlink(), "no config.json"),
    "config is no JSON": (lambda d: (d / "config.json").write_text("{"), "not whole JSON"),
    "no weights": (lambda d: (d / code.ONE).unlink(), "has no weights .model.safetensors"),
    "pickled weights": (
        lambda d: (d / code.ONE).rename(d / "pytorch_model.bin"),
        "pytorch_model.bin.*a pickle, which .*save them as safetensors",
    ),
    "weights cut short": (
        lambda d: (d / code.ONE).write_bytes((d / code.ONE).read_bytes()[:-1]),
        "not a whole safetensors file",
    ),
    "weights twice": (lambda d: (d / code.INDEX).write_text("{}"), "keep one"),
    "packed": (
        lambda d: change(d, lambda t: {**t, Q + "qweight": torch.zeros(6, 48, dtype=torch.int32)}),
        "q_proj.qweight belongs to a quantised",
    ),
    "scales": (lambda d: change(d, lambda t: {**t, Q + "scales": torch.zeros(48)}), "q_proj.scales belongs"),
    "absmax": (lambda d: change(d, lambda t: {**t, Q + "weight.absmax": torch.zeros(48)}), "weight.absmax belongs"),
    "SCB": (lambda d: change(d, lambda t: {**t, Q + "SCB": torch.zeros(48)}), "q_proj.SCB belongs"),
    "an adapter": (lambda d: change(d, lambda t: {**t, Q + "lora_A.weight": torch.zeros(4, 48)}), "adapter"),
    "int8": (
        lambda d: change(d, lambda t: {**t, Q + "weight": t[Q + "weight"].to(torch.int8)}),
        "dtype I8: q and k can be converted in F64",
    ),
    "uint8": (lambda d: change(d, lambda t: {**t, Q + "weight": t[Q + "weight"].to(torch.uint8)}), "dtype U8"),
    "float8": (
        lambda d: change(d, lambda t: {**t, Q + "weight": t[Q + "weight"].to(torch.float8_e4m3fn)}),
        "dtype F8_E4M3",
    ),
    "no q": (
        lambda d: change(d, lambda t: {n: x for n, x in t.items() if n != Q + "weight"}),
        "1 weights .*layer 1 has no q_proj.weight",
    ),
    "other names": (
        lambda d: change(d, lambda t: {n.replace("q_proj", "wq"): x for n, x in t.items()}),
        "layer 0 has no q_proj.weight.*self_attn",
    ),
    "too many layers": (
        lambda d: change(d, lambda t: {**t, Q.replace("1", "7") + "weight": t[Q + "weight"].clone()}),
        "2 layers.*of layer 7",
    ),
    "other heads": (
        lambda d: edit(d, num_attention_heads=6, head_dim=12),
        r"shape \[48, 48\], and the config says 6 heads of q, of 12 .*72 rows",
    ),
    "other head size": (lambda d: edit(d, head_dim=8), "of 8 channels each"),
    "a matrix as a bias": (
        lambda d: change(d, lambda t: {**t, Q + "bias": torch.zeros(48, 1)}),
        r"q_proj.bias has shape \[48, 1\]",
    ),
    "a norm of another size": (
        lambda d: change(d, lambda t: {**t, Q.replace("proj", "norm") + "weight": torch.ones(24)}),
        "12 numbers, .* or 48, for 4 heads",
    ),
    "not the whole model": (
        lambda d: change(d, lambda t: {n: x for n, x in t.items() if "lm_head" not in n}),
        "lm_head.weight.*whole model",
    ),
    "another architecture": (
        lambda d: edit(d, architectures=["NoSuchModel"]),
        "transformers has no model of type 'llama' and class 'NoSuchModel'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_leaves_nothing_behind(source, name):
    spoil, match = BAD[name]
    spoil(folder := source())
    refused(folder, match)


SHARDS: dict[str, tuple[Callable[[Path, dict[str, Any]], Any], str]] = {
    "a file is missing": (
        lambda d, index: (d / "model-00002-of-00002.safetensors").unlink(),
        "names 1 files that are not there, the first is 'model-00002-of-00002",
    ),
    "a tensor elsewhere": (
        lambda d, index: index["weight_map"].update({"lm_head.weight": "model-00001-of-00002.safetensors"}),
        "don't agree about 1 tensors",
    ),
    "a tensor too few": (lambda d, index: index["weight_map"].pop("lm_head.weight"), "don't agree about 1 tensors"),
    "a path": (
        lambda d, index: index["weight_map"].update({"lm_head.weight": "../x.safetensors"}),
        "weight_map from names of tensors to names of files beside",
    ),
    "no map": (lambda d, index: index.pop("weight_map"), "must have a weight_map"),
}


@pytest.mark.parametrize("name", SHARDS)
def test_shards_that_do_not_fit_leave_nothing_behind(source, name):
    folder = source()
    held = load_file(folder / code.ONE)
    (folder / code.ONE).unlink()
    index: dict[str, Any] = {"metadata": {}, "weight_map": {}}
    for n, part in enumerate((True, False)):
        file = f"model-0000{n + 1}-of-00002.safetensors"
        some = {name: tensor for name, tensor in held.items() if ("layers.0" in name) is part}
        save_file(some, folder / file, {"format": "pt"})
        index["weight_map"].update(dict.fromkeys(some, file))
    spoil, match = SHARDS[name]
    spoil(folder, index)
    (folder / code.INDEX).write_text(json.dumps(index))
    refused(folder, match)


def test_bad_folders(source, tmp_path):
    folder = source()
    refused(folder, "never written to", ValueError, out=folder)
    refused(folder, "never written to", ValueError, out=folder / "out")
    refused(folder, "never written to", ValueError, out=folder / ".." / "source")
    (folder.parent / "full").mkdir()
    (folder.parent / "full" / "a").touch()
    refused(folder, "not an empty folder", ValueError, out=folder.parent / "full")
    refused(folder, "not an empty folder", ValueError, out=folder.parent)
    refused(folder, "not an empty folder", ValueError, out=folder.parent / "full" / "a")
    refused(folder.parent / "nowhere", "is no folder")
    refused(folder / "config.json", "is no folder", out=tmp_path / "out")
    refused(folder, "'half' or 'interleaved', got 'neox'", ValueError, to="neox")
    refused(folder, "half pairs already", to="half")


def test_no_room(source, monkeypatch):
    monkeypatch.setattr(code.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    refused(source(), "GB are free there", ValueError)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_stopped_while_writing(tmp_path, monkeypatch, error):
    """In the third file of several, in the middle of a tensor."""
    folder = tmp_path / "home" / "source"
    make(CASES["qwen3, norms"]).save_pretrained(folder, max_shard_size="20KB")
    right, calls = heads.HeadRows.order, []

    def stop(self: Any, to: Any) -> Tensor:
        calls.append(to)
        if len(calls) == 3:
            assert any(path.name.endswith(".unfinished") for path in (folder.parent / "deep").iterdir())
            raise error("stopped")
        return right(self, to)

    monkeypatch.setattr(heads.HeadRows, "order", stop)
    refused(folder, "stopped", error)
    assert len(calls) == 3


def test_stopped_at_the_last_moment(source, monkeypatch):
    def stop(*given: Any) -> None:
        raise OSError("stopped")

    monkeypatch.setattr(folder_code.os, "replace", stop)
    refused(folder := source(), "stopped", OSError, out=(folder.parent / "out"))


def test_a_second_run_for_the_same_folder_is_refused_and_the_first_goes_on(source, tmp_path):
    folder, out, told = source(), tmp_path / "out", []

    def second(text: str) -> None:
        with pytest.raises(ValueError, match=r"another run is writing to .*out now: wait until it ends"):
            convert_layout(folder, "interleaved", out)
        told.append(text)

    done = convert_layout(folder, "interleaved", out, tell=second)
    assert told[-1] == "comparing logits" and done.out == str(out) and own(out) == "interleaved"
    assert not list(tmp_path.glob(".out*"))
