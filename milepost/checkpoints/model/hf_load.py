"""A model of transformers from a checkpoint's files: safetensors or GGUF, no remote code, no pickle.

What can't be loaded is refused in one sentence.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook

from milepost.checkpoints.files import check_not_quantised, in_folder
from milepost.checkpoints.model.probe import Check, read_spec
from milepost.checkpoints.model.quiet import first_line, quiet
from milepost.rope import RopeSpec
from milepost.rope.config import gguf_header
from milepost.rope.config.files import find, is_offline
from milepost.rope.config.files import load as load_config
from milepost.rope.config.keys import ConfigError, short
from milepost.rope.engines.parity import differences

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
PACKED = (
    *(".qweight", ".qzeros", ".g_idx"),
    *(".absmax", ".quant_map", ".SCB", ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"),
)
"""How names of quantised tensors end: GPTQ and AWQ, then bitsandbytes."""
ROOM, TIMES = 1 << 24, 4
"""Numbers that a model may have beyond those in its files: so many, and so many times as many (tied ones, buffers)."""
MANY_LAYERS, MODULES = 48, 64
"""Layers that a model may have however few its tensors are (some share them), and modules for each of them."""


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
    model = from_pretrained(made, path if path.is_dir() else name, config, dtype=DTYPES[dtype])
    return model.to(device).eval(), dict(config)


def from_pretrained(made: Any, name: str | Path, parsed: Mapping[str, Any], **how: Any) -> Any:
    """The model that a class of transformers loads from a folder or a name on the Hub, with all of its weights.

    ``parsed`` is its config.json.
    """
    local = Path(name).is_dir() or is_offline(str(name))
    if Path(name).is_dir():
        check_size(made, Path(name), parsed)
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


def check_size(made: Any, folder: Path, parsed: Mapping[str, Any]) -> None:
    """Refuse a config whose model is far larger than the weights beside it, before a number of it is allocated.

    The model is made on the "meta" device, whose tensors have shapes and no numbers. Weights that are not in the files
    are refused in any case: this is about the memory that is asked for until then.
    """
    from transformers import AutoConfig

    tensors = in_folder(folder)[0]
    stored = sum(tensor.count for tensor in tensors.values())
    layers = max(_layers(parsed), default=0)
    if layers > max(MANY_LAYERS, len(tensors)):
        raise ConfigError(
            f"config.json has {layers} layers, and {folder} has {len(tensors)} tensors: is it the whole model?"
        )
    try:
        with quiet(), torch.device("meta"), _few_modules(MODULES * (len(tensors) + MANY_LAYERS)):
            config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
            model = made.from_config(config) if hasattr(made, "from_config") else made(config)
    except Exception as error:  # transformers' own errors are of many kinds
        raise ConfigError(f"transformers can't make the model of {folder}: {first_line(error)}") from None
    held = dict([*model.named_parameters(), *model.named_buffers()])
    asked = sum(tensor.numel() for tensor in held.values())
    if asked > TIMES * stored + ROOM:
        name, largest = max(held.items(), key=lambda item: item[1].numel())
        raise ConfigError(
            f"config.json asks for {asked} numbers, and {folder} has {stored}: its {name} has the shape "
            f"{list(largest.shape)}; is it the config of these weights?"
        )


def _layers(config: Any) -> Iterator[int]:
    """Every whole number of a config, at any depth, whose name says that it counts layers."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _layers(value)
        elif isinstance(value, int) and "layer" in name and name.startswith(("n", "encoder", "decoder")):
            yield value


@contextlib.contextmanager
def _few_modules(most: int) -> Iterator[None]:
    """Refuse to make a model of more than so many modules: each takes time, even on the "meta" device."""
    left = [most]

    def count(*_: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ConfigError(f"it has more than {most} modules, many more than it has weights")

    handle = register_module_module_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def _load_gguf(path: Path, device: str, dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    """The model of a GGUF file, its weights unpacked, and the config that transformers makes of it."""
    check_installed("loading a GGUF file", "gguf")
    from gguf import GGML_QUANT_SIZES
    from transformers import AutoModelForCausalLM

    gguf_header.check_sizes(
        path, gguf_header.tensors(path), {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}
    )

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


def as_in_the_file(path: Path, config: Mapping[str, Any]) -> Check:
    """Whether a GGUF file, in its own words, and the config that transformers makes of it mean the same angles.

    Often not: transformers 5.22 passes over the scaling of a file, and says nothing. (The order of channels differs on
    purpose: pairs are neighbours for llama.cpp in some families, and transformers puts them back.)
    """
    made, why = read_spec(dict(config))
    if made is None:
        count, sentence = 1, f"the file has rotary positions, and what transformers made of it has none: {why}"
    else:
        in_file, in_config = (
            replace(spec, model="", kinds=tuple((n, r and replace(r, pairing="half")) for n, r in spec.kinds))
            for spec in (RopeSpec.from_config(path), made)
        )
        apart = differences(in_file, in_config)
        count, sentence = len(apart), "what transformers makes of the file means the same angles in every layer"
        if apart:
            sentence = f"transformers does not do what the file says: {apart[0].sentence('the file', 'transformers')}"
    return Check("file", "FAIL" if count else "PASS", sentence, float(count), 0.0, unit="differences")
