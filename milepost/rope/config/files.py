"""Files: the config file of a path, and the JSON in it. A path that is none may be a name on the Hub.

A config is a few kilobytes. What is larger than 16 MB, cut short, not JSON, or says NaN is refused in one sentence.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from milepost.rope.config.keys import ConfigError, short

LARGEST = 16 << 20
NAMES = ("config.json", "params.json")


def find(path: str | os.PathLike[str]) -> Path:
    """The file that holds the config of what stands at ``path``."""
    try:
        here = Path(path).expanduser()
        exists, folder = here.exists(), here.is_dir()
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        raise ConfigError(f"{short(str(path))} can't be a path: {error}") from None
    if not exists:
        return _from_hub(str(path))
    if not folder:
        return here
    for name in NAMES:
        if (here / name).is_file():
            return here / name
    models = sorted(here.glob("*.gguf"))
    if len(models) == 1:
        return models[0]
    held = f"{len(models)} GGUF files: name one" if models else f"none of {', '.join(NAMES)}, *.gguf"
    raise ConfigError(f"{here} holds {held}")


def load(file: Path) -> Mapping[str, Any]:
    """The JSON object in a file."""
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode):  # a device or a pipe has no end
            raise ConfigError(f"{file} is no ordinary file, and a config is one: is it a link to a device or a pipe?")
        if about.st_size > LARGEST:
            raise ConfigError(
                f"{file} has {about.st_size / 1e6:.0f} MB, and a config has a few kB: is it the right file?"
            )
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not a text file: a config is JSON") from None
    except OSError as error:
        raise ConfigError(f"can't read {file}: {error.strerror or error}") from None
    return parse(text, str(file))


def parse(text: str, where: str) -> Mapping[str, Any]:
    """The JSON object in a text; no key twice, no NaN."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for name, value in items:
            if name in data:
                raise ConfigError(f"{where} has the key {short(name)} twice")
            data[name] = value
        return data

    def constant(word: str) -> Any:
        raise ConfigError(f"{where} holds {word}, which is no number that a config can mean")

    try:
        data = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{where} is not whole JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where} can't be read as JSON: {type(error).__name__}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must hold a JSON object, got {short(data)}")
    return data


def is_offline(name: str) -> bool:
    """Whether the Hub must not be asked for a name; if it may be, that is said before it is."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return True
    _say_that_the_hub_is_asked(name)
    return False


@cache
def _say_that_the_hub_is_asked(name: str) -> None:
    logging.getLogger("milepost").warning(
        "there is no file or folder %s here: asking the Hub for a model of that name (--offline never asks)",
        short(name),
    )


def _from_hub(name: str) -> Path:
    """The config of a name such as org/model, from the Hub or its cache."""
    if name.count("/") > 1 or name.startswith((".", "/", "~")) or name.endswith((".json", ".gguf")):
        raise ConfigError(f"there is no file or folder {short(name)}")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise ConfigError(
            f"there is no file or folder {short(name)} (names on the Hub need the huggingface_hub package: "
            "pip install milepost[hf])"
        ) from None
    try:
        return Path(hf_hub_download(name, "config.json", local_files_only=is_offline(name)))
    except Exception as error:  # the Hub's errors are many, and none is ours
        if is_offline(name):
            raise ConfigError(
                f"there is no file or folder {short(name)}, nor a model of that name in the Hub's cache on this "
                "machine; the Hub was not asked (--offline, or HF_HUB_OFFLINE)"
            ) from None
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"there is no file or folder {short(name)}, and the Hub gave no config for that name: {reason[:200]}"
        ) from None
