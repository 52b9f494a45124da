"""Ray: a real one on this machine. A worker that is killed in the middle of a trial is tried again, and nothing is
lost.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from stripped import same

from milepost.lab.sweep import on_ray, sweep
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


CLUSTER = """
import json, sys, tempfile
import ray
from ray.cluster_utils import Cluster
from milepost.lab.plan import TextPlan
from milepost.lab.sweep import sweep

plan = TextPlan.from_json(json.loads(open(sys.argv[1]).read()))
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
other = cluster.add_node(num_cpus=1)
killed = []

def tell(trial, news):
    if not killed and news.get("step", 0) > 60:
        killed.append(trial.key)
        cluster.remove_node(other, allow_graceful=False)

results = sweep(plan, sys.argv[2], engine="ray", address=cluster.address, tell=tell)
cluster.shutdown()
print(json.dumps({"killed": killed, "results": results}))
"""


def test_a_cluster_of_two_nodes_that_share_no_folder_and_one_of_them_is_killed(small, tmp_path):
    """Tasks are given no path of the driver's: the text travels, models and results come back, and nothing is lost."""
    plan = small(("rope", "alibi", "t5"), steps=300, lengths="1x,2x", strategies=())
    (tmp_path / "asked.json").write_text(json.dumps(plan.to_json()))
    words = [sys.executable, "-c", CLUSTER, str(tmp_path / "asked.json"), str(tmp_path / "ray")]
    env = {**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["killed"] and found["results"]["failed"] == found["results"]["missing"] == []
    alone = sweep(plan, tmp_path / "local", workers=2)
    same(found["results"]["runs"], alone["runs"])
    for trial in plan.trials():
        folders = [tmp_path / where / "trials" / trial.key for where in ("ray", "local")]
        names = [{file.name for file in folder.iterdir()} for folder in folders]
        assert names[0] == names[1] == {"model.json", "model.safetensors", "result.json"}
        weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
        assert weights[0] == weights[1]


def test_a_cluster_that_does_not_answer_is_said_with_what_to_set(small, tmp_path, monkeypatch):
    import ray

    def refuse(**how):
        raise ConnectionError("Failed to connect to GCS")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(
        ValueError, match=r"no Ray cluster answers at 10\.0\.0\.1:6379.*--address auto.*RAY_AUTH_MODE=token"
    ):
        sweep(small(), tmp_path / "out", engine="ray", address="10.0.0.1:6379")


def test_a_task_goes_on_from_the_states_of_the_desk(small, tmp_path, monkeypatch):
    """The task itself, with a desk of this process: its first news after a death is beyond the last state."""
    import ray

    desk, told = on_ray.Desk({}), []

    class Remote:
        def __init__(self, call):
            self.remote = call

    def tell(key, news, states):
        told.append(news)
        desk.tell(key, news, states)

    asked = SimpleNamespace(read_states=Remote(desk.read_states), tell=Remote(tell))
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(on_ray, "PAUSE", 0.0)
    plan = small(("rope",), steps=40, lengths="1x,2x", strategies=())
    (trial,), data = plan.trials(), plan.read()
    result, files = on_ray._task(plan.to_json(), trial.key, data, [], asked)
    assert told[0]["step"] == 1 and set(files) == {"model.json", "model.safetensors"} and desk.states[trial.key]
    told.clear()
    again, _ = on_ray._task(plan.to_json(), trial.key, data, [], asked)
    assert told[0]["step"] > 1  # not from the first step again
    assert again["runs"][0]["loss_by_length"] == result["runs"][0]["loss_by_length"]
