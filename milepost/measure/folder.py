"""The folder that a command writes: whole or not at all, and by one run at a time.

    place = check_out(out, source)                # OUT is free, and not in the source's folder
    with new_folder(place) as draft:              # refused while another run writes to the same OUT
        write(draft.files / "config.json", ...)
                                                  # OUT appears when the block ends; an error leaves nothing behind

All files are written to a hidden folder beside OUT (.OUT.unfinished), under a lock (.OUT.lock). A run that is killed
leaves these two at most, and never half of an OUT; the next run for the same OUT clears them, also one that is refused
because OUT is there. Where the hidden folder holds checkpoints of a training, it is kept, also after an error: they are
resumed from, or removed by the user. A folder that is filled file by file, as a lab run's, is held by the same lock
(`one_run`).
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.measure.results import write_json

PLAN = "plan.json"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says of a disk, a quota or a file that is full."""
TURNS = 100
"""How often a folder that is gone again is made; where none can be made (/proc), that is an error."""


@dataclass(frozen=True)
class Draft:
    """A folder in the making: ``files`` becomes ``place``; ``hidden`` holds it, and what the run needs meanwhile."""

    place: Path
    hidden: Path

    @property
    def files(self) -> Path:
        """The folder that is renamed to ``place`` at the end."""
        return self.hidden / "folder"

    @property
    def lock(self) -> Path:
        """The file that a run locks. It is not in ``hidden``, so that it can be removed last."""
        return self.hidden.with_suffix(".lock")

    @property
    def training(self) -> Path:
        """Where checkpoints of a training are saved."""
        return self.hidden / "state"

    @property
    def can_resume(self) -> bool:
        """Whether there is a checkpoint of a training to resume from."""
        return any(self.training.glob("checkpoint-*"))

    @property
    def plan(self) -> Mapping[str, Any] | None:
        """What the training was started with, if one was."""
        file = self.hidden / PLAN
        if not file.is_file():
            return None
        try:
            plan = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is not whole JSON ({error}): remove {self.hidden}") from None
        if not isinstance(plan, dict):
            raise ValueError(f"{file} must hold a JSON object: remove {self.hidden}")
        return plan

    def check_plan(self, plan: Mapping[str, Any], resume: bool, tell: Callable[[str], None]) -> None:
        """Save the plan of a training; one that is resumed must have the same."""
        before = self.plan if resume else None
        if before is None and resume:
            tell(f"there is no training to resume ({self.hidden} is not there): starting from the first step")
        for key, value in plan.items():
            if before is not None and before.get(key) != value:
                raise ValueError(
                    f"{self.hidden} is of another training: its {key} is {_short(before.get(key))}, not "
                    f"{_short(value)}; ask for the same, or remove it"
                )
        write_json(self.hidden / PLAN, plan)


def check_out(out: str | Path, source: str | Path | None = None) -> Path:
    """OUT, resolved: it is not there or empty, and it is not the source's folder, nor inside of it."""
    place = Path(out).expanduser().resolve()
    if source is not None:
        check_outside(place, source)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        _clear_remains(_draft(place))
        raise ValueError(f"OUT ({place}) is there already, and not an empty folder: name another, or remove it")
    return place


def check_outside(out: str | Path, source: str | Path) -> None:
    """Refuse a folder that is the source's, or inside of it. A source that is a name on the Hub has none."""
    place, folder = (Path(path).expanduser().resolve() for path in (out, source))
    if folder.is_dir() and (place == folder or folder in place.parents):
        raise ValueError(
            f"OUT ({place}) is the source folder, or inside of it: the source is never written to; name another folder"
        )


def check_room(place: Path, needed: int) -> None:
    """Refuse a disk with less than ``needed`` bytes free, before anything is written."""
    free = shutil.disk_usage(_above(place)).free
    if needed > free:
        raise ValueError(f"{place} needs {_gb(needed)} GB, and {_gb(free)} GB are free there")


@contextmanager
def saving(what: str, folder: Path) -> Iterator[None]:
    """An error while a large file is saved, of whatever class a library raises, is an OSError that says what and where.

    PyTorch and safetensors have classes and words of their own for a disk that is full.
    """
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        free = shutil.disk_usage(_above(folder / what)).free
        raise OSError(f"{what} can't be saved in {folder}: {reason} ({_gb(free)} GB are free there)") from error


@contextmanager
def new_folder(place: Path, *, resume: bool = False, main: bool = True) -> Iterator[Draft]:
    """Write to ``files`` of the draft; they become ``place`` when the block ends without an error.

    ``resume`` keeps the checkpoints of a training that did not end. Of several processes only the ``main`` one locks,
    renames and clears; the others see the same paths. An error leaves the block with a note on how to go on.
    """
    draft = _draft(place)
    if not main:
        yield draft
        return
    with one_run(place):
        try:
            check_out(place)  # another run may have finished since the caller looked
            if draft.can_resume and not resume:
                raise ValueError(
                    f"{draft.hidden} holds a training that did not end: resume it (--resume), or remove that folder"
                )
            shutil.rmtree(draft.files, ignore_errors=True)
            draft.files.mkdir(parents=True)
            yield draft
            os.replace(draft.files, place)  # replaces an empty folder, and no other
        except BaseException as error:
            if isinstance(error, OSError) and error.errno in FULL:
                error.add_note(f"make room on the disk of {_above(place)}")
            if draft.can_resume and (isinstance(error, OSError) or not isinstance(error, Exception)):
                error.add_note(
                    f"the training is kept up to its last checkpoint, in {draft.hidden}: go on with --resume"
                )
            if not draft.can_resume:
                shutil.rmtree(draft.hidden, ignore_errors=True)
            raise
        shutil.rmtree(draft.hidden, ignore_errors=True)


def one_run(place: str | Path) -> AbstractContextManager[None]:
    """Hold the lock of a folder that is written to, against another run of whatever command."""
    place = Path(place).expanduser().resolve()
    refusal = f"another run is writing to {place} now: wait until it ends, or name another folder"
    return locked(_draft(place).lock, refusal)


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file; ``refusal`` is the sentence of the error where another process or thread holds it.

    The system releases the lock when the process ends in any way. The file is removed while the lock is held; whoever
    opened it before that sees that the path has another file or none, and tries again. Folders above it are made, and
    those of them that are empty in the end are removed.
    """
    for turn in itertools.count():
        made = [folder for folder in path.parents if not folder.exists()]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a")
        except OSError as error:
            if isinstance(error, FileNotFoundError) and turn < TURNS:  # another run removed the folder it had made
                continue
            raise ValueError(f"can't write into {path.parent}: {error.strerror or error}") from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(refusal) from None
            if not _is_at(file.fileno(), path):
                continue
            try:
                yield
                return
            finally:
                path.unlink(missing_ok=True)
                with suppress(OSError):
                    for folder in made:
                        folder.rmdir()


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _draft(place: Path) -> Draft:
    return Draft(place, place.with_name(f".{place.name}.unfinished"))


def _clear_remains(draft: Draft) -> None:
    """Remove what a run left that was killed after OUT appeared and before it had cleared up; nothing of a live run."""
    if draft.lock.exists() or (draft.hidden.is_dir() and not draft.files.exists()):
        with suppress(ValueError), locked(draft.lock, "another run is writing there"):
            if not draft.files.exists():
                shutil.rmtree(draft.hidden, ignore_errors=True)


def _above(place: Path) -> Path:
    """The nearest folder above that is there: on the same disk."""
    return next(path for path in place.parents if path.is_dir())


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f}" if count >= 5e7 else f"{count / 1e9:.4f}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
