"""llama.cpp on the CPU: a config is converted by its own script, loaded, and one token is decoded.

Every rotation that the model's graph makes is caught with its parameters (library.py), and llama.cpp's rope operator is
called with these. What it is called with by hand has to give, bit for bit, what came out of the graph. Channels are
those of the source's weights: the order in which the converter put them is undone.

    case["config"]     becomes a GGUF file, and llama.cpp is started without flags
    case["command"]    the command that `milepost export` prints: its flags go through llama.cpp's own parser
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from library import Model, Rotation, Stopped, turn
from probe import Layer, NotMeasured, run, softmax_over
from real_keys import completed
from to_gguf import File, convert, save

CACHE = 4096
"""Positions of the cache where the length decides nothing: a cache of 131072 is a gigabyte."""

FILE = Path(tempfile.mkdtemp(prefix="gguf")) / "model.gguf"
AT = 300
"""The position of the token that is decoded."""


SLIDING = 64
"""Layers of the EXAONE 4 that slides, which llama.cpp knows by this number; those that the config has are measured."""

TIED = ("cohere", "gemma")
"""Families whose converter has no output matrix besides the embedding."""


WANTED = {"falcon": {"num_kv_heads": 1}, "nomic_bert": {"num_experts": 0}}
"""Keys that the converter stops without: `export` says to write them, so they are there when an export is run."""


def fitted(config: dict[str, Any], exported: bool = False) -> dict[str, Any]:
    """The config with what llama.cpp needs besides, none of it about rotation."""
    if exported:
        config = {**WANTED.get(str(config.get("model_type")), {}), **config}
    config = completed(config)
    if config.get("model_type") == "exaone4" and config.get("sliding_window"):
        kinds = config["layer_types"]
        config = {**config, "num_hidden_layers": SLIDING, "layer_types": (kinds * SLIDING)[:SLIDING]}
    if config.get("model_type") == "qwen2_5_omni":
        config = {**config, "architectures": ["Qwen2_5OmniModel"]}  # as the released files have it
    part = next((n for n in ("text_config", "thinker_config") if isinstance(config.get(n), dict)), None)
    given = {**config, "tie_word_embeddings": str(config.get("model_type")).startswith(TIED)}
    if part is not None:
        return {**given, part: fitted(config[part])}
    if config.get("kv_lora_rank") and not config.get("q_lora_rank"):
        given["q_lora_rank"] = 32
    if config.get("num_global_key_value_heads"):  # as many as transformers writes without attention_k_eq_v
        given["num_global_key_value_heads"] = config["num_key_value_heads"]
    if config.get("model_type") == "nomic_bert":
        given["intermediate_size"] = config["n_inner"]
    if config.get("model_type") == "phi":
        given["intermediate_size"] = 4 * config["hidden_size"]
    more = {"modernbert": {"layer_norm_eps": 1e-5}, "cohere2": {"rotary_pct": 1.0}}  # which the real files have
    return {**more.get(str(config.get("model_type")), {}), **given}


def measure(case: dict[str, Any]) -> list[Layer]:
    file = File(converted(json.dumps(fitted(case["config"], "command" in case))))
    by_length = any("rope_factors" in name for name in file.tensors)
    flags = case.get("command", "").partition("MODEL.gguf")[2]
    try:
        model = Model(FILE, flags, None if by_length else CACHE)
    except Stopped as error:
        if "check_tensor_dims" in str(error):
            raise NotMeasured(f"the small weights are not what it wants: {error}") from None
        raise
    try:
        model.run([5], AT)
    finally:
        model.close()
    count = case["config"]["num_hidden_layers"] if file.arch == "exaone4" else file.own("block_count")
    return [_layer(file, model, number) for number in range(count)]


@lru_cache(maxsize=1)
def converted(config: str) -> Path:
    """The GGUF file of a config; the last one is kept, for a config is run with one command after the other."""
    FILE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as place:
        save(json.loads(config), Path(place) / "source")
        try:
            convert(Path(place) / "source", FILE)
        except AssertionError as error:
            raise NotMeasured(f"an assertion of the converter about the small model: {error}") from None
    return FILE


def _layer(file: File, model: Model, number: int) -> Layer:
    mine = [rotation for rotation in model.rotations if rotation.layer == number]
    if not mine:
        return Layer(None)
    first = mine[0]
    for other in mine:
        if other.numbers != first.numbers or not np.array_equal(_list(other), _list(first)):
            raise ValueError(f"{first.name} and {other.name} turn differently")
        if not np.array_equal(turn(other, other.row[None], other.position)[0], other.turned):
            raise RuntimeError(f"{other.name} of the graph is not what its operator gives at {other.position}")
    order = file.order(number, first.width)
    head = first.width
    if file.own("attention.kv_lora_rank"):
        head = len(file.tensors[_query(file, number)].data) // file.own("attention.head_count")
    scale = model.scales.get(number)
    return Layer(_turn(first, order), first.width, None if scale is None else softmax_over(scale, head))


def _query(file: File, number: int) -> str:
    return next(n for n in (f"blk.{number}.attn_q_b.weight", f"blk.{number}.attn_q.weight") if n in file.tensors)


def _list(rotation: Rotation) -> np.ndarray:
    return np.zeros(0) if rotation.factors is None else rotation.factors


def _turn(rotation: Rotation, order: np.ndarray) -> Any:
    def turned(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
        out = np.empty_like(x)
        out[:, order] = turn(rotation, x[:, order], position)
        return out

    return turned


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(measure)
