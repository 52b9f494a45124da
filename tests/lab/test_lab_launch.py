"""Under `accelerate launch` several processes train each model together, and the first of them alone writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.lab.model import Decoder
from milepost.lab.sweep import sweep
from milepost.lab.train import Recipe, train

DRIVER = """
import json, sys
from milepost.lab.plan import Plan
from milepost.lab.sweep import sweep
sweep(Plan.from_json(json.loads(open(sys.argv[1]).read())), sys.argv[2])
"""


def test_two_processes_together_find_what_one_finds(small, tmp_path):
    plan = small(("learned",), lengths="1x,2x", tasks=("antecedent",))
    alone = sweep(plan, tmp_path / "alone")
    (tmp_path / "asked.json").write_text(json.dumps(plan.to_json()))
    (tmp_path / "driver.py").write_text(DRIVER)
    launch = ["accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    words = [sys.executable, "-m", *launch, "--num_cpu_threads_per_process", "1", "--main_process_port", "0"]
    env = {**os.environ, "PYTHONPATH": str(Path.cwd()), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*words, str(tmp_path / "driver.py"), str(tmp_path / "asked.json"), str(tmp_path / "both")],
        capture_output=True, text=True, env=env, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    both = json.loads((tmp_path / "both" / "results.json").read_text())
    assert both["failed"] == both["missing"] == []
    for mine, other in zip(alone["runs"], both["runs"], strict=True):
        assert (mine["encoding"], mine["data"]) == (other["encoding"], other["data"])
        # the same mean over the same rows in another order of adding up: float32 has 7 digits, 8 steps of Adam may make 4 of them
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)


def test_rows_that_can_not_be_shared_are_said(small, monkeypatch):
    plan = small()
    monkeypatch.setattr("milepost.lab.train._accelerator", lambda: type("Three", (), {"num_processes": 3}))
    with pytest.raises(ValueError, match="4 rows a step can't be shared evenly by 3 processes"):
        train(Decoder(plan.shape, "rope"), lambda step: None, Recipe(1, 4, 16))
