"""The table of a checkpoint that is to be resized.

Where it is, for which grid it was trained, how many rows stand before it.

    vit, dinov2           a class token's row, then the cells
    deit                  a class and a distillation token's row, then the cells
    bert and its kin      a row for each position
    roberta and its kin   pad_token_id + 1 rows before these

The grid is config.json's (image_size / patch_size) and must be the table's own: 16 rows for a config of 2 x 9 cells are
refused, never guessed. What has no such table, or several, is quantised, or is read by transformers in another way than
it would be written, is refused in a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoints.files import StoredTensor, check_not_quantised, ending, from_hub, in_folder
from milepost.rope.config.files import load
from milepost.rope.config.keys import ConfigError, short
from milepost.rope.engines.written import Refused

IMAGES = {"vit": 1, "deit": 2, "dinov2": 1, "dinov2_with_registers": 1}
"""Models with a table of cells, and how many rows it has before them."""
SQUARE = ("dinov2", "dinov2_with_registers")
"""Those whose table transformers always reads as a square, and resamples by itself."""
ANTIALIASED = ("dinov2_with_registers",)
"""Those that transformers, as their authors, resamples with antialiasing."""
TEXTS = ("bert", "distilbert", "albert", "electra", "roberta", "xlm-roberta", "camembert")
"""Models with a table of one axis."""
AFTER_PADDING = ("roberta", "xlm-roberta", "camembert")
"""Those that begin after the padding token's own number."""
TABLES = ("embeddings.position_embeddings", "embeddings.position_embeddings.weight")


@dataclass(frozen=True)
class PositionTable:
    """A checkpoint and its table: ``sides`` is (rows, columns), or (length,) for text.

    ``patch`` is the size of a cell in pixels.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    family: str
    held: StoredTensor
    prefix: int
    sides: tuple[int, ...]
    patch: tuple[int, int] | None


def open_table(model: str | Path, *, text: bool) -> PositionTable:
    """The table of a folder; ``text`` says that it is one of positions in a text."""
    folder = _folder(str(model))
    config = load(folder / "config.json")
    check_not_quantised(config, "resize the unquantised one, and quantise the result")
    family = str(config.get("model_type"))
    known = ", ".join(TEXTS if text else IMAGES)
    if family not in (TEXTS if text else IMAGES):
        other = "--length" if family in TEXTS else "--grid" if family in IMAGES else None
        what = "a length" if text else "a grid"
        raise Refused(
            f"{short(family)} has no table of {what} that resize knows: it knows {known}"
            + (f"; this model takes {other}" if other else "")
        )
    tensors, word = in_folder(folder)
    if not tensors:
        raise ConfigError(word)
    tables = ending(tensors, *TABLES)
    if len(tables) != 1:
        names = ", ".join(one.name for one in tables)
        raise ConfigError(
            f"{folder} must have one table of positions (a tensor whose name ends in {TABLES[0]}), got "
            f"{len(tables)}{f': {names}' if names else ''}"
        )
    if not tables[0].plain:
        raise ConfigError(
            f"the table {tables[0].name} is stored as {tables[0].dtype}, which is quantised: resize the "
            "unquantised model"
        )
    made = _text(config, family, tables[0]) if text else _image(config, family, tables[0])
    return PositionTable(str(model), folder, config, family, tables[0], *made)


def _folder(model: str) -> Path:
    path = Path(model).expanduser()
    if path.is_dir() and (path / "config.json").is_file():
        return path.resolve()
    if path.exists():
        raise ConfigError(
            f"{path} has no config.json beside its weights: a checkpoint to resize is a folder with config.json and "
            "*.safetensors"
        )
    return from_hub(model)


def _image(config: Mapping[str, Any], family: str, held: StoredTensor) -> tuple[int, tuple[int, ...], tuple[int, int]]:
    """Rows before the cells, the grid, and the size of a cell."""
    image, patch = (_pair(config, key) for key in ("image_size", "patch_size"))
    sides = (image[0] // patch[0], image[1] // patch[1])
    rows = held.shape[-2] if len(held.shape) > 1 else 0
    prefix = IMAGES[family]
    if rows != prefix + math.prod(sides) or not all(sides):
        raise ConfigError(
            f"config.json says {image[0]} x {image[1]} pixels in patches of {patch[0]} x {patch[1]}: {sides[0]} x "
            f"{sides[1]} cells and {prefix} rows before them make {prefix + math.prod(sides)}, and {held.name} has "
            f"{rows}: put image_size right, which is what the table was trained for"
        )
    return prefix, sides, patch


def _pair(config: Mapping[str, Any], key: str) -> tuple[int, int]:
    declared = config.get(key)
    pair = (declared, declared) if type(declared) is int else tuple(declared) if isinstance(declared, list) else ()
    if len(pair) != 2 or any(type(n) is not int or n < 1 for n in pair):
        raise ConfigError(
            f"{key} in config.json must be a number of pixels, or two (height, width); got {short(declared)}"
        )
    return pair[0], pair[1]


def _text(config: Mapping[str, Any], family: str, held: StoredTensor) -> tuple[int, tuple[int, ...], None]:
    """Rows before position 0, and the length."""
    kind = config.get("position_embedding_type", "absolute")
    if kind != "absolute":
        raise Refused(
            f"its positions are {short(kind)} (position_embedding_type): only a table of absolute ones is resized here"
        )
    padding = config.get("pad_token_id", 1)
    prefix = (padding if type(padding) is int else 1) + 1 if family in AFTER_PADDING else 0
    rows, declared = held.shape[0], config.get("max_position_embeddings", 512)
    if rows != declared or rows <= prefix:
        raise ConfigError(
            f"config.json says max_position_embeddings = {short(declared)}, and {held.name} has {rows} rows: put the "
            "config right first"
        )
    return prefix, (rows - prefix,), None
