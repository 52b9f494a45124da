"""extend with method auto, on a model that was really trained: what is written is what was measured to be best, and
it helps.
"""

import json
from pathlib import Path

import pytest
from from_lab import TRAINED

from milepost.checkpoints.extension.extend import extend
from milepost.checkpoints.model.load import load

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def done(trained_neox, some_text, tmp_path_factory):
    return extend(
        trained_neox,
        target_length=4 * TRAINED,
        method="auto",
        text=some_text,
        out=tmp_path_factory.mktemp("auto") / "longer",
    )


def test_the_best_that_was_measured_is_what_is_written(done):
    assert done.method == done.recommendation["best"] and done.factor == pytest.approx(
        done.recommendation["factor"] or 4.0
    )
    spec = load(done.out).spec
    assert spec.main.scaling is not None or spec.main.base != 10000.0
    told = json.loads((Path(done.out) / "milepost.json").read_text())
    assert told["method"] == done.method and told["to"] == 4 * TRAINED


def test_it_loses_less_at_the_target_on_the_other_half_of_the_text(done):
    at = {row["length"]: row for row in done.losses}
    assert (
        at[4 * TRAINED]["difference"]["high"] < 0 < at[4 * TRAINED]["before"]["value"] - at[TRAINED]["before"]["value"]
    )
