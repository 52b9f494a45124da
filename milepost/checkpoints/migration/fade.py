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
from milepost.checkpoints.model.patch import hooked, patched

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

    def add(_: Any, __: Any, out: Tensor) -> Tensor:
        """out: B L C, of a text that begins at position 0."""
        assert old is not None
        if out.shape[1] > len(old):
            raise ValueError(
                f"the old positions end at {len(old)}, and can't be faded in texts of {out.shape[1]} tokens: tune at "
                "most that many"
            )
        return out + share.value * old[: out.shape[1]].to(out)

    with contextlib.ExitStack() as stack:
        if old is not None:
            stack.enter_context(hooked(model.get_input_embeddings().register_forward_hook(add)))
        if to == "rope":
            stack.enter_context(hooked(scale_positions(model.gpt_neox.rotary_emb, lambda: 1 - share.value)))
        elif to == "alibi":
            module: Any = sys.modules[type(model).__module__]  # its function that makes the bias gives less of it
            build = module.build_alibi_tensor
            weaker = lambda *args, **kwargs: build(*args, **kwargs) * (1 - share.value)  # noqa: E731
            stack.enter_context(patched((module, "build_alibi_tensor", weaker)))
        elif old is None:
            stack.enter_context(patched(*((layer.self_attn, "use_rope", 1) for layer in model.model.layers)))
            stack.enter_context(hooked(scale_positions(model.model.rotary_emb, lambda: share.value)))
        yield share.at


def scale_positions(rotary: Any, times: Callable[[], float]) -> Any:
    """Multiply the positions that a rotary module is given, by place or by name; the hook that does it."""

    def scale(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if "position_ids" in kwargs:
            return args, kwargs | {"position_ids": kwargs["position_ids"] * times()}
        return (args[0], args[1] * times(), *args[2:]), kwargs

    return rotary.register_forward_pre_hook(scale, with_kwargs=True)


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
            freeze = weight.register_hook(lambda grad: torch.cat([torch.zeros_like(grad[:rows]), grad[rows:]]))
            stack.enter_context(hooked(freeze))
        yield lambda step: None


def changes_while_tuned(
    table: tuple[Tensor, int] | None, to: str, rows_kept: int | None, fade: int
) -> Callable[[Any], contextlib.AbstractContextManager[Step]]:
    """What is done to a model while it is tuned: rows stay, and the old ``table`` (with its offset) fades.

    ``fade`` is over how many steps, 0 for none; ``kept`` how many rows of the new table stay, None where it has none. A
    table of zeros stays as a whole.
    """

    @contextlib.contextmanager
    def changed(model: Any) -> Iterator[Step]:
        with contextlib.ExitStack() as stack:
            step: Step = lambda number: None  # noqa: E731
            if rows_kept is not None:
                stack.enter_context(freeze_rows(model, None if to == "nope" else rows_kept))
            if fade:
                step = stack.enter_context(fading(model, to, fade, None if table is None else table[0][table[1] :]))
            yield step

    return changed
