"""A choice is ranked by measurements alone; what was not measured says so."""

from importlib.util import find_spec

import pytest

from milepost import rope
from milepost.lab import choose as chooser
from milepost.lab.choose import Wish, choose, shipped
from milepost.rope.engines.written import Refused

BENCH = {
    "rows": [
        {"scheme": scheme, "implementation": who, "pass": kind, "length": length, "ratio": ratio}
        for scheme, who, kind, length, ratio in [
            ("nope", "torch sdpa", "forward", 4096, 1.0),
            ("rope", "milepost", "forward", 4096, 1.1),
            ("rope", "x-transformers", "forward", 16384, 9.0),
            ("rope", "milepost", "forward", 16384, 1.2),
            ("rope", "milepost", "training", 4096, 1.3),
            ("rope", "milepost", "training", 16384, None),
            ("rope", "milepost", "decode", 16384, 1.4),
            ("rope staged", "milepost", "decode", 16384, 1.5),
        ]
    ]
}
TEXT = Wish(64, 256)


def names(found):
    return [one["name"] for one in found["ranked"]]


def of(found, name):
    return next(one for one in found["ranked"] if one["name"] == name)


# -- the ranking
# --------------------------------------------------------------------------------------------------------------


def test_text_is_ranked_by_the_loss_at_the_ratio(made):
    found = choose(TEXT, made())
    assert found["measured"] == {"trained_length": 16, "length": 64, "times": 4.0, "parameters": 29_000, "seeds": 2}
    assert names(found) == [
        "alibi",
        "rope, yarn",
        "nope",
        "rope",
        "rope, linear",
    ]  # 2.42, 2.46, 2.68, 2.70 and 2.80 at 64
    assert found["ranked_by"] == ["text"] and found["notes"] == []


def test_the_order_is_another_at_the_trained_length(made):
    assert names(choose(Wish(64, 64), made(strategies=())))[:3] == ["rope", "alibi", "learned"]


def test_the_evidence_is_the_measured_one(made):
    text = of(choose(TEXT, made()), "rope, yarn")["text"]
    assert text["loss"] == pytest.approx(2.465) and text["at_trained"] == pytest.approx(2.305) and text["seeds"] == 2
    assert text["change"] == pytest.approx(0.16 / 2.305) and text["over_best_short"] == pytest.approx(0.16 / 2.305)
    assert of(choose(TEXT, made()), "alibi")["text"]["over_best_short"] == pytest.approx(2.425 / 2.305 - 1)


def test_what_was_measured_otherwise_ranks_otherwise(made):
    results = made()
    for run in results["runs"]:
        if run["encoding"] == "alibi":
            run["loss_by_length"][2]["loss"] += 1.0
    assert names(choose(TEXT, results))[-1] == "alibi"


def test_far_recall_counts_as_much_as_text(made):
    results = made(strategies=(), tasks={"recall": {"nope": 0.1, "alibi": 1.9, "rope": 1.0}})
    assert names(choose(TEXT, results)) == ["alibi", "nope", "rope"]
    found = choose(Wish(64, 256, far_recall=True), results)
    assert found["ranked_by"] == ["text", "recall"]
    assert names(found) == ["nope", "alibi", "rope"]  # places 2 + 1, 1 + 3, 3 + 2
    assert of(found, "nope")["recall"] == {"over_chance": 0.05, "accuracy": 0.9, "beats_chance": True, "seeds": 1}


def test_absolute_place_asks_the_index_task(made):
    results = made(
        strategies=(),
        tasks={"index": {"nope": 1.9, "alibi": 1.8, "rope": 0.1}, "recall": {"nope": 0.1, "alibi": 0.2, "rope": 0.3}},
    )
    found = choose(Wish(64, 256, absolute=True), results)
    assert (
        found["ranked_by"] == ["text", "index"]
        and names(found)[0] == "alibi"
        and of(found, "rope")["index"]["over_chance"] == pytest.approx(0.05)
    )


def test_who_was_not_measured_in_a_task_comes_after_those_who_were(made):
    found = choose(Wish(64, 256, far_recall=True), made(tasks={"recall": {"nope": 0.1, "alibi": 1.9, "rope": 1.0}}))
    assert names(found)[3:] == ["rope, yarn", "rope, linear"] and of(found, "rope, yarn")["recall"] is None


def test_a_task_that_nobody_ran_is_not_counted_and_said(made):
    found = choose(Wish(64, 256, far_recall=True), made())
    assert found["ranked_by"] == ["text"] and names(found) == names(choose(TEXT, made()))
    assert found["notes"] == [
        "far recall: not measured, so it is not counted. `milepost lab --tasks recall` measures it."
    ]


def test_a_task_in_which_nobody_beats_chance_is_not_counted_and_said(made):
    found = choose(
        Wish(64, 256, absolute=True), made(tasks={"index": {"nope": 1.97, "rope": 2.3}})
    )  # 1.97 + 0.05 is above chance
    assert found["ranked_by"] == ["text"] and "no model beats chance" in found["notes"][0]


# -- lengths
# ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "length", "said"),
    [
        (32, 16, None),
        (64, 16, None),
        (128, 32, None),
        (192, 64, "3 times the trained length was not measured; 4 times stands in for it."),
        (512, 128, None),
        (
            1024,
            128,
            "16 times the trained length was not measured. The longest is 8 times: what holds there may fail beyond.",
        ),
    ],
)
def test_the_ratio_is_looked_up_or_the_next_longer_one(made, target, length, said):
    found = choose(Wish(64, target), made())
    assert found["measured"]["length"] == length and found["notes"] == ([said] if said else [])


def test_lengths_must_be_lengths(made):
    with pytest.raises(ValueError, match="lengths are at least 1, got trained 0"):
        choose(Wish(0, 5), made())


# -- what is not ranked
# -------------------------------------------------------------------------------------------------------


def test_a_table_that_ends_is_not_ranked_and_says_why(made):
    found = choose(TEXT, made())
    assert {"name": "learned", "why": "its table ends before 64 tokens"} in found[
        "not_ranked"
    ] and "learned" not in names(found)
    assert "learned" in names(choose(Wish(64, 64), made()))


def test_failed_missing_and_diverged_trials_are_told(made):
    results = made(
        failed=[{"encoding": "t5", "seed": 0, "data": "text", "why": "killed"}],
        missing=[{"encoding": "shaw", "seed": 1, "data": "copy"}],
    )
    results["runs"].append({"encoding": "integer", "strategy": "none", "seed": 2, "failed": "loss is NaN"})
    told = {one["name"]: one["why"] for one in choose(TEXT, results)["not_ranked"]}
    assert (
        told["t5, seed 0, text"] == "killed"
        and told["shaw, seed 1, copy"] == "not run yet"
        and told["integer, seed 2, text"] == "loss is NaN"
    )


def test_without_measurements_nothing_is_ranked(made):
    with pytest.raises(ValueError, match="hold no loss at 64 tokens, so nothing can be ranked"):
        choose(TEXT, made(encodings=()))


# -- how sure
# -----------------------------------------------------------------------------------------------------------------


def test_the_distance_to_the_first_is_paired_over_files(made):
    results = made(encodings=("alibi", "nope"), seeds=(0,))
    nope = results["runs"][1]
    nope["loss_by_window"]["64"] = [
        v + shift
        for v, shift in zip(nope["loss_by_window"]["64"], (0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4), strict=True)
    ]
    found = of(choose(TEXT, results), "nope")["behind_first"]
    gap, around = 2.68 - 2.42 + 0.25, 1.96 * 0.1290994 / 2  # the files differ by 0.1 to 0.4
    assert found == pytest.approx({"nats": gap, "low": gap - around, "high": gap + around}, abs=1e-6)


def test_without_windows_the_distance_is_not_measured(made):
    results = made()
    for run in results["runs"]:
        del run["loss_by_window"], run["window_files"]
    assert all(one["behind_first"] is None for one in choose(TEXT, results)["ranked"])


# -- cost and remarks
# ---------------------------------------------------------------------------------------------------------


def test_cost_is_ours_at_the_nearest_length_that_was_measured(made):
    cost = of(choose(Wish(4096, 16384), made(), BENCH), "rope, yarn")["cost"]
    assert (
        cost["forward"] == {"ratio": 1.2, "length": 16384}
        and cost["training"] == {"ratio": 1.3, "length": 4096}
        and cost["decode"]["ratio"] == 1.4
    )
    assert of(choose(Wish(1024, 4096), made(), BENCH), "rope")["cost"]["forward"]["length"] == 4096
    assert cost["lab_speed"] == pytest.approx(0.9)


def test_cost_that_was_not_measured_is_none(made):
    found = choose(TEXT, made(), BENCH)
    assert of(found, "alibi")["cost"] == {
        "forward": None,
        "training": None,
        "decode": None,
        "lab_speed": pytest.approx(0.9),
    }
    assert of(found, "nope")["cost"]["forward"]["ratio"] == 1.0 and of(found, "nope")["cost"]["decode"] is None
    assert of(choose(TEXT, made(), None), "rope")["cost"]["forward"] is None


@pytest.mark.parametrize(
    ("encoding", "strategy", "kind", "scheme"),
    [
        ("rope(base=500.0, scaling=yarn(4.0, 64))", "none", "forward", "rope"),
        ("rope(base=1.0) + alibi(heads=4)", "none", "forward", None),
        ("my.module:Class", "none", "forward", None),
        ("rope", "dynamic", "decode", "rope staged"),
        ("rope", "dynamic tuned", "training", "rope"),
        ("rope", "self-extend", "forward", None),
    ],
)
def test_a_choice_s_name_in_the_benchmark(encoding, strategy, kind, scheme):
    assert chooser._scheme({"encoding": encoding, "strategy": strategy}, kind) == scheme


def test_other_modalities_were_not_measured_and_that_is_said(made):
    found = choose(Wish(64, 256, "image"), made())
    assert found["notes"][0].startswith("image: not measured.") and names(found) == names(choose(TEXT, made()))
    assert (
        of(found, "alibi")["remarks"] == ["by default it is for causal attention only"]
        and of(found, "rope")["remarks"] == []
    )
    assert of(choose(TEXT, made()), "alibi")["remarks"] == []


def test_measurements_that_ship_are_read_where_they_are(monkeypatch, tmp_path):
    assert shipped("bench")["rows"]
    monkeypatch.setattr(chooser, "MEASURED", tmp_path)
    assert shipped("lab") is None
    (tmp_path / "lab.json").write_text('{"schema": 1}')
    assert shipped("lab") == {"schema": 1}


# -- far from what was measured, and engines ----------------------------------------------------------------------


FAR = Wish(4096, 32768)


def test_a_question_far_from_the_lab_is_answered_by_papers_first_and_says_so(made):
    found = choose(FAR, made())
    assert found["ranked_by_papers"] and not choose(TEXT, made())["ranked_by_papers"]
    assert "what papers measured on larger models counts first" in found["notes"][0]
    places = {one["name"]: one for one in found["ranked"]}
    # tuned by a paper, then YaRN as it is, then what papers disagree about, then what they are silent about
    order = ["rope, yarn tuned", "rope, yarn", "alibi", "rope", "learned"]
    assert [name for name in places if name in order] == order[:-1]  # learned ends before, so it is not ranked
    assert places["rope, yarn tuned"]["text"] is None and places["rope, yarn"]["text"] is not None
    assert places["rope, yarn"]["published"][0]["rise"] == pytest.approx(11.74 / 7.87)
    assert [source["times"] for source in places["alibi"]["published"]] == pytest.approx([8512 / 512, 2304 / 1024])


@pytest.mark.parametrize("engine", ["transformers", "vllm", "sglang", "llama.cpp"])
def test_what_an_engine_does_not_run_is_not_ranked(engine, made):
    found = choose(Wish(4096, 32768, engine=engine), made(strategies=("yarn", "rerope")))
    assert found["ranked"] and all(engine in one["engines"] for one in found["ranked"])
    dropped = {one["name"]: one["why"] for one in found["not_ranked"]}
    assert f"{engine} " in dropped["rope, rerope"] and "does not run it" in dropped["rope, rerope"]
    assert ("alibi" in dropped) == (engine == "sglang")


def test_an_unknown_engine_is_refused(made):
    with pytest.raises(ValueError, match="unknown engine 'vlm'; there are transformers, vllm"):
        choose(Wish(64, 256, engine="vlm"), made())


@pytest.mark.parametrize("engine", ["transformers", "vllm", "sglang", "llama.cpp"])
def test_the_table_of_scalings_is_what_the_dialects_write(engine):
    llama = {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "rope_theta": 10000.0,
        "max_position_embeddings": 256, "vocab_size": 256, "intermediate_size": 128,
    }  # fmt: skip
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    scalings = {
        "none": {}, "base": {"rope_theta": 80000.0}, "ntk": {"rope_theta": 80000.0}, "yarn": {"rope_scaling": yarn},
        "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    }  # fmt: skip
    for name, keys in scalings.items():
        try:
            rope.export(rope.read(llama | keys), engine)
            runs = True
        except Refused:
            runs = False
        assert runs == (engine in chooser.ENGINES["strategies"][name]), (name, engine)


def test_transformers_has_the_models_that_the_table_names():
    folder = {
        "Llama": "llama",
        "Bloom": "bloom",
        "GPT-2": "gpt2",
        "T5": "t5",
        "DeBERTa-v2": "deberta_v2",
        "XLNet": "xlnet",
    }
    for named in chooser.ENGINES["encodings"].values():
        if "transformers" in named:
            assert find_spec(f"transformers.models.{folder[named['transformers']]}") is not None, named
