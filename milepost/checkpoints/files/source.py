"""The files of a checkpoint that a command reads and never writes, sorted by what is done with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoints.files.tensors import INDEX, ONE, OTHER_WEIGHTS
from milepost.rope import ConfigError
from milepost.rope.config.files import find, is_offline, load

NEEDED = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".md")
"""How names of files end that a loader, or a reader, needs besides the weights; and those that begin with `TERMS`."""
TERMS = ("LICENSE", "LICENCE", "NOTICE", "USE_POLICY")
SIDECAR = "milepost.json"
"""What was done to a folder that milepost wrote."""


@dataclass(frozen=True)
class SourceFiles:
    """A checkpoint's folder: names of its weights, of the other files to copy, and of those to leave out.

    ``digest`` is of its config file. ``sidecar`` is its milepost.json, where an earlier extension is to be undone.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    digest: str
    weights: tuple[str, ...]
    others: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    sidecar: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each file of weights."""
        return {name: (self.folder / name).stat().st_size for name in self.weights}


def read_source(name: str | Path, folder: Path, config: Mapping[str, Any]) -> SourceFiles:
    """The files of a folder whose config.json holds ``config``."""
    digest = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    return SourceFiles(str(name), folder, config, digest, *files_of(folder))


def is_lab(path: Path) -> bool:
    """Whether a folder, or its model.json, is a lab model's."""
    return path.name == "model.json" or ((path / "model.json").is_file() and not (path / "config.json").is_file())


def from_hub(name: str) -> Path:
    """The local folder of a checkpoint on the Hub, fetched if it is not here."""
    find(name)  # a sentence, where there is no such name
    from huggingface_hub import snapshot_download

    patterns = ["*.safetensors", *(f"*{end}" for end in NEEDED), *(f"{word}*" for word in TERMS)]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=is_offline(name)))
    except Exception as error:  # the Hub's errors are many, and none is ours
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"the Hub did not give the files of {name}: {reason[:200]}") from None


def check_links(folder: Path) -> None:
    """Refuse a folder with a link to a file outside of it: what is not in a checkpoint is not to be copied out of it.

    (In the Hub's own cache every file of a snapshot is a link into the blobs beside it.)
    """
    home = folder.resolve()
    homes = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not any(path.resolve().is_relative_to(place) for place in homes):
            raise ConfigError(
                f"{path.relative_to(folder)} is a link to {path.resolve()}, which is outside of {folder}: links out of "
                "a checkpoint are not followed. Put the file itself there, or remove the link"
            )


def files_of(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The names of the weights' files, of the others to be copied, and of those to be left out: other weights, pickles,
    code."""
    check_links(folder)
    index = folder / INDEX
    weights = sorted(set(load(index)["weight_map"].values())) if index.is_file() else [ONE]
    keep: list[str] = []
    leave: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder)
        name = inside.as_posix()
        if (
            name in ("config.json", SIDECAR, *weights)
            or inside.parts[0] == "milepost"
            or any(part.startswith(".") for part in inside.parts)
        ):
            continue
        index_of_others = name != INDEX and path.name.removesuffix(".index.json").endswith(OTHER_WEIGHTS)
        needed = (
            (path.suffix in NEEDED or path.name.upper().startswith(TERMS))
            and not index_of_others
            and not inside.parts[0].startswith("checkpoint-")
        )
        (keep if needed else leave).append(name)
    return tuple(weights), tuple(keep), tuple(leave)
