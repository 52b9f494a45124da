"""Models of vLLM and SGLang: torch modules that hold their rotations; both engines have the same kinds of parts.

Whether a layer turns is found by calling its attention, while its rotation notes that it is called. Stand-ins, for the
time of that call: the attention proper (it gives its queries back) and, where a kernel is missing, the same in torch.
Where an attention can't be called, its layers are said to turn, and the case says that this was assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from probe import Layer, NotMeasured
from turn_transformers import hf_turn

LISTS = ("layers", "h", "layer", "blocks")
ELSEWHERE = ("visual", "vision", "audio", "image", "talker", "token2wav")
Modules = list[tuple[str, Any]]


def layers_by_number(model: Any) -> dict[int, Modules]:
    """The modules inside of each layer of the text model, by number."""
    layers: dict[int, Modules] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        parts = name.split(".")
        numbers = [i for i, part in enumerate(parts) if part.isdigit()]
        if numbers and parts[numbers[0] - 1] in LISTS and not any(word in name for word in ELSEWHERE):
            layers.setdefault(int(parts[numbers[0]]), []).append((".".join(parts[numbers[0] + 1 :]), module))
    if not layers:
        raise NotMeasured("no layers found in the model")
    return dict(sorted(layers.items()))


def transformers_ropes(model: Any) -> list[Any]:
    """The rotary modules of transformers, where a model is transformers' own."""
    return [m for n, m in model.named_modules() if any(k.endswith("inv_freq") for k in m._buffers) and "vis" not in n
            and type(m).__module__.startswith("transformers")]  # fmt: skip


def layer_of_transformers(
    number: int, modules: Modules, rotary: Any, softmax: float | None, window: int | None
) -> Layer:
    """A layer of transformers' own code, whose model has one rotary module for all of them."""
    if any(getattr(module, "use_rope", 1) in (0, False) for _, module in modules):
        return Layer(None)
    kinds = getattr(rotary.config, "layer_types", None)
    name = f"{kinds[number]}_inv_freq" if kinds else ""
    args = (kinds[number],) if kinds and name in rotary._buffers else ()
    table = getattr(rotary, name if args else "inv_freq")
    return Layer(hf_turn(rotary, None, args), 2 * len(table), softmax, window)


def turns(holder: Any, rotary: Any, cores: list[Any], call: Callable[[Any, int], Any]) -> tuple[bool, str]:
    """Whether an attention calls its rotation, and what was assumed; ``call(holder, width)`` calls it."""

    class Noted(Exception):  # noqa: N818
        pass

    def note(*args: Any, **options: Any) -> Any:
        raise Noted

    before = {module: module.__dict__.get("forward") for module in holder.modules()}
    for module in before:
        if module is not rotary and hasattr(module, "forward_native") and module is not holder:
            module.forward = module.forward_native  # norms have kernels, and the same in torch
        if hasattr(module, "quant_method") and getattr(module, "weight", None) is not None:
            module.forward = partial(_linear, module)
    for core in cores:
        core.forward = lambda query, *args, **options: query.reshape(query.shape[0], -1)
    rotary.forward = note
    try:
        width = next(p for p in holder.parameters() if p.dim() == 2).shape[1]
        call(holder, width)
    except Noted:
        return True, ""
    except Exception as error:  # kernels that are not here
        return True, f"{type(holder).__name__} could not be called: {error!r}"[:160]
    finally:
        for module, forward in before.items():
            module.__dict__.pop("forward", None)
            if forward is not None:
                module.forward = forward
        rotary.__dict__.pop("forward", None)
    return False, ""


def _linear(module: Any, x: torch.Tensor, *args: Any, **options: Any) -> tuple[torch.Tensor, None]:
    """A projection in torch: the engines' own are made when weights are loaded."""
    return torch.nn.functional.linear(x, module.weight), None


def turn_held(rotary: Any, permuted: bool = False) -> Any:
    """The function that turns rows by a rotary module of vLLM or SGLang.

    ``permuted``: Llama 4's q and k are reordered when they are loaded, and halves become the neighbouring channels.
    Tokens up to the length are in the batch: some rotations go by the largest position in it.
    """
    forward = getattr(rotary, "forward_native", rotary.forward)

    def turn(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
        rows = torch.tensor(np.ascontiguousarray(x))
        order = torch.arange(rows.shape[1])
        if permuted:
            order = order.view(-1, 2).t().reshape(-1)
        last = position if length is None else max(length - 1, position)
        table = getattr(rotary, "cos_sin_cache", None)
        last = last if table is None or last < table.shape[0] else position
        positions = torch.full((rows.shape[0] + 1,), position)
        positions[-1] = last
        batch = torch.cat([rows[:, order], rows[:1, order]])
        with torch.no_grad():
            shaped = batch[:, None] if hasattr(rotary, "forward_native") else batch
            q, _ = forward(positions, shaped.clone(), shaped.clone())
        return q.reshape(batch.shape)[:-1, order.argsort()].numpy()

    return turn
