"""A lab model on disk: model.safetensors, with the shape and the specs in model.json. Whole or not at all.

A model of images or signals has encoder.json in place of model.json, so that nobody takes it for one that reads text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from torch.utils._python_dispatch import TorchDispatchMode

from milepost.lab.model import Decoder, Shape
from milepost.lab.space.encoder import Encoder, EncoderShape
from milepost.measure.folder import saving
from milepost.measure.results import whole_file, write_json

M = TypeVar("M", Decoder, Encoder)
ROOM, TIMES = 1 << 24, 4
"""Numbers that a model may have beyond those in its file, which is believed: so many, and so many times as many."""


def save(model: Decoder | Encoder, folder: str | Path, **about: Any) -> Path:
    """Write a model; ``about`` goes into the JSON file beside it."""
    from safetensors.torch import save_file

    folder = Path(folder)
    known = {"shape": asdict(model.shape), "encodings": model.specs, "code_spread": model.code_spread}
    weights = {name: value.detach().contiguous() for name, value in model.state_dict().items()}
    with saving("model.safetensors", folder), whole_file(folder / "model.safetensors") as temporary:
        save_file(weights, temporary, {"milepost": json.dumps(known)})
    write_json(folder / ("model.json" if isinstance(model, Decoder) else "encoder.json"), {**known, **about})
    return folder


def load(folder: str | Path) -> Decoder:
    """The text model that `save` wrote. Encodings of your own, ``package.module:Class``, are imported first, by you."""
    return _load(Path(folder), "model.json", lambda shape, specs: Decoder(Shape(**shape), specs))


def load_encoder(folder: str | Path) -> Encoder:
    """The model of images or signals that `save` wrote."""

    def make(shape: dict[str, Any], specs: list[str]) -> Encoder:
        return Encoder(EncoderShape(**{**shape, "sides": tuple(shape["sides"])}), specs)

    return _load(Path(folder), "encoder.json", make)


def _load(folder: Path, name: str, make: Callable[[dict[str, Any], list[str]], M]) -> M:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        about = json.loads((folder / name).read_text(encoding="utf-8"))
        shape, specs, weights = about["shape"], about["encodings"], load_file(folder / "model.safetensors")
        if shape["layers"] != len(specs) or len(specs) > len(weights):
            raise ValueError(f"{folder}: {name} has {shape['layers']} layers, and {len(specs)} encodings")
        with _AtMost(ROOM + TIMES * sum(weight.numel() for weight in weights.values())):
            model = make(shape, specs)
        spread = about.get("code_spread", 1.0)
        if type(spread) not in (int, float) or not 0 < spread < 1e12:
            raise ValueError(
                f"{folder}: code_spread in {name} is a number above 0 and below 1e12, got {str(spread)[:40]!r}"
            )
        model.code_spread = float(spread)
    except FileNotFoundError:
        missing = name if not (folder / name).exists() else "model.safetensors"
        raise ValueError(f"{folder} holds no lab model: {missing} is not there") from None
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError, OSError, SafetensorError) as error:
        reason = (str(error) or "no message").splitlines()[0][:200]
        raise ValueError(f"{folder} holds no whole lab model: {type(error).__name__}, {reason}") from None
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip()[:200]
        raise ValueError(f"{folder}: model.safetensors is not of the model in {name}: {reason}") from None
    return model.eval()


class _AtMost(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A limit on all tensors together that a foreign file makes us ask for, before they are allocated."""

    def __init__(self, numbers: int):
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = self.left = numbers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asked = args[0] if args else 0  # the size of a new tensor; a view has a tensor here
        if func.overloadpacket.__name__ == "arange":
            asked = [int(max((value for value in args if isinstance(value, int | float)), default=0))]
        if isinstance(asked, list | tuple) and all(isinstance(size, int) for size in asked):
            self.left -= math.prod(asked)
        if self.left < 0:
            raise ValueError(
                f"its sizes ask for more than {self.most} numbers, many more than its file of weights has: the two are "
                "not of one model"
            )
        return func(*args, **(kwargs or {}))
