"""What released models have and the small configs do not, none of it about rotation of text.

An engine's class may stop without it: the tower of vision of a model that sees, how many tokens a picture takes, the
file that says how pictures are prepared. All is small here too, and what a config says itself stays.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SIGHT = {"in_chans": 3, "in_channels": 3, "patch_size": 14, "spatial_patch_size": 14, "spatial_merge_size": 2,
         "temporal_patch_size": 2, "num_heads": 2, "depth": 1}  # fmt: skip
QWEN3 = {**SIGHT, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 64, "intermediate_size": 32,
         "num_position_embeddings": 16}  # fmt: skip
TOWERS: dict[str, dict[str, Any]] = {
    "qwen2_vl": {"model_type": "qwen2_vl", **SIGHT, "embed_dim": 64, "mlp_ratio": 1, "hidden_act": "quick_gelu"},
    "qwen2_5_vl": {"model_type": "qwen2_5_vl", **SIGHT, "hidden_size": 64, "intermediate_size": 32,
                   "hidden_act": "silu", "window_size": 112, "fullatt_block_indexes": [0], "tokens_per_second": 2},
    "qwen3_vl": {"model_type": "qwen3_vl", **QWEN3}, "qwen3_5": {"model_type": "qwen3_5", **QWEN3},
    "gemma3": {"num_channels": 3, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "vision_use_head": False},
    "mistral3": {"num_channels": 3, "hidden_act": "gelu", "head_dim": 16, "rope_theta": 10000.0,
                 "attention_dropout": 0.0},
    "gemma4_unified": {"mm_embed_dim": 64, "output_proj_dims": 64, "model_patch_size": 48, "patch_size": 16,
                       "pooling_kernel_size": 3, "mm_posemb_size": 16, "rms_norm_eps": 1e-6, "num_soft_tokens": 4},
}  # fmt: skip
BESIDE: dict[str, dict[str, Any]] = {
    "gemma3": {"mm_tokens_per_image": 4, "image_token_index": 8, "boi_token_index": 9, "eoi_token_index": 10},
    "mistral3": {"spatial_merge_size": 2, "projector_hidden_act": "gelu", "multimodal_projector_bias": False,
                 "vision_feature_layer": -1, "image_token_index": 10},
}  # fmt: skip
QWEN = {"image_token_id": 8, "video_token_id": 9, "vision_start_token_id": 10, "vision_end_token_id": 11,
        "vision_token_id": 12}  # fmt: skip
BESIDE |= dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"), QWEN)


def completed(config: dict[str, Any]) -> dict[str, Any]:
    """The config with what the released models of its type have besides."""
    kind = str(config.get("model_type"))
    made = {**BESIDE.get(kind, {}), **config}
    if kind in TOWERS:
        text = config.get("text_config", config)
        width = {"qwen2_vl": "hidden_size", "qwen2_5_vl": "out_hidden_size"}.get(kind, "out_hidden_size")
        beyond = {} if kind in ("gemma3", "mistral3") else {width: text["hidden_size"]}
        made["vision_config"] = {**TOWERS[kind], **beyond, **config.get("vision_config", {})}
        if kind in ("qwen3_vl", "qwen3_5"):
            made["vision_config"].setdefault("deepstack_visual_indexes", [])
    return made


PICTURES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3, "rescale_factor": 1 / 255, "merge_size": 2,
            "temporal_patch_size": 2, "do_convert_rgb": True, "do_rescale": True, "do_normalize": True,
            "do_resize": True}  # fmt: skip
PROCESSORS = {
    "qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2VL", "qwen3_vl": "Qwen2VL", "qwen3_5": "Qwen2VL",
    "gemma3": "Gemma3", "mistral3": "Pixtral", "gemma4_unified": "Gemma4Unified",
}  # fmt: skip


def write_folder(config: dict[str, Any], folder: Path) -> None:
    """config.json in a folder, and where the model sees the files about its pictures."""
    (folder / "config.json").write_text(json.dumps(config))
    kind = str(config.get("model_type"))
    if kind not in PROCESSORS:
        return
    patch = config.get("vision_config", {}).get("patch_size", 14)
    edges = {"shortest_edge": 4 * patch**2, "longest_edge": 16 * patch**2}
    sides = {"height": 28, "width": 28}
    more = {"gemma3": {"size": sides}, "mistral3": {"size": {"longest_edge": 28}},
            "gemma4_unified": {"max_soft_tokens": 4, "pooling_kernel_size": 3}}  # fmt: skip
    made = {**PICTURES, "patch_size": patch, "size": edges, **more.get(kind, {})}
    fast = "Fast" if kind.startswith("qwen") else ""
    made["image_processor_type"] = f"{PROCESSORS[kind]}ImageProcessor{fast}"
    (folder / "preprocessor_config.json").write_text(json.dumps(made))
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": made}))
