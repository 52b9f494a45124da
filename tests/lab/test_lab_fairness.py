"""What is fair between encodings: each gets its best of several rates, and a control where it makes a model larger."""

import json

import numpy as np
import pytest

from milepost.lab import text_trial
from milepost.lab.model import Decoder
from milepost.lab.plan import PROFILES, make
from milepost.lab.text_trial import run_text_trial, try_rates
from milepost.lab.trial import Trial


def test_the_rate_with_the_lowest_loss_is_taken_and_shown(small, tmp_path, monkeypatch):
    plan = small(rates=(0.5, 1.0, 2.0), steps=16)
    losses = {0.5: 3.0, 1.0: 2.0, 2.0: 2.5}
    asked = []

    def made_up(plan, trial, row, folder, tell):
        asked.append(len(row))
        return [{"rate": rate, "loss": loss} for rate, loss in losses.items()]

    seen = []
    monkeypatch.setattr(text_trial, "try_rates", made_up)
    taken = text_trial.train_and_measure
    monkeypatch.setattr(
        text_trial, "train_and_measure", lambda *args, **how: seen.append(args[3].rate) or taken(*args, **how)
    )
    result = run_text_trial(plan, plan.trials()[0], tmp_path)
    assert seen == [1.0] and asked
    losses[2.0] = 1.0
    result = run_text_trial(plan, plan.trials()[0], tmp_path / "again")
    assert seen == [1.0, 2.0]
    assert result["runs"][0]["rate"] == 2.0 and [tried["rate"] for tried in result["runs"][0]["rates"]] == [
        0.5,
        1.0,
        2.0,
    ]
    assert json.loads(json.dumps(result)) == result


def test_rates_are_judged_by_training_text_that_was_not_trained_on(small, tmp_path, monkeypatch):
    plan = small(rates=(0.5, 2.0), steps=16)
    row = np.arange(4000) % 251
    read, scored = [], []
    kept, judged = text_trial.from_text, text_trial.token_losses
    monkeypatch.setattr(
        text_trial, "from_text", lambda text, recipe: read.append((len(text), recipe)) or kept(text, recipe)
    )
    monkeypatch.setattr(
        text_trial, "token_losses", lambda model, windows: scored.append(windows) or judged(model, windows)
    )
    tried = try_rates(plan, Trial("rope", 0), row, tmp_path, lambda news: None)
    assert [length for length, _ in read] == [3750, 3750] and [recipe.rate for _, recipe in read] == [0.5, 2.0]
    assert [recipe.steps for _, recipe in read] == [2, 2] and all(np.isfinite(one["loss"]) for one in tried)
    for windows in scored:  # each window lies in the last sixteenth
        assert windows.shape == (plan.windows, 17)
        assert windows[0, 0] == row[3750] and windows[-1, -1] == row[-1]
    assert try_rates(small(), Trial("rope", 0), row, tmp_path, lambda news: None) == []


def test_a_killed_search_ends_with_the_same_losses(small, tmp_path):
    plan = small(rates=(0.5, 2.0), steps=16)
    row = np.random.default_rng(0).integers(0, 200, 4000)
    whole = try_rates(plan, Trial("t5", 0), row, tmp_path / "whole", lambda news: None)

    class Killed(BaseException):
        pass

    def kill(news):
        if news["trying"] == "rate 2":
            raise Killed

    with pytest.raises(Killed):
        try_rates(plan, Trial("t5", 0), row, tmp_path / "killed", kill)
    assert try_rates(plan, Trial("t5", 0), row, tmp_path / "killed", lambda news: None) == whole


def test_a_rate_that_diverges_is_not_taken(small, tmp_path):
    tried = try_rates(
        small(rates=(1.0, 1e25), steps=64), Trial("rope", 0), np.arange(4000) % 251, tmp_path, lambda news: None
    )
    assert [one["rate"] for one in tried] == [1.0]


# -- controls


def test_an_encoding_that_makes_a_model_larger_has_a_control_of_the_same_size():
    plan = make("standard")
    controls = {trial.as_large_as: trial for trial in plan.trials() if trial.as_large_as}
    assert "deberta" in controls and "alibi" not in controls and "learned" not in controls
    for spec, trial in controls.items():
        assert trial.spec == "rope" and trial.data == "text"
        wanted, own = Decoder(plan.shape, spec).count(), Decoder(plan.shape_of(trial), "rope").count()
        assert wanted <= own < 1.1 * wanted
    assert not any(trial.as_large_as for trial in make("quick").trials())
    plain = next(trial for trial in plan.trials() if trial.encoding == "rope")
    assert plan.shape_of(plain) == plan.shape and plain.spec == "rope" and plain.as_large_as == ""


def test_a_control_is_trained_and_measured_without_strategies(small, tmp_path):
    plan = small(("deberta",))
    trial = plan.trials()[-1]
    assert trial.encoding == "rope as large as deberta"
    (run,) = run_text_trial(plan, trial, tmp_path)["runs"]
    assert run["encoding"] == trial.encoding and run["strategy"] == "none" and run["encoding_parameters"] == 0
    assert run["parameters"] >= Decoder(plan.shape, "deberta").count()


def test_the_larger_profiles_search_their_rates():
    assert all(len(PROFILES[name].rates) == 3 for name in ("standard", "full")) and PROFILES["quick"].rates == (1.0,)
