"""diffusers on the CPU: its own transformers with real heads, one layer and random weights, run once on a small grid.

Queries are seen twice: as they leave the norm before the rotation, and as they come to the attention proper (torch's
function, noted and then called). Of each token and pair the angle between the two is what the model turns by, places
included: where its pipeline makes the places (Flux), they come from the pipeline's own function.

    python on_diffusers.py JOB.json OUT.jsonl     a case: id, config, frames, rows, columns, text
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1"}

import diffusers
import numpy as np
import torch
from torch.nn import functional

SHOWN = 6
"""Tokens of the text, and of the grid, whose angles are written down."""
TEXT = 32
"""The width of text features."""


def turned_by(model: torch.nn.Module, call: Callable[[], Any]) -> tuple[str, np.ndarray]:
    """The pairing of the first attention that turns, and the angle of every token, head and pair."""
    before: list[torch.Tensor] = []
    answers: list[tuple[str, np.ndarray]] = []

    def note(module: Any, given: Any, out: torch.Tensor) -> None:
        before.append(out.detach().clone())

    hooks = [module.register_forward_hook(note) for name, module in model.named_modules()
             if name.rpartition(".")[2] in ("norm_q", "norm_added_q")]  # fmt: skip
    own = functional.scaled_dot_product_attention

    def attention(query: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        after = query[0].transpose(0, 1)  # tokens, heads, channels
        parts = [part[0].reshape(part.shape[1], *after.shape[1:]) for part in before]
        before.clear()
        for order in (parts, parts[::-1]):  # text first or last
            whole = torch.cat(order) if order else after
            if whole.shape == after.shape and not torch.equal(whole, after):
                answers.extend(angles(whole, after))
        return own(query, *rest, **options)

    functional.scaled_dot_product_attention = attention
    try:
        with torch.no_grad():
            call()
    finally:
        functional.scaled_dot_product_attention = own
        for hook in hooks:
            hook.remove()
    if not answers:
        raise ValueError("no attention keeps the length of every pair: it is no rotation")
    return answers[0]


def angles(before: torch.Tensor, after: torch.Tensor) -> list[tuple[str, np.ndarray]]:
    """The pairing, and the angle of every token, head and pair; nothing where pairs do not keep their length."""
    half = before.shape[-1] // 2
    for pairing in ("interleaved", "half"):
        a, b = (x.double().unflatten(-1, (half, 2) if pairing == "interleaved" else (2, half)) for x in (before, after))
        a, b = (torch.view_as_complex((x if pairing == "interleaved" else x.mT).contiguous()) for x in (a, b))
        if torch.allclose(a.abs(), b.abs(), rtol=1e-3, atol=1e-5):
            return [(pairing, torch.angle(b / a).numpy())]
    return []


def run(case: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(0)
    config = dict(case["config"])
    kind = config.pop("_class_name")
    frames, rows, columns, text = (case[name] for name in ("frames", "rows", "columns", "text"))
    model = getattr(diffusers, kind)(**config | SMALL[kind]).eval()
    pairing, turned = turned_by(model, lambda: CALLS[kind](model, frames, rows, columns, text))
    tokens = len(turned)
    chosen = sorted({*range(0, text, max(1, text // 3)), *np.linspace(0, tokens - 1, 2 * SHOWN, dtype=int).tolist()})
    alike = bool(np.allclose(turned, turned[:, :1], atol=2e-3))
    heads = [0] if alike else [0, 1]
    return {"pairing": pairing, "tokens": tokens, "heads_alike": alike, "at": [int(t) for t in chosen],
            "angles": [[[round(float(w), 6) + 0.0 for w in turned[t, h]] for t in chosen] for h in heads]}  # fmt: skip


def _flux(model: Any, frames: int, rows: int, columns: int, text: int) -> None:
    ids = diffusers.FluxPipeline._prepare_latent_image_ids(1, rows, columns, "cpu", torch.float32)
    model(hidden_states=torch.randn(1, rows * columns, 4), encoder_hidden_states=torch.randn(1, text, TEXT),
          pooled_projections=torch.randn(1, TEXT), timestep=torch.ones(1), img_ids=ids,
          txt_ids=torch.zeros(text, 3))  # fmt: skip


def _flux2(model: Any, frames: int, rows: int, columns: int, text: int) -> None:
    pipeline, words = diffusers.Flux2Pipeline, torch.randn(1, text, TEXT)
    model(hidden_states=torch.randn(1, rows * columns, 4), encoder_hidden_states=words, timestep=torch.ones(1),
          img_ids=pipeline._prepare_latent_ids(torch.zeros(1, 4, rows, columns)),
          txt_ids=pipeline._prepare_text_ids(words))  # fmt: skip


def _wan(model: Any, frames: int, rows: int, columns: int, text: int) -> None:
    model(hidden_states=torch.randn(1, 4, frames, 2 * rows, 2 * columns), timestep=torch.ones(1),
          encoder_hidden_states=torch.randn(1, 4, TEXT))  # fmt: skip


def _qwen_image(model: Any, frames: int, rows: int, columns: int, text: int) -> None:
    model(hidden_states=torch.randn(1, frames * rows * columns, 4), encoder_hidden_states=torch.randn(1, text, TEXT),
          encoder_hidden_states_mask=torch.ones(1, text, dtype=torch.bool), timestep=torch.ones(1),
          img_shapes=[[(frames, rows, columns)]])  # fmt: skip


def _hunyuan_video(model: Any, frames: int, rows: int, columns: int, text: int) -> None:
    model(hidden_states=torch.randn(1, 4, frames, 2 * rows, 2 * columns), timestep=torch.ones(1),
          encoder_hidden_states=torch.randn(1, text, TEXT), encoder_attention_mask=torch.ones(1, text),
          pooled_projections=torch.randn(1, TEXT))  # fmt: skip


def _z_image(model: Any, frames: int, rows: int, columns: int, text: int) -> None:
    model(x=[torch.randn(4, frames, 2 * rows, 2 * columns)], t=torch.ones(1), cap_feats=[torch.randn(text, TEXT)])


def _ltx(model: Any, frames: int, rows: int, columns: int, text: int) -> None:
    model(hidden_states=torch.randn(1, frames * rows * columns, 4), encoder_hidden_states=torch.randn(1, 4, TEXT),
          timestep=torch.ones(1), encoder_attention_mask=torch.ones(1, 4), num_frames=frames, height=rows,
          width=columns, rope_interpolation_scale=(1.0, 32.0, 32.0))  # fmt: skip


HEADS = {"num_layers": 1, "num_attention_heads": 2}
SMALL: dict[str, dict[str, Any]] = {
    "FluxTransformer2DModel": HEADS | {"num_single_layers": 1, "in_channels": 4, "joint_attention_dim": TEXT,
                                       "pooled_projection_dim": TEXT},
    "Flux2Transformer2DModel": HEADS | {"num_single_layers": 1, "in_channels": 4, "joint_attention_dim": TEXT,
                                        "guidance_embeds": False},
    "WanTransformer3DModel": HEADS | {"in_channels": 4, "out_channels": 4, "text_dim": TEXT, "ffn_dim": 32},
    "QwenImageTransformer2DModel": HEADS | {"in_channels": 4, "joint_attention_dim": TEXT},
    "HunyuanVideoTransformer3DModel": HEADS | {"num_single_layers": 1, "num_refiner_layers": 1, "in_channels": 4,
                                               "out_channels": 4, "text_embed_dim": TEXT, "guidance_embeds": False,
                                               "pooled_projection_dim": TEXT},
    "ZImageTransformer2DModel": {"dim": 256, "n_layers": 1, "n_refiner_layers": 0, "n_heads": 2, "n_kv_heads": 2,
                                 "in_channels": 4, "cap_feat_dim": TEXT},
    "LTXVideoTransformer3DModel": {"num_layers": 1, "in_channels": 4, "out_channels": 4, "caption_channels": TEXT},
}  # fmt: skip
"""What is made small, none of it about places; the turns of LTX depend on the number of heads, which stays."""
CALLS: dict[str, Callable[..., None]] = {
    "FluxTransformer2DModel": _flux, "Flux2Transformer2DModel": _flux2, "WanTransformer3DModel": _wan,
    "QwenImageTransformer2DModel": _qwen_image, "HunyuanVideoTransformer3DModel": _hunyuan_video,
    "ZImageTransformer2DModel": _z_image, "LTXVideoTransformer3DModel": _ltx,
}  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    job, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    done = {json.loads(line)["id"] for line in out.read_text().splitlines()} if out.exists() else set()
    for case in job["cases"]:
        if case["id"] in done:
            continue
        try:
            line = run(case)
        except Exception as error:
            line = {"stops": f"{type(error).__name__}: {error}"[:300]}
        with out.open("a") as file:
            file.write(json.dumps({"id": case["id"], **line}) + "\n")


if __name__ == "__main__":
    main()
