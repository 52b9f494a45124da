"""Every exact claim, judged once; and plans for models so small that they learn nothing."""

from dataclasses import replace

import numpy as np
import pytest
from in_process import trials_here

from milepost.claims import needs
from milepost.claims.groups.absolute import frame, probes
from milepost.claims.groups.practice import moved
from milepost.claims.judge import judge
from milepost.lab import plan as planned
from milepost.lab.space import image_plan as images


@pytest.fixture(scope="session")
def exact_rows():
    return {row["id"]: row for row in judge(exact=True)}


@pytest.fixture
def small(monkeypatch, texts):
    """The plans of the claims, for models so small that they learn nothing."""

    def made(profile, **how):
        lengths = how.get("lengths", "1x,2x,4x,8x,16x")
        plan = planned.make(profile, **{**how, "text": str(texts), "train_length": 16, "lengths": lengths})
        return replace(plan, steps=4, rows=4, windows=6, shape=replace(plan.shape, layers=2, length=16))

    def pictures(profile, **how):
        return images.make("tiny", **how)

    monkeypatch.setattr(needs, "make", made)
    monkeypatch.setattr(needs, "make_images", pictures)
    monkeypatch.setattr(needs, "TASK_STEPS", 4)
    monkeypatch.setattr(moved, "BATCH", 1)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A folder of twenty texts of some 3000 bytes."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(20):
        rng = np.random.default_rng(number)
        (folder / f"text-{number:02}.txt").write_text(
            " ".join(rng.choice(["position", "token", "length", "query", "key", "value", "near", "far"], 500))
        )
    return folder


@pytest.fixture
def in_this_process(monkeypatch):
    """Trials one after another, here: the trainings themselves are the real ones."""

    for module in (frame, probes):
        monkeypatch.setattr(module, "STEPS", {"quick": 2})
    with trials_here():
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder in which models are trained once for all claims."""
    return tmp_path_factory.mktemp("shared") / "claims"
