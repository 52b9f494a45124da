"""recommend: its numbers are those of written folders in plain transformers; it decides by them alone, and says when
nothing works.
"""

import json
import shutil

import numpy as np
import pytest
import tiny_models as tiny
import torch
from from_lab import TRAINED, byte_tokenizer
from torch.nn import functional as F
from typer.testing import CliRunner

from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.text import read_text
from milepost.checkpoints.recommendation import report
from milepost.checkpoints.recommendation.candidates import methods
from milepost.checkpoints.recommendation.comparison import Comparison
from milepost.checkpoints.recommendation.recommend import recommend
from milepost.checkpoints.recommendation.words import limits
from milepost.cli import app
from milepost.lab import checkpoint
from milepost.lab.model import Decoder, Shape
from milepost.rope import export
from milepost.rope.config.files import load as load_config

TARGET = 4 * TRAINED
METHODS = {
    "none",
    "base",
    "linear",
    "ntk",
    "ntk_by_parts",
    "dynamic",
    "yarn",
    "llama3",
    "self-extend",
    "rerope",
    "dual-chunk",
    "streaming",
}


@pytest.fixture(scope="module")
def found(trained_neox, some_text):
    return recommend(trained_neox, target_length=TARGET, text=some_text, windows=16)


@pytest.fixture(scope="module")
def rows(found):
    return {row["method"]: row for row in found.rows}


def test_every_method_is_measured_and_the_largest_gain_stands_first(found, rows):
    assert set(rows) == METHODS
    gains = [row["gain"]["value"] for row in found.rows]
    assert gains == sorted(gains, reverse=True)
    for row in found.rows:
        assert [one["length"] for one in row["loss_by_length"]] == [TRAINED, 2 * TRAINED, TARGET]
        assert row["gain"]["low"] <= row["gain"]["value"] <= row["gain"]["high"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["linear", "ntk", "yarn", "llama3", "dynamic"])
def test_numbers_are_those_of_a_written_folder_in_plain_transformers(method, rows, trained_neox, some_text, tmp_path):
    subject = load(trained_neox)
    factor = rows[method]["factor"]
    made = subject.spec.extended(TARGET if method == "dynamic" else round(factor * TRAINED), method)
    shutil.copytree(trained_neox, tmp_path / "model")
    config = {**load_config(trained_neox / "config.json"), **export(made, "transformers").config}
    if method == "dynamic":
        config["rope_parameters"]["factor"] = factor
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    model = tiny.transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    text = read_text(some_text, subject).halves()[1]
    lost = {}
    for length in (TRAINED, TARGET):
        ids = torch.from_numpy(text.windows(TARGET, 16)[0][:, -(length + 1) :])
        with torch.no_grad():
            logits = model(input_ids=ids[:, :-1]).logits[:, -TRAINED // 2 :]
        lost[length] = float(F.cross_entropy(logits.flatten(0, 1), ids[:, -TRAINED // 2 :].flatten()))
    shown = {one["length"]: one["loss"] for one in rows[method]["loss_by_length"]}
    plain = {one["length"]: one["loss"] for one in rows["none"]["loss_by_length"]}
    assert shown[TARGET] == pytest.approx(lost[TARGET], abs=1e-4) and shown[TRAINED] == pytest.approx(
        lost[TRAINED], abs=1e-4
    )
    assert rows[method]["gain"]["value"] == pytest.approx(plain[TARGET] - shown[TARGET], abs=1e-9)
    assert rows[method]["cost"]["value"] == pytest.approx(shown[TRAINED] - plain[TRAINED], abs=1e-9)
    assert rows[method]["gap"]["value"] == pytest.approx(shown[TARGET] - plain[TRAINED], abs=1e-9)


def test_what_is_known_of_short_trained_ropes_is_found(found, rows):
    """Past its length the model is worse; yarn and maps help; dynamic costs short texts nothing."""
    assert rows["none"]["gap"]["low"] > 0.1 and not rows["none"]["reaches"]
    assert all(rows[name]["gain"]["low"] > 0 for name in ("yarn", "self-extend", "rerope"))
    assert abs(rows["dynamic"]["cost"]["value"]) < 1e-6 < 0.01 < rows["linear"]["cost"]["low"]
    assert found.top != "none" and rows[found.top]["equal"] and rows[found.top]["whole"]
    assert found.best in ("yarn", "llama3", "ntk", "dynamic", "base", "ntk_by_parts")
    assert found.factor >= (1.0 if found.best == "dynamic" else TARGET / TRAINED)
    assert (
        set(found.exports) == {"transformers", "vllm", "sglang", "llama.cpp"}
        and '"rope_type"' in found.exports["transformers"]["text"]
    )
    assert found.verdict[0].startswith("Set ")


def test_streaming_loses_little_and_is_never_the_answer_because_it_forgets(found, rows):
    assert (
        rows["streaming"]["gain"]["low"] > 0
        and not rows["streaming"]["whole"]
        and not rows["streaming"]["reaches"]
        and found.top != "streaming"
    )


@pytest.mark.slow
def test_a_lab_model_and_its_checkpoint_get_the_same_numbers(found, trained_rope, some_text):
    lab = recommend(trained_rope, target_length=TARGET, text=some_text, windows=16)
    for ours, theirs in zip(
        sorted(lab.rows, key=lambda r: r["method"]), sorted(found.rows, key=lambda r: r["method"]), strict=True
    ):
        assert ours["method"] == theirs["method"] and ours["gain"]["value"] == pytest.approx(
            theirs["gain"]["value"], abs=1e-3
        )
    assert lab.best == found.best and "scaling=" in lab.exports["milepost"]["text"]


@pytest.mark.slow
def test_a_model_that_reads_the_target_as_it_is_is_left_as_it_is(trained_neox, some_text):
    """It was trained for 32 tokens, whatever is said: nothing can gain, and what changes it costs."""
    done = recommend(trained_neox, target_length=TRAINED, trained_length=8, text=some_text, windows=24)
    rows = {row["method"]: row for row in done.rows}
    assert (done.top, done.best, done.works) == ("none", None, True) and rows["linear"]["gain"]["high"] < 0
    assert done.verdict[0].startswith("Leave it as it is: no method gains at 32 tokens, and it reads them as it is.")
    assert done.exports == {}


@pytest.mark.slow
@pytest.mark.parametrize(("others", "top"), [(3.1, "none"), (2.5, "dynamic")])
def test_when_nothing_works_it_says_so(others, top, trained_neox, some_text, monkeypatch):
    """Losses made up: 1 at the trained length, 3 at the target; the others gain nothing there, or too little."""

    def lost(bench, one, windows, length):
        noise = np.random.default_rng(0).normal(0, 0.01, (len(windows), bench.targets))
        return noise + (
            1.0 + (one.method not in ("none", "dynamic"))
            if length == TRAINED
            else 3.0
            if one.method == "none"
            else others
        )

    monkeypatch.setattr(Comparison, "losses", lost)
    done = recommend(trained_neox, target_length=TARGET, text=some_text, windows=8)
    assert (done.top, done.works) == (top, False)
    said = " ".join(done.verdict)
    if top == "none":
        assert done.best is None and "nothing works without training: its loss is 3.00" in said
    else:
        assert done.best == "dynamic" and "The target is not reached without training: the loss is still 1.50" in said


def comparison_of(model, text, losses):
    """A comparison whose losses are made up: ``losses(candidate)`` at the target, the same for every token."""
    subject = load(model)
    made = Comparison(subject, TRAINED, TARGET, read_text(text, subject), 8, lambda what, share: None)
    made.expect(1)
    shape = (len(made.choose_on), made.targets)
    made.losses = lambda one, windows, length: np.broadcast_to(losses(one), shape)
    found = {method.name: method for method in methods(subject.spec, TRAINED, TARGET, 2)}
    assert set(found) == METHODS - {"none"}
    return made, found


@pytest.mark.slow
def test_the_smallest_factor_wins_unless_a_larger_one_is_clearly_better(trained_neox, some_text):
    clear = {4.0: 3.0, 6.0: 2.0, 8.0: 1.999}
    noise = np.random.default_rng(0).normal(0, 0.05, (4, TRAINED // 2))
    made, found = comparison_of(
        trained_neox, some_text, lambda one: clear.get(one.factor, 2.5) + noise * (one.factor == 8.0)
    )
    assert found["yarn"].starts == (4.0, 6.0, 8.0)
    chosen, tried = made.choose([found["yarn"]])
    assert chosen[0].factor == 6.0
    assert [row["factor"] for row in tried if row["chosen"]] == [6.0]
    assert {4.0, 6.0, 8.0} < {row["factor"] for row in tried}
    clear[4.0] = 1.9995
    assert made.choose([found["yarn"]])[0][0].factor == 4.0


@pytest.mark.slow
def test_losses_that_are_no_numbers_rank_last_and_are_never_chosen(trained_neox, some_text):
    made, found = comparison_of(
        trained_neox, some_text, lambda one: np.nan if one.factor == 4.0 else abs(one.factor - 6)
    )
    chosen, tried = made.choose([found["ntk"]])
    assert chosen[0].factor == 6.0 and tried[0]["loss"] is None


# -- the search
# --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["base", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3"])
def test_a_factor_is_searched_past_the_first_grid_until_both_neighbours_are_worse(method, trained_neox, some_text):
    """The lowest loss is at 3.25 times the smallest factor, where a grid of 1, 1.5 and 2 would stop at 2."""
    smallest = 1.0 if method == "dynamic" else TARGET / TRAINED
    made, found = comparison_of(trained_neox, some_text, lambda one: 1.8 + np.log(one.factor / (3.25 * smallest)) ** 2)
    (chosen,), tried = made.choose([found[method]])
    assert chosen.factor == pytest.approx(3.25 * smallest, rel=0.1) and chosen.limit is None
    assert chosen.spec.main.scaling is not None and len(tried) <= 9
    losses = {row["factor"]: row["loss"] for row in tried}
    assert min(losses) < chosen.factor < max(losses) and losses[chosen.factor] == min(losses.values())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["self-extend", "rerope", "dual-chunk"])
def test_a_window_is_searched_too(method, trained_neox, some_text):
    wanted = {"self-extend": 6, "rerope": 28, "dual-chunk": 12}[method]

    def loss(one):
        number = next(int(word) for word in one.setting.replace(",", "").split() if word.isdigit())
        number = int(one.setting.split("window ")[1]) if "window" in one.setting else number
        return 2.0 + np.log(number / wanted) ** 2

    made, found = comparison_of(trained_neox, some_text, loss)
    (chosen,), _ = made.choose([found[method]])
    assert loss(chosen) < 2.03 and chosen.limit is None


@pytest.mark.slow
def test_a_result_at_the_end_of_the_search_says_so(trained_neox, some_text):
    made, found = comparison_of(trained_neox, some_text, lambda one: -np.log(one.factor or 1.0))
    (chosen,), _ = made.choose([found["ntk"]])
    assert chosen.factor == 32 * TARGET / TRAINED and chosen.limit == "a larger factor may be better still"
    made.losses = lambda one, windows, length: np.full((4, TRAINED // 2), one.factor)
    (chosen,), _ = made.choose([found["ntk"]])
    assert chosen.factor == TARGET / TRAINED and chosen.limit == "a smaller factor does not reach the target"
    row = {
        "method": "ntk",
        "factor": 128.0,
        "config": True,
        "setting": "",
        "limit": "a larger factor may be better still",
    }
    assert limits([row, {**row, "method": "yarn"}, {**row, "limit": None}]) == [
        "at the end of the search: ntk with factor 128, yarn with factor 128 (a larger factor may be better still)"
    ]


@pytest.mark.slow
def test_dynamic_is_tried_with_other_factors_than_1(found):
    factors = [row["factor"] for row in found.tried if row["method"] == "dynamic"]
    assert len(factors) >= 3 and min(factors) == 1.0 and max(factors) >= 2.0


# -- other positions
# -----------------------------------------------------------------------------------------------------------


def lab_model(folder, encoding):
    model = Decoder(Shape(256, 1, 32, 2, TRAINED), encoding).start(0)
    return checkpoint.save(model, folder, seed=0, steps=0, data="text")


def test_alibi_has_nothing_to_set_and_is_measured_all_the_same(tmp_path, some_text):
    done = recommend(lab_model(tmp_path / "alibi", "alibi"), target_length=TARGET, text=some_text)
    assert (
        [row["method"] for row in done.rows] == ["none"]
        and done.best is None
        and "ALiBi has nothing to set" in done.notes[0]
    )
    assert "There is nothing to set for this kind of positions" in done.verdict[0]


def test_a_learned_table_ends_and_what_can_be_done_is_said(tmp_path, some_text):
    done = recommend(lab_model(tmp_path / "learned", "learned"), target_length=TARGET, text=some_text)
    assert not done.works and done.verdict == (f"{TARGET} tokens can't be read: its table ends at {TRAINED}.",)
    assert f"its table has {TRAINED} rows, and position {TRAINED} has none" in done.notes[0]


# -- the command
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_writes_a_report_and_its_exit_code_says_whether_the_target_is_reached(
    found, trained_neox, some_text, tmp_path
):
    asked = [
        "recommend",
        str(trained_neox),
        "--target-length",
        str(TARGET),
        "--text",
        str(some_text),
        "--windows",
        "16",
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    ran = CliRunner().invoke(app, asked)
    assert ran.exit_code == (0 if found.works else 1), ran.output
    data = json.loads(ran.stdout)
    assert data == json.loads((tmp_path / "out/recommendation.json").read_text()) and data["best"] == found.best
    assert {row["method"] for row in data["rows"]} == METHODS and data["provenance"]["protocol"]["text"][
        "tokens"
    ] > 100_000
    words = (tmp_path / "out/report.md").read_text()
    assert all(f"| {method}" in words for method in METHODS) and found.verdict[0] in words
    again = CliRunner().invoke(app, asked)
    assert again.exit_code == 2 and "is there already" in again.output
    for part in report.document(data).terminal():
        assert part is not None
    drawn = report.by_length(data)
    assert drawn.x == [one["length"] for one in data["rows"][0]["loss_by_length"]] and len(drawn.x) > 1
    assert {row["method"]: [one["loss"] for one in row["loss_by_length"]] for row in data["rows"]} == drawn.lines
    shown = found._repr_html_()
    assert shown.count("<svg") == 1 and "trained length" in shown and all(f">{method}<" in shown for method in METHODS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--target-length", "16"], "was trained for 32 tokens: 16 need no scaling"),
        (["--target-length", "1m"], "lengths are numbers such as 4096 or 4k"),
        (["--target-length", "8k", "--text", "SHORT"], "is too short: 2 windows of 8192 tokens without overlap need"),
        (["--target-length", "64", "--windows", "1"], "--windows is at least 2"),
        (["--target-length", "64", "--text", "NOWHERE"], "there is no text at"),
        (["--target-length", "64", "--device", "moon"], "device 'moon' can't be used here"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(given, said, trained_neox, tmp_path):
    (tmp_path / "short.txt").write_text("a short text " * 400)
    places = {"SHORT": str(tmp_path / "short.txt"), "NOWHERE": str(tmp_path / "nowhere")}
    asked = [places.get(word, word) for word in given]
    asked = asked if "--text" in asked else [*asked, "--text", str(tmp_path / "short.txt")]
    ran = CliRunner().invoke(app, ["recommend", str(trained_neox), *asked, "--out", str(tmp_path / "out")])
    assert ran.exit_code == 2 and said in ran.output.replace("\n", " "), ran.output
    assert not (tmp_path / "out").exists()


def test_a_model_whose_rotation_can_not_be_taken_out_is_refused(tmp_path, some_text):
    tiny.build("gptj", vocab_size=256).save_pretrained(tmp_path / "gptj")
    byte_tokenizer(tmp_path / "gptj")
    with pytest.raises(ValueError, match="its rotation can't be taken out of it"):
        recommend(tmp_path / "gptj", target_length=1024, text=some_text)
