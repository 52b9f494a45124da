"""Under `accelerate launch` several processes train each model together, and the first of them alone writes."""

import json

import pytest
from launched import launch

from milepost.lab.model import Decoder
from milepost.lab.sweep import sweep
from milepost.lab.train import Recipe, train

DRIVER = """
import json, os, sys
from pathlib import Path
from milepost.lab.model import Decoder
from milepost.lab.plan import TextPlan
from milepost.lab.sweep import sweep

rows, plain = set(), Decoder.forward

def forward(self, ids, *more, **named):
    if self.training:
        rows.add(len(ids))
    return plain(self, ids, *more, **named)

Decoder.forward = forward
sweep(TextPlan.from_json(json.loads(Path("asked.json").read_text())), "both")
Path(f"process-{os.environ['RANK']}.json").write_text(json.dumps(sorted(rows)))
"""


@pytest.mark.slow
def test_two_processes_together_find_what_one_finds(small, tmp_path):
    plan = small(("learned",), lengths="1x,2x", tasks=("antecedent",))
    alone = sweep(plan, tmp_path / "alone")
    (tmp_path / "asked.json").write_text(json.dumps(plan.to_json()))
    (tmp_path / "driver.py").write_text(DRIVER)
    launch("driver.py", cwd=tmp_path)
    for rank in (0, 1):  # each of the two was given half of the rows of every step
        assert json.loads((tmp_path / f"process-{rank}.json").read_text()) == [plan.rows // 2]
    both = json.loads((tmp_path / "both" / "results.json").read_text())
    assert both["failed"] == both["missing"] == []
    for mine, other in zip(alone["runs"], both["runs"], strict=True):
        assert (mine["encoding"], mine["data"]) == (other["encoding"], other["data"])
        # the same mean over the same rows in another order of adding up. The first loss is float32's sum alone; then
        # gradients meet bfloat16 (Muon's steps are made of it), whose 8 bits make a last digit of 2^-8 in single
        # numbers, and a tenth of that in the mean over some hundred tokens
        assert mine["train_loss"][0] == pytest.approx(other["train_loss"][0], rel=1e-4)
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=2**-8 / 4)


def test_rows_that_can_not_be_shared_are_said(small, monkeypatch):
    plan = small()
    monkeypatch.setattr("milepost.lab.train._accelerator", lambda: type("Three", (), {"num_processes": 3}))
    with pytest.raises(ValueError, match="4 rows a step can't be shared evenly by 3 processes"):
        train(Decoder(plan.shape, "rope"), lambda step: None, Recipe(1, 4, 16))
