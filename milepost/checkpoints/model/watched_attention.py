"""Watched attention: a model of transformers with another attention in it, for a while.

transformers lets attention be given by name (its attention interface). `implementation` switches a loaded model to a
name and back; `looks` switches to one that remembers queries and keys and then does what the model's own did. BLOOM,
MPT and Falcon have no interface: `use_engine` runs and shows them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.engine_attention import FAMILIES, ROW, use_engine, watched
from milepost.checkpoints.model.loaded import Look
from milepost.checkpoints.model.patch import patched
from milepost.encoding import Encoding
from milepost.rope import ConfigError

NAME = "milepost_looks"


class Capped(Encoding):
    """cap * tanh(logit / cap): Gemma 2's limit to logits, of which ``scale`` is known beforehand."""

    def __init__(self, cap: float, scale: float):
        super().__init__()
        self.cap, self.scale = cap, scale

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.tanh(s * (self.scale / self.cap)) * (self.cap / self.scale)


class KeyRow(Encoding):
    """A bias that is one number a head and key (1 H 1 J): ALiBi as BLOOM, MPT and Falcon write it.

    Not of i - j alone, as numbers go.
    """

    toeplitz = False
    shift_invariant = False

    def __init__(self, row: Tensor):
        super().__init__()
        self.row = row

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        found: Tensor = self.row[0, h, 0, j.long()]
        return found + torch.zeros_like(i, dtype=found.dtype)


def implementation(model: Any, name: str) -> AbstractContextManager[None]:
    """The same model with another attention."""
    from transformers import PreTrainedModel

    configs = {id(part.config): part.config for part in model.modules() if isinstance(part, PreTrainedModel)}
    return patched(*((config, "_attn_implementation", name) for config in configs.values()))


def looks(model: Any, run: Callable[[], Any]) -> list[Look]:
    """What every layer's queries and keys were, while ``run`` runs the model once."""
    if FAMILIES.get(model.config.get_text_config().model_type) == ROW:
        return _rows(model, run)
    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

    if not any(own_attention(part) for part in model.modules()):
        raise ValueError(
            f"attention of {type(model).__name__} can't be watched: its code does not use transformers' attention "
            "interface"
        )
    seen: list[Look] = []
    was = model.config._attn_implementation
    eager, interface = was == "eager", AttentionInterface()  # type: ignore[no-untyped-call]

    def watch(
        module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float | None = None, **more: Any
    ) -> Any:
        scale = q.shape[-1] ** -0.5 if scaling is None else float(scaling)
        number = getattr(module, "layer_idx", None)
        layer = number if isinstance(number, int) else len(seen)
        seen.append(Look(layer, q.detach(), k.detach(), extras(module, scale, more), scale, more.get("sliding_window")))
        own = own_attention(module) if eager else interface[was]
        return own(module, q, k, v, mask, scaling=scaling, **more)

    AttentionInterface.register(NAME, watch)
    AttentionMaskInterface.register(NAME, masking_utils.ALL_MASK_ATTENTION_FUNCTIONS[was])
    with implementation(model, NAME):
        run()
    if not seen:
        raise ValueError(
            f"attention of {type(model).__name__} can't be watched: its layers did not call the attention interface"
        )
    return seen


def extras(module: Any, scale: float, more: dict[str, Any]) -> Encoding:
    """What logits get besides q k: nothing, or a cap."""
    if more.get("s_aux") is not None or more.get("sinks") is not None:
        raise ConfigError(f"{type(module).__name__} has learned sinks beside its keys, which are not followed here")
    if more.get("position_bias") is not None:
        raise ConfigError(f"{type(module).__name__} adds a bias of its own to the logits, which is not followed here")
    cap = more.get("softcap")
    return Encoding() if cap is None else Capped(float(cap), scale)


def own_attention(module: Any) -> Any:
    """The eager attention of the file that a module is from."""
    return getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)


def _rows(model: Any, run: Callable[[], Any]) -> list[Look]:
    """ALiBi's families, by milepost's engine."""
    seen: list[Look] = []
    on = "_milepost" in model.__dict__ or any("_milepost" in part.__dict__ for part in model.modules())
    use_engine(model)
    try:
        with watched(
            lambda q, k, row, scale: seen.append(
                Look(len(seen), q.detach(), k.detach(), KeyRow(row.detach()), scale, None)
            )
        ):
            run()
    finally:
        if not on:
            use_engine(model, on=False)
    return seen
