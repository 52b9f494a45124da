"""Sweeps in real processes: killed at random moments and gone on with, trials that fail, and folders that are
refused.
"""

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from stripped import same, stripped

from milepost.lab.sweep import driver, processes, sweep
from milepost.lab.sweep.modalities import read_plan

HERE = Path(__file__).parent
DRIVER = """
import json, sys
from milepost.lab.sweep import sweep
from milepost.lab.sweep.modalities import read_plan
sweep(read_plan(json.loads(open(sys.argv[1]).read())), sys.argv[2], resume=True)
"""


def results(out):
    return json.loads((out / "results.json").read_text())


@pytest.mark.slow
def test_killed_at_random_moments_and_gone_on_with_it_ends_as_if_never_broken(small, tmp_path):
    plan = small(("learned", "rope"), steps=250, lengths="1x,2x", tune=10)
    unbroken = sweep(plan, tmp_path / "whole")
    assert unbroken["missing"] == unbroken["failed"] == [] and len(unbroken["runs"]) == 4

    (tmp_path / "asked.json").write_text(json.dumps(plan.to_json()))
    out, chance = tmp_path / "broken", random.Random()
    for _ in range(3):
        before = _states(out)
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "asked.json"), str(out)])
        _wait_for(
            lambda driver=driver, before=before: _states(out) != before or driver.poll() is not None
        )  # in the middle of a training
        time.sleep(chance.uniform(0, 1))
        if driver.poll() is not None:
            break  # a quick machine
        workers = psutil.Process(driver.pid).children()
        if workers and chance.random() < 0.5:
            chance.choice(workers).kill()
        driver.kill()
        driver.wait()
        _wait_for(
            lambda workers=workers: not any(_alive(worker) for worker in workers)
        )  # none goes on without its driver
    kept = {file: file.stat().st_mtime_ns for file in out.glob("trials/*/result.json")}
    resumed = sweep(plan, out, resume=True)
    same(resumed, unbroken)
    same(results(out), unbroken)
    assert all(file.stat().st_mtime_ns == then for file, then in kept.items())
    assert sorted(f.name for f in out.rglob("*") if f.is_file()) == sorted(
        f.name for f in (tmp_path / "whole").rglob("*") if f.is_file()
    )


def _states(out):
    """The states that trainings have written, each with its moment."""
    return {(file, file.stat().st_mtime_ns) for file in out.glob("trials/*/*.pt")}


def _wait_for(happened, seconds=300):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def _alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def with_failures(texts, tmp_path_factory):
    """A run, by the command, in which one trial breaks, one diverges, and one is well; with what the command said."""
    from typer.testing import CliRunner

    from milepost.cli import app

    out, where = tmp_path_factory.mktemp("runs") / "out", Path.cwd()
    os.chdir(HERE)
    try:
        specs = ",".join(f"strangers_of_the_lab:{name}" for name in ("Breaks", "Spoils")) + ",rope"
        words = [
            "lab",
            "--profile",
            "tiny",
            "--encodings",
            specs,
            "--strategies",
            "none",
            "--lengths",
            "1x,2x",
            "--text",
            str(texts),
            "--out",
            str(out),
        ]
        done = CliRunner().invoke(app, words)
    finally:
        os.chdir(where)
    return out, done


@pytest.mark.slow
def test_a_trial_that_fails_is_recorded_and_the_others_finish(with_failures):
    out, done = with_failures
    assert done.exit_code == 1, done.output
    found = results(out)
    (lost,) = found["failed"]
    assert lost["encoding"] == "strangers_of_the_lab:Breaks" and "RuntimeError: a stranger's mistake" in lost["why"]
    spoiled, well = found["runs"]
    assert (
        spoiled["failed"] == "the loss at step 0 is nan"
        and well["loss_by_length"][0]["loss"] > 0
        and "failed" not in well
    )
    assert found["missing"] == []
    assert (out / "report.html").exists() and "a stranger's mistake" in (out / "report.md").read_text()


@pytest.mark.slow
def test_going_on_does_only_what_is_missing(with_failures, monkeypatch):
    out, _ = with_failures
    ran = []
    monkeypatch.setattr(processes, "_run", lambda trial, *how: ran.append(trial.encoding) or {"failed": "not today"})
    plan = read_plan(json.loads((out / "plan.json").read_text()))
    before = results(out)
    after = sweep(plan, out, resume=True)
    assert ran == ["strangers_of_the_lab:Breaks"] and after["failed"][0]["why"] == "not today"
    same(after["runs"], before["runs"])


@pytest.mark.slow
def test_results_say_how_they_were_made(with_failures):
    found = results(with_failures[0])
    about = found["provenance"]
    assert found["schema"] == 1 and {"torch", "numpy", "milepost", "accelerate"} <= set(about["versions"])
    protocol = about["protocol"]
    assert (
        protocol["plan"]["seeds"] == [0]
        and len(protocol["text"]["sha256"]) == 64
        and protocol["plan"]["digest"] == protocol["text"]["sha256"]
    )
    assert {"loss_by_length", "loss_by_position", "disjoint", "sliding", "intervals", "comparisons"} <= set(protocol)
    assert "date" not in stripped(about)


# -- folders and workers
# ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_training(monkeypatch):
    """Trials that end at once."""
    monkeypatch.setattr(processes, "_run", lambda trial, *how: {"result": {"runs": []}})


def test_a_folder_that_holds_results_is_refused_unless_it_is_to_go_on(small, tmp_path, no_training):
    plan = small()
    sweep(plan, tmp_path / "out")
    with pytest.raises(ValueError, match="holds results already; go on with --resume, or choose another --out"):
        sweep(plan, tmp_path / "out")
    with pytest.raises(ValueError, match=r"holds results of another plan \(seeds, steps changed since\)"):
        sweep(replace(plan, steps=9, seeds=(1,)), tmp_path / "out", resume=True)
    assert sweep(plan, tmp_path / "out", resume=True)["missing"] == []


def test_a_text_that_changed_since_is_another_plan(small, tmp_path, texts, no_training):
    copied = tmp_path / "text.txt"
    copied.write_bytes(b"".join(f.read_bytes() for f in sorted(texts.iterdir())))
    plan = replace(small(), text=str(copied))
    sweep(plan, tmp_path / "out")
    copied.write_bytes(copied.read_bytes() + b" more")
    with pytest.raises(ValueError, match="the text that it read changed since"):
        sweep(plan, tmp_path / "out", resume=True)


def test_other_peoples_folders_and_files_are_left_alone(small, tmp_path, no_training):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for out in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        with pytest.raises(ValueError, match="is there already, and is no lab run"):
            sweep(small(), out)
    with pytest.raises(ValueError, match=r"can't write into .*: (File exists|Not a directory)"):
        sweep(small(), tmp_path / "mine" / "thesis.txt" / "out")
    assert [f.name for f in tmp_path.rglob("*")] == ["mine", "thesis.txt"]


def test_killed_as_the_folder_was_made_it_can_be_begun_again(small, tmp_path, no_training):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".plan.json.123.tmp").write_text("{")
    assert sweep(small(), tmp_path / "out")["missing"] == []
    (tmp_path / "out" / "plan.json").write_text("{")
    with pytest.raises(ValueError, match=r"plan\.json can't be read"):
        sweep(small(), tmp_path / "out", resume=True)


def test_what_can_not_be_written_is_said_before_training(small, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_run", lambda *how: pytest.fail("no training"))

    def refused(*given):
        raise OSError(28, "No space left on device")

    with (
        monkeypatch.context() as patch,
        pytest.raises(ValueError, match=r"can't write into .*: No space left on device"),
    ):
        patch.setattr(driver, "write_json", refused)
        sweep(small(), tmp_path / "out")
    monkeypatch.setattr(driver.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(ValueError, match="has 0 MB left, and this run may need 1 MB; make room"):
        sweep(small(), tmp_path / "out")


def test_two_drivers_do_not_share_a_folder(small, tmp_path, no_training):
    plan = small()
    sweep(plan, tmp_path / "out")
    with driver.one_driver(tmp_path / "out"), pytest.raises(ValueError, match=r"another run is writing to .*out now"):
        sweep(plan, tmp_path / "out", resume=True)


def test_workers_times_threads_are_at_most_the_cores(small, tmp_path, monkeypatch):
    seen = []

    def one(trial, out, threads, number, *more):
        seen.append((threads, number))
        return {"result": {"runs": []}}

    monkeypatch.setattr(processes, "_run", one)
    for cores, workers, trials in ((2, None, 1), (2, None, 3), (8, None, 3), (8, 2, 5), (5, 5, 9), (1, None, 4)):
        seen.clear()
        monkeypatch.setattr(processes, "cores", lambda cores=cores: cores)
        sweep(small(seeds=tuple(range(trials))), tmp_path / f"{cores}-{workers}-{trials}", workers=workers)
        assert len(seen) == trials and len({threads for threads, _ in seen}) == 1
        assert seen[0][0] * (max(number for _, number in seen) + 1) <= cores
    monkeypatch.setattr(processes, "cores", lambda: 2)
    for workers in (0, 3):
        with pytest.raises(ValueError, match=f"--workers is from 1 to the 2 cores of this machine, got {workers}"):
            sweep(small(), tmp_path / "never", workers=workers)
    with pytest.raises(ValueError, match="engine is local or ray, got 'slurm'"):
        sweep(small(), tmp_path / "never", engine="slurm")
    assert not (tmp_path / "never").exists()


def test_threads_are_those_that_the_run_began_with(small, tmp_path, monkeypatch):
    """The number of threads decides the last bits: a run that goes on with fewer trials, or elsewhere, keeps it."""
    seen = []
    monkeypatch.setattr(
        processes, "_run", lambda trial, out, threads, *more: seen.append(threads) or {"failed": "not today"}
    )
    monkeypatch.setattr(processes, "cores", lambda: 4)
    plan = small(seeds=(0, 1))
    sweep(plan, tmp_path / "out")
    monkeypatch.setattr(processes, "cores", lambda: 64)
    sweep(plan, tmp_path / "out", resume=True, workers=1)
    assert seen == [2] * 4


def test_a_driver_that_can_not_write_ends_its_workers(small, tmp_path, monkeypatch):
    closed = []

    def trials(plan, todo, *more):
        try:
            yield todo[0], {"runs": [{"loss": float("nan")}]}
        finally:
            closed.append(True)

    monkeypatch.setattr(processes, "run_all", trials)
    with pytest.raises(ValueError, match="JSON"):
        sweep(small(), tmp_path / "out")
    assert closed == [True]


def test_a_bad_text_leaves_no_folder(small, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ValueError, match="it is empty"):
        sweep(replace(small(), text=str(tmp_path / "empty.txt")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_of_the_working_folder_do_not_stand_in_for_python_s_own(texts, tmp_path):
    """Only what a spec names is imported from the working folder; its own imports come from Python first."""
    for name in ("random", "json", "queue", "accelerate", "scipy"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n1 / 0\n")
    (tmp_path / "beside.py").write_text("SLOPE = 0.25\n")
    (tmp_path / "mine.py").write_text(
        "import calendar, queue, random, milepost\nfrom beside import SLOPE\n"
        "class Near(milepost.Encoding):\n"
        "    def bias(self, h, i, j):\n        return -SLOPE * (i - j).abs() + 0 * h\n"
    )
    (tmp_path / "calendar.py").write_text("1 / 0\n")
    words = ["lab", "--profile", "tiny", "--encodings", "mine:Near,rope", "--strategies", "none", "--lengths", "1x"]
    words += ["--text", str(texts), "--out", "out"]
    # as the installed script does it: nothing of the working folder is on the path
    command = [sys.executable, "-P", "-m", "milepost.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "executed").exists()
    assert [run["encoding"] for run in results(tmp_path / "out")["runs"]] == ["mine:Near", "rope"]


@pytest.mark.parametrize("missing", [("accelerate",), ("scipy",), ("accelerate", "scipy")], ids=" ".join)
def test_a_plain_installation_says_at_once_what_the_lab_needs(missing, tmp_path):
    code = f"""
import sys
for name in {missing!r}:
    sys.modules[name] = None
from milepost.cli import app
app(["lab", "--profile", "tiny", "--out", {str(tmp_path / "out")!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    needed = f"milepost: the lab needs {' and '.join(missing)}: pip install 'milepost[lab]'"
    assert done.returncode == 2 and done.stderr.strip() == needed and done.stdout == ""
    assert not (tmp_path / "out").exists()
