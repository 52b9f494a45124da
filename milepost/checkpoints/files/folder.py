"""The folder of an extended model: written whole beside its place, then renamed.

    config.json             with the new positions
    *.safetensors           the source's, copied, linked (--link), or tuned
    tokenizer_config.json   the source's, with model_max_length = target
    other files             those that loaders read; no pickles, no code, no weights in other forms
    milepost.json           what was done, and what undoes it
    milepost/               report.html, report.md, extension.json: a loader does not look there

A run that is killed leaves a hidden folder beside OUT at most (.OUT.*.tmp), and never half of an OUT.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from milepost.checkpoints.files.source import TOLD, Source
from milepost.measure.results import write, write_json
from milepost.rope.config.files import load
from milepost.rope.config.keys import ConfigError, short

TOKENIZER = "tokenizer_config.json"


def check_out(source: Path, out: str | Path) -> Path:
    """OUT, resolved: not there or empty, and not in the source's folder, nor around it."""
    target = Path(out).expanduser().resolve()
    if target == source or source in target.parents:
        raise ConfigError(
            f"OUT ({target}) is the source folder, or inside of it: the source is never written to; name another folder"
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"OUT ({target}) is there already, and not an empty folder: name another, or remove it")
    return target


def beside(target: Path, ending: str | None = None) -> Path:
    """A hidden name in the nearest folder above OUT that is there: on the same disk, and nothing to tidy but itself."""
    above = next(path for path in target.parents if path.is_dir())
    return above / f".{target.name}.{ending or uuid.uuid4().hex[:8] + '.tmp'}"


def check_room(source: Source, target: Path, *, link: bool) -> None:
    """Refuse a disk that is too small, before anything is written."""
    names = source.others if link else (*source.weights, *source.others)
    needed = sum((source.folder / name).stat().st_size for name in names)
    free = shutil.disk_usage(beside(target).parent).free
    if needed > free:
        raise ConfigError(f"{target} needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free there")


def begin(hold: Path, work: Path, about: Mapping[str, Any], resume: bool, tell: Callable[[str], None]) -> None:
    """An empty folder to work in. Where a tune is gone on with, its checkpoints are kept, if it is the same."""
    if resume and (hold / "plan.json").is_file():
        held = load(hold / "plan.json")
        for key, value in about.items():
            if held.get(key) != value:
                raise ConfigError(
                    f"{hold} is of another tune: its {key} is {short(held.get(key))}, not {short(value)}; ask for the same, or remove it"
                )
        shutil.rmtree(work, ignore_errors=True)
    elif resume:
        tell(f"there is no tune to go on with ({hold} is not there): beginning")
    if work != hold:
        write_json(hold / "plan.json", about)
    work.mkdir(parents=True)


def begun(hold: Path) -> bool:
    """Whether there is something to go on with: a checkpoint of a tune."""
    return any(hold.glob("state/checkpoint-*"))


def write_files(
    source: Source, config: Mapping[str, Any], target: int, work: Path, tell: Callable[[str], None]
) -> None:
    """Everything but the weights."""
    for name in source.others:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        tell(f"copying {name}")
        shutil.copyfile(source.folder / name, work / name)
    write(work / "config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    if TOKENIZER in source.others:
        said = dict(load(source.folder / TOKENIZER)) | {"model_max_length": target}
        write(work / TOKENIZER, json.dumps(said, indent=2, ensure_ascii=False) + "\n")


def write_weights(source: Source, work: Path, *, link: bool, tell: Callable[[str], None]) -> None:
    """The weights, copied; or linked: one file under two names, which takes no room."""
    for name in source.weights:
        tell(f"{'linking' if link else 'copying'} {name}")
        if not link:
            shutil.copyfile(source.folder / name, work / name)
            continue
        try:
            os.link((source.folder / name).resolve(), work / name)
        except OSError as error:
            raise ConfigError(
                f"--link can't give {name} a second name in {work.parent}: {error.strerror or error}; leave --link out, to copy it"
            ) from None


def write_sidecar(work: Path, told: Mapping[str, Any]) -> None:
    """milepost.json, with the digest of the config that it is about."""
    digest = hashlib.sha256((work / "config.json").read_bytes()).hexdigest()
    write_json(work / TOLD, {**told, "config_sha256": digest})


def put(work: Path, target: Path) -> None:
    """Give the finished folder its name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target.rmdir()  # empty: see check_out
    os.replace(work, target)
