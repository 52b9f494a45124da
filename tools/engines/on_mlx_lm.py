"""mlx-lm on the CPU: its own model classes, built by its own `_get_classes`; each layer's attention is called once.

Stand-ins: hf_olmo, an empty module. Which layers turn, and their softmax scale, come from calls of mx.fast.rope and
mx.fast.scaled_dot_product_attention that a layer makes, which are noted and passed on.
"""

# ruff: noqa: E402

from __future__ import annotations

import inspect
import sys
from typing import Any

from stand_ins import stand_in

stand_in("hf_olmo")  # registers classes of OLMo's authors with transformers; its olmo ends without it

import mlx.core as mx
import numpy as np
from mlx_lm.utils import _get_classes
from probe import Layer, NotMeasured, run, softmax_over

ROPE, ATTENTION = mx.fast.rope, mx.fast.scaled_dot_product_attention
CALLS: dict[str, list[Any]] = {"rope": [], "scale": []}


def _rope(x: mx.array, *args: Any, **options: Any) -> mx.array:
    CALLS["rope"].append(x.shape)
    return ROPE(x, *args, **options)


def _attention(q: mx.array, k: mx.array, v: mx.array, *args: Any, **options: Any) -> mx.array:
    CALLS["scale"].append((options.get("scale"), q.shape[-1]))
    return ATTENTION(q, k, v, *args, **options)


mx.fast.rope, mx.fast.scaled_dot_product_attention = _rope, _attention


def measure(case: dict[str, Any]) -> list[Layer]:
    config = dict(case["config"])
    try:
        model_class, args_class = _get_classes(config=config)
    except ValueError as error:
        raise NotMeasured(f"no model class: {error}") from None
    model = model_class(args_class.from_dict(config))
    text = getattr(model, "language_model", model)
    text = text if hasattr(text, "layers") else text.model
    width = None
    layers = []
    for layer in text.layers:
        attention = next(
            (getattr(layer, n) for n in ("self_attn", "attention", "attn", "temporal_block") if n in layer), layer
        )
        if "linear_attn" in layer and "self_attn" not in layer:
            layers.append(Layer(None))
            continue
        rope = next(
            (m for n, m in attention.named_modules() if n.split(".")[-1] in ("rope", "rotary_emb", "rotary")), None
        )
        if width is None:
            inner = getattr(text, "model", text)
            embedded = next(
                getattr(inner, n)
                for n in ("embed_tokens", "embed_in", "wte", "tok_embeddings", "word_embeddings")
                if n in inner
            )
            width = embedded(mx.array([[1]])).shape[-1]
        for calls in CALLS.values():
            calls.clear()
        scaled = [mx.array(1.0)] if "attn_scale" in inspect.signature(type(layer).__call__).parameters else []
        layer(mx.ones((1, 3, width)), *scaled, None, None)
        scale = CALLS["scale"][0] if CALLS["scale"] else None
        if scale is not None and hasattr(attention, "q_head_dim"):  # DeepSeek's heads have two parts
            scale = (scale[0], attention.q_head_dim)
        if not CALLS["rope"]:
            layers.append(Layer(None))
            continue
        if rope is None:
            raise NotMeasured("the layer turns, and its rotation is no module of its own")
        head = CALLS["rope"][0][-1]
        layers.append(Layer(_turn(rope), head, None if scale is None else softmax_over(*scale)))
    return layers


def _turn(rope: Any) -> Any:
    def turn(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
        tokens = 1
        if (
            length is not None
            and length > position + 1
            and ("Dynamic" in type(rope).__name__ or "Su" in type(rope).__name__)
        ):
            tokens = length - position
        rows = mx.broadcast_to(mx.array(x)[None, :, None, :], (1, x.shape[0], tokens, x.shape[1]))
        return np.array(rope(rows, offset=position)[0, :, 0, :])

    return turn


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    print("mlx-lm", sys.version_info[:2])
    run(measure)
