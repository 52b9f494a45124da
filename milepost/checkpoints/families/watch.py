"""What reaches attention, and what rotary functions do, layer by layer, while a model runs.

Every token is read alone (one token a row, rows at other positions), and attention is replaced by one that gives the
values back. So no layer's input depends on position, unless position was added to the embedding, and q at position p
differs from q at position 0 by what the code does about positions, and by nothing else. That needs no name of a
function. Names are needed for one thing: which channels are a pair in the weights, where code reorders channels before
it turns them; there the functions named apply...rotary... are watched.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from milepost.checkpoints.families.bounds import NUMBERS, Clock, Exceeded
from milepost.checkpoints.model.patch import hooked, patched

LAYER = re.compile(r"^(.*?)\.?(\d+)$")
"""The name of a module that is a layer: a list's name and a number."""


CALLS = 8
"""Calls of rotary functions that are kept of a layer: queries, keys, values, and their parts."""
ATTENTION = "eager_attention_forward"
NAMES = ("query", "key", "value", "attention_mask")


@dataclass
class AttentionCall:
    """One call of attention: q B H L D, k and v, the mask, what logits are multiplied by, and whether a bias of numbers
    came beside the mask."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    scaling: float | None
    causal: bool | None
    bias: bool = False


@dataclass
class Seen:
    """What one layer did: calls of attention, and of rotary functions (given, got), the indexer's apart."""

    attended: list[AttentionCall] = field(default_factory=list)
    turned: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    indexed: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class ModelWatch:
    """What every layer did, by the layer's name; and the tables of positions that were looked up."""

    def __init__(self) -> None:
        self.layers: dict[str, Seen] = {}
        self.steps: set[str] = set()  # layers that make one tensor of another like it
        self.held = 0
        self.tables: dict[str, tuple[int, Tensor]] = {}
        self._places: list[str] = []
        self._indexers = 0
        self._depth = 0

    def seen(self) -> Seen:
        return self.layers.setdefault(self._places[-1] if self._places else "", Seen())

    def kept(self, t: Tensor) -> Tensor:
        """A copy, where there is room for one."""
        self.held += t.numel()
        if self.held > NUMBERS:
            raise Exceeded(
                f"a run of a small model of it leaves more than {NUMBERS / 1e6:.0f} million numbers to look at"
            )
        return t.detach().clone()

    def attend(self, module: Any, *args: Any, **more: Any) -> Any:
        """Stands in for a class's eager_attention_forward: notes what came, and gives values back."""
        given = [*args, *(more[name] for name in NAMES[len(args) :] if name in more)]
        q, k, v = given[:3]
        mask = given[3].detach().clone() if len(given) > 3 and isinstance(given[3], Tensor) else None
        scaling = more.get("scaling", getattr(module, "scaling", None))
        scaling = float(scaling) if isinstance(scaling, float | int) else None
        causal = getattr(module, "is_causal", None)
        if not self.seen().attended:  # the first call says what there is to know
            beside = more.get("position_bias")
            bias = isinstance(beside, Tensor) and bool((beside != 0).any())
            self.seen().attended.append(
                AttentionCall(self.kept(q), self.kept(k), self.kept(v), mask, scaling, causal, bias)
            )
        heads, length = q.shape[1], q.shape[2]
        out = v.repeat_interleave(max(1, heads // v.shape[1]), 1)
        out = out[:, :heads]  # keys may have more heads than queries, where those were cut
        if out.shape[2] != length:  # keys of another text
            out = out.mean(2, keepdim=True).expand(-1, -1, length, -1)
        return out.transpose(1, 2).contiguous(), None

    def turn(self, function: Any) -> Any:
        """A rotary function that is watched."""

        def watched(*args: Any, **more: Any) -> Any:
            self._depth += 1  # a rotary function may call another
            try:
                out = function(*args, **more)
            finally:
                self._depth -= 1
            if self._depth == 0:
                seen = self.seen()
                calls = seen.indexed if self._indexers else seen.turned
                results = out if isinstance(out, tuple) else (out,)
                given = [x.detach() for x in (*args, *more.values()) if isinstance(x, Tensor)]
                for got in results:
                    match = next(
                        (n for n, x in enumerate(given) if isinstance(got, Tensor) and x.shape == got.shape), None
                    )
                    if match is not None and len(calls) < CALLS:
                        calls.append((self.kept(given.pop(match)), self.kept(got)))
            return out

        return watched

    def enter(self, name: str, indexer: bool) -> None:
        if name:
            self._places.append(name)
        self._indexers += indexer

    def leave(self, name: str, indexer: bool, given: Any, out: Any) -> None:
        if name:
            self._places.pop()
            alike = isinstance(out, Tensor) and given and isinstance(given[0], Tensor) and out.shape == given[0].shape
            self.steps.add(name) if alike else self.steps.discard(name)
        self._indexers -= indexer

    @property
    def silent(self) -> frozenset[str]:
        """Layers without attention and rotary functions that could be left out of a run."""
        return frozenset(name for name in self.steps if not any(f"{x}.".startswith(f"{name}.") for x in self.layers))


@contextlib.contextmanager
def watched(model: Any, clock: Clock, silent: frozenset[str] = frozenset()) -> Iterator[ModelWatch]:
    """Watch attention and the rotary functions of the model's own code, and its tables.

    ``silent`` layers give back what they get: they were seen to do nothing about positions, and may take their time.
    """
    watch = ModelWatch()
    names = sorted({type(part).__module__ for part in model.modules()})
    modules = [sys.modules[name] for name in names if name.startswith("transformers.models.")]
    changes: list[tuple[Any, str, Any]] = [
        (module, "eager_attention_forward", watch.attend)
        for module in modules
        if hasattr(module, "eager_attention_forward")
    ]
    owners: list[Any] = [*modules, *{type(part) for part in model.modules()}]  # some have it as a static method
    for owner in owners:
        changes += [
            (owner, name, _static(watch.turn(getattr(owner, name)), owner))
            for name, value in vars(owner).items()
            if _is_rotary(name, value)
        ]
    hooks = []
    vocabulary = _vocabulary(model)
    for name, part in model.named_modules():
        hooks.append(part.register_forward_pre_hook(clock.check))
        if name in silent:
            changes.append((part, "forward", lambda x, *_, **__: x))
        layer = name if LAYER.match(name) and not _inside(name) else ""
        indexer = "Indexer" in type(part).__name__
        if layer or indexer:
            enter = lambda *_, name=layer, indexer=indexer: watch.enter(name, indexer)  # noqa: E731
            leave = lambda _, x, y, name=layer, indexer=indexer: watch.leave(name, indexer, x, y)  # noqa: E731
            hooks += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave, always_call=True)]
        if isinstance(part, nn.Embedding) and part is not vocabulary:
            hooks.append(part.register_forward_hook(_looked_up(watch, name)))
    with hooked(*hooks), patched(*changes):
        yield watch


def _looked_up(watch: ModelWatch, name: str) -> Any:
    """A hook that notes the rows that were looked up, by what came out: what a table is given may be a mask."""

    def note(table: nn.Embedding, given: Any, out: Any) -> None:
        if isinstance(out, Tensor) and out.shape[-1] == table.embedding_dim and out.ndim > 1:
            rows = torch.cdist(out.detach().flatten(0, -2), table.weight.detach()).argmin(-1)
            watch.tables[name] = table.num_embeddings, rows.reshape(out.shape[:-1])

    return note


def _vocabulary(model: Any) -> Any:
    with contextlib.suppress(NotImplementedError, AttributeError):
        return model.get_input_embeddings()
    return None


def _inside(name: str) -> bool:
    """Whether a numbered module is a part of a layer: an expert, or one of several steps of its network."""
    return bool(re.search(r"\.(experts|self_attn|mlp|norms?|conv_layers|conv|fc|proj|net|act|attn_layers)\.\d+$", name))


def _static(function: Any, owner: Any) -> Any:
    return staticmethod(function) if inspect.isclass(owner) else function


def _is_rotary(name: str, value: Any) -> bool:
    if isinstance(value, staticmethod):
        value = value.__func__
    elif isinstance(value, type) or (inspect.isfunction(value) and "." in value.__qualname__):
        return False  # methods get self first
    return "apply" in name and ("rotary" in name or "rope" in name) and inspect.isroutine(value)
