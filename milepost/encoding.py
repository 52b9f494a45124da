"""Encoding: the points where position enters attention. Every hook is the identity, so this class *is* NoPE.

    point 1   embed(x, pos)                 added to, or mixed into, the embedding
    point 2   query(q, pos), key(k, pos)    a transform of q and of k, each by its own positions
    point 3   bias(h, i, j)                 a number added to a logit, from positions alone
              rescore(s, q, k, i, j)        a new score, where it depends on content
              spread(logits, i, j)          the weights, where they are not a softmax
              output(p, i, j)               what the weights add besides the values
    point 4   features(x, pos)              numbers of each token from its hidden state, kept with its key, for
              gate(h, f)                    a number of each token: the logit gets the query's less the key's
              weigh(h, f, g, i, j)          a number added to a logit, from both tokens' features and positions
              relate(s, q, k, f, g, i, j)   a new score, where it depends on features and on q and k
    point 5   value(v, pos)                 a transform of the values, by the key's position
              restore(y, pos)               a transform of the output, by the query's

    logits = scale * relate(rescore(q·k)) + bias + gate + weigh
    output = restore(spread(logits) value(v) + output(weights))

Letters: B batch, H heads, L tokens, C width, D head size, N features; h, i, j = head, query position, key position;
f, g = features of the query's and of the key's token.
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
from milepost.hooks import HOOKS
from milepost.layout import Layout
from milepost.positions import check_dtype, check_finite, extent, extents
from milepost.shown import html

PROPERTIES = (
    "shift_invariant",
    "toeplitz",
    "causal_only",
    "rotation",
    "cacheable",
    "length_dependent",
    "content_dependent",
)


_SCORES = frozenset({"rescore", "output", "relate", "spread"})
_CONTENT = _SCORES | {"gate", "weigh"}


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


ByRow = Callable[[Tensor, Tensor | None], Tensor]
"""The bias of given heads (H) in a strip of R rows, by row and distance: H R n. It is written into the second tensor,
where one is given: no gradient is asked for then.
"""


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
    """What it turns (queries, keys, values, the output) it rotates: norms are kept and R(a) R(b) = R(a + b)."""
    length_dependent = False
    """The encoding is another one for each length: ``at(length)`` gives the plain one."""
    negative = True
    """Positions below zero have a meaning."""
    fractional = True
    """Positions between the integers have a meaning."""
    step = 1
    """After how many positions something has changed: more than one where a formula counts by ``floor(p / step)``."""
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
    feature_count = 0
    """How many numbers `features` gives for each token; 0 where it gives none."""
    keyless = False
    """Only the query's features enter: those of keys are neither asked for nor cached."""
    running = False
    """Features are summed along each text before gate, weigh and relate get them. So the order of the tokens enters,
    and not their positions."""
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

    def bias_by_row(self, i: Tensor, distance: Tensor) -> ByRow | None:
        """The bias of neighbouring queries ``i`` (R) at distances i - j (n), where a strip of rows has a quicker way to
        it than `bias`: for fast paths, which equal the hook.
        """
        return None

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """New scores (B H I J) from the unscaled ``s = q·k``, in which what the mask hides is -inf."""
        return s

    def spread(self, logits: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Attention weights (B H I J) from logits, in which what the mask hides is -inf: a softmax, unless
        overridden.
        """
        return torch.softmax(logits, dim=-1)

    def relative(self, distance: Tensor) -> Relative | None:
        """`rescore` and `output` as vectors of the given distances i - j (n), if they have that form: for fast paths,
        which equal the hooks.
        """
        return None

    def counted(self) -> Tensor | None:
        """The vectors e (H n D, or 1 n D), if `rescore` is q·k + sqrt(D) q·e[c], where c = sum over keys from j to the
        query of sigmoid(q·k / sqrt(D)), at most n - 1, and e is linear between its vectors: for fast paths.
        """
        return None

    def mixes(self, h: Tensor, f: Tensor, i: Tensor) -> Tensor | None:
        """`weigh` as products with the vectors ``a`` of `relative`: what meets them in place of q, for heads h (H) and
        queries at ``i`` with features ``f`` (B I N), B H I n, if it has that form: for fast paths, which equal the
        hook. It is added to the logit as it is, not scaled.
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

    def features(self, x: Tensor, pos: Tensor) -> Tensor:
        """Numbers (B L N) of each token from its hidden state ``x`` (B L C), and from no other token's: they may be
        cached.
        """
        return x[..., :0]

    def gate(self, h: Tensor, f: Tensor) -> Tensor:
        """A number for each of the heads h (H) and of the tokens with features ``f`` (B L N): B H L. The logit gets
        the query's less the key's.
        """
        return torch.zeros((), device=f.device)

    def weigh(self, h: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """What is added to the logits (B H I J) of heads h (H), from features ``f`` (B I N) of the queries' tokens and
        ``g`` (B J N) of the keys', and from their positions.
        """
        return torch.zeros((), device=i.device)

    def relate(self, s: Tensor, q: Tensor, k: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """New scores (B H I J) from the unscaled ``s``, as `rescore` makes them, with features of both tokens."""
        return s

    def value(self, v: Tensor, pos: Tensor) -> Tensor:
        """Values (B H L D) transformed by their own positions, and by nothing else: they may be cached."""
        return v

    def restore(self, y: Tensor, pos: Tensor) -> Tensor:
        """The output (B H L D) transformed by the queries' positions."""
        return y

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
        """The position's part in a logit depends on what the tokens say: on q, k or the hidden state."""
        return not _CONTENT.isdisjoint(self.points)

    @property
    def scores_content(self) -> bool:
        """It makes its scores or its output from q, k or the weights themselves."""
        return not _SCORES.isdisjoint(self.points)

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

    def revalue(self, v: Tensor, pos: Tensor, was_pos: Tensor) -> Tensor:
        """Values that `value` transformed at ``was_pos``, as it would have transformed them at ``pos``: exact, or
        refused.
        """
        if "value" in self.points and not torch.equal(pos, was_pos):
            raise ValueError(f"{self!r} can't turn a value from one position to another; cache the values again")
        return v

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
        for hook in ("embed", "query", "key", "features", "value", "restore"):
            if hook in cls.__dict__:
                setattr(cls, hook, _checked(cls.__dict__[hook]))


@functools.cache
def _signature(cls: type) -> tuple[tuple[str, inspect.Parameter], ...]:
    """The named arguments of a class."""
    given = inspect.signature(cls.__init__).parameters.items()  # type: ignore[misc]
    return tuple((name, p) for name, p in given if name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


def _checked(hook: Callable[[Any, Tensor, Tensor], Tensor]) -> Callable[[Any, Tensor, Tensor], Tensor]:
    """A hook that looks at its input first: shapes always, values when not compiled."""
    rank = 3 if hook.__name__ in ("embed", "features") else 4
    marks = hook.__name__ in ("query", "key", "value")

    def check_and_run(self: Encoding, x: Tensor, pos: Tensor) -> Tensor:
        check_dtype(pos)
        if x.dim() != rank or not x.is_floating_point():
            letters = "(B, L, C)" if rank == 3 else "(B, H, L, D)"
            raise ValueError(
                f"{hook.__name__}() of {self!r} wants floating numbers of shape {letters}, got {str(x.dtype)[6:]} of "
                f"{tuple(x.shape)}"
            )
        size = (
            self.head_dim if rank == 4 else self.width if hook.__name__ == "features" or not self.added_width else None
        )
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
        return _marked(out, x, self, pos) if marks and hook.__name__ in self.points else out

    run.unmarked = check_and_run  # type: ignore[attr-defined]
    return run


def transform(hook: Literal["query", "key", "value"], enc: Encoding, x: Tensor, pos: Tensor) -> Tensor:
    """``enc.query(x, pos)``, or that of another hook, without a mark: for attention itself, which passes the result
    on.
    """
    method = getattr(enc, hook)
    unmarked = None if torch.compiler.is_compiling() else getattr(method, "unmarked", None)
    out: Tensor = method(x, pos) if unmarked is None else unmarked(enc, x, pos)
    return out


@dataclass(frozen=True)
class TurnMark:
    """What `query`, `key` and `value` leave on the tensors that they return: who turned them, for which positions."""

    encoding: Encoding
    positions: Tensor


_marks = WeakIdKeyDictionary()


def marks_exist() -> bool:
    """Whether any tensor carries a mark; never in a compiled graph."""
    return not torch.compiler.is_compiling() and bool(_marks.data)


def mark_of(x: Tensor) -> TurnMark | None:
    """The mark of a tensor that `query`, `key` or `value` returned; None for any other, and in a compiled graph."""
    if type(x) is not Tensor or not marks_exist():
        return None
    mark: TurnMark | None = _marks.get(x)  # type: ignore[no-untyped-call]
    return mark


def _marked(out: Tensor, given: Tensor, enc: Encoding, pos: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or type(out) is not Tensor:
        return out
    out = out.view_as(out) if out is given else out  # what was given stays without a mark
    _marks[out] = TurnMark(enc, pos)
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
        if (sharing := [p for p in parts if "spread" in p.points])[1:]:
            raise ValueError(f"a softmax can be replaced once, and {' and '.join(map(repr, sharing))} both replace it")
        self.shift_invariant = all(p.shift_invariant for p in parts) and not (at_two and self.scores_content)
        self.feature_count = sum(p.feature_count for p in parts)
        self.keyless = all(p.keyless for p in parts if p.feature_count)
        self.running = any(p.running for p in parts)
        turning = [p for p in parts if {"query", "key", "value", "restore"} & set(p.points)]
        self.step = min((p.step for p in parts if {"embed", "query", "key"} & set(p.points)), default=1)
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

    def spread(self, logits: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return next(p for p in parts_of(self) if "spread" in p.points).spread(logits, i, j)

    def output(self, p: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return functools.reduce(
            torch.add, [e.output(p, i, j) for e in parts_of(self) if "output" in e.points] or [super().output(p, i, j)]
        )

    def features(self, x: Tensor, pos: Tensor) -> Tensor:
        return torch.cat([p.features(x, pos) for p in parts_of(self) if p.feature_count] or [x[..., :0]], dim=-1)

    def gate(self, h: Tensor, f: Tensor) -> Tensor:
        gates = [p.gate(h, mine) for p, mine in self._split(f) if "gate" in p.points]
        return functools.reduce(torch.add, gates or [super().gate(h, f)])

    def weigh(self, h: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
        both = zip(self._split(f), self._split(g), strict=True)
        added = [p.weigh(h, mine, theirs, i, j) for (p, mine), (_, theirs) in both if "weigh" in p.points]
        return functools.reduce(torch.add, added or [super().weigh(h, f, g, i, j)])

    def relate(self, s: Tensor, q: Tensor, k: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for (part, mine), (_, theirs) in zip(self._split(f), self._split(g), strict=True):
            s = part.relate(s, q, k, mine, theirs, i, j)
        return s

    def value(self, v: Tensor, pos: Tensor) -> Tensor:
        return functools.reduce(lambda v, part: transform("value", part, v, pos), parts_of(self), v)

    def restore(self, y: Tensor, pos: Tensor) -> Tensor:
        return functools.reduce(lambda y, part: part.restore(y, pos), reversed(parts_of(self)), y)

    def revalue(self, v: Tensor, pos: Tensor, was_pos: Tensor) -> Tensor:
        if sum("value" in part.points for part in parts_of(self)) > 1:
            return super().revalue(v, pos, was_pos)
        return functools.reduce(lambda v, part: part.revalue(v, pos, was_pos), parts_of(self), v)

    def _split(self, f: Tensor) -> list[tuple[Encoding, Tensor]]:
        """The parts that have features, each with its own."""
        parts = [part for part in parts_of(self) if part.feature_count]
        sizes = [part.feature_count if f.shape[-1] else 0 for part in parts]  # of keys, nothing where all are keyless
        return list(zip(parts, torch.split(f, sizes, dim=-1), strict=True))

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
