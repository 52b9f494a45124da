"""Folders that commands write: whole or not at all, one run at a time, and trainings that did not end are kept."""

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from milepost.measure import folder
from milepost.measure.folder import check_out, check_room, new_folder


def hidden(place: Path) -> Path:
    return place.parent / f".{place.name}.unfinished"


def test_a_folder_appears_when_it_is_whole(tmp_path):
    place = tmp_path / "out"
    with new_folder(place) as draft:
        (draft.files / "a").write_text("1")
        assert not place.exists() and draft.hidden == hidden(place)
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and (place / "a").read_text() == "1"


@pytest.mark.parametrize(
    "error", [OSError, ValueError, FileNotFoundError, BlockingIOError, KeyboardInterrupt, SystemExit]
)
def test_an_error_leaves_nothing_behind_and_is_passed_on(tmp_path, error):
    with pytest.raises(error, match="stop"), new_folder(tmp_path / "sub" / "out") as draft:
        (draft.files / "a").write_text("1")
        raise error("stop")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_replaced_and_parents_are_made(tmp_path):
    (tmp_path / "out").mkdir()
    for place in (tmp_path / "out", tmp_path / "a" / "b" / "out"):
        with new_folder(place) as draft:
            (draft.files / "a").touch()
        assert (place / "a").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "out"]


def test_two_folders_of_one_name_in_parents_that_are_not_there_yet(tmp_path):
    with new_folder(tmp_path / "a" / "out") as first, new_folder(tmp_path / "b" / "out") as second:
        assert first.hidden != second.hidden
    assert (tmp_path / "a" / "out").is_dir() and (tmp_path / "b" / "out").is_dir()


def test_a_training_is_resumed_though_somebody_made_the_folder_above_it_meanwhile(tmp_path):
    """What a run keeps used to lie in the nearest folder that was there, and was not found once there was a nearer one."""
    place = tmp_path / "runs" / "out"
    fail_in_training(place, {"steps": 8})
    (tmp_path / "runs" / "another").mkdir(parents=True, exist_ok=True)
    with new_folder(place, resume=True) as draft:
        assert draft.can_resume
        with pytest.raises(ValueError, match="another run is writing"), new_folder(place):
            pass


@pytest.mark.parametrize("above", ["file", "gone"])
def test_where_no_lock_can_be_made_that_is_said_at_the_start(tmp_path, monkeypatch, above):
    (tmp_path / "file").touch()
    if above == "gone":
        monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    with (
        pytest.raises(ValueError, match=rf"can't write into .*{above}: (File exists|No such file or directory)"),
        new_folder(tmp_path / above / "out"),
    ):
        raise AssertionError("begun")


def test_folders_above_that_come_and_go_with_other_runs(tmp_path):
    """A run that fails removes the folders that it had made, while others make theirs in the same one."""
    errors, start = [], threading.Barrier(4)

    def run(number: int) -> None:
        start.wait()
        for n in range(50):
            try:
                with contextlib.suppress(KeyError), new_folder(tmp_path / "a" / "b" / f"{number}-{n}") as draft:
                    (draft.files / "x").touch()
                    raise KeyError
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and not any(path.is_file() for path in tmp_path.rglob("*"))


def test_the_second_run_is_refused_and_the_first_goes_on(tmp_path):
    place = tmp_path / "out"
    with new_folder(place) as draft:
        (draft.files / "a").touch()
        for resume in (False, True):
            with (
                pytest.raises(ValueError, match=r"another run is writing to .*out now: wait until it ends"),
                new_folder(place, resume=resume),
            ):
                raise AssertionError("two runs at once")
        assert (draft.files / "a").is_file()
    assert (place / "a").is_file() and not hidden(place).exists()


def test_a_run_of_another_process_is_seen(tmp_path):
    place = tmp_path / "out"
    code = f"""
import pathlib, sys
from milepost.measure.folder import new_folder
with new_folder(pathlib.Path({str(place)!r})) as draft:
    (draft.files / "half").touch()
    print("ready", flush=True)
    sys.stdin.readline()
"""
    run = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None and run.stdout.readline() == "ready\n"
    with pytest.raises(ValueError, match="another run is writing"), new_folder(place):
        pass
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert not place.exists() and (hidden(place) / "folder" / "half").is_file()
    with new_folder(place) as draft:  # the lock of a killed run is free, and what it left is cleared
        assert list(draft.files.iterdir()) == []
        (draft.files / "whole").touch()
    assert [path.name for path in place.iterdir()] == ["whole"] and not hidden(place).exists()


def test_many_runs_at_once_write_one_whole_folder(tmp_path):
    place = tmp_path / "out"
    refused, done = [], []
    start = threading.Barrier(8)

    def run(number: int) -> None:
        start.wait()
        try:
            with new_folder(place) as draft:
                for n in range(20):
                    (draft.files / f"{n}").write_text(str(number))
            done.append(number)
        except ValueError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 1 and len(refused) == 7
    assert all(re.search("another run is writing|is there already", text) for text in refused)
    assert {file.read_text() for file in place.iterdir()} == {str(done[0])} and len(list(place.iterdir())) == 20
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def fail_in_training(place: Path, plan: dict[str, int], resume: bool = False) -> None:
    with pytest.raises(OSError, match="stop"), new_folder(place, resume=resume) as draft:
        draft.check_plan(plan, resume, lambda text: None)
        (draft.training / "checkpoint-5").mkdir(parents=True, exist_ok=True)
        (draft.files / "half").touch()
        raise OSError("stop")


def test_a_training_that_did_not_end_is_kept_until_it_is_resumed(tmp_path):
    place = tmp_path / "out"
    fail_in_training(place, {"steps": 8})
    with (
        pytest.raises(ValueError, match=r"holds a training that did not end: resume it \(--resume\)"),
        new_folder(place),
    ):
        pass
    with (
        pytest.raises(ValueError, match="is of another training: its steps is 8, not 9"),
        new_folder(place, resume=True) as draft,
    ):
        draft.check_plan({"steps": 9}, True, lambda text: None)
    assert (hidden(place) / "state" / "checkpoint-5").is_dir()
    with new_folder(place, resume=True) as draft:
        assert draft.can_resume and draft.plan == {"steps": 8} and list(draft.files.iterdir()) == []
        draft.check_plan({"steps": 8}, True, lambda text: None)
    assert place.is_dir() and not hidden(place).exists()


def test_nothing_to_resume_is_said(tmp_path):
    said: list[str] = []
    with new_folder(tmp_path / "out", resume=True) as draft:
        draft.check_plan({"steps": 8}, True, said.append)
    assert len(said) == 1 and "there is no training to resume" in said[0]


def test_the_other_processes_of_a_run_take_no_lock_and_remove_nothing(tmp_path):
    place = tmp_path / "out"
    with new_folder(place) as draft:
        with pytest.raises(SystemExit), new_folder(place, main=False) as other:
            assert other == draft
            raise SystemExit(0)
        assert draft.files.is_dir()
    assert place.is_dir()


def test_where_a_folder_may_not_be(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "file").touch()
    for out, words in (
        (source, "the source is never written to"),
        (source / "in", "the source is never written to"),
        (tmp_path, "is there already, and not an empty folder"),
        (tmp_path / "file", "is there already"),
    ):
        with pytest.raises(ValueError, match=words):
            check_out(out, source)
    assert check_out(tmp_path / "new", "org/name-on-the-hub") == tmp_path / "new"


def test_a_disk_that_is_too_small(tmp_path):
    check_room(tmp_path / "a" / "b", 1)
    with pytest.raises(ValueError, match=r"needs 1000000000\.0 GB, and .* GB are free"):
        check_room(tmp_path / "a" / "b", 10**18)


@pytest.mark.parametrize("ends", ["whole", "an error"])
def test_nobody_takes_the_lock_while_the_run_before_still_cleans_up(tmp_path, monkeypatch, ends):
    """The lock used to lie in the folder that was cleaned up: it was gone before the rest of it was."""
    place, real, met = tmp_path / "out", shutil.rmtree, []

    def slow(path, **how):
        real(path, **how)
        if Path(path) == hidden(place) and not met:
            met.append(path)
            with pytest.raises(ValueError, match="another run is writing"), new_folder(place):
                raise AssertionError("two runs at once")

    monkeypatch.setattr("milepost.measure.folder.shutil.rmtree", slow)
    with contextlib.suppress(OSError), new_folder(place) as draft:
        (draft.files / "a").touch()
        if ends == "an error":
            raise OSError("stop")
    assert met and place.exists() == (ends == "whole")
    assert [path.name for path in tmp_path.iterdir()] == (["out"] if ends == "whole" else [])


def test_a_lock_that_was_removed_after_it_was_opened_is_tried_again(tmp_path, monkeypatch):
    """A run that waited for a lock file which its holder removes must not take it for a lock."""
    lock, real, removed = tmp_path / ".out.lock", folder.fcntl.flock, []

    def late(file, how):
        if not removed:
            removed.append(lock.unlink())
        real(file, how)

    monkeypatch.setattr("milepost.measure.folder.fcntl.flock", late)
    with folder.locked(lock, "taken"):
        assert lock.exists()
        with pytest.raises(ValueError, match="taken"), folder.locked(lock, "taken"):
            pass
    assert not lock.exists()


def test_what_is_left_of_a_training_is_said_after_a_stop_and_a_full_disk(tmp_path):
    place = tmp_path / "out"
    for error in (KeyboardInterrupt(), OSError(28, "No space left on device")):
        with pytest.raises(type(error)) as raised, new_folder(place, resume=True) as draft:
            (draft.training / "checkpoint-5").mkdir(parents=True, exist_ok=True)
            raise error
        notes = "; ".join(raised.value.__notes__)
        assert "is kept up to its last checkpoint" in notes and notes.endswith("go on with --resume")
        assert ("make room on the disk of" in notes) == isinstance(error, OSError)


def test_what_a_run_left_that_was_killed_after_out_appeared_is_cleared_by_the_next_one(tmp_path):
    place = tmp_path / "out"
    with new_folder(place) as draft:
        (draft.files / "a").write_text("1")
    draft.training.mkdir(parents=True)  # as a kill between the renaming and the clearing leaves them
    draft.lock.touch()
    with pytest.raises(ValueError, match="is there already"):
        check_out(place)
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and (place / "a").read_text() == "1"


def test_a_run_that_is_refused_clears_nothing_of_one_that_writes(tmp_path):
    place = tmp_path / "out"
    with new_folder(place) as draft:
        (draft.files / "a").write_text("1")
        place.mkdir()
        (place / "stranger").touch()
        with pytest.raises(ValueError, match="is there already"):
            check_out(place)
        assert draft.files.is_dir() and draft.lock.exists()
        shutil.rmtree(place)
    assert (place / "a").read_text() == "1"


def test_a_training_that_was_killed_is_kept_where_another_out_stands(tmp_path):
    place = tmp_path / "out"
    with new_folder(place) as draft:
        pass
    (place / "stranger").touch()
    draft.files.mkdir(parents=True)  # a run that was killed before OUT appeared, and what somebody put there since
    (draft.training / "checkpoint-3").mkdir(parents=True)
    draft.lock.touch()
    with pytest.raises(ValueError, match="is there already"):
        check_out(place)
    assert draft.can_resume and not draft.lock.exists()
