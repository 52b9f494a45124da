"""config.json as a checkpoint has it: the configs inside of it, whether it is quantised, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from milepost.measure.results import write
from milepost.rope import ConfigError


def parts_of(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A config, and those inside of it: a model of several modalities has one for each."""
    return [config, *(value for value in config.values() if isinstance(value, Mapping))]


def check_not_quantised(config: Mapping[str, Any], advice: str) -> None:
    """Refuse a quantised model; ``advice`` says what to do with the unquantised one."""
    for part in parts_of(config):
        given = part.get("quantization_config") or part.get("compression_config")
        if given:
            method = given.get("quant_method", "") if isinstance(given, Mapping) else ""
            raise ConfigError(
                f"the model is quantised (quantization_config{f': {method}' if method else ''}): {advice}"
            )


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """A config in the form that transformers writes."""
    write(path, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
