"""lmdeploy's PyTorch engine on the CPU: its rotary module built from a config by its own function, and called.

Stand-ins: triton and the CUDA parts that its package imports; the device, for which its default backend is taken. What
applies cos and sin is its default backend's own function. Models whose class does not call
build_rotary_embedding_from_config are not measured.
"""

# ruff: noqa: E402

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

from stand_ins import stand_in

stand_in("triton", "ray", "deep_ep", "deep_gemm", "dlblas", "flash_mla", "_turbomind")
import numpy as np
import torch
from lmdeploy.pytorch import backends
from lmdeploy.pytorch.backends.default.op_backend import DefaultOpsBackend
from lmdeploy.pytorch.models import module_map
from lmdeploy.pytorch.nn import rotary_embedding as rotary
from probe import Layer, NotMeasured, run
from transformers import AutoConfig

rotary.get_backend = lambda *a: DefaultOpsBackend


def measure(case: dict[str, Any]) -> list[Layer]:
    given = dict(case["config"])
    arch = next(iter(given.get("architectures", [])), "none")
    if arch not in module_map.MODULE_MAP:
        raise NotMeasured(f"no model class: {arch}")
    source = module_map.MODULE_MAP[arch].rpartition(".")[0].replace("lmdeploy.pytorch.models", "models")
    path = Path(backends.__file__).parents[1] / Path(*source.split(".")).with_suffix(".py")
    if "build_rotary_embedding_from_config" not in path.read_text():
        raise NotMeasured(f"{path.name} builds its rotation by hand")
    try:
        config = AutoConfig.for_model(given.pop("model_type"), **given).get_text_config()
    except (ValueError, KeyError) as error:
        raise NotMeasured(f"transformers has no config for it: {error}") from None
    module = rotary.build_rotary_embedding_from_config(config)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return [Layer(_turn(module), head) for _ in range(config.num_hidden_layers)]


def _turn(module: Any) -> Any:
    def turn(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
        rows = torch.tensor(np.ascontiguousarray(x))
        last = position if length is None else max(length - 1, position)
        with torch.no_grad():
            cos, sin = module(torch.zeros(1), torch.tensor([[position, last]]))
        cos, sin = cos[0, :1, None], sin[0, :1, None]  # token, head, channel
        size = cos.shape[-1]
        part = rows[None, :, :size]
        a, b = part[..., : size // 2], part[..., size // 2 :]
        turned = part * cos + torch.cat([-b, a], -1) * sin
        return torch.cat([turned[0], rows[:, size:]], -1).numpy()

    return turn


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(measure)
