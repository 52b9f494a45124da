"""lengths: attention with an encoding that depends on the length of the text. q and k come as they are and are turned
here.

dynamic, no cache      each text is turned for its own length, whatever lies beside it in the batch
staged                 queries are taken stage by stage, each with all keys turned for that stage
from a cache           by the cache's policy: `to.keys` says for what the keys have been turned already
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from milepost.attention.blocks import Block, assemble, blocks
from milepost.attention.turning import turns_by_length
from milepost.encoding import Encoding, Sum
from milepost.layout import Layout
from milepost.scaling.staged import Staged


@dataclass(frozen=True)
class Keys:
    """What a cache holds: keys for encoding ``rule``, transformed already by the plain encoding ``by`` (None: as they
    came).

    ``stage`` is the stage that ``by`` is for, where the rule has ``stages``.
    """

    rule: Encoding
    by: Encoding | None
    stage: int | None = None
    stages: Staged | None = None


def check_keys(enc: Encoding, to: Layout) -> None:
    """Refuse keys from a cache that was made for another encoding."""
    if (
        to.keys is None
        or to.keys.rule is enc
        or repr(to.keys.rule) == repr(enc)
        or (turns_by_length(enc) and _staged(to.keys.rule))
    ):
        return
    if to.keys.by is not None and repr(to.keys.by) == repr(enc):
        return
    raise ValueError(
        f"these keys come from a cache made for {to.keys.rule!r}, not for {enc!r}; make a KVCache for the encoding "
        "that attends"
    )


def staged(enc: Encoding) -> Encoding:
    """The same encoding with dynamic scalings run by stages."""
    from milepost.encodings.rope import RoPE
    from milepost.scaling.dynamic import Dynamic

    def swap(part: Encoding) -> Encoding:
        if isinstance(part, RoPE) and isinstance(part.scaling, Dynamic) and part.length_dependent:
            by_stages = Staged(part.scaling.trained, part.scaling.factor)
            return RoPE(part.head_dim or 0, part.base, part.pairing, part.rotary, part.partial, by_stages)
        return part

    return Sum(*[swap(part) for part in enc.parts]) if isinstance(enc, Sum) else swap(enc)  # type: ignore[arg-type]


def rule_of(enc: Encoding) -> Staged | None:
    """The staged scaling of an encoding, if it has one."""
    found = [s for part in _parts(enc) if isinstance(s := getattr(part, "scaling", None), Staged)]
    if len({repr(s) for s in found}) > 1:
        raise ValueError(f"the parts of {enc!r} are staged differently; one rule is needed")
    return found[0] if found else None


def _staged(enc: Encoding) -> bool:
    return rule_of(enc) is not None


def _parts(enc: Encoding) -> list[Encoding]:
    return list(enc.parts) if isinstance(enc, Sum) else [enc]  # type: ignore[arg-type]


def attend_by_length(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding,
    at: Layout,
    to: Layout,
    *,
    attend: Callable[..., Any],
    causal: bool,
    **how: Any,
) -> Tensor:
    """Attention of raw q (B H I D) to raw or cached k, v; ``attend`` does each part with a plain encoding."""
    kept: Keys | None = to.keys
    enc = kept.rule if kept is not None else enc
    found = blocks(at, to, causal)
    if isinstance(found, str):
        raise ValueError(f"{enc!r} needs to know each text's length, but {found}; attend with enc.at(length) instead")
    rule = kept.stages if kept is not None else rule_of(enc)
    if kept is not None and kept.by is not None and len(found) == 1 and _all_in(rule, kept, found[0], to, q):
        to = replace(to, keys=None)
        out: Tensor = attend(q, k, v, kept.by, at=at, to=to, turned="keys", causal=causal, **how)
        return out
    pieces: list[tuple[Block, Tensor]] = []
    for block in found:
        first = _first_key(to, block)
        if rule is None:
            plain = (
                kept.by if kept is not None and kept.by is not None else enc.at(first + block.shape[1])
            )  # for the text's length
            pieces.append((block, _one(q, k, v, plain, at, to, block, kept, attend, causal, how)))
            continue
        for part in _by_stage(rule, block, first, causal, at.window):
            stage = rule.stage(_first_key(to, part) + part.ahead)
            ready = kept.by if kept is not None and kept.stage == stage else None
            plain = ready or enc.at(rule.start(stage) + 1)
            pieces.append((part, _one(q, k, v, plain, at, to, part, kept, attend, causal, how)))
    return assemble(q, v.shape[-1], pieces)


def _all_in(rule: Staged | None, kept: Keys, block: Block, to: Layout, q: Tensor) -> bool:
    """Whether every query is served by the keys as the cache holds them: what a decode meets at all but a few steps."""
    if block.row is not None or block.shape[0] != q.shape[2]:
        return False
    first = _first_key(to, block) + block.ahead
    return rule is None or (rule.stage(first) == kept.stage == rule.stage(first + block.shape[0] - 1))


def _first_key(to: Layout, block: Block) -> int:
    """The index of a block's first key."""
    assert to.rows is not None
    row = to.rows[(block.row or 0) if len(to.rows) > 1 else 0]
    run = next(r for r in row if r.offset <= block.key_first < r.offset + r.length)
    return int(run.first + block.key_first - run.offset)


def _by_stage(rule: Staged, block: Block, first_key: int, causal: bool, window: int | None) -> list[Block]:
    """A block cut where its queries enter a new stage."""
    first, parts, a = first_key + block.ahead, [], 0
    while a < block.shape[0]:
        e = min(block.shape[0], rule.start(rule.stage(first + a) + 1) - first)
        parts.append(block.cut(a, e, causal, window))
        a = e
    return parts


def _one(
    q: Tensor, k: Tensor, v: Tensor, plain: Encoding, at: Layout, to: Layout, block: Block, kept: Keys | None,
    attend: Callable[..., Any], causal: bool, how: dict[str, Any],
) -> Tensor:  # fmt: skip
    """One block with one plain encoding: turn the queries, and those keys that are not turned for it already."""
    here, there = block.layouts(at, to)
    some, ready = block.keys(k), kept is not None and kept.by is not None
    if kept is not None and kept.by is not None and kept.by is not plain and repr(kept.by) != repr(plain):
        some = plain.rekey(some, there.pos, kept.by, there.pos)
    there, turned = replace(there, keys=None), "keys" if ready else False
    given = block.queries(q), some, block.keys(v)
    done: Tensor = attend(*given, plain, at=here, to=there, turned=turned, causal=causal, **how)
    return done
