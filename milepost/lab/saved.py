"""A lab model on disk: model.safetensors, with the shape and the specs in model.json. Whole or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from milepost.lab.model import Decoder, Shape
from milepost.results import write_json


def save(model: Decoder, folder: str | Path, **about: Any) -> Path:
    """Write a model; ``about`` goes into model.json."""
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    known = {"shape": asdict(model.shape), "encodings": model.specs}
    temporary = folder / f".model.{os.getpid()}.tmp"
    try:
        save_file({name: value.detach().contiguous() for name, value in model.state_dict().items()}, temporary, {"milepost": json.dumps(known)})
        os.replace(temporary, folder / "model.safetensors")
    finally:
        temporary.unlink(missing_ok=True)
    write_json(folder / "model.json", {**known, **about})
    return folder


def load(folder: str | Path) -> Decoder:
    """The model that `save` wrote. Encodings of your own, ``package.module:Class``, are imported first, by you."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        shape, specs = Shape(**about["shape"]), about["encodings"]
        weights = load_file(folder / "model.safetensors")
    except FileNotFoundError:
        name = "model.json" if not (folder / "model.json").exists() else "model.safetensors"
        raise ValueError(f"{folder} holds no lab model: {name} is not there") from None
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError, OSError, SafetensorError) as error:
        raise ValueError(f"{folder} holds no whole lab model: {type(error).__name__}, {(str(error) or 'no message').splitlines()[0][:200]}") from None
    model = Decoder(shape, specs)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{folder}: model.safetensors is not of the model in model.json: {str(error).splitlines()[1].strip()[:200]}") from None
    return model.eval()
