"""Models of images at another size for a claim: tables resampled along their row, and leads that are paired."""

import json

import numpy as np
import pytest
import torch

from milepost.claims import needs
from milepost.claims.groups.practice import sight
from milepost.claims.judge import judge
from milepost.claims.rule import NotMeasured
from milepost.lab.space import encoder


def test_a_lead_is_of_the_second_and_is_paired():
    table, other = np.array([[1.0, 0, 1, 0]] * 2), np.array([[1.0, 1, 1, 0]] * 2)
    assert sight.ahead(table, other).value == 0.25 and sight.ahead(other, table).value == -0.25
    assert sight.ahead(np.ones((2, 4)), np.zeros((2, 4))).sides == (-1.0, -1.0)  # a lead may be below zero
    same = sight.ahead(table, table)
    assert same.sides == (0.0, 0.0)  # the same answers, image by image: no chance is left
    with pytest.raises(NotMeasured, match="same images"):
        sight.ahead(table, other[:, :3])


def test_the_better_of_two_is_right_more_often():
    few, many = np.array([[1.0, 0, 0]]), np.array([[0.0, 1, 1]])
    assert sight.better(few, many) is many and sight.better(many, few) is many


def test_a_table_of_one_row_is_resampled_along_its_row():
    """Rows 0, 1, 2, ... stay a straight line: each new row is at ((n + 1/2) old / new - 1/2), inside of the ends."""
    model = encoder.Encoder(encoder.EncoderShape((4, 4), 4, 10, 1, 16, 2), "learned").start(0)
    with torch.no_grad():
        model.encodings[0].table.copy_(torch.arange(16.0)[:, None].expand(16, 16))
    made = sight.in_one_row(model, (8, 8))
    expected = ((torch.arange(64.0) + 0.5) * 16 / 64 - 0.5).clamp(0, 15)
    torch.testing.assert_close(made.encodings[0].table[:, 0], expected)
    assert made(torch.zeros(2, 64, 4)).shape == (2, 10) and model.encodings[0].length == 16


@pytest.mark.slow
def test_a_one_dimensional_table_gets_the_better_of_its_two_ways(small, in_this_process, shared):
    row = judge(["vit-2d"], out=shared, resume=True)[0]
    assert "the 1-D table ends before the last patch of images of 16 x 16 pixels" in row["evidence"]
    by_size = dict(zip(row["figures"][0]["x"], row["figures"][0]["lines"]["learned"], strict=True))
    results = [json.loads(file.read_text()) for file in (shared / "lab" / "image").rglob("result.json")]
    runs = [run for one in results for run in one["runs"] if run["strategy"] == "none"]

    def mean(encoding, size):
        """Share of right answers, over the seeds, as the trials wrote it down."""
        found = [
            at["accuracy"]
            for run in runs
            if run["encoding"] == encoding
            for at in run["accuracy_by_size"]
            if at["size"] == [size, size]
        ]
        return sum(found) / len(found)

    assert by_size[4] >= mean("learned", 4) - 1e-9
    assert row["numbers"]["learned"]["value"] == pytest.approx(mean("learned", 8))
    assert row["numbers"]["home"]["value"] == 0.0  # a learned table of either kind is the same model there
    assert row["numbers"]["home, least"]["value"] == pytest.approx(
        min(mean(name, 8) for name in sight.FORMULAS) - mean("learned", 8)
    )


def test_without_images_the_reason_is_said(small, monkeypatch, tmp_path):
    monkeypatch.setattr(needs, "find_spec", lambda name: None)
    row = judge(["vit-2d"], out=tmp_path / "claims")[0]
    assert row["verdict"] == "not decided here" and "pip install 'milepost[images]'" in row["evidence"]
