"""Weights: those that a server should run, loaded here, as a whole or a module at a time.

    weights, note = load_weights("path/to/model")      # ``note`` says so where they do not fit into memory

A server's losses are those of all of its layers: the first layers alone, under the same head, are another model, far
from it under any rotation (docs/served.md has the numbers). So where a folder's weights do not fit into memory, all of
the layers run, and the part that fits is in memory at a time. The file is mapped in its own numbers (bfloat16, mostly),
which takes no memory that the system can't have back; a module's numbers are widened before it runs, and dropped after
it. Widening is exact, so that losses are those of the whole model. Every text that a candidate reads costs one reading
of the file.

A GGUF file is unpacked as a whole, and other devices hold all of a model: there, too large a model is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from milepost.checkpoints.files import in_folder, in_gguf, main_dtype
from milepost.checkpoints.model.hf_load import DTYPES, check_device, check_dtype
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.loaded import Loaded
from milepost.rope import ConfigError

SHARE = 0.9
"""Of the free memory, what weights may take; the rest is for a text's hidden states."""


def load_weights(
    name: str, *, device: str = "cpu", dtype: str = "float32", tokenizer: str | Path | None = None
) -> tuple[Loaded, str | None]:
    """A checkpoint to run candidates on; and a sentence where its weights stay in their file."""
    check_device(device)
    check_dtype(dtype)
    path = Path(name).expanduser()
    gguf = path.suffix == ".gguf" and path.is_file()
    stored = in_gguf(path) if gguf else in_folder(path)[0] if path.is_dir() else {}
    count, there = sum(tensor.count for tensor in stored.values()), free_memory(device)
    need = count * DTYPES[dtype].itemsize
    if there is None or need <= SHARE * there:
        return load(name, device=device, dtype=dtype, tokenizer=tokenizer), None
    numbers = (
        f"{name} has {count} numbers, which take {_gigabytes(need)} as {dtype}, and {_gigabytes(there)} of memory are "
        "free"
    )
    if gguf or torch.device(device).type != "cpu":
        why = "a GGUF file is unpacked as a whole" if gguf else f"{device} holds all of a model"
        raise ConfigError(
            f"{numbers}: {why}, and the losses of fewer layers can't be matched with a server's; verify it on a larger "
            "machine, or without --against"
        )
    largest = max(stored.values(), key=lambda tensor: tensor.count)
    if largest.count * DTYPES[dtype].itemsize > SHARE * there:
        raise ConfigError(f"{numbers}: not even its largest tensor fits, {largest.name} of {list(largest.shape)}")
    own = str(main_dtype(stored)).removeprefix("torch.")
    loaded = load(name, device=device, dtype=own, tokenizer=tokenizer)
    widen(loaded.model, DTYPES[dtype])
    return loaded, f"{numbers}: they stay in their file, and those of one module are in memory at a time"


def free_memory(device: str) -> int | None:
    """Bytes that a device has free; None where that is not known."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if torch.device(device).type != "cpu":
        return None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None


def widen(model: nn.Module, dtype: torch.dtype) -> None:
    """From now on, each module's own numbers are in ``dtype`` while it runs, and as they were loaded otherwise."""
    for module in model.modules():
        own = {name: value for name, value in module._parameters.items() if value is not None}
        if not own:
            continue

        def make(module: nn.Module, *_: Any, own: dict[str, nn.Parameter] = own) -> None:
            for name, value in own.items():
                module._parameters[name] = nn.Parameter(value.detach().to(dtype), requires_grad=False)

        def drop(module: nn.Module, *_: Any, own: dict[str, nn.Parameter] = own) -> None:
            module._parameters.update(own)

        module.register_forward_pre_hook(make)
        module.register_forward_hook(drop, always_call=True)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB"
