"""The diffusion transformers that more/on_diffusers.py runs, with the configs of published models, and their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collect import MEASURED


def _case(name: str, config: dict[str, Any], frames: int, rows: int, columns: int, text: int) -> dict[str, Any]:
    return {"id": name, "config": config, "frames": frames, "rows": rows, "columns": columns, "text": text}


CASES = (
    _case("FLUX.1", {"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56, 56]}, 1, 6, 9, 7),
    _case("FLUX.2", {"_class_name": "Flux2Transformer2DModel", "axes_dims_rope": [32, 32, 32, 32], "rope_theta": 2000},
          1, 6, 9, 7),
    _case("Qwen-Image", {"_class_name": "QwenImageTransformer2DModel", "axes_dims_rope": [16, 56, 56]}, 1, 7, 10, 6),
    _case("Qwen-Image, two frames", {"_class_name": "QwenImageTransformer2DModel"}, 2, 6, 5, 9),
    _case("Z-Image", {"_class_name": "ZImageTransformer2DModel", "axes_dims": [32, 48, 48], "rope_theta": 256.0},
          1, 8, 12, 32),
    _case("Wan 2.2", {"_class_name": "WanTransformer3DModel", "attention_head_dim": 128}, 3, 5, 7, 0),
    _case("Wan, heads of 96", {"_class_name": "WanTransformer3DModel", "attention_head_dim": 96}, 2, 9, 4, 0),
    _case("HunyuanVideo", {"_class_name": "HunyuanVideoTransformer3DModel", "rope_axes_dim": [16, 56, 56],
                           "rope_theta": 256.0}, 3, 5, 7, 5),
    _case("LTX-Video", {"_class_name": "LTXVideoTransformer3DModel", "num_attention_heads": 32,
                        "attention_head_dim": 64}, 2, 3, 4, 0),
)  # fmt: skip


def collect(version: str, lines: Path, stood_in: list[str], when: str) -> str:
    """Put the lines into measured/diffusers-VERSION.json, if they are not what it has."""
    path = MEASURED / f"diffusers-{version}.json"
    answers = {line["id"]: line for line in map(json.loads, lines.read_text().splitlines())}
    models = {case["id"]: {**case, **answers[case["id"]]} for case in CASES if case["id"] in answers}
    held = json.loads(path.read_text()) if path.exists() else {}
    stops = sum("stops" in model for model in models.values())
    as_said = "all as in the file" if (same := held.get("models") == models) else "otherwise than in the file"
    if not same:
        shown = ",\n".join(f"{json.dumps(name)}: {json.dumps(model)}" for name, model in models.items())
        head = {"engine": "diffusers", "version": version, "stood_in": stood_in, "when": when}
        path.write_text(f'{json.dumps(head)[:-1]},\n"models": {{\n{shown}}}}}\n')
    return f"{len(models)} diffusion transformers run, {stops} stopped, {as_said}"
