"""extend: folders that plain transformers loads, held to tables of our own; extended again, in the source's spelling, file by file."""

from __future__ import annotations

import copy
import importlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import HONEST, build, transformers
from torch.nn import functional as F
from typer.testing import CliRunner

from milepost.checkpoints import Extension, extend
from milepost.checkpoints.extension.config import check_transformers, extended_config
from milepost.checkpoints.extension.plan import ExtensionPlan, plan_extension
from milepost.checkpoints.extension.source import open_source
from milepost.checkpoints.files.copy import write_files, write_sidecar, write_weights
from milepost.cli import app
from milepost.rope import ConfigError, RopeSpec, as_read_by
from milepost.rope.engines.parity import differences
from milepost.rope.engines.written import Refused
from milepost.rope.spec import METHODS
from milepost.scaling import Dynamic

L = 64
"""The trained length: 4 L = 256 is where tables of 256 rows end."""
AT = [0, 1, L - 1, L, L + 1, 2 * L, 4 * L - 1, 4 * L, 4 * L + 1]
FAMILIES = {
    "llama": "llama", "qwen2": "qwen2", "mistral": "llama", "gpt_neox": "gpt_neox", "gemma3": "gemma3", "phi3": "phi3",
}  # fmt: skip
runner = CliRunner()


def made(family: str, folder: Path, **more: Any) -> Path:
    given = {"max_position_embeddings": L, **more}
    if family == "mistral":
        given |= {"model_type": "mistral", "sliding_window": None}
    if family == "phi3":
        given |= {"original_max_position_embeddings": L}
    build(FAMILIES[family], **given).save_pretrained(folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def written(folder: Path, out: Path, target: int, method: str, factor: float | None = None) -> ExtensionPlan:
    """The folder alone, as extend writes it, without verifying it."""
    start = open_source(folder, target)
    source = start.source
    planned = plan_extension(start, method, factor)
    out.mkdir()
    write_files(source, planned.config, target, out, lambda text: None)
    write_weights(source, out, link=False, tell=lambda text: None)
    write_sidecar(out, {"to": target, "original": planned.original})
    return planned


def plain(folder: Path) -> Any:
    """As anybody would load it."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    ).eval()


def text(length: int = 4 * L + 2) -> torch.Tensor:
    return torch.randint(3, 64, (1, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    return model(ids).logits[0]


def turned_by(model: Any, spec: RopeSpec, stretch: float = 1.0) -> Any:
    """The source's weights with tables of our own spec, in float64: no code of transformers makes a frequency here."""
    ropes = spec.ropes()

    def forward(x: Any, position_ids: torch.Tensor, layer_type: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        rope = ropes.get(layer_type or "", spec.main)
        spectrum = rope.spectrum(int(position_ids.max()) + 1)
        w = torch.tensor(spectrum.frequencies, dtype=torch.float64) * stretch
        angle = (position_ids[..., None].double() * w).repeat(1, 1, 2)
        m = spectrum.temperature**0.5
        return angle.cos() * m, angle.sin() * m

    for part in model.modules():
        if type(part).__name__.endswith("RotaryEmbedding"):
            part.forward = forward
    return model


# -- logits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_written_folder_gives_the_logits_of_our_tables(family, method, tmp_path):
    source = made(family, tmp_path / "model")
    before = files(source)
    spec = RopeSpec.from_config(source).extended(4 * L, method)
    if (family, method) == ("phi3", "dynamic"):
        with pytest.raises(Refused, match="no rope type but longrope for phi3"):
            written(source, tmp_path / "out", 4 * L, method)
        return
    written(source, tmp_path / "out", 4 * L, method)
    ids = text()
    found = logits(plain(tmp_path / "out"), ids)
    meant = logits(turned_by(plain(source), spec), ids)
    rounding = (
        (logits(turned_by(plain(source), spec, 1 + 2.0**-24), ids) - meant).abs().max()
    )  # float32 frequencies are off by so much
    assert (found - meant)[AT].abs().max() < 16 * rounding + 1e-9
    unextended = logits(plain(source), ids)
    assert (found - unextended)[AT].abs().max() > 1000 * rounding
    assert files(source) == before


def test_only_full_attention_layers_of_gemma_are_stretched(tmp_path):
    source = made("gemma3", tmp_path / "model")
    planned = written(source, tmp_path / "out", 4 * L, "yarn")
    said = json.loads((tmp_path / "out" / "config.json").read_text())["rope_parameters"]
    assert said["full_attention"]["factor"] == 4.0 and said["sliding_attention"] == {
        "rope_type": "default",
        "rope_theta": 10000.0,
    }
    all_stretched = RopeSpec(
        tuple((kind, planned.after.ropes()["full_attention"]) for kind in planned.after.ropes()),
        planned.after.layers,
        L,
    )
    ids = text()
    found, wrong = logits(plain(tmp_path / "out"), ids), logits(turned_by(plain(source), all_stretched), ids)
    assert (found - wrong).abs().max() > 0.1


def test_phi_3_gets_its_yarn_as_longrope(tmp_path):
    """transformers reads yarn as longrope there, and would miss its lists."""
    planned = written(made("phi3", tmp_path / "model"), tmp_path / "out", 4 * L, "yarn")
    said = planned.config["rope_parameters"]
    assert (
        said["rope_type"] == "longrope"
        and said["short_factor"] == said["long_factor"]
        and said["long_factor"][-1] == 4.0
    )
    assert said["attention_factor"] == pytest.approx(0.1 * np.log(4) + 1)
    assert any("no rope type but longrope" in note for note in planned.notes)


# -- extended again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first, second",
    [
        ("yarn", "yarn"),
        ("linear", "yarn"),
        ("ntk", "ntk"),
        ("base", "linear"),
        ("dynamic", "base"),
        ("yarn", "dynamic"),
    ],
)
def test_extended_twice_is_extended_once(first, second, tmp_path):
    source = made("llama", tmp_path / "model")
    written(source, tmp_path / "x4", 4 * L, first)
    again = written(tmp_path / "x4", tmp_path / "x4x8", 8 * L, second)
    once = written(source, tmp_path / "x8", 8 * L, second)
    assert again.factor == (1.0 if second == "dynamic" else 8.0) and again.trained == L and again.served == 4 * L
    assert again.config == once.config and again.original == once.original
    ids = text()
    assert torch.equal(logits(plain(tmp_path / "x4x8"), ids), logits(plain(tmp_path / "x8"), ids))
    assert not torch.equal(logits(plain(tmp_path / "x4x8"), ids), logits(plain(tmp_path / "x4"), ids))


def test_a_foreign_yarn_model_is_extended_from_its_trained_length(tmp_path):
    """No sidecar: original_max_position_embeddings says where to begin."""
    build("llama, yarn").save_pretrained(tmp_path / "yarn")  # 4 x 128
    config = json.loads((tmp_path / "yarn" / "config.json").read_text())
    config |= {"max_position_embeddings": 128, "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}}
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text(json.dumps(config))
    (tmp_path / "plain" / "model.safetensors").write_bytes((tmp_path / "yarn" / "model.safetensors").read_bytes())
    again, once = (written(tmp_path / name, tmp_path / f"{name} x8", 1024, "yarn") for name in ("yarn", "plain"))
    assert again.factor == once.factor == 8.0 and again.served == 512 and once.served == 128
    assert torch.equal(logits(plain(tmp_path / "yarn x8"), text()), logits(plain(tmp_path / "plain x8"), text()))
    assert "was there, and is replaced" in again.notes[-1]


def test_a_sidecar_of_another_config_is_not_believed(tmp_path):
    written(made("llama", tmp_path / "model"), tmp_path / "x4", 4 * L, "ntk")
    path = tmp_path / "x4" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 2 * L}))
    planned = plan_extension(open_source(tmp_path / "x4", 8 * L), "linear")
    assert planned.trained == 2 * L and planned.factor == 4.0 and "was not believed" in planned.notes[0]


# -- config.json -----------------------------------------------------------------------------------------------------


def respelled(folder: Path, **keys: Any) -> Path:
    """The config in the words of transformers 4."""
    path = folder / "config.json"
    config = {k: v for k, v in json.loads(path.read_text()).items() if k != "rope_parameters"}
    path.write_text(json.dumps(config | {"transformers_version": "4.44.0"} | keys))
    return folder


@pytest.mark.parametrize("method", ["yarn", "base", "linear"])
def test_a_config_of_transformers_4_keeps_its_spelling(method, tmp_path):
    new = made("llama", tmp_path / "new")
    written(new, tmp_path / "new x4", 4 * L, method)
    old = respelled(made("llama", tmp_path / "old"), rope_theta=50000.0, rope_scaling=None)
    planned = written(old, tmp_path / "old x4", 4 * L, method)
    assert "rope_parameters" not in planned.config and set(planned.config) == set(
        json.loads((old / "config.json").read_text())
    )
    assert (planned.config["rope_theta"] > 50000.0) == (method == "base")
    assert torch.equal(logits(plain(tmp_path / "old x4"), text()), logits(plain(tmp_path / "new x4"), text()))


def test_an_older_type_key_stays_beside_rope_type(tmp_path):
    old = respelled(made("llama", tmp_path / "old"), rope_theta=50000.0, rope_scaling={"type": "linear", "factor": 2.0})
    said = plan_extension(open_source(old, 8 * L), "linear").config["rope_scaling"]
    assert said["type"] == said["rope_type"] == "linear" and said["factor"] == 8.0


@pytest.mark.parametrize("keys", [{"rotary_emb_base": 10000, "rotary_pct": 0.25}, {"rotary_pct": 0.25}])
def test_the_older_names_of_neox_are_written_under(keys, tmp_path):
    """transformers' GPT-NeoX reads rotary_emb_base, and passes over rope_theta beside it."""
    written(made("gpt_neox", tmp_path / "new"), tmp_path / "new x4", 4 * L, "base")
    old = respelled(made("gpt_neox", tmp_path / "old"), **keys)
    planned = written(old, tmp_path / "old x4", 4 * L, "base")
    assert planned.config["rotary_emb_base"] > 10000 and "rope_theta" not in planned.config
    assert torch.equal(logits(plain(tmp_path / "old x4"), text()), logits(plain(tmp_path / "new x4"), text()))


def test_the_text_model_inside_of_another_is_the_one_that_changes():
    inner = {k: v for k, v in HONEST["gemma3"].items() if k != "model_type"}
    config = transformers.AutoConfig.for_model("gemma3", text_config={**inner, "max_position_embeddings": L}).to_dict()
    config = json.loads(json.dumps(config, default=str))
    before = copy.deepcopy(config)
    spec = RopeSpec.from_config(config)
    done, _ = extended_config(config, spec, spec.extended(4 * L, "yarn"))
    assert config == before
    assert (
        done["text_config"]["max_position_embeddings"] == 4 * L
        and done["text_config"]["rope_parameters"]["full_attention"]["factor"] == 4.0
    )
    done["text_config"] = before["text_config"]
    assert done == before


def test_what_is_no_part_of_the_scaling_stays_in_its_dictionary(tmp_path):
    source = made(
        "llama",
        tmp_path / "model",
        rope_parameters={"rope_type": "default", "rope_theta": 50000.0, "llama_4_scaling_beta": 0.1},
    )
    planned = plan_extension(open_source(source, 4 * L), "yarn")
    assert planned.config["rope_parameters"]["llama_4_scaling_beta"] == 0.1
    read_back = RopeSpec.from_config(planned.config)  # Llama's code does not read the key, also beside a trained length
    assert read_back.temperatures == () and read_back.main.scaling == planned.after.main.scaling
    assert any("llama does not read rope_parameters.llama_4_scaling_beta" in note for note in read_back.notes)


def test_a_config_class_that_changes_what_is_written_is_refused(tmp_path):
    spec = RopeSpec.from_config(made("phi3", tmp_path / "model")).extended(4 * L, "yarn")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    with pytest.raises(Refused, match=r"transformers 5\.22\.2 stops at rope type yarn in its phi3"):
        extended_config(config, RopeSpec.from_config(tmp_path / "model"), spec)
    scaling = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": L}
    with pytest.raises(Refused, match="transformers' config of phi3"):
        check_transformers({**config, "rope_parameters": scaling}, spec)


def test_dynamic_keeps_the_number_that_it_starts_from(tmp_path):
    planned = plan_extension(open_source(made("llama", tmp_path / "model"), 4 * L), "dynamic")
    assert planned.config["max_position_embeddings"] == L and any(
        "must stay the trained length" in note for note in planned.notes
    )


def test_dynamic_has_a_factor_of_its_own(tmp_path):
    source = made("llama", tmp_path / "model")
    planned = written(source, tmp_path / "out", 4 * L, "dynamic", 6.0)
    assert planned.factor == planned.config["rope_parameters"]["factor"] == 6.0
    assert planned.config["max_position_embeddings"] == L and planned.after.main.scaling == Dynamic(L, 6.0)
    plain_one = plan_extension(open_source(source, 4 * L), "dynamic")
    assert plain_one.factor == plain_one.config["rope_parameters"]["factor"] == 1.0


def test_a_factor_may_be_more_than_the_target_asks_for(tmp_path):
    source = made("llama", tmp_path / "model")
    planned = written(source, tmp_path / "out", 4 * L, "yarn", 6.0)
    assert planned.config["max_position_embeddings"] == 4 * L and planned.config["rope_parameters"]["factor"] == 6.0
    other = RopeSpec.from_config(source).extended(6 * L, "yarn")
    meant = logits(turned_by(plain(source), other), text())
    assert (
        (logits(plain(tmp_path / "out"), text()) - meant).abs().max()
        < 1e-3
        < (meant - logits(plain(source), text())).abs().max()
    )
    with pytest.raises(ConfigError, match="factor 3 makes 192 tokens of 64, fewer than the target length 256"):
        plan_extension(open_source(source, 4 * L), "yarn", 3.0)
    with pytest.raises(
        ConfigError, match=r"dynamic follows the length of the text, by a factor of at least 1, got 0\.5"
    ):
        plan_extension(open_source(source, 4 * L), "dynamic", 0.5)


@pytest.mark.parametrize("method", ["yarn", "linear", "ntk", "llama3", "base"])
def test_vllm_reads_the_same_frequencies(method, tmp_path):
    planned = written(made("llama", tmp_path / "model"), tmp_path / "out", 4 * L, method)
    assert differences(planned.after, as_read_by("vllm", tmp_path / "out", served=4 * L)) == []
    assert differences(planned.before, planned.after) != []


# -- files -----------------------------------------------------------------------------------------------------------


def with_files(folder: Path) -> Path:
    for name, content in {
        "tokenizer_config.json": '{"model_max_length": 64, "clean_up": false}', "tokenizer.model": "m", "merges.txt": "a b", "chat_template.jinja": "{{ x }}",
        "additional_chat_templates/tools.jinja": "{{ y }}", "LICENSE": "free", "README.md": "# it", "pytorch_model.bin": "p", "training_args.bin": "p",
        "pytorch_model.bin.index.json": "{}", "modeling_own.py": "code", "consolidated.safetensors": "other", "checkpoint-5/trainer_state.json": "{}",
        "onnx/model.onnx": "graph", ".cache/huggingface/x.json": "{}", "milepost/old.json": "{}",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


COPIED = {
    "tokenizer.model",
    "merges.txt",
    "chat_template.jinja",
    "additional_chat_templates/tools.jinja",
    "LICENSE",
    "README.md",
    "generation_config.json",
}


def test_what_loaders_need_is_copied_and_nothing_else(tmp_path):
    source = with_files(made("llama", tmp_path / "model"))
    before = files(source)
    done = extend(source, target_length=4 * L, method="yarn", out=tmp_path / "out")
    there = files(tmp_path / "out")
    ours = {"config.json", "tokenizer_config.json", "model.safetensors", "milepost.json"}
    assert set(there) == COPIED | ours | {f"milepost/{name}" for name in ("report.html", "report.md", "extension.json")}
    assert {name: there[name] for name in (*COPIED, "model.safetensors")} == {
        name: before[name] for name in (*COPIED, "model.safetensors")
    }
    assert json.loads(there["tokenizer_config.json"]) == {"model_max_length": 4 * L, "clean_up": False}
    assert [p.name for p in (tmp_path / "out").glob("*.safetensors")] == [
        "model.safetensors"
    ]  # all that vLLM's pattern finds
    assert {"pytorch_model.bin", "modeling_own.py", "consolidated.safetensors"} <= set(
        done.left_out
    ) and "milepost/old.json" not in done.left_out
    assert files(source) == before and {p.name for p in tmp_path.iterdir()} == {"model", "out"}
    plain(tmp_path / "out")


def test_sharded_weights_come_with_their_index(tmp_path):
    source = tmp_path / "model"
    model = build("llama", max_position_embeddings=L)
    model.save_pretrained(source, max_shard_size="100KB")
    assert len(list(source.glob("model-*.safetensors"))) > 1
    written(source, tmp_path / "out", 4 * L, "yarn")
    assert {p.name for p in (tmp_path / "out").glob("model*")} == {p.name for p in source.glob("model*")}
    assert len(logits(plain(tmp_path / "out"), text())) == 4 * L + 2


def test_linked_weights_are_the_same_file(tmp_path):
    source = made("llama", tmp_path / "model")
    done = extend(source, target_length=4 * L, method="linear", out=tmp_path / "out", link=True)
    assert done.weights == "linked" and os.path.samefile(
        source / "model.safetensors", tmp_path / "out" / "model.safetensors"
    )
    assert not os.path.samefile(source / "config.json", tmp_path / "out" / "config.json")


def test_links_that_can_t_be_made_are_an_error_and_not_a_copy(tmp_path, monkeypatch):
    def other_disk(*_: Any, **__: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    source = made("llama", tmp_path / "model")
    monkeypatch.setattr(os, "link", other_disk)
    with pytest.raises(
        ConfigError, match=r"can't give model.safetensors a second name .*: Invalid cross-device link; leave --link out"
    ):
        extend(source, target_length=4 * L, method="yarn", out=tmp_path / "out", link=True)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_name_on_the_hub_is_extended_from_its_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    snapshot = tmp_path / "hub" / "models--some--tiny" / "snapshots" / ("a" * 40)
    with_files(made("llama", snapshot))
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    before = files(tmp_path / "hub")
    done = extend("some/tiny", target_length=4 * L, method="yarn", out=tmp_path / "out")
    assert done.ok and done.model == "some/tiny" and files(tmp_path / "hub") == before
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == load_file(snapshot / "model.safetensors").keys()
    with pytest.raises(ConfigError, match="there is no file or folder 'some/other'"):
        extend("some/other", target_length=4 * L, method="yarn", out=tmp_path / "out2")


# -- loss before and after, data, pages ------------------------------------------------------------------------------


def ids_file(path: Path, tokens: int = 6000, low: int = 3) -> Path:
    np.save(path, np.random.default_rng(0).integers(low, 64, tokens))
    return path


@torch.no_grad()
def loss_of(folder: Path, windows: np.ndarray, length: int, targets: int) -> float:
    """By transformers alone: the mean loss of the last tokens of each window."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.from_numpy(windows[:, -(length + 1) :])
    lost = F.cross_entropy(model(ids[:, :-1]).logits.transpose(1, 2).double(), ids[:, 1:], reduction="none")
    return float(lost[:, -targets:].mean())


def test_loss_before_and_after_is_that_of_transformers_on_the_same_tokens(tmp_path):
    source, book = made("llama", tmp_path / "model"), ids_file(tmp_path / "book.npy")
    done = extend(source, target_length=4 * L, method="yarn", out=tmp_path / "out", text=book)
    ids = np.load(book)
    places = range(0, len(ids) - 4 * L, 4 * L + 1)
    chosen = [places[n * len(places) // 16] for n in range(16)]
    windows = np.stack([ids[a : a + 4 * L + 1] for a in chosen])
    assert [row["length"] for row in done.losses] == [L, 4 * L]
    for row in done.losses:
        assert (row["windows"], row["targets"]) == (16, L // 2)
        old, new = (loss_of(folder, windows, row["length"], L // 2) for folder in (source, tmp_path / "out"))
        assert row["before"]["value"] == pytest.approx(old, abs=1e-4) and row["after"]["value"] == pytest.approx(
            new, abs=1e-4
        )
        assert row["difference"]["value"] == pytest.approx(new - old, abs=2e-4) and abs(new - old) > 0.01
        assert row["difference"]["low"] < row["difference"]["value"] < row["difference"]["high"]


def test_the_result_is_plain_data_with_a_sidecar_that_says_what_was_done(tmp_path):
    source = made("llama", tmp_path / "model")
    done = extend(source, target_length=4 * L, method="yarn", out=tmp_path / "out")
    assert isinstance(done, Extension) and done.ok and done.losses == () and done.tuned is None
    data = json.loads(json.dumps(done.to_json(), allow_nan=False))
    assert data == json.loads((tmp_path / "out" / "milepost" / "extension.json").read_text())
    assert (
        data["changed"]["max_position_embeddings"] == [L, 4 * L]
        and data["factor"] == 4.0
        and data["verification"]["ok"]
    )
    assert len(data["unseen"]["before"]["all"]) > 0 == len(data["unseen"]["after"]["all"])
    told = json.loads((tmp_path / "out" / "milepost.json").read_text())
    assert (told["method"], told["factor"], told["trained"], told["from"], told["to"]) == ("yarn", 4.0, L, L, 4 * L)
    assert (
        told["source"]["name"] == str(source)
        and told["tuned"] is None
        and told["verified"]
        and told["provenance"]["versions"]["torch"]
    )
    assert "config.json" in done._repr_html_() and "yarn(factor=4.0, trained=64)" in done._repr_html_()


@pytest.mark.slow
def test_the_command_prints_json_and_exits_0(tmp_path):
    source, book = made("llama", tmp_path / "model"), ids_file(tmp_path / "book.npy")
    words = ["extend", str(source), "--target-length", "256", "--method", "yarn", "--out", str(tmp_path / "out")]
    ran = runner.invoke(app, [*words, "--text", str(book), "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["ok"] and "copying model.safetensors" in ran.stderr
    page = (tmp_path / "out" / "milepost" / "report.html").read_text()
    assert "nats a token" in page and "default-src 'none'" in page
    ran = runner.invoke(app, [*words[:-1], str(tmp_path / "out2")], env={"COLUMNS": "200"})
    assert ran.exit_code == 0 and "for 256 tokens instead of 64: yarn, factor 4" in ran.stdout and "PASS" in ran.stdout


def test_a_folder_that_fails_verify_is_kept_with_exit_1(tmp_path):
    """transformers' dynamic is wrong with a cache, whoever asks for it."""
    source = made("llama", tmp_path / "model")
    ran = runner.invoke(
        app,
        ["extend", str(source), "--target-length", "256", "--method", "dynamic", "--out", str(tmp_path / "out")],
        env={"COLUMNS": "200"},
    )
    assert ran.exit_code == 1 and "FAIL" in ran.stdout and "Traceback" not in ran.output
    assert not json.loads((tmp_path / "out" / "milepost.json").read_text())["verified"]
    assert len(logits(plain(tmp_path / "out"), text())) == 4 * L + 2


# -- auto ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_auto_says_when_nothing_helps(tmp_path):
    """Random weights know nothing that a scaling could save."""
    source, book = made("llama", tmp_path / "model"), ids_file(tmp_path / "book.npy")
    before = files(source)
    ran = runner.invoke(
        app, ["extend", str(source), "--target-length", "128", "--out", str(tmp_path / "out"), "--text", str(book)]
    )
    assert ran.exit_code == 1 and "no method was found to help at 128 tokens" in ran.stderr
    assert files(source) == before and {p.name for p in tmp_path.iterdir()} == {"model", "book.npy"}


def test_auto_writes_the_method_and_the_factor_that_recommend_found(tmp_path, monkeypatch):
    class Found:
        best, factor = "yarn", 6.0

        def to_json(self) -> dict[str, Any]:
            return {"best": self.best}

    asked: dict[str, Any] = {}
    page = importlib.import_module("milepost.checkpoints.extension.request")
    monkeypatch.setattr(page, "recommend", lambda model, **more: asked.update(more, model=model) or Found())
    source, book = made("llama", tmp_path / "model"), ids_file(tmp_path / "book.npy", 20000)
    done = extend(source, target_length=4 * L, out=tmp_path / "out", text=book)
    assert asked["target_length"] == 4 * L and asked["model"].name == str(source) and asked["text"] == book
    assert (done.method, done.factor, done.target) == ("yarn", 6.0, 4 * L) and done.recommendation == {"best": "yarn"}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["rope_parameters"]["factor"] == 6.0
    assert done.provenance["protocol"]["text"]["source"].endswith(
        "part 2 of 2"
    )  # chosen on one part, measured on the other
    with pytest.raises(ConfigError, match=r"was extended before: give .*model instead"):
        extend(tmp_path / "out", target_length=8 * L, out=tmp_path / "again", text=book)


def test_bfloat16_weights_stay_as_they_are(tmp_path):
    source = made("llama", tmp_path / "model")
    save_file(
        {k: v.bfloat16() for k, v in load_file(source / "model.safetensors").items()},
        source / "model.safetensors",
        {"format": "pt"},
    )
    extend(source, target_length=4 * L, method="yarn", out=tmp_path / "out", dtype="bfloat16")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
