"""What a new checkpoint takes over from its source.

config.json             with the new positions
*.safetensors           the source's, copied or linked
tokenizer_config.json   the source's, with the new model_max_length
other files             those that loaders read; no pickles, no code, no weights in other forms
milepost.json           what was done; and, in milepost/, its report, where no loader looks
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from milepost.checkpoints.files.config import write_config
from milepost.checkpoints.files.source import SIDECAR, SourceFiles
from milepost.measure.results import write_json
from milepost.rope import ConfigError
from milepost.rope.config.files import load

TOKENIZER = "tokenizer_config.json"


def copy_files(folder: Path, names: Iterable[str], work: Path, tell: Callable[[str], None] = lambda text: None) -> None:
    """Copy files to the same places under another folder."""
    for name in names:
        tell(f"copying {name}")
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, work / name)


def write_files(
    source: SourceFiles, config: Mapping[str, Any], length: int, work: Path, tell: Callable[[str], None]
) -> None:
    """Everything but the weights, for a model that serves ``length`` tokens."""
    copy_files(source.folder, source.others, work, tell)
    write_config(work / "config.json", config)
    if TOKENIZER in source.others:
        write_config(work / TOKENIZER, {**load(source.folder / TOKENIZER), "model_max_length": length})


def write_weights(source: SourceFiles, work: Path, *, link: bool, tell: Callable[[str], None]) -> None:
    """The weights, copied; or linked: one file under two names, which takes no room."""
    if not link:
        copy_files(source.folder, source.weights, work, tell)
        return
    for name in source.weights:
        tell(f"linking {name}")
        try:
            os.link((source.folder / name).resolve(), work / name)
        except OSError as error:
            raise ConfigError(
                f"--link can't give {name} a second name in {work.parent}: {error.strerror or error}; "
                "leave --link out, to copy it"
            ) from None


def write_sidecar(work: Path, about: Mapping[str, Any]) -> None:
    """milepost.json, with the digest of the config that it is about."""
    digest = hashlib.sha256((work / "config.json").read_bytes()).hexdigest()
    write_json(work / SIDECAR, {**about, "config_sha256": digest})
