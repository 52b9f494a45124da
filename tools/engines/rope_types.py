"""Rope types that vLLM has and no config of configs.json names: its own functions are called with them.

    python rope_types.py OUT.json     in vLLM's environment

telechat3-yarn: what the keys become, and the rotation. bailing_mrope: the rotation of text, and which axis turns each
pair. run.py puts OUT into measured/vllm-rope-types.json under the version.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}

TELECHAT = {"rope_type": "telechat3-yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 4096}
BAILING = {"rope_type": "bailing_mrope", "rope_theta": 6e6, "mrope_section": [8, 12, 12]}
LENGTH = 16384


def measure(out: Path) -> None:
    """Both rope types; what stops vLLM is the answer."""
    from stand_ins import stand_in

    stand_in("torchvision")
    from vllm.config import VllmConfig, set_current_vllm_config

    found: dict[str, Any] = {}
    with set_current_vllm_config(VllmConfig()):
        for name, given, of in (("telechat3-yarn", TELECHAT, _telechat), ("bailing_mrope", BAILING, _bailing)):
            try:
                found[name] = {"given": given, **of(dict(given))}
            except Exception as error:
                found[name] = {"given": given, "stops": f"{type(error).__name__}: {error}"[:200]}
    out.write_text(json.dumps(found))


def _described(rotary: Any) -> dict[str, Any]:
    from held_ropes import turn_held
    from probe import Layer, describe

    made = describe(Layer(turn_held(rotary), rotary.head_size), [])
    return {"m": made["m"], "w": made["tables"][""], "pairing": made["pairing"], "error": made["error"]}


def _telechat(given: dict[str, Any]) -> dict[str, Any]:
    import torch
    from vllm.model_executor.layers.rotary_embedding import get_rope
    from vllm.transformers_utils import config

    names = ("patch_legacy_rope_type", "patch_rope_parameters_dict")  # its name from 0.32 on, and before
    next(getattr(config, name) for name in names if hasattr(config, name))(given)
    rotary = get_rope(128, max_position=LENGTH, is_neox_style=True, rope_parameters=given, dtype=torch.float32)
    return _described(rotary)


def _bailing(given: dict[str, Any]) -> dict[str, Any]:
    import torch
    from vllm.model_executor.layers.rotary_embedding import get_rope

    rotary = get_rope(64, max_position=LENGTH, is_neox_style=False, rope_parameters=given, dtype=torch.float32)
    rows = torch.zeros(1, 64)
    rows[0, 0::2] = 1
    axes = [-1] * 32
    for axis in range(3):
        positions = torch.zeros(3, 1, dtype=torch.long)
        positions[axis] = 1
        turned, _ = rotary.forward_native(positions, rows.clone(), rows.clone())
        for pair in range(32):
            if turned[0, 2 * pair + 1] != 0:
                axes[pair] = axis if axes[pair] < 0 else 9  # 9: by more than one axis
    return {**_described(rotary), "axes": axes}


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
