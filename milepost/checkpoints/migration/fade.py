"""Fading: the old positions go while the new come in, so that the model is never without.

    share(step) = max(0, 1 - step / steps)
    embedding   x + share old[p]                       (a learned table, a sinusoidal code)
    RoPE        turned at positions (1 - share) p      (where RoPE itself is left behind: share p)
    ALiBi       bias (1 - share)

At the first step the model is the source, up to rounding; after ``steps`` it is the target. What is old is never
trained, nor saved. The share is a function of the number of the step, so a run that is resumed has the same.

Besides, rows of a table that are to stay as they are get no gradient: `freeze_rows`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.migration.body import table_of

Step = Callable[[int], None]


class Share:
    """How much of the old is still there."""

    def __init__(self, steps: int):
        self.steps, self.value = steps, 1.0

    def at(self, step: int) -> None:
        """Set it for the step of this number."""
        self.value = max(0.0, 1 - step / self.steps)


@contextlib.contextmanager
def fading(model: Any, to: str, steps: int, old: Tensor | None = None) -> Iterator[Step]:
    """The model with ``old`` (N, C) on top of its embedding, less at each step, and its own positions coming in.

    Without ``old``, its rotation goes.
    """
    share = Share(steps)

    def turn(rotary: Any, times: Callable[[], float]) -> None:
        stack.callback(rotary.register_forward_pre_hook(_slower(times), with_kwargs=True).remove)

    with contextlib.ExitStack() as stack:
        if old is not None:
            stack.callback(model.get_input_embeddings().register_forward_hook(_added(old, share)).remove)
        if to == "rope":
            turn(model.gpt_neox.rotary_emb, lambda: 1 - share.value)
        elif to == "alibi":
            stack.enter_context(_weaker(sys.modules[type(model).__module__], share))
        elif old is None:
            for layer in model.model.layers:
                layer.self_attn.use_rope = 1
                stack.callback(setattr, layer.self_attn, "use_rope", 0)
            turn(model.model.rotary_emb, lambda: share.value)
        yield share.at


def _added(old: Tensor, share: Share) -> Any:
    def hook(_: Any, __: Any, out: Tensor) -> Tensor:
        """out: B L C, of a text that begins at position 0."""
        if out.shape[1] > len(old):
            raise ValueError(
                f"the old positions end at {len(old)}, and can't be faded in texts of {out.shape[1]} tokens: tune at "
                "most that many"
            )
        return out + share.value * old[: out.shape[1]].to(out)

    return hook


def _slower(times: Callable[[], float]) -> Any:
    def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The rotary module's positions, given by place or by name."""
        if "position_ids" in kwargs:
            return args, kwargs | {"position_ids": kwargs["position_ids"] * times()}
        return (args[0], args[1] * times(), *args[2:]), kwargs

    return hook


@contextlib.contextmanager
def _weaker(module: Any, share: Share) -> Iterator[None]:
    """Falcon's function that makes the bias gives less of it."""
    function = module.build_alibi_tensor
    module.build_alibi_tensor = lambda *args, **kwargs: function(*args, **kwargs) * (1 - share.value)
    try:
        yield
    finally:
        module.build_alibi_tensor = function


@contextlib.contextmanager
def freeze_rows(model: Any, rows: int | None) -> Iterator[Step]:
    """The first ``rows`` of the model's table (all, where None) stay as they are while it is tuned."""
    table = table_of(model)
    assert table is not None
    weight: Any = table[0].weight
    weight.requires_grad_(rows is not None)
    with contextlib.ExitStack() as stack:
        stack.callback(weight.requires_grad_, True)
        if rows is not None:
            hook = weight.register_hook(lambda grad: torch.cat([torch.zeros_like(grad[:rows]), grad[rows:]]))
            stack.callback(hook.remove)
        yield lambda step: None


def changes_while_tuned(
    table: tuple[Tensor, int] | None, to: str, kept: int | None, fade: int
) -> Callable[[Any], contextlib.AbstractContextManager[Step]]:
    """What is done to a model while it is tuned: rows stay, and the old ``table`` (with its offset) fades.

    ``fade`` is over how many steps, 0 for none; ``kept`` how many rows of the new table stay, None where it has none. A
    table of zeros stays as a whole.
    """

    @contextlib.contextmanager
    def changed(model: Any) -> Iterator[Step]:
        with contextlib.ExitStack() as stack:
            step: Step = lambda number: None  # noqa: E731
            if kept is not None:
                stack.enter_context(freeze_rows(model, None if to == "nope" else kept))
            if fade:
                step = stack.enter_context(fading(model, to, fade, None if table is None else table[0][table[1] :]))
            yield step

    return changed
