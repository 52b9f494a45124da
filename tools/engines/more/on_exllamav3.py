"""exllamav3 on the CPU: its own Config of a folder, its own model of it, unloaded; each layer's RoPE made and called.

Stand-ins: the CUDA extension and triton, which nothing here calls. Its kernel that applies cos and sin is stood in for
by its own function in torch, over the channels that turn.
"""

# ruff: noqa: E402

from __future__ import annotations

import sys
import tempfile
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from real_keys import completed, write_folder
from stand_ins import stand_in

stand_in("triton", "flash_attn", "xformers", "formatron", "kbnf", "marisa_trie", "exllamav3_ext")
extension: Any = types.ModuleType("exllamav3.ext")
extension.exllamav3_ext = __import__("exllamav3_ext")
sys.modules["exllamav3.ext"] = extension

import numpy as np
import torch
from exllamav3.architecture.architectures import get_architectures
from exllamav3.model.config import Config
from exllamav3.model.model import Model
from exllamav3.util.rope import RoPE, RopeStyle, _apply_rope_embed_q_gptj, _apply_rope_embed_q_neox
from probe import Layer, NotMeasured, run, softmax_over
from safetensors.torch import save_file


def measure(case: dict[str, Any]) -> list[Layer]:
    config = fitted(case["config"])
    arch = next(iter(config.get("architectures", [])), "none")
    if arch not in get_architectures():
        raise NotMeasured(f"no model class: {arch}")
    with tempfile.TemporaryDirectory() as place:
        write_folder(config, Path(place))
        save_file({"nothing": torch.zeros(1)}, Path(place) / "model.safetensors")
        model = Model.from_config(Config.from_directory(place))
        turned = [m for m in model if hasattr(m, "rope_settings")]
        text = config.get("text_config", config)
        count = text.get("num_hidden_layers") or text.get("n_layer")
        layers = [Layer(None) for _ in range(count)]
        for module in turned:
            settings = module.rope_settings
            if settings is None or settings.rope_style == RopeStyle.NONE:
                continue
            rope = RoPE("cpu", settings)
            scale = getattr(module, "sm_scale", None)
            head = getattr(module, "qk_head_dim", None) or module.head_dim
            layers[module.layer_idx] = Layer(
                _turn(rope), settings.head_dim, None if scale is None else softmax_over(scale, head)
            )
        return layers


def fitted(config: dict[str, Any]) -> dict[str, Any]:
    """The config with the keys that its classes stop without, and experts in one group: it routes in no other way."""
    given = completed(config)
    kind, count = given["model_type"], given.get("num_hidden_layers", 0)
    if kind in ("deepseek_v3", "kimi_k2"):
        given |= {"n_group": 1, "topk_group": 1}
    every = given.get("no_rope_layer_interval", 4)
    if kind == "smollm3":
        given.setdefault("no_rope_layers", [int((n + 1) % every != 0) for n in range(count)])
    if kind in ("cohere2", "olmo3"):  # in these every fourth layer is whole, unless layer_types says otherwise
        given.setdefault("layer_types", [("sliding", "full")[(n + 1) % 4 == 0] + "_attention" for n in range(count)])
    return given


def _turn(rope: Any) -> Any:
    size = 2 * len(rope.inv_freq)
    neox = rope.rope_settings.rope_style == RopeStyle.NEOX
    apply = _apply_rope_embed_q_neox if neox else _apply_rope_embed_q_gptj

    def turn(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
        rows = torch.tensor(np.ascontiguousarray(x))
        sin, cos = rope.compute_sincos(torch.tensor([position]))
        part = rows[None, None, :, :size]  # batch, tokens, heads, channels
        turned = apply(part, sin[None], cos[None])[0, 0]
        return torch.cat([turned, rows[:, size:]], -1).numpy()

    return turn


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(measure)
