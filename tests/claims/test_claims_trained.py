"""Trained claims: what comes with the package is read, the rest is trained once, and goes on where it stopped."""

import json
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from milepost.claims import needs, trained
from milepost.claims.groups.absolute import probes, tasks
from milepost.claims.groups.practice import lengths
from milepost.claims.groups.relative import pairs
from milepost.claims.judge import judge
from milepost.claims.needs import Need, is_shipped, plans
from milepost.claims.rule import VERDICTS, NotMeasured
from milepost.claims.table import CLAIMS, NEEDS
from milepost.lab.choose import shipped
from milepost.lab.model import Decoder, Shape
from milepost.spec import build

# -- what comes with the package ---------------------------------------------------------------------------------------


def losses(encoding, length, strategy="none"):
    """Losses of the results that come with the package, one for each seed."""
    found = []
    for one in shipped("lab")["runs"]:
        if (one["encoding"], one["strategy"]) == (encoding, strategy):
            found += [row["loss"] for row in one["loss_by_length"] if row["length"] == length]
    return found


@pytest.mark.parametrize(
    ("name", "encoding"), [("alibi-flat", "alibi"), ("rope-breaks", "rope"), ("sin-extrapolates", "sinusoidal")]
)
def test_rises_are_those_of_the_table(name, encoding):
    """By the table of losses, which is made apart from the windows that the claim reads."""
    row = judge([name])[0]
    home = statistics.fmean(losses(encoding, 64))
    for times in (2, 8):
        rise = statistics.fmean(losses(encoding, 64 * times)) / home - 1
        # the package holds windows to 3 decimals and the table to 4: each loss is off by 5.5e-4 at the most
        assert row["numbers"][f"{times} times"]["value"] == pytest.approx(rise, abs=5.5e-4 * (2 + rise) / home)
    assert "which come with the package and are younger than this rule" in row["evidence"]


def test_a_verdict_moves_with_the_results(monkeypatch):
    """The same rule on the same results with rope's name on alibi's runs."""
    assert judge(["alibi-flat"])[0]["verdict"] != "fails"  # three seeds may be too few for it to hold
    assert judge(["rope-breaks"])[0]["verdict"] == "holds"
    other = shipped("lab")
    other["runs"] = [
        {**run, "encoding": {"rope": "alibi", "alibi": "rope"}.get(run["encoding"], run["encoding"])}
        for run in other["runs"]
    ]
    monkeypatch.setattr(trained, "shipped", lambda name: other)
    assert judge(["alibi-flat"])[0]["verdict"] == "fails"
    assert judge(["rope-breaks"])[0]["verdict"] == "fails"


def test_a_need_that_looks_at_weights_is_never_old():
    old = shipped("lab")
    assert is_shipped(Need("text", ("rope", "alibi")), old) and not is_shipped(
        Need("text", ("rope",), weights=True), old
    )
    assert is_shipped(Need("text", ('sinusoidal(width={quarter}, how="concat")',)), old)
    assert not is_shipped(Need("text", ("rope", "a stranger")), old) and not is_shipped(
        Need("deep", ("rope",), "previous"), old
    )


def test_results_of_the_package_are_used_for_their_own_model_text_and_seeds():
    old, plan = shipped("lab"), plans("quick", NEEDS)["text"]
    held = old["provenance"]["protocol"]["plan"]
    assert needs.usable(old, plan, ()) == old and needs.usable(old, plan, held["seeds"]) == old
    one = needs.usable(old, plan, [held["seeds"][0]])
    assert {run["seed"] for run in one["runs"]} == {held["seeds"][0]}
    assert needs.usable(old, plan, [held["seeds"][0], 3]) is None and needs.usable(None, plan, ()) is None
    assert needs.usable(old, plans("standard", NEEDS)["text"], ()) is None
    others = ({"rows": 8}, {"lengths": (64,)}, {"shape": replace(plan.shape, heads=2)}, {"strategies": ("none", "own")})
    for other in others:
        assert needs.usable(old, replace(plan, **other), ()) is None, other
    changed = {**old, "provenance": {**old["provenance"], "protocol": {"plan": {**held, "digest": "another text"}}}}
    assert needs.usable(changed, plan, ()) is None


def test_models_beside_the_results_are_trained_and_tested_like_them():
    old = shipped("lab")
    held, made = old["provenance"]["protocol"]["plan"], plans("quick", NEEDS, (0, 1, 2), old)
    for sweep in ("text", "again"):
        assert (made[sweep].steps, made[sweep].windows) == (held["steps"], held["windows"])
    assert made["text"].seeds == (0, 1, 2) and not set(made["again"].seeds) & set(held["seeds"])
    changed_after_the_table = ("shared-heads", "pi-local")
    assert {need.sweep for name in changed_after_the_table for need in CLAIMS[name].needs} == {"again"}


def test_evidence_says_whether_results_are_younger_than_rules(monkeypatch):
    other = shipped("lab")
    other["provenance"]["date"] = f"{trained.RULED}T23:00:00+00:00"
    monkeypatch.setattr(trained, "shipped", lambda name: other)
    assert "come with the package and are not younger than this rule" in judge(["rope-breaks"])[0]["evidence"]


@pytest.mark.parametrize("profile", ["quick", "standard"])
def test_plans_hold_every_model_that_a_claim_needs(profile):
    known = plans(profile, NEEDS)
    for claim in CLAIMS.values():
        for need in claim.needs:
            plan = needs.images(profile, NEEDS) if need.sweep == "image" else known[need.sweep]
            names = {(trial.encoding, trial.data) for trial in plan.trials()}
            for encoding in need.encodings:
                assert (needs.spell(encoding, plan.shape.width), need.data) in names
                plan.shape.build(needs.spell(encoding, plan.shape.width))
    assert known["one-layer"].shape.layers == 1 and known["deep"].shape.layers > 1


# -- trained here ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_models_are_trained_in_processes_of_their_own(small, tmp_path):
    row = judge(["rope-in-range"], out=tmp_path / "claims")[0]
    assert {"whole", "window"} <= row["numbers"].keys()
    assert len(list((tmp_path / "claims").rglob("result.json"))) == 1 and not list((tmp_path / "claims").rglob("*.pt"))


@pytest.mark.slow
def test_models_are_trained_once_and_go_on(small, in_this_process, tmp_path):
    out = tmp_path / "claims"
    row = judge(["previous-token"], out=out)[0]
    assert row["verdict"] == "not decided here"  # four steps teach nothing, and the control sees it
    assert {"one layer", "nope", "rope", "alibi"} <= row["numbers"].keys() and row["figures"]
    results = sorted((out / "lab").rglob("result.json"))
    assert len(results) == 4
    before = [file.stat().st_mtime_ns for file in results]
    again = judge(["previous-token", "rope-in-range"], out=out, resume=True)
    assert again[0]["numbers"] == row["numbers"]
    assert [file.stat().st_mtime_ns for file in results] == before
    assert len(sorted((out / "lab").rglob("result.json"))) == 5  # one more, for the other claim
    assert {"whole", "window"} <= again[1]["numbers"].keys()
    with pytest.raises(ValueError, match="holds results already; go on with --resume"):
        judge(["previous-token"], out=out)


@pytest.mark.slow
def test_named_seeds_are_trained_and_nothing_older_is_read(small, in_this_process, tmp_path):
    out = tmp_path / "claims"
    row = judge(["rope-breaks"], out=out, profile="quick", seeds=[3, 5])[0]
    seeds = sorted(
        run["seed"]
        for file in out.rglob("result.json")
        for run in json.loads(file.read_text())["runs"]
        if run["strategy"] == "none"
    )
    assert seeds == [3, 5] and "2 seeds" in row["evidence"] and "come with the package" not in row["evidence"]
    again = judge(["learned-fits"], out=out, resume=True, seeds=[3, 5])[0]
    assert sorted(file.name for file in (out / "lab" / "frame").iterdir() if file.name.startswith("rope")) == [
        "rope-3.json",
        "rope-5.json",
    ]
    assert again["numbers"]["learned"]["over"].startswith("2 seeds")
    with pytest.raises(ValueError, match="seeds changed since"):
        judge(["rope-breaks"], out=out, resume=True, seeds=[3, 4])


def test_every_plan_has_the_named_seeds():
    for seeds, found in (([7, 8], plans("standard", NEEDS, [7, 8])), ([0, 1, 2], plans("standard", NEEDS))):
        many = found.pop("place").seeds, needs.images("standard", NEEDS, seeds).seeds
        assert {plan.seeds for plan in found.values()} == {tuple(seeds)}
        assert set(many) == {tuple(range(seeds[0], seeds[0] + needs.MANY_SEEDS))}


@pytest.mark.slow
def test_two_claims_share_a_model(small, in_this_process, tmp_path):
    rows = judge(["rope-in-range", "rope-far-random"], out=tmp_path / "claims")
    assert len(list((tmp_path / "claims").rglob("result.json"))) == 1
    assert all(row["numbers"] for row in rows)


@pytest.mark.slow
def test_a_model_that_is_lost_is_a_reason_not_a_crash(small, in_this_process, tmp_path):
    out = tmp_path / "claims"
    judge(["rope-in-range"], out=out)
    file = next((out / "lab").rglob("result.json"))
    held = json.loads(file.read_text())
    held["runs"] = [{**run, "failed": "the loss at step 3 is nan"} for run in held["runs"]]
    file.write_text(json.dumps(held))
    row = judge(["rope-breaks"], out=out, resume=True)[0]
    assert row["verdict"] == "not decided here" and "could not be trained: the loss at step 3 is nan" in row["evidence"]


TRAINED = [name for name, claim in CLAIMS.items() if claim.trained is not None and name != "migrate"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_every_trained_experiment_measures_all_of_its_rule(small, in_this_process, shared, name):
    row = judge([name], out=shared, resume=True)[0]
    missing = [clause["number"] for clause in row["clauses"] if clause["measured"] is None]
    assert all(number.startswith("real ") for number in missing), row["evidence"]  # those want a checkpoint
    assert row["verdict"] in VERDICTS and row["figures"]
    json.dumps(row, allow_nan=False)


@pytest.mark.slow
def test_what_the_results_have_is_not_trained(small, in_this_process, tmp_path, monkeypatch):
    """Results of one run stand in for those of the package: the other encodings of a need are trained beside them."""
    run = judge(["rope-breaks"], out=tmp_path / "one")[0]
    home = tmp_path / "one" / "lab" / "text"
    runs = [run for file in home.rglob("result.json") for run in json.loads(file.read_text())["runs"]]
    plan = json.loads((home / "plan.json").read_text())
    results = {"runs": runs, "provenance": {"date": "2026-11-18", "protocol": {"plan": plan}}}
    monkeypatch.setattr(trained, "shipped", lambda name: results)
    rows = {row["id"]: row for row in judge(["rope-breaks", "base-up"], out=tmp_path / "two", seeds=[0])}
    names = {file.parent.name.partition("-text-")[0] for file in (tmp_path / "two").rglob("result.json")}
    assert names == {"rope-base-100-0", "rope-base-500000-0"}
    assert rows["rope-breaks"]["numbers"] == run["numbers"]
    assert "younger than this rule" in rows["rope-breaks"]["evidence"] and rows["base-up"]["numbers"]["far"]


@pytest.mark.slow
def test_docs_are_judged_on_the_seeds_that_are_finished(small, in_this_process, tmp_path):
    out = tmp_path / "claims"
    judge(["rope-in-range"], out=out, seeds=[3, 4])
    known, old = trained.planned("quick", NEEDS, [3, 4])
    lab = trained.Lab("quick", known, out / "lab", old, print, partial=True)
    need = Need("text", ("rope",), weights=True)
    assert [run["seed"] for run in lab.runs(need, "rope")] == [3, 4]
    next(out.rglob("trials/rope-text-4-*/result.json")).unlink()
    assert [run["seed"] for run in lab.runs(need, "rope")] == [3] and len(lab.models(need, "rope")) == 1
    with pytest.raises(NotMeasured, match="seed 4: it was not trained"):
        replace(lab, partial=False).runs(need, "rope")
    next(out.rglob("trials/rope-text-3-*/result.json")).unlink()
    with pytest.raises(NotMeasured, match="seed 3: it was not trained"):
        lab.runs(need, "rope")


# -- instruments -------------------------------------------------------------------------------------------------------


def test_a_probe_finds_places_that_are_there_and_none_where_there_are_none():
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(64, 64, 16, generator=generator)
    assert probes.probe(noise).value < 0.05
    told = noise.clone()
    told[..., 3] += torch.arange(64) / 4
    assert probes.probe(told).value > 0.9


def test_texts_with_exchanged_names_differ_in_two_places():
    texts, answers = tasks.exchanged(32, 64)
    first, second = texts
    assert ((first != second).sum(1) == 2).all() and (texts[..., -1] == ord("@")).all()
    for text, answer in zip(texts.flatten(0, 1).tolist(), answers.flatten().tolist(), strict=True):
        names = [token for token in text if chr(token).isupper()]
        assert len(names) == 2 and names[0] != names[1] and names[1] == answer
    assert (answers[0] != answers[1]).all()


@pytest.mark.parametrize(("place", "share"), [(-1, 1.0), (0, 0.0)])
def test_a_pair_counts_where_both_answers_are_right(place, share):
    class Reader(torch.nn.Module):
        """Names the name that stands last, or first."""

        shape = Shape(256, 1, 32, 2, 32)

        def forward(self, ids):
            named = [[token for token in text if 65 <= token < 91][place] for text in ids.tolist()]
            return torch.nn.functional.one_hot(torch.tensor(named), 256)[:, None].float()

    assert tasks.both_right([Reader()]).value == share


def test_one_layer_without_positions_never_has_a_pair():
    model = Decoder(Shape(256, 1, 32, 2, 32), "nope").start(0).eval()
    assert tasks.both_right([model]).value == 0.0


def test_stopped_pairs_do_not_turn():
    rope = build("rope(head_dim=16)", head_dim=16)
    stopped = pairs.Stopped(0, 4)(rope.spectrum)
    assert stopped.frequencies[:4] == (0.0,) * 4 and stopped.frequencies[4:] == rope.spectrum.frequencies[4:]
    model = Decoder(Shape(256, 1, 32, 2, 16), "rope").start(0)
    assert (
        build(repr(build("rope", head_dim=16).__class__(16, scaling=pairs.Stopped(0, 4))), head_dim=16).spectrum
        == stopped
    )
    assert 0 <= pairs.answers([model], "previous", (0.0, 0.5)).value <= 1


def test_figures_by_length_leave_out_what_was_not_measured(made):
    runs = [run for run in made()["runs"] if run["encoding"] == "learned"]
    figure = lengths.by_length("loss", {"learned": runs})
    assert figure.x == [16] and Path(figure.title).name == "loss"


# -- a checkpoint ------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(small, in_this_process, shared):
    """A lab model stands in for a real one: it is read by the same code."""
    judge(["rope-in-range"], out=shared, resume=True)
    return next((shared / "lab" / "text").glob("trials/rope-text-*/model.safetensors")).parent


def test_a_checkpoint_is_stretched_and_its_numbers_join_the_rule(checkpoint, texts):
    rows = {
        row["id"]: row
        for row in judge(
            ["pi-local", "yarn-balance", "trade", "yarn-needs-training", "ntk-64"], model=checkpoint, text=texts
        )
    }
    for name in ("real gain", "real cost"):
        assert rows["pi-local"]["numbers"][name]["over"].endswith("windows")
    assert "real temperature" in rows["yarn-balance"]["numbers"] and "real cost" in rows["trade"]["numbers"]
    for name in ("yarn-needs-training", "ntk-64"):
        assert rows[name]["numbers"]["real zero, 2 times"]["over"].endswith("windows")
    assert not any("it needs --model" in row["evidence"] for row in rows.values())


def test_gains_and_costs_have_their_signs(checkpoint, texts):
    from milepost.claims.checkpoint import StretchedCheckpoint

    real = StretchedCheckpoint(checkpoint, texts)
    held = {("none", 16): 2.0, ("none", 32): 3.0, ("linear", 16): 2.5, ("linear", 32): 2.8}
    real.held = {key: [value] * 4 for key, value in held.items()}
    real.windows = real.windows[[0, 0, 0, 0]]
    real.groups = np.arange(4)
    assert real.gain("linear").value == pytest.approx(0.2)
    assert real.cost("linear").value == pytest.approx(0.25)
    assert real.rise("linear").value == pytest.approx(0.4)


@pytest.mark.slow
def test_a_checkpoint_as_it_is_is_the_model_itself(small, in_this_process, shared, checkpoint, texts, tmp_path):
    """A Hugging Face model too: nothing is put in the place of its positions, nor taken away."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from milepost.claims import checkpoint as real

    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 16,
    }
    LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.3)).save_pretrained(tmp_path / "llama")
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(3, 60, 400))
    for model, text in ((checkpoint, texts), (tmp_path / "llama", tmp_path / "ids.npy")):
        one = real.StretchedCheckpoint(model, text)
        plain = [real.same_targets(one.subject, window[None], 32, 8, begin=one.begin).mean() for window in one.windows]
        assert one.losses("none", 32).tolist() == pytest.approx(plain, rel=1e-12)
        assert np.abs(one.losses("linear", 32) - plain).min() > 1e-4


def test_a_checkpoint_that_was_stopped_goes_on(checkpoint, texts, tmp_path, monkeypatch):
    from milepost.claims import checkpoint as real

    whole = real.StretchedCheckpoint(checkpoint, texts, out=tmp_path / "whole").losses("linear", 32)
    asked = []

    def until(subject, window, length, *rest, **more):
        asked.append(length)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return same_targets(subject, window, length, *rest, **more)

    same_targets = real.same_targets
    monkeypatch.setattr(real, "same_targets", until)
    with pytest.raises(KeyboardInterrupt):
        real.StretchedCheckpoint(checkpoint, texts, out=tmp_path / "cut").losses("linear", 32)
    resumed = real.StretchedCheckpoint(checkpoint, texts, out=tmp_path / "cut").losses("linear", 32)
    assert resumed.tolist() == whole.tolist() and len(asked) == len(whole) + 1  # the third was asked for twice
    (texts_of_another := tmp_path / "other.txt").write_text("other words " * 400)
    with pytest.raises(ValueError, match=r"checkpoint.json was measured with text .*name another --out"):
        real.StretchedCheckpoint(checkpoint, texts_of_another, out=tmp_path / "cut")


def test_yarn_without_its_temperature_keeps_its_frequencies(checkpoint, texts):
    from milepost.claims.checkpoint import StretchedCheckpoint

    real = StretchedCheckpoint(checkpoint, texts)
    warm, cold = (real._stretched(name).main for name in ("yarn", "yarn, no temperature"))
    assert warm.spectrum(32).frequencies == cold.spectrum(32).frequencies
    assert warm.temperature(32) > 1.0 == cold.temperature(32)
