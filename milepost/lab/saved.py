"""A lab model on disk: model.safetensors with the shape and the specs in model.json. Whole or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from milepost.lab.model import Decoder, Shape
from milepost.results import write_json


def save(model: Decoder, folder: str | Path, **about: Any) -> Path:
    """Write a model; ``about`` goes into model.json."""
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".model.{os.getpid()}.tmp"
    try:
        save_file({name: value.detach().contiguous() for name, value in model.state_dict().items()}, temporary)
        os.replace(temporary, folder / "model.safetensors")
    finally:
        temporary.unlink(missing_ok=True)
    write_json(folder / "model.json", {"shape": asdict(model.shape), "encodings": model.specs, **about})
    return folder


def load(folder: str | Path) -> Decoder:
    """The model that `save` wrote."""
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        about = json.loads((folder / "model.json").read_text())
        model = Decoder(Shape(**about["shape"]), about["encodings"])
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except FileNotFoundError as error:
        raise ValueError(f"{folder} holds no lab model: {Path(str(error.filename)).name} is not there") from None
    except (KeyError, TypeError, json.JSONDecodeError, RuntimeError) as error:
        raise ValueError(f"{folder} holds no whole lab model: {str(error).splitlines()[0][:200]}") from None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.requires_grad_(True)
    return model.eval()
