"""A model of transformers from a checkpoint's files: safetensors or GGUF, no remote code, no pickle.

What can't be loaded is refused in one sentence.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from milepost.checkpoints.files.config import check_not_quantised
from milepost.checkpoints.files.tensors import in_folder
from milepost.checkpoints.model.quiet import first_line, quiet
from milepost.rope.config.files import find
from milepost.rope.config.files import load as load_config
from milepost.rope.config.keys import ConfigError, short

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
PACKED = (
    *(".qweight", ".qzeros", ".g_idx"),
    *(".absmax", ".quant_map", ".SCB", ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"),
)
"""How names of quantised tensors end: GPTQ and AWQ, then bitsandbytes."""


def load_checkpoint(
    name: str | Path, device: str, dtype: str, config: Mapping[str, Any] | None = None
) -> tuple[Any, dict[str, Any]]:
    """The model of a folder, a GGUF file or a name on the Hub; and its config, that of a GGUF as transformers has it.

    ``config`` is the parsed config.json, where the caller has read it already.
    """
    check_device(device)
    check_dtype(dtype)
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        return _load_gguf(path, device, DTYPES[dtype])
    check_installed("loading a checkpoint")
    if path.is_file():
        raise ConfigError(f"{path} is a file: give the whole checkpoint's folder (config.json and *.safetensors)")
    if config is None or path.is_dir():
        file = find(name)
        if file.name != "config.json":
            raise ConfigError(f"{path} has no config.json, which transformers' own code needs to run it")
        config = load_config(file) if config is None else config
    check_not_quantised(config, "load the unquantised one, whose positions are the same")
    made = model_class(config)
    if path.is_dir():
        check_tensors(path)
    model = from_pretrained(made, path if path.is_dir() else name, dtype=DTYPES[dtype])
    return model.to(device).eval(), dict(config)


def from_pretrained(made: Any, name: str | Path, **how: Any) -> Any:
    """The model that a class of transformers loads from a folder or a name on the Hub, with all of its weights."""
    local = Path(name).is_dir()
    fixed = {"use_safetensors": True, "trust_remote_code": False, "output_loading_info": True}
    try:
        with quiet():
            model, info = made.from_pretrained(str(name), local_files_only=local, **fixed, **how)
    except Exception as error:  # transformers' own errors are of many kinds
        raise ConfigError(f"transformers can't load {name}: {first_line(error)}") from None
    absent = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if absent:
        raise ConfigError(
            f"{len(absent)} weights of {made.__name__} are not in {name}, or have other shapes: {short(absent)}; "
            "is it the whole model?"
        )
    return model


def _load_gguf(path: Path, device: str, dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    """The model of a GGUF file, its weights unpacked, and the config that transformers makes of it."""
    check_installed("loading a GGUF file", "gguf")
    from transformers import AutoModelForCausalLM

    try:
        with quiet():
            auto: Any = AutoModelForCausalLM
            model = auto.from_pretrained(str(path.parent), gguf_file=path.name, dtype=dtype, local_files_only=True)
    except Exception as error:  # transformers' own errors are of many kinds
        raise ConfigError(f"transformers can't load {path}: {first_line(error)}") from None
    for part in (model, model.config):  # it is not quantised any more
        for key in ("quantization_config", "hf_quantizer", "is_quantized", "quantization_method"):
            part.__dict__.pop(key, None)
    return model.to(device).eval(), dict(model.config.to_dict())


def check_installed(doing: str, *more: str) -> None:
    """Refuse, with the words that install it, where a package is missing."""
    for package in ("safetensors", "transformers", *more):
        if importlib.util.find_spec(package) is None:
            words = " ".join(["'milepost[hf]'", *more])
            raise ConfigError(f"{doing} needs the {package} package: pip install {words}")


def check_dtype(dtype: str) -> None:
    if dtype not in DTYPES:
        raise ConfigError(f"dtype is one of {', '.join(DTYPES)}, got {dtype!r}")


def check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ConfigError(f"device {device!r} can't be used here: {str(error).strip().splitlines()[0][:160]}") from None


def model_class(config: Mapping[str, Any]) -> Any:
    """The class of transformers that runs this config."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind, names = config.get("model_type"), config.get("architectures") or []
    made = next((getattr(transformers, n) for n in names if isinstance(n, str) and hasattr(transformers, n)), None)
    if kind in CONFIG_MAPPING and not (names and made is None):
        return made if made is not None else transformers.AutoModelForCausalLM
    if config.get("auto_map"):
        raise ConfigError(
            "it asks for code of its own (auto_map), which milepost does not run, and transformers has no "
            f"{short(names[0] if names else kind)}"
        )
    named = f" and class {short(names[0])}" if names else ""
    raise ConfigError(f"transformers has no model of type {short(kind)}{named} to run this checkpoint with")


def check_tensors(folder: Path) -> None:
    """Files that are there, whole, and not quantised."""
    tensors, reason = in_folder(folder)
    if not tensors:
        raise ConfigError(reason or f"{folder} holds no tensors: a model without weights can't be run")
    packed = sorted(name for name in tensors if name.endswith(PACKED))
    if packed:
        raise ConfigError(
            f"{folder} holds quantised tensors ({short(packed[0])} and {len(packed) - 1} more): "
            "give the unquantised model"
        )
