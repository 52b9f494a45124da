"""RoPE as checkpoints and engines say it: `spec` holds the meaning, config/ reads it from files, engines/ has a file for each engine.

export(spec, "vllm").text            # what to paste; refused where the engine can't say it
as_read_by("vllm", config)           # what vLLM makes of a config.json
"""

from __future__ import annotations

import difflib
import importlib
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from milepost.rope.config.keys import ConfigError, short
from milepost.rope.spec import LayerRope, RopeSpec

if TYPE_CHECKING:
    from milepost.rope.engines.written import Written

__all__ = ["ENGINES", "ConfigError", "LayerRope", "RopeSpec", "as_read_by", "export", "read"]

ENGINES: dict[str, str] = {
    "transformers": "transformers",
    "transformers-v4": "transformers",
    "vllm": "vllm",
    "sglang": "sglang",
    "llama.cpp": "llama_cpp",
    "mlx-lm": "mlx_lm",
    "megatron": "megatron",
    "torchtitan": "torchtitan",
}
"""Every engine: its name, and the file that knows it."""


def read(config: Mapping[str, Any] | str | os.PathLike[str], *, allow_unknown: bool = False) -> RopeSpec:
    """The spec of a config in memory, or of what stands at a path: see `RopeSpec.from_config`."""
    from milepost.rope.config import files
    from milepost.rope.engines import transformers

    if isinstance(config, Mapping):
        return transformers.read(config, allow_unknown=allow_unknown)
    return files.read(config, allow_unknown=allow_unknown)


def export(spec: RopeSpec, engine: str) -> Written:
    """A spec in an engine's words, with proof; `written.Refused` where it has none."""
    page = _page(engine)
    written: Written = page.write(spec, version=4) if engine == "transformers-v4" else page.write(spec)
    return written


def as_read_by(
    engine: str,
    config: Mapping[str, Any] | str | os.PathLike[str] | Sequence[str],
    *,
    served: int | None = None,
    allow_unknown: bool = False,
    on: RopeSpec | None = None,
) -> RopeSpec:
    """What an engine makes of a config, or of what stands at a path; for llama.cpp also of flags, ``on`` a model.

    ``served`` is the length that vLLM or SGLang is told to serve, or llama.cpp's -c.
    """
    from milepost.rope.config import files

    page = _page(engine)
    if not hasattr(page, "read"):
        readers = ", ".join(name for name, file in ENGINES.items() if file not in ("megatron", "torchtitan"))
        raise ValueError(
            f"{engine} has no config of its own to read: milepost only writes it; configs are read as by {readers}"
        )
    if engine == "llama.cpp":
        size = [] if served is None else ["-c", str(served)]
        if on is not None and not isinstance(config, Mapping | os.PathLike):
            return page.read([*(shlex.split(config) if isinstance(config, str) else config), *size], on)  # type: ignore[no-any-return]
        return page.read(size, on if on is not None else read(config, allow_unknown=allow_unknown))  # type: ignore[no-any-return,arg-type]
    if not isinstance(config, Mapping):
        if not isinstance(config, str | os.PathLike):
            raise ConfigError(f"{engine} reads a config: a mapping, or a path; got {short(config)}")
        file = files.find(config)
        if file.suffix == ".gguf":
            raise ConfigError(f"{engine} reads config.json, and {file} is a GGUF file, which is llama.cpp's")
        config = files.load(file)
    if page.__name__.endswith((".vllm", ".sglang")):
        return page.read(config, served=served, allow_unknown=allow_unknown)  # type: ignore[no-any-return]
    return page.read(config, allow_unknown=allow_unknown)  # type: ignore[no-any-return]


def _page(engine: str) -> Any:
    if engine not in ENGINES:
        near = difflib.get_close_matches(str(engine).lower().replace("_", "-"), ENGINES, 1, 0.5)
        raise ValueError(
            f"there is no engine {short(engine)}"
            + (f"; did you mean {near[0]}?" if near else "")
            + f" There are {', '.join(ENGINES)}"
        )
    return importlib.import_module(f"milepost.rope.engines.{ENGINES[engine]}")
