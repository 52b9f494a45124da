"""The image lab in real processes: what it finds, killed and gone on with, on images that are not square, and with
planted mistakes.
"""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from in_process import trials_here
from stripped import same
from test_lab_images import save
from test_lab_sweep import DRIVER, _states, _wait_for

from milepost.lab import checkpoint
from milepost.lab.space import image_measure as measure
from milepost.lab.space.comparisons import comparisons, paired
from milepost.lab.space.encoder import Encoder
from milepost.lab.space.image_plan import make
from milepost.lab.space.views import cut, sized
from milepost.lab.sweep import processes, sweep
from milepost.positions import grid

pytestmark = pytest.mark.slow


def small(encodings, folder=None, **fields):
    plan = make("tiny", encodings=encodings, sizes=fields.pop("sizes", ""), folder=folder)
    return replace(plan, **{"steps": 8, **fields})


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    """Images of 8 x 12: a bright bar above a dark one or below it. Which is which is a matter of rows alone."""
    folder, rng = tmp_path_factory.mktemp("bars"), np.random.default_rng(0)
    for name, first, second in (("above", 255, 0), ("below", 0, 255)):
        for number in range(60):
            image = rng.integers(100, 140, (8, 12))
            top = 2 * rng.integers(0, 3)
            image[top : top + 2], image[top + 2 : top + 4] = first, second
            save(folder / name / f"{number}.png", image)
    return folder


@pytest.fixture(scope="module")
def run(bars, tmp_path_factory):
    """A finished run on the bars."""
    out = tmp_path_factory.mktemp("runs") / "bars"
    plan = small(("nope", "learned", "grid", "axial(base=100.0)"), str(bars), steps=150, rows=32)
    plan = replace(plan, shape=replace(plan.shape, layers=2, width=32))
    with trials_here():
        return plan, sweep(plan, out), out


def found(results, encoding, strategy="none"):
    return next(one for one in results["runs"] if one["encoding"] == encoding and one["strategy"] == strategy)


def by_size(run):
    return {tuple(row["size"]): row["accuracy"] for row in run["accuracy_by_size"]}


def test_order_is_learned_where_it_is_told_and_kept_where_it_carries(run):
    plan, results, _ = run
    assert results["failed"] == results["missing"] == [] and plan.size == (8, 12)
    blind, axial = by_size(found(results, "nope")), by_size(found(results, "axial(base=100.0)"))
    row = found(results, "axial(base=100.0)")["accuracy_by_size"][1]
    assert (
        row["size"] == [8, 12]
        and row["grid"] == [4, 6]
        and row["times"] == 1
        and row["low"] < row["accuracy"] <= row["high"]
        and row["images"] == 30
    )
    assert axial[8, 12] > 0.85 and axial[8, 12] > blind[8, 12]


def test_learned_and_grid_are_one_model_at_the_trained_size(run):
    one, two = (found(run[1], name) for name in ("learned", "grid"))
    assert one["right_by_size"]["8x12"] == two["right_by_size"]["8x12"]
    ended = [row for row in one["accuracy_by_size"] if row["accuracy"] is None]
    assert [row["size"] for row in ended] == [[12, 18], [16, 24]] and all(row["note"] == "table ends" for row in ended)
    assert all(row["accuracy"] is not None for row in two["accuracy_by_size"])


def test_right_answers_add_up_and_are_compared_image_by_image(run):
    _, results, _ = run
    for one in results["runs"]:
        for row in one["accuracy_by_size"]:
            if row["accuracy"] is not None:
                right = one["right_by_size"]["x".join(map(str, row["size"]))]
                assert row["accuracy"] == right.count("1") / len(right)
                first = one["right_by_size"]["8x12"]
                assert row["change"] == pytest.approx(right.count("1") / 30 - first.count("1") / 30)
    assert {one["against"] for one in results["comparisons"]} == {
        "nope, none",
        "learned, none",
        "axial(base=100.0), none",
    }
    gain = next(
        one
        for one in results["comparisons"]
        if one["encoding"] == "axial(base=100.0)" and one["against"] == "nope, none" and one["size"] == [8, 12]
    )
    assert gain["difference"] > 0 and gain["low"] < gain["difference"] < gain["high"]


def test_results_say_how_they_were_made(run):
    plan, results, out = run
    protocol = results["provenance"]["protocol"]
    assert (
        results["schema"] == 1
        and protocol["plan"]["modality"] == "image"
        and protocol["plan"]["digest"] == protocol["images"]["sha256"]
    )
    assert {"scikit-learn", "pillow"} <= set(results["provenance"]["versions"]) and protocol["images"]["classes"] == [
        "above",
        "below",
    ]
    assert json.loads((out / "results.json").read_text()) == results
    assert plan.steps == protocol["plan"]["steps"] == 150


def test_maps_are_of_the_trained_model(run):
    """Against the saved model, read again: cosines of its own table, and weights that add up to one."""
    plan, results, out = run
    held = found(results, "grid")["similarity"]
    table = (
        checkpoint.load_encoder(out / "trials" / found(results, "grid")["folder"]).encodings[0].table.detach().double()
    )
    assert held["grid"] == [4, 6] and len(held["patches"]) == 24 and held["patches"][7] == [1, 1]
    cosine = torch.nn.functional.cosine_similarity(table[7], table)
    assert held["maps"][0]["what"] == "cosine of codes" and held["maps"][0]["values"][7] == pytest.approx(
        cosine.tolist(), abs=1e-3
    )
    assert (
        sum(held["maps"][-1]["values"][7]) == pytest.approx(1, abs=0.01)
        and held["maps"][-1]["what"] == measure.ATTENTION
    )
    assert {one["what"] for one in found(results, "nope")["similarity"]["maps"]} == {measure.NOTHING, measure.ATTENTION}
    assert plan.shape.sides == (4, 6)


def test_its_numbers_are_those_of_the_saved_model_and_places_told_wrongly_are_seen(run):
    """The model as it was saved gives the accuracy that was reported; told its rows from below, it takes above for
    below.
    """
    plan, results, out = run
    one = found(results, "axial(base=100.0)")
    home = out / "trials" / one["folder"]
    about, data, model = json.loads((home / "encoder.json").read_text()), plan.read(), checkpoint.load_encoder(home)

    def told(size, pos):
        seen = cut((sized(data.test, size) - about["mean"][0]) / about["std"][0], plan.patch)
        return measure.answers(model.on_grid(*plan.grid(size)), seen, data.test_labels, pos)[0]

    for size in plan.sizes:
        assert told(size, grid(*plan.grid(size))).mean() == by_size(one)[size]
    right, swapped = told((8, 12), grid(4, 6)), told((8, 12), grid(4, 6).flip(0))
    from_below = torch.stack([3 - grid(4, 6)[0], grid(4, 6)[1]])
    assert (right != swapped).any() and right.mean() - told((8, 12), from_below).mean() > 0.5


def test_linear_tells_places_on_the_trained_grid():
    plan = small(("axial(base=100.0)",))
    pos = measure.grid_positions(plan, (8, 2), "linear")  # trained on 4 x 4
    assert sorted(set(pos[0, 0].tolist())) == [-0.25, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.25] and sorted(
        set(pos[1, 0].tolist())
    ) == [0.5, 2.5]
    assert torch.equal(measure.grid_positions(plan, (4, 4), "linear"), grid(4, 4).double())
    assert torch.equal(measure.grid_positions(plan, (8, 2), "none"), grid(8, 2))


def test_linear_is_for_places_that_may_lie_between():
    shape, specs = small(("nope",)).shape, ("nope", "learned", "grid", "sinusoidal_nd", "axial", "mixed", "alibi_2d")
    assert {spec for spec in specs if measure.applies("linear", Encoder(shape, spec))} == {
        "sinusoidal_nd",
        "axial",
        "mixed",
        "alibi_2d",
    }


def test_paired_differences():
    one = paired("1100", "1011")
    assert one["difference"] == 0.25 and one["low"] < 0.25 < one["high"]
    assert comparisons([{"encoding": "axial", "strategy": "none", "seed": 0, "right_by_size": {"8x8": "1"}}]) == []


def test_killed_and_gone_on_with_it_ends_as_if_never_broken(tmp_path):
    plan = small(("learned", "axial(base=100.0)"), steps=400, sizes="1x,2x")
    unbroken = sweep(plan, tmp_path / "whole")
    assert unbroken["missing"] == unbroken["failed"] == [] and len(unbroken["runs"]) == 3
    (tmp_path / "asked.json").write_text(json.dumps(plan.to_json()))
    out = tmp_path / "broken"
    for _ in range(2):
        before = _states(out)
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "asked.json"), str(out)])
        _wait_for(lambda driver=driver, before=before: _states(out) != before or driver.poll() is not None)
        driver.kill()
        driver.wait()
    kept = {file: file.stat().st_mtime_ns for file in out.glob("trials/*/result.json")}
    resumed = sweep(plan, out, resume=True)
    same(resumed, unbroken)
    assert all(file.stat().st_mtime_ns == then for file, then in kept.items())
    assert not list(out.rglob("*.pt"))


def test_images_that_changed_since_are_another_plan(bars, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_run", lambda trial, *how: {"result": {"runs": []}})
    home = tmp_path / "bars"
    home.mkdir()
    for name in ("above", "below"):
        (home / name).mkdir()
        for file in (bars / name).iterdir():
            (home / name / file.name).write_bytes(file.read_bytes())
    plan = small(("nope",), str(home))
    sweep(plan, tmp_path / "out")
    save(home / "above" / "0.png", np.zeros((8, 12)))
    with pytest.raises(ValueError, match="the images that it read changed since"):
        sweep(plan, tmp_path / "out", resume=True)
