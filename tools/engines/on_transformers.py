"""transformers: its own model class by AutoModel.from_config, with random weights, run once on a short text.

While it runs, the attention proper is stood in for by a function that notes the softmax scale, and calls of the
functions that apply cos and sin are noted with the layer that makes them. GPT-J has no such function for positions:
its attention is called with rows in place of queries. Nothing else stands in.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import numpy as np
import torch
from probe import Layer, NotMeasured, run, softmax_over
from transformers import AutoConfig, AutoModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from turn_transformers import hf_turn

NOTED: list[tuple[Any, ...]] = []
ROTARY: dict[str, Any] = {}


def _attention(module: Any, query: torch.Tensor, key: Any, value: torch.Tensor, mask: Any, **options: Any) -> Any:
    scale = options.get("scaling")
    NOTED.append(
        (
            module,
            scale if scale is not None else query.shape[-1] ** -0.5,
            query.shape[-1],
            options.get("sliding_window"),
        )
    )
    out = value if value.shape[1] == query.shape[1] else value.repeat_interleave(query.shape[1] // value.shape[1], 1)
    return out.transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS["noted"] = _attention


def _modernbert(module: Any, **options: Any) -> Any:
    """ModernBERT's own attention, noted; its window is the token itself and those on one side."""
    functions = sys.modules[type(module).__module__].MODERNBERT_ATTENTION_FUNCTION
    out = functions["eager"](module, **options)
    side = options["local_attention"][0]
    NOTED.append((module, module.head_dim**-0.5, module.head_dim, side + 1 if side >= 0 else None))
    return out


def measure(case: dict[str, Any]) -> list[Layer]:
    given = dict(case["config"])
    name = given.pop("model_type")
    try:
        config = AutoConfig.for_model(name, **given)
    except ValueError as error:
        if "Unrecognized model identifier" in str(error):
            raise NotMeasured(f"no model class: {name}") from None
        raise
    except KeyError as error:
        if str(error).strip("'") in ("ministral3", name):
            raise NotMeasured(f"no model class: {error}") from None
        raise
    config = next((getattr(config, n) for n in ("thinker_config",) if hasattr(config, n)), config)
    config = config.get_text_config()
    config._attn_implementation = "noted"
    try:
        model = AutoModel.from_config(config, attn_implementation="noted", torch_dtype=torch.float32).eval()
    except (ValueError, KeyError) as error:
        if "Unrecognized configuration class" in str(error):
            return layers_of(_text_class(config)._from_config(config, attn_implementation="noted").eval(), config)
        if "noted" not in str(error):
            raise
        model = AutoModel.from_config(config, attn_implementation="eager", torch_dtype=torch.float32).eval()
    return layers_of(model, config)


def _text_class(config: Any) -> Any:
    """The class of a text part that AutoModel does not list: Qwen2.5-Omni's."""
    modelling = importlib.import_module(type(config).__module__.replace("configuration", "modeling"))
    mine = [kind for name, kind in vars(modelling).items() if name.endswith("TextModel")]
    return next(kind for kind in mine if kind.config_class is type(config))


def _gptj(model: Any) -> list[Layer]:
    """GPT-J's attention holds a table of sines and cosines: its forward is called, with rows in place of queries."""

    def turn(attention: Any) -> Any:
        def turned(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
            rows = torch.tensor(np.ascontiguousarray(x))[:, None].repeat(1, 1, attention.num_attention_heads)
            seen: list[torch.Tensor] = []

            def note(query: torch.Tensor, key: Any, value: torch.Tensor, *args: Any) -> Any:
                seen.append(query)
                return value, None

            attention.q_proj.forward, attention._attn = (lambda _: rows), note
            try:
                with torch.no_grad():
                    attention(rows, position_ids=torch.full((len(rows), 1), position))
            finally:
                del attention.q_proj.forward, attention._attn
            return seen[0][:, 0, 0].numpy()

        return turned

    return [Layer(turn(a), a.head_dim, softmax_over(1 / float(a.scale_attn), a.head_dim), None, len(a.embed_positions))
            for a in (block.attn for block in model.h)]  # fmt: skip


def layers_of(model: Any, config: Any) -> list[Layer]:
    if config.model_type == "gptj":
        return _gptj(model)
    rotaries = [
        m for n, m in model.named_modules() if hasattr(m, "inv_freq") or any(k.endswith("inv_freq") for k in m._buffers)
    ]
    if not rotaries:
        raise NotMeasured("no rotary module of its own")
    applied: list[Any] = []
    modelling = sys.modules[type(rotaries[0]).__module__]
    names = [n for n in dir(modelling) if n.startswith("apply") and "rotary" in n and callable(getattr(modelling, n))]
    real = {n: getattr(modelling, n) for n in names}

    def noting(name: str) -> Any:
        def apply(*args: Any, **options: Any) -> Any:
            applied.append((name, args, options, len(NOTED)))
            return real[name](*args, **options)

        return apply

    for n in names:
        setattr(modelling, n, noting(n))
    made: list[tuple[Any, ...]] = []
    handles = [
        m.register_forward_hook(lambda m, a, k, out: made.append((m, a, k, out)), with_kwargs=True) for m in rotaries
    ]
    NOTED.clear()
    if hasattr(modelling, "MODERNBERT_ATTENTION_FUNCTION"):  # to 4.57 it has functions of its own
        modelling.MODERNBERT_ATTENTION_FUNCTION["noted"] = _modernbert
    try:
        with torch.no_grad():
            model(input_ids=torch.tensor([[3, 4, 5]]))
    finally:
        for n in names:
            setattr(modelling, n, real[n])
        for handle in handles:
            handle.remove()
    count = getattr(config, "num_hidden_layers", len(NOTED))
    layers = [Layer(None) for _ in range(count)]
    if not NOTED:  # Falcon's attention has no interface: it applies its rotation once in each layer
        if len(applied) != count:
            raise NotMeasured("its attention is not called through the interface")
        NOTED.extend((None, 1.0, 1, None) for _ in applied)
        applied[:] = [(*call[:3], number) for number, call in enumerate(applied)]
    for number, (module, scale, head, window) in enumerate(NOTED):
        mine = [call for call in applied if call[3] == number]
        if not mine:
            continue
        name, args, options, _ = mine[0]
        rotary, rest = _table_of(args, options, made)
        place = getattr(module, "layer_idx", None)
        layers[number if place is None else place] = Layer(
            hf_turn(rotary, _applied(real[name], args, options), rest), int(args[0].shape[-1]),
            None if module is None else softmax_over(float(scale), head), window,
        )  # fmt: skip
    return layers


def _table_of(args: Any, options: Any, made: list[Any]) -> Any:
    """The rotary module, and its arguments, whose cos and sin a layer applied."""
    tensors = [t for t in (*args, *options.values()) if isinstance(t, torch.Tensor)]
    for m, a, k, out in made:
        parts = out if isinstance(out, tuple) else (out,)
        if any(
            p is t or (p.shape == t.shape and p.dtype == t.dtype and torch.equal(p, t))
            for p in parts
            for t in tensors[2:]
        ):
            rest = tuple(a[2:]) + tuple(v for n, v in k.items() if n not in ("x", "position_ids", "seq_len"))
            return m, rest
    m, a, k, out = made[0]
    return m, tuple(a[2:]) + tuple(v for n, v in k.items() if n not in ("x", "position_ids", "seq_len"))


def _applied(function: Any, args: Any, options: Any) -> Any:
    more = {k: v for k, v in options.items() if not isinstance(v, torch.Tensor)}
    rest = [a for a in args[4:] if not isinstance(a, torch.Tensor)]
    if function.__code__.co_varnames[1] == "cos":  # q and k one at a time

        def apply_one(q: Any, k: Any, cos: Any, sin: Any) -> Any:
            return (function(q, cos, sin, unsqueeze_dim=1),)

        return apply_one

    def apply(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        return function(q, k, cos, sin, *rest, **more)

    return apply


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(measure)
