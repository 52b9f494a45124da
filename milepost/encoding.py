"""Encoding: the points where position enters attention. Every hook is the identity, so this class *is* NoPE.

    point 1   embed(x, pos)                 added to, or mixed into, the embedding
    point 2   query(q, pos), key(k, pos)    a transform of q and of k, each by its own positions
    point 3   bias(h, i, j)                 a number added to a logit, from positions alone
              rescore(s, q, k, i, j)        a new score, where it depends on content
              output(p, i, j)               what the weights add besides the values

    logits = scale * rescore(q·k) + bias,       output = softmax(logits) v + output(weights)

Letters: B batch, H heads, L tokens, C width, D head size; h, i, j = head, query position, key position.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from milepost.checks import check_at_least, check_choice
from milepost.layout import Layout
from milepost.positions import check_dtype, check_finite, extent, extents
from milepost.shown import html

HOOKS = ("embed", "query", "key", "bias", "rescore", "output")
PROPERTIES = (
    "shift_invariant",
    "toeplitz",
    "causal_only",
    "rotation",
    "cacheable",
    "length_dependent",
    "content_dependent",
)


@dataclass(frozen=True)
class Relative:
    """A score that depends on content by vectors of the distance d = i - j alone, given for n distances:

        rescore(q·k) = share ((q + u)·k + (q + v)·a[d] + k·b[d]),        output(p) = sum over j of p_j values[d]

    ``a``, ``b`` and ``values`` (H n D, or 1 n D where heads share them), ``u`` and ``v`` (H D); None: there is none.
    """

    a: Tensor | None = None
    b: Tensor | None = None
    u: Tensor | None = None
    v: Tensor | None = None
    values: Tensor | None = None
    share: float = 1.0


@dataclass(frozen=True)
class Stretch:
    """Keys ``first .. stop-1`` of a text as one query meets them: in copy number ``copy``, by the query ``q`` (B H 1
    D).
    """

    first: int
    stop: int
    copy: int
    q: Tensor


class Encoding(nn.Module):
    """Base of all encodings, and NoPE itself. Override the hooks that your formula is about, and declare the
    properties.

    Constructor arguments are kept as attributes of the same name: ``repr`` prints those that differ from their
    defaults, and ``milepost.build`` reads that text back. ``heads``, ``head_dim``, ``width``, ``length`` are the size
    words.
    """

    shift_invariant = True
    """Moving all positions by one constant changes no attention output."""
    toeplitz = True
    """The bias is a function of i - j alone (true where there is none)."""
    causal_only = False
    """The formula has no meaning for a key after its query."""
    rotation = False
    """query and key are rotations: norms are kept and R(a) R(b) = R(a + b)."""
    length_dependent = False
    """The encoding is another one for each length: ``at(length)`` gives the plain one."""
    negative = True
    """Positions below zero have a meaning."""
    fractional = True
    """Positions between the integers have a meaning."""
    axes = 1
    """How many numbers make a position."""
    flat = False
    """With several axes: positions of one axis are taken too, and are equal on every axis."""
    alike_from: int | None = None
    """Distances i - j from here on have the same vectors in `relative`, and so have those from minus this down."""
    sides: tuple[int, ...] | None = None
    """How many places each of several axes has; None where axes do not end."""
    end: int | None = None
    """The first position that is not permitted, such as a table's length; None where there is no end."""
    heads: int | None = None
    """How many heads its parameters are for; None where any number will do."""
    head_dim: int | None = None
    """The head size that it was made for; None where any will do."""
    width: int | None = None
    """The embedding width that it was made for; None where any will do."""
    _points: tuple[str, ...] = ()
    check_choice = staticmethod(check_choice)
    check_at_least = staticmethod(check_at_least)

    # -- the hooks ----------------------------------------------------------------------------------------------

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Embeddings ``x`` (B L C) with their positions mixed in."""
        return x

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        """Queries (B H L D) transformed by their own positions."""
        return q

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        """Keys (B H L D) transformed by their own positions, and by nothing else: they may be cached."""
        return k

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """What is added to the logit of head h, query at i, key at j: all three broadcast."""
        return torch.zeros((), device=i.device)

    def bias_by_row(self, h: Tensor, i: Tensor, distance: Tensor) -> Tensor | None:
        """The bias of heads ``h`` (H), neighbouring queries ``i`` (R) and distances i - j (n): H R n, where a strip of
        rows has a quicker way to it than `bias`; for fast paths, which equal the hook.
        """
        return None

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """New scores (B H I J) from the unscaled ``s = q·k``, in which what the mask hides is -inf."""
        return s

    def relative(self, distance: Tensor) -> Relative | None:
        """`rescore` and `output` as vectors of the given distances i - j (n), if they have that form: for fast paths,
        which equal the hooks.
        """
        return None

    def copies(self, k: Tensor, pos: Tensor) -> tuple[Tensor, ...]:
        """Keys (B G L D) in each of the ways in which `rescore` turns them, if `stretches` says which query meets
        which: for caches, which then turn no key twice.
        """
        return ()

    def stretches(self, q: Tensor, m: int) -> tuple[Stretch, ...]:
        """All keys that a query at ``m`` sees of a text 0 .. m, by stretches: plain products of q and a copy of k."""
        return ()

    def output(self, p: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """What the attention weights ``p`` (B H I J) add to the output (B H I D), besides the values."""
        return torch.zeros((), device=p.device)

    # -- what it says of itself ---------------------------------------------------------------------------------

    @property
    def points(self) -> tuple[str, ...]:
        """The hooks that this encoding overrides: where position enters."""
        return self._points

    @property
    def cacheable(self) -> bool:
        """A transformed key stays right while the text grows."""
        return not self.length_dependent

    @property
    def content_dependent(self) -> bool:
        """The position's part in a logit depends on q or k."""
        return "rescore" in self.points or "output" in self.points

    @property
    def properties(self) -> dict[str, bool]:
        """The declarations that the laws check."""
        return {name: bool(getattr(self, name)) for name in PROPERTIES}

    @property
    def added_width(self) -> int:
        """How many channels ``embed`` appends."""
        return 0

    def at(self, length: int) -> Encoding:
        """The plain encoding for a text of this length: itself, unless ``length_dependent``."""
        return self

    def rekey(self, k: Tensor, pos: Tensor, was: Encoding, was_pos: Tensor) -> Tensor:
        """Keys that ``was`` transformed at ``was_pos``, as this encoding would have transformed them at ``pos``: exact,
        or refused.
        """
        if "embed" in self.points:
            raise ValueError(
                f"{self!r} mixes positions into the embeddings: a cached key can't be given another position"
            )
        if "key" in self.points and (repr(was) != repr(self) or not torch.equal(pos, was_pos)):
            raise ValueError(f"{self!r} can't turn a key of {was!r} into one of its own; cache the keys again")
        return k

    def check(self, where: Layout | Tensor) -> None:
        """Raise ValueError if positions are not permitted here. Once a batch; hooks that are not compiled call it
        too.
        """
        pos = where.pos if isinstance(where, Layout) else where
        check_dtype(pos)
        if not self._counts(pos):
            raise ValueError(
                f"{self!r} takes positions of {self.axes} {'axis' if self.axes == 1 else 'axes'}, got a tensor of "
                f"shape {tuple(pos.shape)}"
                + ("; milepost.positions.grid(rows, columns) makes such positions, axes first" if self.axes > 1 else "")
            )
        if pos.is_floating_point():
            if not self.fractional:
                raise ValueError(
                    f"{self!r} counts whole positions, got {str(pos.dtype)[6:]}; "
                    "give int64 positions, or an encoding that permits fractions (rope, alibi, sinusoidal)"
                )
            check_finite(pos)
        if self.sides is not None:
            for axis, (side, (low, high)) in enumerate(zip(self.sides, extents(pos), strict=True)):
                if low < 0 or high >= side:
                    raise ValueError(self.past_side(axis, low if low < 0 else high))
            return
        if self.negative and self.end is None:
            return
        low, high = extent(pos)
        if low < 0 and not self.negative:
            raise ValueError(
                f"{self!r} has no meaning before position 0, got position {low:.12g}; shift the positions to start at 0"
            )
        if self.end is not None and high >= self.end:
            raise ValueError(self.past_end(high))

    def past_end(self, position: float) -> str:
        """The sentence for a position at or past ``end``."""
        return (
            f"position {position:.12g} is past the end of {self!r}, whose last position is {(self.end or 0) - 1}; "
            "use a shorter text or a larger encoding"
        )

    def past_side(self, axis: int, position: float) -> str:
        """The sentence for a position that an axis with an end does not have."""
        return (
            f"position {position:.12g} on axis {axis} is not on the grid of {self!r}: sides "
            f"{' x '.join(map(str, self.sides or ()))}, "
            f"so 0 to {(self.sides or ())[axis] - 1} there; is the order of the axes right? a larger grid needs a "
            "larger table (milepost.resize_table)"
        )

    def _counts(self, pos: Tensor) -> bool:
        """Whether these are positions of as many axes as this encoding takes."""
        return self.axes > 1 and pos.shape[0] == self.axes if pos.dim() == 3 else self.axes == 1 or self.flat

    # -- text, sums, checks on every hook -----------------------------------------------------------------------

    def __add__(self, other: Encoding) -> Sum:
        if not isinstance(other, Encoding):
            return NotImplemented
        return Sum(*parts_of(self), *parts_of(other))

    def _repr_html_(self) -> str:
        """How it looks in a notebook."""
        return html(self)

    def __repr__(self) -> str:
        return f"{type(self).spec_name()}({', '.join(f'{k}={v!r}' for k, v in self.spec_arguments().items())})"

    @classmethod
    def spec_name(cls) -> str:
        """The name in spec strings: the file's name for ours, ``module:Class`` for a stranger's."""
        module = cls.__module__
        return (
            module.rsplit(".", 1)[-1]
            if module.startswith(("milepost.encodings.", "milepost.maps."))
            else f"{module}:{cls.__qualname__}"
        )

    def spec_arguments(self) -> dict[str, Any]:
        """Constructor arguments that differ from their defaults."""
        arguments = {}
        for name, parameter in _signature(type(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            if parameter.default is parameter.empty or value != parameter.default:
                arguments[name] = value
        return arguments

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls._points = tuple(hook for hook in HOOKS if getattr(cls, hook) is not getattr(Encoding, hook))
        for hook in ("embed", "query", "key"):
            if hook in cls.__dict__:
                setattr(cls, hook, _checked(cls.__dict__[hook]))


@functools.cache
def _signature(cls: type) -> tuple[tuple[str, inspect.Parameter], ...]:
    """The named arguments of a class."""
    given = inspect.signature(cls.__init__).parameters.items()  # type: ignore[misc]
    return tuple((name, p) for name, p in given if name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


def _checked(hook: Callable[[Any, Tensor, Tensor], Tensor]) -> Callable[[Any, Tensor, Tensor], Tensor]:
    """A hook that looks at its input first: shapes always, values when not compiled."""
    rank = 3 if hook.__name__ == "embed" else 4

    def check_and_run(self: Encoding, x: Tensor, pos: Tensor) -> Tensor:
        check_dtype(pos)
        if x.dim() != rank or not x.is_floating_point():
            letters = "(B, L, C)" if rank == 3 else "(B, H, L, D)"
            raise ValueError(
                f"{hook.__name__}() of {self!r} wants floating numbers of shape {letters}, got {str(x.dtype)[6:]} of "
                f"{tuple(x.shape)}"
            )
        size = self.head_dim if rank == 4 else self.width if not self.added_width else None
        if size is not None and x.shape[-1] != size:
            word = "head_dim" if rank == 4 else "width"
            raise ValueError(f"{self!r} was made for {word}={size}, got a tensor of shape {tuple(x.shape)}")
        fits = pos.dim() in (1, 2, 3) and self._counts(pos) and pos.shape[-1] == x.shape[-2]
        if not fits or (pos.dim() > 1 and pos.shape[-2] not in (1, x.shape[0])):
            letters = "(L,) or (B, L)" if self.axes == 1 else f"({self.axes}, B, L)"
            if self.axes > 1:
                letters += ", axes first, as milepost.positions.grid(rows, columns) makes them,"
            raise ValueError(
                f"positions of shape {letters} are wanted for a tensor of shape {tuple(x.shape)}, got "
                f"{tuple(pos.shape)}"
            )
        if not torch.compiler.is_compiling():
            self.check(pos)
        return hook(self, x, pos)

    @functools.wraps(hook)
    def run(self: Encoding, x: Tensor, pos: Tensor) -> Tensor:
        out = check_and_run(self, x, pos)
        return out if rank == 3 or hook.__name__ not in self.points else _marked(out, x, self, pos)

    run.unmarked = check_and_run  # type: ignore[attr-defined]
    return run


def transform(hook: Literal["query", "key"], enc: Encoding, x: Tensor, pos: Tensor) -> Tensor:
    """``enc.query(x, pos)`` or ``enc.key(x, pos)`` without a mark: for attention itself, which passes the result on."""
    method = enc.query if hook == "query" else enc.key
    unmarked = None if torch.compiler.is_compiling() else getattr(method, "unmarked", None)
    out: Tensor = method(x, pos) if unmarked is None else unmarked(enc, x, pos)
    return out


@dataclass(frozen=True)
class Mark:
    """What `query` and `key` leave on the tensors that they return: who turned them, and for which positions."""

    encoding: Encoding
    positions: Tensor


_marks = WeakIdKeyDictionary()


def mark_of(x: Tensor) -> Mark | None:
    """The mark of a tensor that `query` or `key` returned; None for any other, and in a compiled graph."""
    if torch.compiler.is_compiling() or type(x) is not Tensor or not _marks.data:
        return None
    mark: Mark | None = _marks.get(x)  # type: ignore[no-untyped-call]
    return mark


def _marked(out: Tensor, given: Tensor, enc: Encoding, pos: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or type(out) is not Tensor:
        return out
    out = out.view_as(out) if out is given else out  # what was given stays without a mark
    _marks[out] = Mark(enc, pos)
    return out


def has_quick(enc: Encoding, quick: str, *hooks: str) -> bool:
    """Whether the class of ``enc`` has the method ``quick``, written for its ``hooks`` as they are: a subclass that
    overrides a hook alone has not.
    """
    lines = type(enc).__mro__

    def depth(name: str) -> int:
        return next(n for n, line in enumerate(lines) if name in vars(line))

    return lines[depth(quick)] is not Encoding and all(depth(quick) <= depth(hook) for hook in hooks)


class Sum(Encoding):
    """Several encodings at once, applied from left to right: ``RoPE(head_dim=64) + ALiBi(heads=8)``.

    A content-dependent part scores the q and k that the parts at point 2 have already transformed; such a sum is
    therefore declared not shift-invariant.
    """

    def __init__(self, *parts: Encoding):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self._points = tuple(hook for hook in HOOKS if any(hook in p.points for p in parts))
        self.causal_only = any(p.causal_only for p in parts)
        self.length_dependent = any(p.length_dependent for p in parts)
        self.toeplitz = all(p.toeplitz for p in parts)
        self.negative = all(p.negative for p in parts)
        self.fractional = all(p.fractional for p in parts)
        self.end = min((p.end for p in parts if p.end is not None), default=None)
        self.axes = max(p.axes for p in parts)
        self.flat = all(p.flat or p.axes == 1 for p in parts)
        ends = [p.sides for p in parts if p.sides is not None and p.axes == self.axes]
        self.sides = tuple(map(min, *ends)) if len(ends) > 1 else ends[0] if ends else None
        self.heads = _agreed("heads", parts)
        self.head_dim = _agreed("head_dim", parts)
        self.width = _agreed("width", [p for p in parts if not p.added_width])
        at_two = {"query", "key"} & set(self.points)
        self.shift_invariant = all(p.shift_invariant for p in parts) and not (at_two and self.content_dependent)
        turning = [p for p in parts if {"query", "key"} & set(p.points)]
        self.rotation = bool(turning) and all(p.rotation for p in turning)

    @property
    def points(self) -> tuple[str, ...]:
        return self._points

    @property
    def added_width(self) -> int:
        return sum(p.added_width for p in parts_of(self))

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return functools.reduce(lambda x, part: part.embed(x, pos), parts_of(self), x)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return functools.reduce(lambda q, part: transform("query", part, q, pos), parts_of(self), q)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return functools.reduce(lambda k, part: transform("key", part, k, pos), parts_of(self), k)

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return functools.reduce(
            torch.add, [p.bias(h, i, j) for p in parts_of(self) if "bias" in p.points] or [super().bias(h, i, j)]
        )

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return functools.reduce(lambda s, part: part.rescore(s, q, k, i, j), parts_of(self), s)

    def output(self, p: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return functools.reduce(
            torch.add, [e.output(p, i, j) for e in parts_of(self) if "output" in e.points] or [super().output(p, i, j)]
        )

    def at(self, length: int) -> Encoding:
        return Sum(*[p.at(length) for p in parts_of(self)])

    def check(self, where: Layout | Tensor) -> None:
        for part in parts_of(self):
            part.check(where)

    def rekey(self, k: Tensor, pos: Tensor, was: Encoding, was_pos: Tensor) -> Tensor:
        for part, old in zip(parts_of(self), parts_of(was), strict=True):
            k = part.rekey(k, pos, old, was_pos)
        return k

    def __repr__(self) -> str:
        return " + ".join(repr(part) for part in self.parts)


def parts_of(enc: Encoding) -> list[Encoding]:
    """The encodings that a sum is made of; of any other, itself."""
    return list(enc.parts) if isinstance(enc, Sum) else [enc]  # type: ignore[arg-type]


def _agreed(word: str, parts: Any) -> int | None:
    """The size that all parts agree on."""
    sizes = {repr(p): getattr(p, word) for p in parts if getattr(p, word) is not None}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"the parts of a sum must agree on {word}, got " + ", ".join(f"{v} in {k}" for k, v in sizes.items())
        )
    return next(iter(sizes.values()), None)
