"""The folder of a resized model.

The table's file written anew, the others copied, and every config that says the old size put right.

*.safetensors              the file with the table anew; its metadata and all other tensors as they were
config.json                image_size, or max_position_embeddings
preprocessor_config.json   size and crop_size, where they were the model's own
tokenizer_config.json      model_max_length
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from milepost.checkpoints.files import INDEX, TOKENIZER, copy_files, files_of, in_safetensors, write_config
from milepost.checkpoints.resizing.source import PositionTable
from milepost.measure.folder import saving
from milepost.rope.config.files import load

PROCESSOR = "preprocessor_config.json"
POSITION_IDS = "embeddings.position_ids"
"""Numbers 0, 1, 2, ... that old checkpoints of BERT store; transformers makes them by itself."""


def write_folder(
    source: PositionTable, table: Tensor, target: tuple[int, ...], work: Path, tell: Callable[[str], None]
) -> tuple[dict[str, list[Any]], tuple[str, ...], tuple[str, ...]]:
    """All files of the new folder; what was changed in configs, what was left out, and what to know."""
    weights, others, left_out = files_of(source.folder)
    names = [name for name in weights if (source.folder / name).is_file()] or [source.held.file.name]
    notes: list[str] = []
    dropped = 0
    for name in names:
        tell(f"writing {name}")
        dropped += _weights(source, name, table, work)
    if dropped:
        notes.append(f"{dropped} stored position_ids were left out: transformers makes them by itself, for any length")
    copy_files(source.folder, others, work)
    if INDEX in others:
        _index(source, work)
    changed = _configs(source, target, work, others, notes)
    return changed, left_out, tuple(notes)


def _weights(source: PositionTable, name: str, table: Tensor, work: Path) -> int:
    """One file of weights, with the new table if it is there; how many position_ids were dropped."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with safe_open(source.folder / name, framework="pt") as opened:
        held, about = list(opened.keys()), opened.metadata()
    gone = [key for key in held if source.patch is None and key.endswith(POSITION_IDS)]
    if not gone and name != source.held.file.name:
        shutil.copyfile(source.folder / name, work / name)
        return 0
    tensors = {key: value for key, value in load_file(source.folder / name).items() if key not in gone}
    if source.held.name in tensors:
        tensors[source.held.name] = table.contiguous()
    with saving(name, work):
        save_file(tensors, work / name, metadata=about or {"format": "pt"})
    return len(gone)


def _index(source: PositionTable, work: Path) -> None:
    """The index of several files: the names that are there, and their bytes."""
    index = dict(load(source.folder / INDEX))
    index["weight_map"] = {
        key: file
        for key, file in index["weight_map"].items()
        if not (source.patch is None and key.endswith(POSITION_IDS))
    }
    if isinstance(index.get("metadata"), Mapping) and "total_size" in index["metadata"]:
        files = set(index["weight_map"].values())
        total = sum(held.size for file in files for held in in_safetensors(work / file).values())
        index["metadata"] = {**index["metadata"], "total_size": total}
    write_config(work / INDEX, index)


def _configs(
    source: PositionTable, target: tuple[int, ...], work: Path, others: tuple[str, ...], notes: list[str]
) -> dict[str, list[Any]]:
    """config.json, and the files beside it that say the old size; every key that was changed, old and new."""
    if source.patch is None:
        new: dict[str, Any] = {"max_position_embeddings": source.prefix + target[0]}
        if TOKENIZER in others:
            write_config(work / TOKENIZER, {**load(source.folder / TOKENIZER), "model_max_length": target[0]})
        notes.append(
            f"neighbouring rows are {source.sides[0] / target[0]:.3g} of the old distance apart, which the model has "
            "not seen: measure, and tune"
        )
    else:
        high, wide = target[0] * source.patch[0], target[1] * source.patch[1]
        new = {"image_size": high if high == wide else [high, wide]}
        if PROCESSOR in others:
            _processor(source, (high, wide), work, notes)
    write_config(work / "config.json", {**source.config, **new})
    return {key: [source.config.get(key), value] for key, value in new.items()}


def _processor(source: PositionTable, size: tuple[int, int], work: Path, notes: list[str]) -> None:
    """The sizes of the image processor, where they were those of the model."""
    assert source.patch is not None
    sizes = dict(load(source.folder / PROCESSOR))
    old = (source.sides[0] * source.patch[0], source.sides[1] * source.patch[1])
    given = source.config["image_size"]
    exact = (given, given) if isinstance(given, int) else tuple(given)
    for key in ("size", "crop_size"):
        held = sizes.get(key)
        pair = (held.get("height"), held.get("width")) if isinstance(held, Mapping) else (held, held)
        if pair in (old, exact):
            sizes[key] = {"height": size[0], "width": size[1]}
            notes.append(f"{PROCESSOR}: {key} is now {size[0]} x {size[1]}")
        elif held is not None:
            notes.append(
                f"{PROCESSOR}: {key} was {held}, not the model's {exact[0]} x {exact[1]}, and was left so: see that "
                f"images come as {size[0]} x {size[1]}"
            )
    write_config(work / PROCESSOR, sizes)
