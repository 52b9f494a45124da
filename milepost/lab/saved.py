"""A lab model on disk: model.safetensors, with the shape and the specs in model.json. Whole or not at all.

A model of images or signals has encoder.json in place of model.json, so that nobody takes it for one that reads text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from milepost.lab.model import Decoder, Shape
from milepost.measure.results import write_json

if TYPE_CHECKING:
    from torch import Tensor, nn

    from milepost.lab.space.encoder import Encoder

M = TypeVar("M", bound="nn.Module")


def save(model: Decoder, folder: str | Path, **about: Any) -> Path:
    """Write a model; ``about`` goes into model.json."""
    return _save(model, folder, "model.json", about)


def load(folder: str | Path) -> Decoder:
    """The model that `save` wrote. Encodings of your own, ``package.module:Class``, are imported first, by you."""
    about, weights = _read(Path(folder), "model.json", Shape)
    return _filled(Decoder(about["shape"], about["encodings"]), weights, Path(folder), "model.json")


def save_encoder(model: Encoder, folder: str | Path, **about: Any) -> Path:
    """Write a model of images or signals; ``about`` goes into encoder.json."""
    return _save(model, folder, "encoder.json", about)


def load_encoder(folder: str | Path) -> Encoder:
    """The model that `save_encoder` wrote."""
    from milepost.lab.space import encoder

    about, weights = _read(Path(folder), "encoder.json", lambda sides, **sizes: encoder.Shape(tuple(sides), **sizes))
    return _filled(encoder.Encoder(about["shape"], about["encodings"]), weights, Path(folder), "encoder.json")


def _save(model: Decoder | Encoder, folder: str | Path, name: str, about: dict[str, Any]) -> Path:
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    known = {"shape": asdict(model.shape), "encodings": model.specs}
    temporary = folder / f".model.{os.getpid()}.tmp"
    try:
        save_file(
            {name: value.detach().contiguous() for name, value in model.state_dict().items()},
            temporary,
            {"milepost": json.dumps(known)},
        )
        os.replace(temporary, folder / "model.safetensors")
    finally:
        temporary.unlink(missing_ok=True)
    write_json(folder / name, {**known, **about})
    return folder


def _read(folder: Path, name: str, shape: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is said of a model, and its weights."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        about = json.loads((folder / name).read_text(encoding="utf-8"))
        return {"shape": shape(**about["shape"]), "encodings": about["encodings"]}, load_file(
            folder / "model.safetensors"
        )
    except FileNotFoundError:
        gone = name if not (folder / name).exists() else "model.safetensors"
        raise ValueError(f"{folder} holds no lab model: {gone} is not there") from None
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError, OSError, SafetensorError) as error:
        raise ValueError(
            f"{folder} holds no whole lab model: {type(error).__name__}, {(str(error) or 'no message').splitlines()[0][:200]}"
        ) from None


def _filled(model: M, weights: dict[str, Tensor], folder: Path, name: str) -> M:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(
            f"{folder}: model.safetensors is not of the model in {name}: {str(error).splitlines()[1].strip()[:200]}"
        ) from None
    return model.eval()
