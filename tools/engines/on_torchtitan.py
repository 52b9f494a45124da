"""torchtitan on the CPU: the RoPE.Config that milepost printed, evaluated, built and called.

Stand-ins: triton (kernels of other modules that its package imports).
"""

# ruff: noqa: E402

from __future__ import annotations

from typing import Any

from stand_ins import stand_in

stand_in("triton")

import numpy as np
import torch
from probe import Layer, run
from torchtitan.models.common.rope import ComplexRoPE, CosSinRoPE


def measure(case: dict[str, Any]) -> list[Layer]:
    config = eval(case["text"], {"ComplexRoPE": ComplexRoPE, "CosSinRoPE": CosSinRoPE})
    rope = config.build()
    rope._init_self_buffers(buffer_device=torch.device("cpu"))
    layer = Layer(_turn(rope), config.dim, limit=config.max_seq_len)
    return [Layer(None) if still else layer for still in case["still"]]


def _turn(rope: Any) -> Any:
    def turn(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
        rows = torch.tensor(np.ascontiguousarray(x))[None, None]  # batch, tokens, heads, channels
        with torch.no_grad():
            q, _ = rope(rows, rows, torch.tensor([[position]]))
        return q[0, 0].numpy()

    return turn


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(measure)
