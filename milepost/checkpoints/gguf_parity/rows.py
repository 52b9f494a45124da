"""Rows of q and k in a GGUF file: in which order of the source's rows they are.

    llama.cpp turns neighbours in this architecture, the source has halves    the order is that of `convert_layout`
    both turn alike                                                           the order is the source's

A file's row i is compared with the source's row order[i], for each order that a converter can have left behind. A
quantised file has rounded numbers, so the nearest order is taken, and has to be nearer by far than the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.files import StoredTensor, values
from milepost.checkpoints.layout_conversion.heads import LAYER, MODELS, HeadRows
from milepost.rope import ConfigError, RopeSpec
from milepost.rope.config.keys import short
from milepost.rope.engines.parity import Difference

FILE = {"q_proj": "attn_q", "k_proj": "attn_k", "qkv_proj": "attn_qkv", "Wqkv": "attn_qkv"}
"""The file's name for a projection whose heads it leaves in their order."""
NEAR, ROUNDED = 0.5, 2.0**-8
"""The largest distance, over the size of the weights, that a quantisation explains; and that a plain type does."""
MOST = 4096
"""Heads that a layer may have."""
PERMUTED, TWICE = "permuted for neighbours", "permuted twice"
SAME, BACK = "in the source's order", "permuted back to halves"


def compare_rows(
    config: Any, mine: RopeSpec, theirs: RopeSpec, source: Mapping[str, StoredTensor], file: Mapping[str, StoredTensor]
) -> tuple[list[Difference], tuple[str, ...]]:
    """What is wrong with the rows of q and k, and a note on how many were compared."""
    name = getattr(config, "model_type", "")
    letters = _letters(config, name) if isinstance(name, str) and name in MODELS else {}
    if not letters or not set(letters) <= set(FILE):
        return [], (f"the rows of q and k were not compared: a converter rebuilds those of {short(name)}",)
    wrong: dict[tuple[str, str, str], list[int]] = {}
    compared, packed = 0, False
    for name, tensor in source.items():
        match = LAYER.fullmatch(name)
        if match is None or match[2] not in letters or match[3] not in ("weight", "bias") or not tensor.plain:
            continue
        layer, module, leaf = int(match[1]), match[2], match[3]
        rope = mine.layer(layer) if mine.layers else mine.main
        if rope is None:
            continue
        held = file.get(f"blk.{layer}.{FILE[module]}.{leaf}")
        if held is None or held.shape != tensor.shape:
            shown = "not in the file" if held is None else f"shape {list(held.shape)}"
            wrong.setdefault((f"{FILE[module]}.{leaf}", f"shape {list(tensor.shape)}", shown), []).append(layer)
            continue
        other = theirs.layer(layer) if theirs.layers else theirs.main
        swapped = other is not None and other.pairing != rope.pairing
        expected = SAME if not swapped else PERMUTED if rope.pairing == "half" else BACK
        heads = HeadRows(letters[module], rope.head_dim, rope.rotary)
        if tensor.shape[0] != len(heads.heads) * heads.head_dim:
            raise ConfigError(
                f"{name} has {tensor.shape[0]} rows, and the config says {len(heads.heads)} heads of {heads.head_dim}: "
                "is it the config of these weights?"
            )
        order = _order(values(tensor), _numbers(held), heads, held.plain)
        packed |= not held.plain
        compared += 1
        if order != expected:
            wrong.setdefault((f"rows of {FILE[module]}.{leaf}", expected, order), []).append(layer)
    rows = [Difference("all", f"{what} in {_layers(layers)}", a, b) for (what, a, b), layers in wrong.items()]
    how = "by the nearest order, since the file is quantised" if packed else "number by number"
    return rows, (f"{compared} tensors of q and k were compared with the source's, {how}",)


def _letters(config: Any, name: str) -> dict[str, str]:
    """The heads of each projection, from a config that may hold anything."""
    for key in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, key, None)
        if (heads is not None or key == "num_attention_heads") and not (type(heads) is int and 0 < heads <= MOST):
            raise ConfigError(f"{key} is how many heads there are, from 1 to {MOST}, got {short(heads)}")
    return MODELS[name](config)


def _order(source: Tensor, file: Tensor, rows: HeadRows, plain: bool) -> str:
    """In which order a file has the source's rows."""
    there, back = rows.order("interleaved"), rows.order("half")
    orders = {SAME: torch.arange(len(there)), PERMUTED: there, TWICE: there[there], BACK: back}
    size = float(source.norm()) or 1.0
    distances = {name: float((file - source[order]).norm()) / size for name, order in orders.items()}
    nearest = min(distances, key=distances.__getitem__)
    limit = ROUNDED if plain else NEAR
    if distances[nearest] <= limit:
        return nearest
    return f"other numbers, more than {100 * limit:.2g} % from the source's in every order"


def _numbers(held: StoredTensor) -> Tensor:
    """The numbers of a tensor of a GGUF file, unpacked where they are quantised."""
    if held.plain:
        return values(held)
    try:
        import gguf
    except ImportError:
        raise ConfigError(
            f"{held.name} is quantised ({held.dtype}), and the package gguf, which unpacks it, is not installed: "
            "pip install gguf, or compare a file in float32 or float16"
        ) from None
    number = int(held.dtype.split()[-1])
    if number not in {kind.value for kind in gguf.GGMLQuantizationType}:
        raise ConfigError(f"{held.name} in {held.file} is of type {number}, which the package gguf does not know")
    kind = gguf.GGMLQuantizationType(number)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    with held.file.open("rb") as opened:
        opened.seek(held.start)
        raw = opened.read(held.count // block * size)
    import numpy as np

    if len(raw) < held.count // block * size:
        raise ConfigError(f"{held.file} is cut short inside of {held.name}")
    numbers = gguf.dequantize(np.frombuffer(raw, dtype=np.uint8).reshape(*held.shape[:-1], -1), kind)
    return torch.tensor(numbers, dtype=torch.float64).reshape(held.shape)


def _layers(layers: list[int]) -> str:
    return f"layer {layers[0]}" if len(layers) == 1 else f"{len(layers)} layers, from {layers[0]} on"
