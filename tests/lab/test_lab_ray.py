"""Ray: a real one on this machine. A worker that is killed in the middle of a trial is tried again, and nothing is
lost.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from stripped import same

from milepost.lab.sweep import sweep
from milepost.lab.user_modules import import_named

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
DRIVER = """
import json, sys, logging
import ray
from milepost.lab.plan import TextPlan
from milepost.lab.user_modules import import_named
from milepost.lab.sweep import sweep

plan = TextPlan.from_json(json.loads(open(sys.argv[1]).read()))
import_named(plan.encodings)
told = []
results = sweep(plan, sys.argv[2], engine="ray", workers=2, tell=lambda trial, news: told.append(news))
assert not ray.is_initialized()
print(json.dumps({"told": told, "results": results}))
"""


def test_a_ray_worker_killed_in_the_middle_of_a_trial_is_tried_again(small, tmp_path, monkeypatch):
    mark = tmp_path / "died"
    monkeypatch.chdir(HERE)
    spec = f"strangers_of_the_lab:DiesOnce(mark={str(mark)!r})"
    import_named([spec])
    plan = small((spec, "rope", "strangers_of_the_lab:Breaks"), steps=200, lengths="1x,2x", strategies=())
    (tmp_path / "asked.json").write_text(json.dumps(plan.to_json()))
    words = [sys.executable, "-c", DRIVER, str(tmp_path / "asked.json"), str(tmp_path / "ray")]
    env = {**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=HERE, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)  # and nothing else is printed there
    assert mark.exists() and int(mark.read_text()) > 0
    results = found["results"]
    assert [lost["encoding"] for lost in results["failed"]] == [
        "strangers_of_the_lab:Breaks"
    ] and "a stranger's mistake" in results["failed"][0]["why"]
    assert [run["encoding"] for run in results["runs"]] == [spec, "rope"] and results["missing"] == []
    assert any("step" in news and news["tokens_per_s"] > 0 for news in found["told"])
    unbroken = sweep(
        replace(plan, encodings=(spec, "rope")), tmp_path / "local", workers=2
    )  # the mark is there: nobody dies
    same(results["runs"], unbroken["runs"])
    assert (
        results["provenance"]["protocol"]["plan"]["threads"]
        == unbroken["provenance"]["protocol"]["plan"]["threads"]
        == 1
    )
