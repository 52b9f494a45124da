"""Loading a checkpoint to be verified: safetensors only, no remote code, no pickle. What can't be loaded is refused in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from milepost.checkpoints.files.tensors import ALONE, in_folder
from milepost.checkpoints.model.quiet import first_line, quiet
from milepost.rope.config.files import find
from milepost.rope.config.files import load as load_config
from milepost.rope.config.keys import ConfigError, short

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
PACKED = (
    ".qweight",
    ".qzeros",
    ".g_idx",
    ".absmax",
    ".quant_map",
    ".SCB",
    ".quant_state.bitsandbytes__nf4",
    ".quant_state.bitsandbytes__fp4",
)
"""How names of quantised tensors end: GPTQ and AWQ, then bitsandbytes."""


def load_checkpoint(name: str | Path, device: str, dtype: str) -> tuple[Any, dict[str, Any]]:
    """The model of a folder or a name on the Hub, and its config.json."""
    if dtype not in DTYPES:
        raise ConfigError(f"dtype is one of {', '.join(DTYPES)}, got {dtype!r}")
    check_device(device)
    try:
        import safetensors  # noqa: F401
        import transformers
    except ImportError as error:
        raise ConfigError(f"verifying a checkpoint needs the {error.name} package: pip install milepost[hf]") from None
    folder = Path(name).expanduser()
    if folder.is_file():
        raise ConfigError(
            f"{folder} is a file: verify runs a whole checkpoint; give its folder (config.json and *.safetensors)"
        )
    config_file = find(name)
    if config_file.name != "config.json":
        raise ConfigError(f"{folder} has no config.json: verify runs transformers' own code, which needs one")
    config = dict(load_config(config_file))
    made = model_class(config, transformers)
    if folder.is_dir():
        check_tensors(folder)
    how = {
        "dtype": DTYPES[dtype],
        "use_safetensors": True,
        "trust_remote_code": False,
        "output_loading_info": True,
        "local_files_only": folder.is_dir(),
    }
    try:
        with quiet():
            model, told = made.from_pretrained(str(folder) if folder.is_dir() else str(name), **how)
    except Exception as error:  # transformers' own errors are of many kinds
        raise ConfigError(f"transformers can't load {name}: {first_line(error)}") from None
    absent = sorted(told["missing_keys"]) + sorted(str(key) for key in told["mismatched_keys"])
    if absent:
        raise ConfigError(
            f"{len(absent)} weights of {made.__name__} are not in {name}, or have other shapes: {short(absent)}; is it the whole model?"
        )
    return model.to(device).eval(), config


def load_gguf(name: str | Path, device: str, dtype: str) -> tuple[Any, dict[str, Any]]:
    """The model of a GGUF file, its weights unpacked, and the config that transformers makes of it."""
    path = Path(name).expanduser()
    check_device(device)
    if dtype not in DTYPES:
        raise ConfigError(f"dtype is one of {', '.join(DTYPES)}, got {dtype!r}")
    try:
        import gguf  # noqa: F401
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"loading a GGUF file needs the {error.name} package: pip install 'milepost[hf]' gguf"
        ) from None
    try:
        with quiet():
            auto: Any = transformers.AutoModelForCausalLM
            model = auto.from_pretrained(
                str(path.parent), gguf_file=path.name, dtype=DTYPES[dtype], local_files_only=True
            )
    except Exception as error:  # transformers' own errors are of many kinds
        raise ConfigError(f"transformers can't load {name}: {first_line(error)}") from None
    for part in (model, model.config):  # it is not quantised any more
        for key in ("quantization_config", "hf_quantizer", "is_quantized", "quantization_method"):
            part.__dict__.pop(key, None)
    return model.to(device).eval(), dict(model.config.to_dict())


def check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ConfigError(f"device {device!r} can't be used here: {str(error).strip().splitlines()[0][:160]}") from None


def model_class(config: Mapping[str, Any], transformers: Any) -> Any:
    """The class of transformers that runs this config."""
    given = next(
        (
            part
            for part in (config, *(v for v in config.values() if isinstance(v, Mapping)))
            if part.get("quantization_config")
        ),
        None,
    )
    if given is not None:
        method = (
            given["quantization_config"].get("quant_method", "")
            if isinstance(given["quantization_config"], Mapping)
            else ""
        )
        raise ConfigError(
            f"the model is quantised (quantization_config{f': {method}' if method else ''}): verify the unquantised one, whose positions are the same"
        )
    kind = config.get("model_type")
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    names = config.get("architectures") or []
    made = next((getattr(transformers, n) for n in names if isinstance(n, str) and hasattr(transformers, n)), None)
    if kind not in known or (names and made is None):
        if config.get("auto_map"):
            raise ConfigError(
                f"it asks for code of its own (auto_map), which milepost does not run, and transformers has no {short(names[0] if names else kind)}"
            )
        raise ConfigError(
            f"transformers has no model of type {short(kind)}"
            + (f" and class {short(names[0])}" if names else "")
            + " to run this checkpoint with"
        )
    return made if made is not None else transformers.AutoModelForCausalLM


def check_tensors(folder: Path) -> None:
    """Files that are there, whole, and not quantised."""
    try:
        held, word = in_folder(folder)
    except ConfigError as error:
        raise ConfigError(str(error).removesuffix(f"; {ALONE}")) from None
    if not held:
        raise ConfigError(word or f"{folder} holds no tensors: a model without weights can't be run")
    packed = sorted(n for n in held if n.endswith(PACKED))
    if packed:
        raise ConfigError(
            f"{folder} holds quantised tensors ({short(packed[0])} and {len(packed) - 1} more): verify the unquantised model"
        )
