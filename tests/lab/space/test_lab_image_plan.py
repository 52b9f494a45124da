"""What is asked of the image lab: sizes in whole patches, and all that can be wrong said before any training."""

import json

import numpy as np
import pytest
from test_lab_images import fill

from milepost.lab.space.encoder import Encoder
from milepost.lab.space.image_plan import PROFILES, make
from milepost.lab.space.sizes import read_sizes, trained_size
from milepost.lab.sweep.modalities import read_plan


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_a_plan(profile):
    plan = make(profile)
    side = plan.size[0] // plan.patch
    assert plan.shape.sides == (side, side) and [plan.grid(size)[0] / side for size in plan.sizes] == [
        0.5,
        0.75,
        1.0,
        1.5,
        2.0,
    ]
    assert len(plan.trials()) == len({trial.key for trial in plan.trials()}) == len(plan.seeds) * len(plan.encodings)
    assert read_plan(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.trial(plan.trials()[-1].key) == plan.trials()[-1]
    assert abs(plan.shape.weights() / Encoder(plan.shape, "grid").count() - 1) < 0.1


def test_the_quick_profile_has_what_was_promised():
    named = {spec.split("(")[0] for spec in make("quick").encodings}
    assert {"learned", "grid", "sinusoidal_nd", "axial", "mixed", "alibi_2d"} <= named
    assert len(make("standard").seeds) == 3


def test_sizes_are_times_or_pixels():
    assert read_sizes("2x,0.5x, 1x", (16, 16), 2) == ((8, 8), (16, 16), (32, 32))
    assert read_sizes("8,24", (16, 24), 2) == ((8, 12), (24, 36))
    assert read_sizes("", (16, 20), 2) == (
        (8, 10),
        (16, 20),
        (24, 30),
        (32, 40),
    )  # three quarters of 10 columns are no whole patches
    for text, said in (
        ("0.75x", "6 x 7.5 patches"),
        ("15", "7.5 x 9.375 patches"),
        ("0x", "0 x 0"),
        ("99x", "792 x 990"),
        ("nanx", "nan"),
        ("infx", "inf"),
    ):
        with pytest.raises(ValueError, match=f"size '{text}' of the trained 16 x 20 pixels would be {said}"):
            read_sizes(text, (16, 20), 2)
    with pytest.raises(ValueError, match="got 'large'"):
        read_sizes("1x,large", (16, 16), 2)


def test_the_longer_side_is_in_proportion():
    assert trained_size((8, 8), 16, 2) == (16, 16)
    assert trained_size((120, 160), 16, 2) == (16, 20) and trained_size((160, 120), 16, 2) == (20, 16)
    assert trained_size((100, 101), 16, 2) == (16, 16)
    with pytest.raises(ValueError, match="a multiple of 2, from 4 to 64; got 15"):
        trained_size((8, 8), 15, 2)
    with pytest.raises(ValueError, match="would be 1600 pixels long"):
        trained_size((10, 1000), 16, 2)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"profile": "quik"}, "for images.*did you mean 'quick'"),
        ({"profile": "full"}, "unknown profile 'full' for images"),
        ({"encodings": ["axail"]}, "did you mean 'axial'"),
        ({"encodings": ["axial(axes=4)"]}, "for places of 4 axes, and these have 2"),
        ({"encodings": ["grid(sides=(14, 14))"]}, "a table for 14 x 14 places, and the model is trained on 4 x 4"),
        ({"encodings": ["no_such_module:Thing"]}, "can't import 'no_such_module'"),
        ({"strategy_names": ["yarn"]}, "unknown strategy 'yarn' for images; there are none, linear"),
        ({"seeds": [1, 1]}, "seeds are different whole numbers"),
        ({"sizes": "0.6x"}, "2.4 x 2.4 patches"),
        ({"train_size": 7}, "a multiple of 2"),
        ({"folder": "/no/such/folder"}, "there is no folder"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_in_a_sentence(how, said):
    with pytest.raises(ValueError, match=said):
        make(**{"profile": "tiny", **how})


def test_a_folder_of_images_that_are_not_square(tmp_path, monkeypatch):
    fill(tmp_path / "pets", size=(9, 15))
    monkeypatch.chdir(tmp_path)
    plan = make("tiny", folder="pets")
    assert (
        plan.folder == str(tmp_path / "pets")
        and plan.size == (8, 12)
        and plan.shape.sides == (4, 6)
        and plan.shape.classes == 2
    )
    assert [plan.grid(size) for size in plan.sizes] == [(2, 3), (4, 6), (6, 9), (8, 12)]
    assert np.isclose(plan.sizes[-1][1] / plan.sizes[-1][0], 1.5)
