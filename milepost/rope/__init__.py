"""RoPE as checkpoints and engines have it: `spec` is the meaning, config/ reads it, engines/ has one file for each.

spec = read("path/to/model")         # what its config means
export(spec, "vllm").text            # what to paste; refused where the engine can't express it
as_read_by("vllm", "path/to/model")  # what vLLM makes of the config; "vllm@0.29" is an older version
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from milepost.rope.config.config import Config, open_config
from milepost.rope.config.keys import ConfigError, short
from milepost.rope.engines.engine import Engine
from milepost.rope.engines.llama_cpp import LlamaCpp
from milepost.rope.engines.megatron import Megatron
from milepost.rope.engines.mlx_lm import MLXLM
from milepost.rope.engines.runtimes.exllamav3 import ExLlamaV3
from milepost.rope.engines.runtimes.onnxruntime_genai import OnnxRuntimeGenAI
from milepost.rope.engines.sglang import SGLang
from milepost.rope.engines.torchtitan import Torchtitan
from milepost.rope.engines.transformers import TRANSFORMERS, TRANSFORMERS_V4, read_spec
from milepost.rope.engines.vllm import VLLM
from milepost.rope.engines.written import Written
from milepost.rope.spec import LayerRope, RopeSpec

__all__ = [
    "ENGINES", "Config", "ConfigError", "LayerRope", "RopeSpec", "as_read_by", "export", "find_engine",
    "open_config", "read",
]  # fmt: skip

_LLAMA_CPP = LlamaCpp()
ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        TRANSFORMERS,
        TRANSFORMERS_V4,
        VLLM(),
        SGLang(),
        _LLAMA_CPP,
        MLXLM(),
        Megatron(),
        Torchtitan(),
        ExLlamaV3(),
        OnnxRuntimeGenAI(),
    )
}
"""Every engine by its name."""


def read(config: Mapping[str, Any] | str | os.PathLike[str] | Config, *, allow_unknown: bool = False) -> RopeSpec:
    """The spec of a config in memory, at a path, or open already: see `RopeSpec.from_config`."""
    return read_spec(open_config(config, allow_unknown=allow_unknown))


RopeSpec.from_config = staticmethod(read)


def export(spec: RopeSpec, engine: str, *, version: str | None = None) -> Written:
    """A spec in an engine's words, with proof; `written.Refused` where it has none.

    ``version`` is the engine's, also as ``engine@version``: that which is installed where it was measured, else the
    newest that was measured.
    """
    return find_engine(engine, version).write(spec)


def as_read_by(
    engine: str,
    config: Mapping[str, Any] | str | os.PathLike[str] | Sequence[str] | Config,
    *,
    served: int | None = None,
    allow_unknown: bool = False,
    on: RopeSpec | None = None,
    version: str | None = None,
) -> RopeSpec:
    """What an engine makes of a config, in memory or at a path; for llama.cpp also of flags, ``on`` a model.

    ``served`` is the length that vLLM or SGLang is told to serve, or llama.cpp's -c. ``version`` is as in `export`.
    """
    reader = find_engine(engine, version)
    if on is None:
        return reader.read(open_config(config, allow_unknown=allow_unknown), served=served)  # type: ignore[arg-type]
    if reader.name != _LLAMA_CPP.name or isinstance(config, Mapping | os.PathLike | Config):
        raise ValueError(
            f"on= is the model that llama.cpp's flags are for; {engine} got {short(config)}: leave on= out"
        )
    return _LLAMA_CPP.read_flags(config, on, served=served)


def find_engine(engine: str, version: str | None = None) -> Engine:
    """An engine by its name, in a version: ``vllm``, ``vllm@0.29``, or the version apart.

    transformers 4 spells its keys otherwise than 5, and is an engine of its own: ``transformers@4.57`` is
    ``transformers-v4``.
    """
    name, _, asked = str(engine).partition("@")
    if name not in ENGINES:
        near = difflib.get_close_matches(name.lower().replace("_", "-"), ENGINES, 1, 0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"there is no engine {short(name)}; {hint}There are {', '.join(ENGINES)}")
    if asked and version is not None and asked != version:
        raise ValueError(f"{engine} names version {asked}, and version={version!r} another: keep one")
    if name == "transformers" and (asked or version or "").startswith("4."):
        name = "transformers-v4"
    return ENGINES[name].at(asked or version)
