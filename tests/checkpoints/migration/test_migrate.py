"""A whole migration of a model that has learned something by its positions: lost with them, recovered by tuning, and
told honestly when it is not.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launched import launch
from migrate_models import OLD, VOCABULARY, family, taught, three_back
from safetensors.torch import load_file
from tiny_models import transformers
from typer.testing import CliRunner

from milepost.checkpoints import extend, migrate
from milepost.checkpoints.migration.losses import share_recovered
from milepost.checkpoints.migration.source import open_origin
from milepost.checkpoints.migration.targets import to_gpt2
from milepost.cli import app

pytestmark = pytest.mark.slow

HOW: dict[str, Any] = {"batch": 32, "rate": 1e-2}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A lab model that was taught, the same as a GPT-2 folder, and texts: long, and short."""
    made = tmp_path_factory.mktemp("migrate")
    taught(made / "lab")
    origin = open_origin(made / "lab", "longer-table", "cpu")
    to_gpt2(origin.body(), origin.table()[0]).save_pretrained(made / "gpt2")
    np.save(made / "long.npy", three_back(80000, 1))
    np.save(made / "short.npy", three_back(3000, 2))
    return made


@pytest.fixture(scope="module")
def moved(place) -> Any:
    """The lab model with rope: enough text and steps."""
    before = files(place / "lab")
    done = migrate(place / "lab", to="rope", text=place / "long.npy", steps=100, out=place / "turned", **HOW)
    assert files(place / "lab") == before
    return done


def test_rope_recovers_what_the_swap_lost(moved):
    assert moved.ok and moved.recovered and moved.share["low"] > 0.9
    inside = {stage: mean["value"] for stage, mean in moved.inside.items()}
    assert inside["swapped"] > inside["before"] + 2 and inside["recovered"] < inside["before"] + 0.25
    share = (inside["swapped"] - inside["recovered"]) / (inside["swapped"] - inside["before"])
    assert moved.share["value"] == pytest.approx(share) and moved.architecture == "GPTNeoXForCausalLM"
    before = [row["before"] for row in moved.by_position]
    assert [row["start"] for row in moved.by_position] == list(range(0, 2 * OLD, OLD // 4))
    assert all(before[:4]) and before[4:] == [None] * 4  # the old table ends there, and the new model reads on
    assert all(row["recovered"]["value"] < 10 for row in moved.by_position)
    assert [row["served"] for row in moved.past] == ["as it is", "linear", "ntk"]
    for row in moved.past:
        gap = row["difference"]
        assert row["works"] == (gap["value"] <= 0.02 * moved.past[0]["short"]["value"] or gap["low"] <= 0)


def test_what_was_written_is_an_ordinary_checkpoint(place, moved):
    config = json.loads((place / "turned" / "config.json").read_text())
    assert (
        config["model_type"] == "gpt_neox" and config["rotary_pct"] == 1.0 and config["use_parallel_residual"] is False
    )
    model, told = transformers.AutoModelForCausalLM.from_pretrained(place / "turned", output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    ids = torch.from_numpy(three_back(2 * OLD, 3))[None]
    with torch.no_grad():
        logits = model.eval()(ids).logits
    last = torch.nn.functional.cross_entropy(logits[0, 3 : OLD - 1], ids[0, 4:OLD])
    assert float(last) < 1.5 < np.log(VOCABULARY)
    told = json.loads((place / "turned" / "milepost.json").read_text())
    assert told["what"] == "milepost migrate" and told["recovered"] is True
    names = {p.name for p in (place / "turned" / "milepost").iterdir()}
    assert names == {"report.html", "report.md", "migration.json"}
    data = json.loads((place / "turned" / "milepost" / "migration.json").read_text())
    assert data["share"] == moved.share and "Recovered:" in (place / "turned" / "milepost" / "report.md").read_text()
    assert "<table>" in moved._repr_html_() and not list(place.glob(".turned*"))


def test_it_can_be_extended_as_the_report_says(place, moved, tmp_path):
    row = next(
        line
        for line in (place / "turned" / "milepost" / "report.md").read_text().splitlines()
        if "milepost extend" in line
    )
    assert f"--target-length {2 * OLD} --method ntk" in row
    done = extend(place / "turned", target_length=2 * OLD, method="ntk", out=tmp_path / "longer")
    assert done.ok and not any("not believed" in note for note in done.notes)


def test_a_model_that_is_hardly_tuned_is_not_recovered(place, tmp_path):
    done = migrate(
        place / "gpt2", to="rope", text=place / "long.npy", steps=2, out=tmp_path / "out", batch=2, rate=1e-5
    )
    assert done.ok and done.recovered is False and done.share["high"] < 0.5
    assert "Not recovered: replacing" in (tmp_path / "out" / "milepost" / "report.md").read_text()


def test_without_steps_only_the_positions_are_replaced(place, tmp_path):
    done = migrate(place / "gpt2", to="alibi", text=place / "long.npy", steps=0, out=tmp_path / "out")
    assert done.ok and done.share is None and done.tuned is None and done.recovered is None
    assert (
        set(done.inside) == {"before", "swapped"}
        and "Not tuned" in (tmp_path / "out" / "milepost" / "report.md").read_text()
    )
    assert any("bfloat16" in note and "sqrt(D)" in note for note in done.notes) and any(
        "twice" in note for note in done.notes
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["alibi"], config["parallel_attn"], config["bias"], config["multi_query"]) == (
        True,
        False,
        True,
        False,
    )


def test_noise_in_the_source_s_table_changes_no_bit_of_the_result(place, tmp_path):
    """Without tuning; and with it: nothing of the table can be in what is tuned."""
    shutil.copytree(place / "gpt2", tmp_path / "noisy")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "noisy")
    with torch.no_grad():
        model.transformer.wpe.weight.add_(torch.randn(model.transformer.wpe.weight.shape))
    model.save_pretrained(tmp_path / "noisy")
    for name, source in (("one", place / "gpt2"), ("other", tmp_path / "noisy")):
        migrate(source, to="rope", text=place / "long.npy", steps=3, out=tmp_path / name, **HOW)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "other"))
    assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_nope_ends_where_the_table_ended_and_says_so(place, tmp_path):
    done = migrate(
        place / "gpt2", to="nope", text=place / "long.npy", steps=6, anneal=True, out=tmp_path / "out", **HOW
    )
    table = load_file(tmp_path / "out" / "model.safetensors")["transformer.wpe.weight"]
    assert done.ok and table.shape == (OLD, 32) and not table.any()
    assert any(f"{OLD} tokens are the most" in note for note in done.notes) and done.past == ()
    assert f"Past {OLD} tokens nothing can be read" in (tmp_path / "out" / "milepost" / "report.md").read_text()


def test_a_longer_table_keeps_its_first_rows_through_tuning(place, tmp_path):
    done = migrate(place / "gpt2", to="longer-table", text=place / "long.npy", steps=6, out=tmp_path / "out", **HOW)
    written = next(row for row in done.methods if row["written"])
    assert done.ok and [row["method"] for row in done.methods] == ["tile", "interpolate", "stretch"]
    assert written["choosing"] == min(row["choosing"] for row in done.methods)
    old, new = (
        load_file(folder / "model.safetensors")["transformer.wpe.weight"]
        for folder in (place / "gpt2", tmp_path / "out")
    )
    same = (new[: len(old)] == old).all(1)
    assert (
        new.shape == (2 * OLD, 32) and bool(same[: written["kept"]].all()) and not bool(same[written["kept"] :].any())
    )
    assert [row["served"] for row in done.past] == ["as it is"]


def test_a_llama_loses_its_rotation(place, tmp_path):
    folder = family("llama", tmp_path / "model", vocab_size=64)
    done = migrate(folder, to="nope", text=place / "long.npy", steps=4, anneal=True, out=tmp_path / "out", **HOW)
    asked = done.retrieval
    assert set(asked) == {"before", "swapped", "recovered"}
    assert [one["length"] for one in asked["swapped"]["lengths"]] == [done.old, 2 * done.old]
    assert all(0 <= one["share"] <= 1 and one["trials"] == 24 for row in asked.values() for one in row["lengths"])
    assert asked["before"]["cells"] != asked["swapped"]["cells"]  # margins: positions were dropped
    report = (tmp_path / "out" / "milepost" / "report.md").read_text()
    assert "Retrieval (DroPE: rotations dropped, then recalibrated)" in report and "Retrieval of a needle" in report
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert done.ok and config["model_type"] == "smollm3" and not any(config["no_rope_layers"])
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == load_file(folder / "model.safetensors").keys()
    assert done.by_position[-1]["end"] == 2 * OLD and done.by_position[-1]["before"] is not None


def test_a_source_in_half_precision_stays_so(place, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(place / "gpt2", dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "model")
    done = migrate(tmp_path / "model", to="rope", text=place / "long.npy", steps=1, out=tmp_path / "out", batch=2)
    assert done.ok and {one.dtype for one in load_file(tmp_path / "out" / "model.safetensors").values()} == {
        torch.bfloat16
    }


def test_a_lab_model_that_reads_bytes_gets_a_tokenizer(tmp_path):
    from milepost.lab import checkpoint
    from milepost.lab.model import Decoder, Shape

    checkpoint.save(Decoder(Shape(256, 1, 32, 2, OLD), "sinusoidal").start(0), tmp_path / "model")
    (tmp_path / "book.txt").write_text("Straße, naïve, 東京 und weiter. " * 200)
    done = migrate(tmp_path / "model", to="rope", text=tmp_path / "book.txt", steps=0, out=tmp_path / "out")
    made = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in ("Straße 東京\n\t x", bytes(range(128)).decode()):
        assert made(text)["input_ids"] == list(text.encode()) and made.decode(list(text.encode())) == text
    assert done.ended is False and all(row["before"] is not None for row in done.by_position)


# -- killed
# ---------------------------------------------------------------------------------------------------------------------

KILLED = """
import json, os, signal, sys
from milepost.checkpoints import migrate
def tell(text):
    if text.startswith(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
migrate(sys.argv[1], out=sys.argv[2], text=sys.argv[3], tell=tell, **json.loads(sys.argv[5]))
"""


def test_a_migration_that_is_killed_goes_on_and_ends_with_the_same_bits(place, tmp_path):
    how = {"to": "alibi", "steps": 10, "anneal": True, "batch": 4, "rate": 1e-3}
    before = files(place / "gpt2")
    words = [
        sys.executable,
        "-c",
        KILLED,
        str(place / "gpt2"),
        str(tmp_path / "killed"),
        str(place / "short.npy"),
        "recovering: step 4",
        json.dumps(how),
    ]
    ran = subprocess.run(words, capture_output=True, check=False, timeout=120)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert (
        not (tmp_path / "killed").exists()
        and (tmp_path / ".killed.unfinished").is_dir()
        and files(place / "gpt2") == before
    )
    with pytest.raises(ValueError, match="holds a training that did not end"):
        migrate(place / "gpt2", out=tmp_path / "killed", text=place / "short.npy", **how)
    for other in ({"to": "rope"}, {"anneal": False}, {"rate": 1e-4}):
        with pytest.raises(ValueError, match="is of another training"):
            migrate(place / "gpt2", out=tmp_path / "killed", text=place / "short.npy", resume=True, **{**how, **other})
    said: list[str] = []
    migrate(place / "gpt2", out=tmp_path / "killed", text=place / "short.npy", resume=True, tell=said.append, **how)
    assert "going on from step 3 of 10" in said and any(text.startswith("fine-tuning: step 10") for text in said)
    migrate(place / "gpt2", out=tmp_path / "whole", text=place / "short.npy", **how)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
    assert {p.name for p in tmp_path.iterdir()} == {"killed", "whole"} and files(place / "gpt2") == before


def test_a_migration_that_was_trained_before_it_ended_counts_no_step_past_the_last(place, tmp_path):
    """It said "step 23 of 20" and "-1 min 55 s left" after some resumes."""
    how = {"to": "rope", "steps": 6, "text": place / "short.npy", **HOW}
    whole = migrate(place / "gpt2", out=tmp_path / "whole", **how)
    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        if text == "measuring the loss after recovery":
            raise KeyboardInterrupt

    for resume in (False, True, True):
        with pytest.raises(KeyboardInterrupt):
            migrate(place / "gpt2", out=tmp_path / "killed", resume=resume, tell=tell, **how)
    resumed = migrate(place / "gpt2", out=tmp_path / "killed", resume=True, tell=said.append, **how)
    told = [text for text in said if text.endswith(" left")]
    assert [int(text.split()[2]) for text in told] == [1, 2, 3, 4, 5, 6] and not any(" -" in text for text in told)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert resumed.tuned["loss"] == whole.tuned["loss"] and resumed.share == whole.share


def test_two_processes_tune_together_what_one_tunes_alone(place, tmp_path):
    """Under `accelerate launch`: two of 2 windows a step are one of 4, and the first process alone swaps, proves and
    writes.
    """
    how = {"to": "rope", "steps": 6, "rate": 1e-3}
    alone = migrate(place / "gpt2", out=tmp_path / "alone", text=place / "short.npy", batch=4, **how)
    words = [
        "-m",
        "milepost.cli",
        "migrate",
        str(place / "gpt2"),
        "--to",
        "rope",
        "--text",
        str(place / "short.npy"),
        "--steps",
        "6",
        "--rate",
        "0.001",
    ]
    launch(*words, "--batch", "2", "--out", str(tmp_path / "both"))
    told = json.loads((tmp_path / "both" / "milepost" / "migration.json").read_text())
    assert told["ok"] and told["tuned"]["windows_a_step"] == alone.tuned["windows_a_step"] == 4
    after, other = (
        alone.inside["recovered"]["value"],
        migrate(place / "gpt2", out=tmp_path / "half", text=place / "short.npy", batch=2, **how),
    )
    # the same mean over the same windows in another order of adding up, six steps of Adam: half of the windows alone
    # end elsewhere
    assert told["inside"]["recovered"]["value"] == pytest.approx(after, rel=1e-4) != other.inside["recovered"]["value"]
    assert {path.name for path in tmp_path.iterdir()} == {"alone", "both", "half"}


# -- the share
# ------------------------------------------------------------------------------------------------------------------


def test_the_share_is_of_the_gap_and_has_its_sign():
    before, swapped, after = np.full(6, 10.0), np.full(6, 20.0), np.array([11.0, 12, 13, 11, 12, 13])
    share = share_recovered(before, swapped, after)
    assert share is not None and share["value"] == pytest.approx(0.8) and 0.7 < share["low"] < 0.8 < share["high"] < 0.9
    worse = share_recovered(before, swapped, swapped + 5)
    assert worse is not None and worse["value"] == pytest.approx(-0.5)
    assert (
        share_recovered(before, before + np.array([1, -1, 1, -1, 1, -1]), after) is None
    )  # no gap that could be told from chance
    assert (
        share_recovered(before, before - 5, after) is None
        and share_recovered(before[:1], swapped[:1], after[:1]) is None
    )


@pytest.mark.parametrize(
    ("low", "high", "said"), [(0.91, 0.99, True), (0.9, 0.95, True), (0.5, 0.89, False), (0.85, 0.95, None)]
)
def test_recovered_is_what_the_whole_interval_says(moved, low, high, said):
    assert replace(moved, share={"value": (low + high) / 2, "low": low, "high": high}).recovered is said
    assert replace(moved, share=None).recovered is None


# -- the command
# ----------------------------------------------------------------------------------------------------------------


def test_the_command_tells_its_verdict(place, tmp_path):
    words = [
        "migrate",
        str(place / "gpt2"),
        "--to",
        "rope",
        "--text",
        str(place / "short.npy"),
        "--steps",
        "1",
        "--batch",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    flat = " ".join(ran.stdout.split())
    assert "Not recovered" in flat and "Proved by logits" in flat and "report.html" in ran.stderr
    ran = CliRunner().invoke(app, [*words[:-1], str(tmp_path / "again"), "--json"])
    assert ran.exit_code == 0 and json.loads(ran.stdout)["recovered"] is False


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "bloom": (
        "bloom",
        {"to": "rope"},
        "a model of type bloom can't be moved: gpt2 and opt models and the lab's learned and sinusoidal ones can",
    ),
    "llama to rope": ("llama", {"to": "rope"}, "a llama turns already, and can be moved to nope, not to rope"),
    "lab rope": ("rope", {"to": "alibi"}, "this lab model has rope: gpt2 and opt models"),
    "sinusoidal to a table": ("sinusoidal", {"to": "longer-table"}, "has no table and no end"),
    "odd heads": ("odd", {"to": "rope"}, "rope turns channels in pairs, and the heads of this model have 9 (36 / 4)"),
    "zero table": ("zero", {"to": "rope"}, f"the {OLD} rows of the table are zero"),
    "tied table": ("tied", {"to": "rope"}, "the table of positions is tied to transformer.wte.weight"),
    "missing table": ("missing", {"to": "rope"}, "1 weights of GPT2LMHeadModel are not in"),
    "too little text": ("gpt2", {"text": "tiny.npy"}, "is too short: 2 windows of 64 tokens without overlap need"),
    "no such target": ("gpt2", {"to": "t5"}, "a model can be moved to rope, alibi, nope, longer-table; got 't5'"),
    "negative steps": ("gpt2", {"steps": -1}, "got -1 steps"),
    "shorter table": (
        "gpt2",
        {"to": "longer-table", "length": OLD},
        f"the table has {OLD} rows already: a longer one wants more (--length), got {OLD}",
    ),
    "long nope": ("gpt2", {"to": "nope", "length": 2 * OLD}, f"which ends at {OLD} tokens"),
    "long fade": ("gpt2", {"anneal": True, "length": 2 * OLD}, f"fades positions that end at {OLD} tokens"),
    "fading table": ("gpt2", {"to": "longer-table", "anneal": True}, "a longer table keeps the old"),
    "no batch": ("gpt2", {"batch": 0}, "at least 1 window, got 0"),
    "a window": ("mistral", {"to": "nope"}, "see 8 tokens (sliding_window)"),
    "350m": ("350m", {"to": "rope"}, "as OPT-350m does"),
    "gguf": ("gguf", {"to": "rope"}, "is a GGUF file"),
}


def bad_model(kind: str, place: Path, folder: Path) -> Path:
    from tiny_models import build

    from milepost.lab import checkpoint
    from milepost.lab.model import Decoder, Shape

    if kind in ("bloom", "llama"):
        build(kind).save_pretrained(folder)
    elif kind in ("rope", "sinusoidal"):
        checkpoint.save(Decoder(Shape(64, 1, 32, 2, OLD), kind).start(0), folder)
    elif kind == "odd":
        build("gpt2", n_embd=36, n_positions=OLD).save_pretrained(folder)
    elif kind == "mistral":
        transformers.MistralForCausalLM(
            transformers.MistralConfig(
                vocab_size=64,
                hidden_size=32,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=2,
                sliding_window=8,
            )
        ).save_pretrained(folder)
    elif kind == "350m":
        build(
            "opt", hidden_size=32, word_embed_proj_dim=16, do_layer_norm_before=False, max_position_embeddings=OLD
        ).save_pretrained(folder)
    elif kind == "gguf":
        folder.mkdir()
        return folder / "model.gguf"
    elif kind in ("zero", "tied", "missing"):
        model = build("gpt2", n_embd=32, n_positions=OLD, vocab_size=OLD)
        with torch.no_grad():
            model.transformer.wpe.weight.copy_(
                model.transformer.wte.weight if kind == "tied" else 0 * model.transformer.wpe.weight
            )
        model.save_pretrained(folder)
        if kind == "missing":
            from safetensors.torch import save_file

            held = load_file(folder / "model.safetensors")
            save_file(
                {name: value for name, value in held.items() if "wpe" not in name},
                folder / "model.safetensors",
                {"format": "pt"},
            )
    else:
        shutil.copytree(place / kind, folder)
    return folder


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(place, tmp_path, case):
    kind, more, words = BAD[case]
    model = bad_model(kind, place, tmp_path / "model")
    np.save(tmp_path / "tiny.npy", three_back(100, 0) % 24)
    before = files(tmp_path)
    given = {"to": "rope", "steps": 2, "text": "short.npy", **more}
    text = tmp_path / "tiny.npy" if given["text"] == "tiny.npy" else place / "short.npy"
    with pytest.raises(ValueError) as caught:
        migrate(model, out=tmp_path / "out", **{**given, "text": text})
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert files(tmp_path) == before and not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_the_command_answers_2_to_bad_input_and_never_writes_into_the_source(place, tmp_path):
    words = ["migrate", str(place / "gpt2"), "--to", "rope", "--text", str(place / "short.npy"), "--steps", "1"]
    for out in (place / "gpt2", place / "gpt2" / "inside", place / "lab"):
        ran = CliRunner().invoke(app, [*words, "--out", str(out)])
        assert ran.exit_code == 2 and ran.stderr.startswith("milepost: OUT (") and ran.stderr.count("\n") == 1
