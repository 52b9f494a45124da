"""KVCache: keys and values of a text that goes on, with their layout.

    cache = KVCache(enc)
    y = cache.decode(q, k, v)                           # the next tokens, q and k as they are: one call, or in its
                                                        steps:

    at = cache.next(L)                                  # where the next L tokens are
    k, v, to = cache.append(k, v, at)                   # all keys and values so far, and where they are
    y = attend(q, k, v, enc, at=at, to=to)              # `to` knows that the keys are turned

    y = cache.decode(q, k, v, features=enc.features(x, pos))    # features of the hidden states, where the encoding
                                                                asks for them: they are kept beside the keys

Keys come as they are and are kept turned, and so are values where the encoding turns values. What would make them
stale turns them again, exactly, or is refused. An encoding that depends on the length is run by a policy:

    staged     (default) by the stage of each query: exact, cached = full; keys turn again log2(N / trained) times in
               all
    recompute  keys are kept raw and turned at every step for the length so far: never stale, O(N) rotations a step
    frozen     scaled once, for a declared length
    hf         as transformers does it: each key stays as it was turned when it came. Wrong past the trained length; for
               parity

Nothing is changed until all that was given has been checked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from milepost.attention.attend import attend, check, check_features
from milepost.attention.call import Call
from milepost.attention.lanes.content_lane import ContentLane
from milepost.attention.lanes.lane import Lane
from milepost.attention.lanes.map_lane import MapLane
from milepost.attention.lengths import Keys, rule_of, staged
from milepost.attention.turning import check_marks, refuse_marked, turns_by_length
from milepost.checks import check_choice
from milepost.encoding import Encoding, transform
from milepost.layout import Layout, Run, trusted

Policy = Literal["staged", "recompute", "frozen", "hf"]


class KVCache:
    """Room for ``capacity`` tokens, doubled when it is full, up to ``limit`` tokens if one is given.

    ``length`` is the declared length of policy "frozen".
    """

    def __init__(
        self,
        enc: Encoding | None = None,
        *,
        capacity: int = 256,
        limit: int | None = None,
        policy: Policy = "staged",
        length: int | None = None,
    ):
        enc = Encoding() if enc is None else enc
        check_choice("policy", policy, ("staged", "recompute", "frozen", "hf"))
        if capacity < 1 or (limit is not None and limit < 1):
            raise ValueError(f"capacity and limit must be at least 1, got capacity={capacity}, limit={limit}")
        if (length is not None) != (policy == "frozen"):
            raise ValueError(
                'policy "frozen" wants length=, the declared length, and no other policy does; got '
                f"policy={policy!r}, length={length}"
            )
        self.by_length = turns_by_length(enc)
        if rule_of(enc) is not None and policy != "staged":
            raise ValueError(f"{enc!r} is staged; policy {policy!r} is for dynamic scalings")
        self.rule = staged(enc) if self.by_length and policy == "staged" else enc
        if self.by_length and policy == "staged" and rule_of(self.rule) is None:
            raise ValueError(
                f'{enc!r} has a scaling that can not be run by stages; choose policy="recompute", "frozen" or "hf"'
            )
        self.policy, self.capacity, self.limit, self.declared = policy, capacity, limit, length
        self.by: Encoding | None = None if self.by_length else enc
        self.stage: int | None = None
        self.stages = rule_of(self.rule) if self.by_length else None
        self._layout: Layout | None = None
        self._more = 0  # tokens that the lane has written past the layout
        self._lane: Lane | MapLane | ContentLane | None = None
        self._count: Tensor | None = None
        self._zeros: Tensor | None = None
        self._k: Tensor | None = None
        self._v: Tensor | None = None
        self._f: Tensor | None = None

    # -- what it holds ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return 0 if self._layout is None else self._layout.length + self._more

    @property
    def layout(self) -> Layout | None:
        """Where the tokens are; None while there are none."""
        if self._more and self._layout is not None:
            more, self._more = self._more, 0
            self._layout = self._after(
                Layout.dense(more, start=self._layout.length, device=self._layout.index.device), self._layout.keys
            )
        return self._layout

    @property
    def k(self) -> Tensor:
        """The keys so far, B G N D (a view)."""
        return self._filled(self._k)

    @property
    def v(self) -> Tensor:
        """The values so far, B G N Dv (a view)."""
        return self._filled(self._v)

    @property
    def features(self) -> Tensor | None:
        """The features of the tokens so far (a view); None where the encoding asks for none, or for the queries'
        alone.
        """
        return self._filled(self._f)[:, 0] if self.rule.feature_count and not self.rule.keyless else None

    def _filled(self, held: Tensor | None) -> Tensor:
        if held is None:
            raise ValueError("the cache is empty; append first")
        return held.narrow(2, 0, len(self))

    def next(self, length: int = 1, *, window: int | None = None) -> Layout:
        """Where the next tokens are: each row goes on where its own text ended."""
        n = len(self)
        if (
            self._more
            and self._count is not None
            and self._zeros is not None
            and self._count.shape[1] >= n + length > n
        ):
            at = self._count[:, n : n + length]  # in a lane every row is one text, of which the layout need not be made
            return trusted(at, self._zeros[:, :length], window, ((Run(0, length, 0, n),),))
        if self.layout is None:
            return Layout.dense(length, window=window)
        if self.layout.rows is not None:
            ends = [max((run.first + run.length for run in row), default=0) for row in self.layout.rows]
            device = self.layout.index.device
            if len(set(ends)) == 1:
                if (
                    self._count is not None
                    and self._zeros is not None
                    and self._count.shape[1] >= ends[0] + length > ends[0]
                ):
                    index = self._count[:, ends[0] : ends[0] + length]
                    return trusted(index, self._zeros[:, :length], window, ((Run(0, length, 0, ends[0]),),))
                return Layout.dense(length, start=ends[0], window=window, device=device)
            return Layout.decode(torch.tensor(ends, device=device), length, window=window)
        real = self.layout.segment >= 0
        return Layout.decode(torch.where(real, self.layout.index + 1, 0).amax(-1), length, window=window)

    # -- what changes it ----------------------------------------------------------------------------------------

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, *, features: Tensor | None = None, scale: float | None = None
    ) -> Tensor:
        """Take in the next tokens and attend to all so far: B H L Dv, from q (B H L D), k (B G L D), v (B G L Dv) as
        they are, and ``features`` (B L N) of the hidden states where the encoding asks for them.
        """
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        refuse_marked(q=q, k=k)
        n, lane = len(self), self._lane
        if lane is not None and lane.fits(q, k, v, features, n, scale):
            assert self._k is not None and self._v is not None
            out = lane.token(q, k, v, features, self._k, self._v, n)
            if features is not None and self._f is not None:
                self._f[:, 0, n] = features[:, 0]
            self._more += 1
            return out
        if q.dim() != 4:
            raise ValueError(f"q must have shape (B, H, L, D), got {tuple(q.shape)}")
        at = self.next(q.shape[2])
        if features is not None or self.rule.feature_count:
            self._check_numbers(features, k)
        kept = features[..., :0] if features is not None and self.rule.keyless else features
        check(Call(q, k, v, self.rule, at, at, True, scale, None, features, kept))
        keys, values, to = self.append(k, v, at, features=features)
        both = features if features is None or self.features is None else (features, self.features)
        out = attend(q, keys, values, self.rule, at=at, to=to, scale=scale, features=both)
        self._open_lane(q, k, v, at, scale)
        return out

    def _open_lane(self, q: Tensor, k: Tensor, v: Tensor, at: Layout, scale: float) -> None:
        """Let the tokens that are like this one, up to the next change of anything, go the short way."""
        assert self.layout is not None and self._k is not None
        n = len(self)
        one_text = (
            not self.layout.remapped
            and self.layout.rows is not None
            and all(row == (Run(0, n, 0, 0),) for row in self.layout.rows)
        )
        if not one_text or (self.policy == "hf" and self.by_length):
            return
        if self.by is None:
            return
        with torch.inference_mode(False), torch.no_grad():  # a lane that is opened in inference mode goes on outside
            stop = min(end for end in (self._k.shape[2], self.rule.end) if end is not None)
            if MapLane.serves(self.by, q, k, v):
                self._lane = MapLane(self.by, q, k, v, self._k, n, stop, scale)
            elif Lane.serves(self.by, q, k, v, n):
                next_stage = None if self.stages is None or self.stage is None else self.stages.start(self.stage + 1)
                stop = stop if next_stage is None else min(stop, next_stage)
                self._lane = Lane(self.by, q, k, v, n, stop, scale, self.features)
            else:
                call = Call(q, self.k, self.v, self.by, at, self.layout, True, scale)
                run = ContentLane.serves(call)
                self._lane = None if run is None else ContentLane(call, run, stop)

    def append(
        self,
        k: Tensor,
        v: Tensor,
        at: Layout | None = None,
        *,
        turned: bool = False,
        features: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Layout]:
        """Take in keys (B G L D) and values (B G L Dv) at ``at`` (by default `next`); all keys and values so far, and
        where they are.

        Keys come as they are and are turned here, unless ``turned`` says that the encoding's `key` did so before; so
        do values, where it has a `value`. ``features`` (B L N) are those of the same tokens, where it asks for any.
        """
        at = self.next(k.shape[2]) if at is None else at
        self._check(k, v, at)
        if features is not None or self.rule.feature_count:
            self._check_numbers(features, k)
            features = None if self.rule.keyless else features
        if turned and self.by_length:
            raise ValueError(
                f"{self.rule!r} depends on the length of the text: the cache turns its keys; give them as they are"
            )
        if turned:
            check_marks(self.rule, at, k=k, v=v)
        else:
            refuse_marked(k=k, v=v)
        with torch.no_grad():
            by, stage, k = (self.by, None, k) if turned else self._turned(k, at)
            if not turned and "value" in self.rule.points:
                v = transform("value", self.rule, v, at.pos)
            keys = (
                self.layout.keys
                if self.layout is not None and by is self.by
                else Keys(self.rule, by, stage, self.stages)
            )
            layout = self._after(at, keys)
            held = len(self)
            self._grow(k, v, features, held + k.shape[2])
            assert self._k is not None and self._v is not None
            if (
                by is not self.by
                and held
                and self.by is not None
                and self.layout is not None
                and self.policy == "staged"
            ):
                assert by is not None
                self._k[:, :, :held] = by.rekey(self._k[:, :, :held], self.layout.pos, self.by, self.layout.pos)
            self._k.narrow(2, held, k.shape[2]).copy_(k)  # narrow, not a slice: indexing takes three times as long
            self._v.narrow(2, held, v.shape[2]).copy_(v)
            if features is not None and self._f is not None:
                self._f[:, 0, held : held + k.shape[2]] = features
            self.by, self.stage, self._layout, self._lane = by, stage, layout, None
        return self.k, self.v, layout

    def reorder(self, beams: Tensor) -> None:
        """Let row b of the batch go on from what was row ``beams[b]``: for beam search. The number of rows may
        change.
        """
        if self.layout is None or self._k is None or self._v is None:
            raise ValueError("the cache is empty; there are no beams to reorder")
        rows = self._k.shape[0]
        if (
            beams.dim() != 1
            or beams.is_floating_point()
            or beams.numel() == 0
            or int(beams.min()) < 0
            or int(beams.max()) >= rows
        ):
            raise ValueError(f"beams must be integers from 0 to {rows - 1}, one for each row, got {beams.tolist()}")
        with torch.inference_mode(False), torch.no_grad():
            self._k, self._v = self._k.index_select(0, beams), self._v.index_select(0, beams)
            self._f = None if self._f is None else self._f.index_select(0, beams)
        old = self.layout
        index, segment, pos = (
            t if t.shape[-2] == 1 else t.index_select(-2, beams) for t in (old.index, old.segment, old.pos)
        )
        known = old.rows if old.rows is None or len(old.rows) == 1 else tuple(old.rows[b] for b in beams.tolist())
        self._lane = None
        self._layout = replace(old, index=index, segment=segment, pos=pos if old.remapped else index, rows=known)

    def evict(self, *, sinks: int = 4, window: int) -> int:
        """Keep the first ``sinks`` and the last ``window`` tokens; how many were dropped.

        What is left is renumbered 0, 1, 2, ... as if the rest had never been, and its keys turned to their new places.
        """
        if sinks < 0 or window < 1:
            raise ValueError(f"sinks must be at least 0 and window at least 1, got sinks={sinks}, window={window}")
        n = len(self)
        if n <= sinks + window or self.layout is None:
            return 0
        self._one_text("evict")
        remaining = torch.cat([torch.arange(sinks), torch.arange(n - window, n)]).to(self.layout.index.device)
        self._move(remaining, torch.arange(sinks + window, device=self.layout.index.device)[None])
        return n - sinks - window

    def shift(self, by: int) -> None:
        """Move every token by ``by`` places (negative: to the left), and turn its key accordingly."""
        if self.layout is None:
            raise ValueError("the cache is empty; there is nothing to shift")
        self._one_text("shift")
        index = self.layout.index + by
        if int(index.min()) < 0:
            raise ValueError(f"shifting by {by} would put the first token at index {int(index.min())}")
        self._move(torch.arange(len(self), device=index.device), index)

    # -- how --------------------------------------------------------------------------------------------------------

    def _check(self, k: Tensor, v: Tensor, at: Layout) -> None:
        if k.dim() != 4 or v.dim() != 4 or k.shape[:3] != v.shape[:3]:
            raise ValueError(
                f"keys and values must have shapes (B, G, L, D) and (B, G, L, Dv), got {tuple(k.shape)} and "
                f"{tuple(v.shape)}"
            )
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise ValueError(
                "a cache keeps numbers, and gradients would be lost: decode under torch.no_grad(), or append "
                "k.detach() and v.detach()"
            )
        if at.length != k.shape[2] or at.batch not in (1, k.shape[0]):
            raise ValueError(
                f"the layout is of {at.batch} x {at.length} tokens, the keys of {k.shape[0]} x {k.shape[2]}"
            )
        for name, new, held in (("keys", k, self._k), ("values", v, self._v)):
            if held is not None and (new.shape[0], new.shape[1], new.shape[3]) != (
                held.shape[0],
                held.shape[1],
                held.shape[3],
            ):
                wanted = (held.shape[0], held.shape[1], "L", held.shape[3])
                raise ValueError(
                    f"the cache holds {name} of shape ({', '.join(map(str, wanted))}), got {tuple(new.shape)}"
                )
            if held is not None and (new.dtype, new.device) != (held.dtype, held.device):
                raise ValueError(
                    f"the cache holds {name} in {held.dtype} on {held.device}, got {new.dtype} on {new.device}"
                )
        if self.limit is not None and len(self) + k.shape[2] > self.limit:
            raise ValueError(
                f"{len(self)} cached and {k.shape[2]} new tokens are more than the cache may hold ({self.limit}); "
                "evict first, or raise limit"
            )
        if at.index.device != k.device:
            raise ValueError(f"the layout is on {at.index.device}, the keys on {k.device}")
        self.rule.check(at)
        if self.layout is not None:
            self._check_order(self.layout, at)

    def _check_numbers(self, features: Tensor | None, k: Tensor) -> None:
        """Raise ValueError unless these are the features of the tokens whose keys are ``k``."""
        if not self.rule.feature_count:
            if features is not None:
                raise ValueError(f"{self.rule!r} asks for no features of the hidden states; leave features= out")
            return
        check_features(self.rule, features, (k.shape[0], k.shape[2], self.rule.feature_count), "the new tokens")
        assert features is not None
        if torch.is_grad_enabled() and features.requires_grad:
            raise ValueError(
                "a cache keeps numbers, and gradients would be lost: decode under torch.no_grad(), or append "
                "features.detach()"
            )
        held = features if self._f is None else self._f
        if (features.dtype, features.device) != (held.dtype, held.device) or features.device != k.device:
            raise ValueError(
                f"the cache holds features in {held.dtype} on {held.device} beside keys on {k.device}, got "
                f"{features.dtype} on {features.device}"
            )

    @staticmethod
    def _check_order(old: Layout, new: Layout) -> None:
        """New tokens must come after those of the same text that are here already."""
        if old.rows is None or new.rows is None:
            return
        for row in range(max(len(old.rows), len(new.rows))):
            before, after = (rows[row if len(rows) > 1 else 0] for rows in (old.rows, new.rows))
            for run in after:
                end = max((r.first + r.length for r in before if r.segment == run.segment), default=0)
                if run.first < end:
                    raise ValueError(
                        f"the cache holds tokens up to index {end - 1} of text {run.segment}; new ones must come "
                        f"after it, got index {run.first}"
                    )

    def _turned(self, k: Tensor, at: Layout) -> tuple[Encoding | None, int | None, Tensor]:
        """For what (and for which stage) the keys will have been turned after this append, and the new keys turned for
        it.
        """
        if not self.by_length:
            return self.by, None, transform("key", self.rule, k, at.pos) if "key" in self.rule.points else k
        if self.policy == "recompute":
            return None, None, k
        ends = (
            max((run.first + run.length for row in at.rows for run in row), default=1)
            if at.rows
            else int(at.index.max()) + 1
        )
        plain, stage = (self.rule.at(self.declared or ends), None) if self.policy != "staged" else self._stage(ends - 1)
        return plain, stage, transform("key", plain, k, at.pos)

    def _stage(self, last: int) -> tuple[Encoding, int]:
        """The plain encoding for the stage of a token at index ``last``, and the stage."""
        assert self.stages is not None
        stage = self.stages.stage(last)
        current = self.by if self.stage == stage else None
        return current or self.rule.at(self.stages.start(stage) + 1), stage

    def _after(self, at: Layout, keys: Keys) -> Layout:
        """Where everything is once ``at`` is here. One text that goes on is a longer stretch of the same numbers."""
        if self.layout is None:
            return replace(at, window=None, keys=keys)
        old, new = self.layout.rows, at.rows
        plain = (
            not self.layout.remapped
            and not at.remapped
            and old is not None
            and new is not None
            and len(old) == len(new) == 1
        )
        if plain and old is not None and new is not None and len(old[0]) == len(new[0]) == 1:
            (had,), (more,) = old[0], new[0]
            whole = Run(0, had.length + more.length, 0, had.first)
            if (had.offset, more.offset, had.segment, more.segment, more.first) == (
                0,
                0,
                0,
                0,
                had.first + had.length,
            ) and had.length == len(self):
                if (
                    self._count is None
                    or self._count.shape[1] < whole.first + whole.length
                    or self._count.device != at.index.device
                ):
                    with torch.inference_mode(False):
                        self._count = torch.arange(2 * (whole.first + whole.length), device=at.index.device)[None]
                        self._zeros = torch.zeros_like(self._count)
                assert self._zeros is not None
                index = self._count[:, whole.first : whole.first + whole.length]
                return trusted(index, self._zeros[:, : whole.length], None, ((whole,),), keys)
        return replace(self.layout.then(replace(at, window=None)), keys=keys)

    def _grow(self, k: Tensor, v: Tensor, features: Tensor | None, needed: int) -> None:
        if self._k is not None and self._k.shape[2] >= needed:
            return
        size = self.capacity
        while size < needed:
            size *= 2
        size = size if self.limit is None else max(needed, min(size, self.limit))
        for name, new in (("_k", k), ("_v", v), ("_f", None if features is None else features[:, None])):
            if new is None:
                continue
            held = getattr(self, name)
            with torch.inference_mode(False):  # a cache filled in inference mode can be used outside of it
                room = torch.zeros(new.shape[0], new.shape[1], size, new.shape[3], dtype=new.dtype, device=new.device)
            if held is not None:
                room[:, :, : len(self)] = held[:, :, : len(self)]
            setattr(self, name, room)

    def _one_text(self, what: str) -> None:
        assert self.layout is not None
        if self.layout.rows is None or any(len(row) != 1 or row[0].length != len(self) for row in self.layout.rows):
            raise ValueError(
                f"{what}() is for rows of one text without padding; this cache holds padded, packed or scattered tokens"
            )
        if self.layout.remapped:
            raise ValueError(
                f"{what}() renumbers tokens, and these have other positions than their indices; renumbering would "
                "lose them"
            )

    @torch.no_grad()
    def _move(self, tokens: Tensor, index: Tensor) -> None:
        """Keep some tokens and give them new places."""
        assert self.layout is not None and self._k is not None and self._v is not None
        was = self.layout.pos[..., tokens]
        k, v = self._k[:, :, tokens], self._v[:, :, tokens]
        by, old, stage = self.by, self.by, self.stage
        if self.by_length and self.policy == "staged":
            by, stage = self._stage(int(index.max()))
        if by is not None and old is not None:
            k = by.rekey(k, index, old, was)
        if "value" in self.rule.points:
            v = self.rule.revalue(v, index, was)
        room = len(tokens)
        self._k[:, :, :room], self._v[:, :, :room] = k, v
        if self._f is not None:
            self._f[:, :, :room] = self._f[:, :, tokens]
        rows = tuple((Run(0, room, 0, int(first)),) for first in index[:, 0].tolist())
        self.by, self.stage, self._lane = by, stage, None
        self._layout = Layout(
            index, torch.zeros_like(index), index, None, rows, Keys(self.rule, by, stage, self.stages)
        )
