"""spec, parity, export and convert-layout from the command line: answers, JSON, exit codes, and bad input."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from milepost.cli import app

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 8192,
    "rope_theta": 5e5,
}


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def with_scaling(**more):
    return {**QWEN, "rope_scaling": {**QWEN["rope_scaling"], **more}}


@pytest.fixture
def model(tmp_path):
    """A folder with a config, and a function that writes another."""

    def write(config, name="model"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        return folder

    return write


def test_spec_says_what_a_config_means_and_where_each_value_came_from(model):
    done = run("spec", model(QWEN), "--target-length", "256k")
    assert done.exit_code == 0
    for words in ("1000000", "rope_theta", "yarn(factor=4.0", "262144 tokens", "logits x 1.2965", "critical", "unseen"):
        assert words in done.stdout, words
    assert "of 64 pairs meet angles that they have not seen in 32768" in " ".join(done.stdout.split())


def test_spec_as_json_holds_the_table(model):
    done = run("spec", model(QWEN), "--target-length", "128k", "--json")
    found = json.loads(done.stdout)
    (one,) = found["analysis"]
    assert (
        found["spec"]["trained"] == 32768
        and found["spec"]["scaled"] == 131072
        and found["spec"]["sources"]["base"] == "rope_theta"
    )
    assert one["target"] == 131072 and len(one["pairs"]) == 64 and one["unseen_pairs"] == []
    assert abs(one["pairs"][63]["frequency"] - 1e6 ** (-126 / 128) / 4) < 1e-15


def test_spec_reads_json_itself_a_file_and_a_folder_alike(model):
    folder = model(QWEN)
    answers = [run("spec", given, "--json").stdout for given in (json.dumps(QWEN), folder, folder / "config.json")]
    assert answers[0] == answers[1] == answers[2]


def test_spec_extends_first_where_a_method_is_named(model):
    folder = model(LLAMA)
    found = json.loads(run("spec", folder, "--rope-scaling", "linear", "--target-length", "32k", "--json").stdout)
    assert found["analysis"][0]["local_resolution"] == 0.25 and found["spec"]["served"] == 32768
    assert run("spec", folder, "--rope-scaling", "yarn").exit_code == 2  # to which length?


def test_spec_draws_a_page(model, tmp_path):
    out = tmp_path / "spec.html"
    assert run("spec", model(QWEN), "--out", out).exit_code == 0
    page = out.read_text()
    assert "angles never seen" in page and "yarn(factor=4.0" in page and "https://" not in page.split("</script>")[-2]
    assert run("spec", json.dumps(QWEN), "--out", tmp_path / "spec.pdf").exit_code == 2


def test_parity_of_two_configs_that_are_written_differently_and_mean_the_same(model):
    v5 = {k: v for k, v in QWEN.items() if k not in ("rope_scaling", "rope_theta")} | {
        "rope_parameters": {**QWEN["rope_scaling"], "rope_theta": 1e6}
    }
    done = run("parity", model(QWEN, "v4"), model(v5, "v5"))
    assert done.exit_code == 0 and "same table" in done.stdout


def test_parity_of_two_readings_shows_the_attention_factor_that_vllm_does_not_read(model):
    folder = model(with_scaling(attention_factor=1.0))
    done = run("parity", folder, "--engines", "transformers,vllm@0.29", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1 and not found["same"]
    (difference,) = found["differences"]
    assert (
        difference["what"] == "temperature on logits"
        and difference["a"] == 1.0
        and abs(difference["b"] - 1.29647) < 1e-4
    )
    again = run("parity", f"transformers:{folder}", f"vllm@0.29:{folder}")
    assert again.exit_code == 1 and "1.29648" in again.stdout and "not read" in again.stdout


def test_parity_of_two_engines_reads_the_file_once(model, monkeypatch):
    from milepost.rope.config import files

    loaded = []
    load = files.load
    monkeypatch.setattr(files, "load", lambda file: loaded.append(file) or load(file))
    folder = model(QWEN)
    assert run("parity", folder, "--engines", "transformers,vllm").exit_code == 0
    assert run("parity", folder, "--engines", "vllm").exit_code == 2
    assert loaded == [folder / "config.json"]


def test_parity_with_every_engine_says_what_was_measured(model):
    """A line for each engine and version, and whether it was run with this type of model; exit 1 where one differs."""
    done = run("parity", model({**QWEN, "max_position_embeddings": 32768}), "--engines", "all")
    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert "vllm 0.32.0: same (measured with vLLM 0.32.0)" in lines
    assert any(line.startswith("exllamav3 1.6.5: frequency of pair 24: ") for line in lines)
    assert any(line.startswith("onnxruntime-genai 0.18.0: onnxruntime-genai stops at rope type yarn") for line in lines)
    falcon = {**QWEN, "model_type": "falcon", "alibi": False, "num_kv_heads": 1, "rope_scaling": None}
    lines = run("parity", model(falcon, "falcon"), "--engines", "all").stdout.splitlines()
    assert ("exllamav3 1.6.5: same (not measured with exllamav3 1.6.5, from reading: no model class: "
            "FalconForCausalLM)") in lines  # fmt: skip
    unheard = run("parity", model({**QWEN, "model_type": "muse_glimmer"}, "muse"), "--engines", "all", "--json")
    rows = json.loads(unheard.stdout)["engines"]
    assert len(rows) >= 13 and all(
        "from reading: no muse_glimmer was among the configs" in row["evidence"] for row in rows
    )


def test_a_config_that_one_engine_alone_can_read(model):
    """Diffusion transformers are diffusers'; what others stop at is said beside the one that reads it."""
    flux = {"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56, 56]}
    done = run("parity", model(flux), "--engines", "all")
    assert done.exit_code == 0
    assert done.stdout == (
        "diffusers 0.42.1: axial(head_dim=128, axes=3, split=(16, 56, 56), pairing='interleaved') "
        "(measured with diffusers 0.42.1; the other engines have models of text)\n"
    )
    ltx = run("parity", model({"_class_name": "LTXVideoTransformer3DModel"}, "ltx"), "--engines", "all")
    assert ltx.exit_code == 2 and "each head turns by others" in ltx.stderr
    rows = json.loads(run("parity", model(flux, "again"), "--engines", "all", "--json").stdout)["engines"]
    assert [row["engine"] for row in rows] == ["diffusers"]
    lengths = {key: value for key, value in QWEN["rope_scaling"].items() if key != "factor"}
    alone = model({**QWEN, "rope_scaling": lengths}, "alone")
    rows = json.loads(run("parity", alone, "--engines", "all", "--json").stdout)["engines"]
    stopped = [row for row in rows if "stops" in row]
    assert {"transformers", "vllm", "sglang"} <= {row["engine"] for row in stopped}
    assert all("factor" in row["stops"] for row in stopped) and len(stopped) < len(rows)


def test_parity_shows_pair_by_pair_where_frequencies_differ(model, tmp_path):
    one, other = model(QWEN, "a"), model(with_scaling(beta_fast=16.0), "b")
    done = run("parity", one, other, "--json", "--out", tmp_path / "parity.html")
    found = json.loads(done.stdout)["differences"]
    assert (
        done.exit_code == 1 and {d["pair"] for d in found} == set(range(24, 40)) and all(d["b"] > d["a"] for d in found)
    )
    assert "frequency" in (tmp_path / "parity.html").read_text()


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("transformers", '"rope_parameters"'),
        ("transformers-v4", '"rope_scaling"'),
        ("vllm", "vllm serve MODEL --max-model-len 131072 --hf-overrides"),
        ("sglang", "sglang.launch_server"),
        ("llama.cpp", "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768"),
        ("mlx-lm", '"rope_scaling"'),
        ("megatron", "--position-embedding-type yarn"),
        ("torchtitan", "rope_factor=4.0"),
    ],
)
def test_export_prints_what_can_be_pasted(engine, words):
    done = run("export", json.dumps(QWEN), "--to", engine)
    assert done.exit_code == 0, done.output
    assert words in done.stdout
    found = json.loads(run("export", json.dumps(QWEN), "--to", engine, "--json").stdout)
    assert found["engine"] == engine and found["text"] == done.stdout.rstrip("\n")


def test_what_is_exported_for_vllm_survives_a_shell():
    done = run("export", json.dumps(LLAMA), "--to", "vllm", "--rope-scaling", "yarn", "--target-length", "32k")
    words = shlex.split(done.stdout)
    said = json.loads(words[words.index("--hf-overrides") + 1])
    assert said["rope_parameters"]["factor"] == 4.0 and words[words.index("--max-model-len") + 1] == "32768"


def test_an_engine_that_can_not_say_it_is_a_failed_check_with_the_numbers():
    done = run("export", json.dumps(with_scaling(attention_factor=1.0)), "--to", "llama.cpp")
    assert done.exit_code == 1 and not done.stdout and "1.1386" in done.stderr and "1.2965" in done.stderr
    done = run("export", json.dumps(with_scaling(attention_factor=1.0)), "--to", "llama.cpp", "--json")
    assert done.exit_code == 1 and "1.1386" in json.loads(done.stdout)["refused"]


BAD = {
    "truncated": ('{"model_type": "llama", ', "not whole JSON"),
    "a list": ("[1, 2]", "must hold a JSON object"),
    "NaN": (json.dumps({**LLAMA, "rope_theta": 1.0}).replace("1.0", "NaN"), "NaN"),
    "an inverse factor": (json.dumps(with_scaling(factor=0.25)), "did you mean 4"),
    "zero": (json.dumps(with_scaling(factor=0)), "rope_scaling.factor"),
    "negative": (json.dumps(with_scaling(factor=-4.0)), "rope_scaling.factor"),
    "a text": (json.dumps(with_scaling(factor="4")), "rope_scaling.factor must be a finite number, got '4'"),
    "two factors": (json.dumps(with_scaling(attention_factor=1.0, attn_factor=0.5)), "attn_factor = 0.5"),
    "contradictory lengths": (json.dumps(with_scaling(factor=2.0)), "max_position_embeddings = 131072"),
    "unknown": (json.dumps(with_scaling(beta_quick=3)), "rope_scaling.beta_quick = 3"),
    "wrong length": (
        json.dumps(
            {
                **LLAMA,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]},
            }
        ),
        "has 1 numbers, and there are 64 pairs",
    ),
}


@pytest.mark.parametrize("name", list(BAD))
@pytest.mark.parametrize("command", ["spec", "parity", "export"])
def test_bad_configs_are_one_sentence_and_exit_2(command, name, model, tmp_path):
    text, words = BAD[name]
    folder = model(text)
    before = sorted(tmp_path.rglob("*"))
    more = {"spec": ["--out", tmp_path / "x.html"], "parity": [folder], "export": ["--to", "vllm"]}[command]
    done = run(command, folder, *more)
    assert done.exit_code == 2 and not done.stdout
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("milepost: ") and words in line
    assert sorted(tmp_path.rglob("*")) == before, "something was written"


def test_other_bad_input(tmp_path, model):
    (tmp_path / "empty").mkdir()
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(100 << 20)
    folder = model(QWEN)
    cases = [
        (("spec", tmp_path / "empty"), "none of config.json"),
        (("spec", tmp_path / "nowhere" / "config.json"), "there is no file or folder"),
        (("spec", huge), "105 MB"),
        (("spec", folder, "--target-length", "many"), "lengths are numbers"),
        (("export", folder, "--to", "vlm"), "did you mean vllm"),
        (("parity", folder), "give B, or --engines"),
        (("parity", folder, "--engines", "vllm"), "two engines"),
        (("parity", folder, "--engines", "vllm,megatron"), "only writes it"),
        (("convert-layout", tmp_path / "empty", "--to", "half", "--out", tmp_path / "out"), "config.json"),
    ]
    for words, said in cases:
        done = run(*words)
        assert done.exit_code == 2 and said in done.stderr and "Traceback" not in done.output, (words, done.output)


def test_unknown_keys_can_be_passed_over_and_are_said(model):
    folder = model(with_scaling(beta_quick=3))
    done = run("spec", folder, "--allow-unknown")
    assert done.exit_code == 0 and "beta_quick = 3" in " ".join(done.stdout.split())


def test_convert_layout_writes_a_folder_and_proves_it(tmp_path):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    source = tmp_path / "llama"
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 64,
    }
    LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.3)).save_pretrained(source)
    done = run("convert-layout", source, "--to", "interleaved", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "half to interleaved" in done.stdout and "proof by logits" in done.stdout
    assert json.loads((tmp_path / "out" / "config.json").read_text())["rope_interleave"] is True
    assert "pairing" in run("parity", source, tmp_path / "out").stdout
    again = run("convert-layout", source, "--to", "interleaved", "--out", tmp_path / "out")
    assert again.exit_code == 2 and "out" in again.stderr
