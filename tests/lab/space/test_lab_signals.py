"""Signals of three and four axes: labels that order alone decides, and models that learn the order on every axis, or
can't.
"""

import json

import numpy as np
import pytest
import torch

from milepost.lab.space import signal_plan, signal_trial
from milepost.lab.space.encoder import Encoder, EncoderShape
from milepost.lab.space.signals import KINDS
from milepost.lab.sweep.modalities import read_plan
from milepost.lab.train import Recipe, labels, train
from milepost.positions import grid

FAR_ROUNDING = 1 << 20
"""Places; float64 rounds an angle there to 2^20 x 1.1e-16 = 1.2e-10."""


def places(signals, found):
    """Where the two marks stand, by matched filters: count x mark x axis."""
    scores = found @ signals.marks.T.astype(np.float32)
    flat = scores.argmax(1)
    return np.stack(np.unravel_index(flat, signals.sides), axis=-1)


# -- the signals
# --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_is_the_order_of_two_marks_on_every_axis(kind):
    """Against a reader that looks for the marks in the finished signal."""
    signals = KINDS[kind]
    found, wanted = signals.make(400, (5,))
    assert found.shape == (400, int(np.prod(signals.sides)), signals.channels) and found.dtype == np.float32
    where = places(signals, found)
    sure = (where[:, 0] != where[:, 1]).all(1)  # noise may hide a mark
    assert sure.mean() > 0.9
    read = ((where[:, 0] < where[:, 1]) * 2 ** np.arange(len(signals.axes))).sum(1)
    assert (read == wanted)[sure].mean() > 0.95
    assert np.array_equal(signals.bits(wanted)[:, 0], wanted % 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mirror_turns_the_bit_of_its_axis_and_no_other(kind):
    signals = KINDS[kind]
    found, _ = signals.make(300, (6,))
    before = places(signals, found)
    for axis, side in enumerate(signals.sides):
        after = places(signals, signals.mirrored(found, axis))
        assert np.array_equal(after[..., axis], side - 1 - before[..., axis])
        assert np.array_equal(np.delete(after, axis, -1), np.delete(before, axis, -1))


def test_every_label_is_as_frequent_and_every_seed_another_text():
    for signals in KINDS.values():
        found, wanted = signals.make(4000, (1,))
        counts = np.bincount(wanted, minlength=signals.classes)
        assert (
            abs(counts - 4000 / signals.classes).max() < 5 * (4000 / signals.classes) ** 0.5
        )  # five standard deviations of a Poisson count
        assert np.array_equal(signals.make(4000, (1,))[0], found) and not np.array_equal(
            signals.make(4000, (2,))[0], found
        )
        assert len(set(signals.sides)) > 1 and len(signals.digest) == 64


# -- plans
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", signal_plan.PROFILES)
def test_every_profile_is_a_plan(kind, profile):
    plan = signal_plan.make(kind, profile)
    assert read_plan(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.encodings == ("nope", f"axial(axes={len(KINDS[kind].axes)}, base=100.0)") and plan.read() is KINDS[kind]
    assert plan.trial(plan.trials()[-1].key) == plan.trials()[-1]
    assert abs(plan.shape.weights() / Encoder(plan.shape, "grid").count() - 1) < 0.2


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"kind": "vidio"}, "did you mean 'video'"),
        ({"profile": "full"}, "unknown profile 'full' for signals; there are tiny, quick, standard"),
        ({"encodings": ["axial"]}, "is for places of 2 axes, and these have 3: write axes=3"),
        ({"encodings": ["alibi_2d"]}, "is for places of 2 axes, and these have 3"),
        ({"seeds": [-1]}, "seeds are different whole numbers"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_in_a_sentence(how, said):
    with pytest.raises(ValueError, match=said):
        signal_plan.make(**{"kind": "video", "profile": "tiny", **how})


# -- what is learned
# ----------------------------------------------------------------------------------------------------------


def trained(kind, spec, steps=600):
    signals = KINDS[kind]
    shape = EncoderShape(signals.sides, signals.channels, signals.classes, 2, 16 * len(signals.axes), 4)
    model = Encoder(shape, spec).start(0)
    train(model, lambda step: signals.make(32, (0, step)), Recipe(steps, 32, 1), loss=labels)
    return model


@pytest.fixture(scope="module")
def video():
    return trained("video", "axial(axes=3, base=100.0)")


@pytest.fixture(scope="module")
def eeg():
    return trained("eeg", "axial(axes=4, base=100.0)")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_axial_rope_learns_the_order_on_every_axis(kind, request):
    signals, model = KINDS[kind], request.getfixturevalue(kind)
    found, wanted = signals.make(512, (99,))
    rows = signal_trial.by_axis(model, signals, found, wanted)
    assert [row["axis"] for row in rows] == list(signals.axes)
    for row in rows:
        assert row["learned"] and row["right_low"] > 0.6 and row["turned_low"] > 0.5 and row["others"] < 0.25, row
    told = signal_trial.answers(model, found)
    assert (told == wanted).mean() > 4 / signals.classes


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_without_positions_nothing_can_be_learned(kind):
    """Not even by training: mirrored tokens are the same bag, so that not one answer turns, and bits are right by
    chance.
    """
    signals = KINDS[kind]
    model = trained(kind, "nope", steps=40).double()
    found, wanted = signals.make(512, (99,))
    mine = signals.bits(signal_trial.answers(model, found.astype(np.float64)))
    for axis in range(len(signals.axes)):
        other = signals.bits(signal_trial.answers(model, signals.mirrored(found, axis).astype(np.float64)))
        assert (mine == other).all()
    share = (mine == signals.bits(wanted)).mean()
    assert abs(share - 0.5) < 4 * (0.25 / 512) ** 0.5  # bits of one answer go together: four deviations of 512 throws


def test_axes_taken_for_each_other_are_seen(video):
    """A planted swap: frames told as columns and columns as frames."""
    signals = KINDS["video"]
    found, wanted = signals.make(512, (99,))
    with torch.no_grad():
        pos = grid(*signals.sides)
        told, swapped = (
            signals.bits(video(torch.from_numpy(found), where).argmax(-1).numpy()) for where in (pos, pos[[2, 1, 0]])
        )
    right = (told == signals.bits(wanted)).mean(0)
    wrong = (swapped == signals.bits(wanted)).mean(0)
    assert right.min() > 0.6 and (right - wrong)[[0, 2]].min() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_a_far_move_along_any_axis_changes_nothing(kind, request):
    signals, model = KINDS[kind], request.getfixturevalue(kind)
    found, _ = signals.make(8, (3,))
    for axis in range(len(signals.axes)):
        row = signal_trial.moved(model, found, axis)
        assert row["moved_by"] == FAR_ROUNDING
        # an angle's rounding, times pairs, logits of some tens and two layers: a thousand roundings
        assert row["change"] < 1000 * FAR_ROUNDING * 2**-53 < 1e-3 < row["control"]


def test_of_tables_no_move_is_asked():
    signals = KINDS["video"]
    shape = EncoderShape(signals.sides, signals.channels, signals.classes, 1, 24, 2)
    for spec in ("grid", "learned"):
        assert signal_trial.moved(Encoder(shape, spec).start(0), signals.make(4, (3,))[0], 0)["change"] is None
    assert signal_trial.moved(Encoder(shape, "nope").start(0), signals.make(4, (3,))[0], 0)["change"] == 0.0
