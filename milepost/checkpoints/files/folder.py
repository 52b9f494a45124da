"""The folder that a command writes: whole or not at all, and by one run at a time.

    place = check_out(out, source)                # OUT is free, and not in the source's folder
    with new_folder(place) as draft:              # refused while another run writes to the same OUT
        write(draft.files / "config.json", ...)
                                                  # OUT appears when the block ends; an error leaves nothing behind

All files are written to a hidden folder beside OUT (.OUT.unfinished), which holds the lock. A run that is killed leaves
that folder at most, and never half of an OUT; the next run for the same OUT clears it. Where it holds checkpoints of a
training, it is kept, also after an error: they are resumed from, or removed by the user.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from milepost.measure.results import write_json
from milepost.rope.config.files import load
from milepost.rope.config.keys import ConfigError, short

PLAN = "plan.json"


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
        return load(self.hidden / PLAN) if (self.hidden / PLAN).is_file() else None

    def check_plan(self, plan: Mapping[str, Any], resume: bool, tell: Callable[[str], None]) -> None:
        """Save the plan of a training; one that is resumed must have the same."""
        before = self.plan if resume else None
        if before is None and resume:
            tell(f"there is no training to resume ({self.hidden} is not there): starting from the first step")
        for key, value in plan.items():
            if before is not None and before.get(key) != value:
                raise ConfigError(
                    f"{self.hidden} is of another training: its {key} is {short(before.get(key))}, not {short(value)}; "
                    "ask for the same, or remove it"
                )
        write_json(self.hidden / PLAN, plan)


def check_out(out: str | Path, source: str | Path | None = None) -> Path:
    """OUT, resolved: it is not there or empty, and it is not the source's folder, nor inside of it."""
    place = Path(out).expanduser().resolve()
    folder = None if source is None else Path(source).expanduser().resolve()
    if folder is not None and folder.is_dir() and (place == folder or folder in place.parents):
        raise ConfigError(
            f"OUT ({place}) is the source folder, or inside of it: the source is never written to; name another folder"
        )
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ConfigError(f"OUT ({place}) is there already, and not an empty folder: name another, or remove it")
    return place


def check_room(place: Path, needed: int) -> None:
    """Refuse a disk with less than ``needed`` bytes free, before anything is written."""
    free = shutil.disk_usage(_above(place)).free
    if needed > free:
        raise ConfigError(f"{place} needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free there")


@contextmanager
def new_folder(place: Path, *, resume: bool = False, main: bool = True) -> Iterator[Draft]:
    """Write to ``files`` of the draft; they become ``place`` when the block ends without an error.

    ``resume`` keeps the checkpoints of a training that did not end. Of several processes only the ``main`` one locks,
    renames and clears; the others see the same paths.
    """
    above = _above(place)
    draft = Draft(place, above / f".{'.'.join(place.relative_to(above).parts)}.unfinished")
    if not main:
        yield draft
        return
    with _lock(draft):
        try:
            check_out(place)  # another run may have finished since the caller looked
            if draft.can_resume and not resume:
                raise ConfigError(
                    f"{draft.hidden} holds a training that did not end: resume it (--resume), or remove that folder"
                )
            shutil.rmtree(draft.files, ignore_errors=True)
            draft.files.mkdir()
            yield draft
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(draft.files, place)  # replaces an empty folder, and no other
        except BaseException:
            if not draft.can_resume:
                shutil.rmtree(draft.hidden, ignore_errors=True)
            raise
        shutil.rmtree(draft.hidden, ignore_errors=True)


def _above(place: Path) -> Path:
    """The nearest folder above that is there: on the same disk, and no parents to remove after an error."""
    return next(path for path in place.parents if path.is_dir())


def _lock(draft: Draft) -> TextIO:
    """The lock of the hidden folder, held until it is closed.

    The system releases it when the process ends in any way.
    """
    path = draft.hidden / ".lock"
    while True:
        with suppress(FileExistsError):  # not exist_ok: it may be gone again before it is looked at
            draft.hidden.mkdir()
        # the run that held it may have just ended, and removed the folder: then the lock is tried again
        with suppress(FileNotFoundError), ExitStack() as closing:
            file = closing.enter_context(path.open("w"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"another run is writing to {draft.place} now: wait until it ends, or name another folder"
                ) from None
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                closing.pop_all()
                return file
