"""Config: the config of a model, opened and parsed once, and passed on to whoever asks.

config = open_config("path/to/model")     # a folder, config.json, params.json, a GGUF file, a name on the Hub, a dict
config.format, config.file                # "config.json", Path("path/to/model/config.json")
config.data["hidden_size"]                # its keys, as the file has them
RopeSpec.from_config(config)              # what they mean; as_read_by("vllm", config) is what vLLM makes of them
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from milepost.rope.config import config_json, files, gguf, params_json
from milepost.rope.config.config_json import Parsed
from milepost.rope.config.gguf_header import metadata
from milepost.rope.config.keys import ConfigError, short


@dataclass(frozen=True, eq=False)
class Config:
    """A config: its keys and the format of its file. ``file`` is None where it came as a dict.

    With ``allow_unknown``, keys that nobody knows are passed over with a note instead of an error.
    """

    data: Mapping[str, Any]
    format: Literal["config.json", "params.json", "GGUF"]
    file: Path | None = None
    allow_unknown: bool = False

    @cached_property
    def parsed(self) -> Parsed:
        """What its keys say, before any engine's own rules."""
        if self.format == "GGUF":
            return Parsed(gguf.read(self.data, allow_unknown=self.allow_unknown))
        if self.format == "params.json":
            return Parsed(params_json.read(self.data, allow_unknown=self.allow_unknown))
        return config_json.parse(self.data, allow_unknown=self.allow_unknown)


def open_config(source: Mapping[str, Any] | str | os.PathLike[str] | Config, *, allow_unknown: bool = False) -> Config:
    """The config in a dict or at a path; one that is open already is returned as it is."""
    if isinstance(source, Config):
        return replace(source, allow_unknown=True) if allow_unknown and not source.allow_unknown else source
    if not isinstance(source, Mapping | str | os.PathLike):
        raise ConfigError(f"a config is a mapping, or a path; got {short(source)}")
    if isinstance(source, Mapping):
        file, data = None, source
    else:
        file = files.find(source)
        if file.suffix == ".gguf":
            return Config(metadata(file), "GGUF", file, allow_unknown)
        data = files.load(file)
    return Config(data, "params.json" if params_json.is_one(data) else "config.json", file, allow_unknown)
