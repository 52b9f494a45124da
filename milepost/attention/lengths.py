"""lengths: attention with an encoding that depends on the length of the text. q and k come as they are and are turned
here.

dynamic, no cache      each text is turned for its own length, whatever lies beside it in the batch
staged                 queries are taken stage by stage, each with all keys turned for that stage
from a cache           by the cache's policy: `to.keys` says for what the keys have been turned already
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from milepost.attention.blocks import Block, assemble
from milepost.attention.call import Call
from milepost.attention.turning import Turned, turns_by_length
from milepost.encoding import Encoding, Sum, parts_of
from milepost.layout import Layout
from milepost.scaling import Staged


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
        or (turns_by_length(enc) and rule_of(to.keys.rule) is not None)
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
    from milepost.scaling import Dynamic

    def swap(part: Encoding) -> Encoding:
        if isinstance(part, RoPE) and isinstance(part.scaling, Dynamic) and part.length_dependent:
            by_stages = Staged(part.scaling.trained, part.scaling.factor)
            return RoPE(part.head_dim or 0, part.base, part.pairing, part.rotary, part.partial, by_stages)
        return part

    return Sum(*map(swap, parts_of(enc))) if isinstance(enc, Sum) else swap(enc)


def rule_of(enc: Encoding) -> Staged | None:
    """The staged scaling of an encoding, if it has one."""
    scalings = [s for part in parts_of(enc) if isinstance(s := getattr(part, "scaling", None), Staged)]
    if len({repr(s) for s in scalings}) > 1:
        raise ValueError(f"the parts of {enc!r} are staged differently; one rule is needed")
    return scalings[0] if scalings else None


def attend_by_length(call: Call, attend: Callable[[Call, Turned], Tensor]) -> Tensor:
    """Attention of raw q (B H I D) to raw or cached k, v; ``attend`` does each part with a plain encoding."""
    cached: Keys | None = call.to.keys
    call = call if cached is None else replace(call, enc=cached.rule)
    blocks = call.blocks
    if isinstance(blocks, str):
        raise ValueError(
            f"{call.enc!r} needs to know each text's length, but {blocks}; attend with enc.at(length) instead"
        )
    if cached is not None and cached.by is not None and len(blocks) == 1 and _all_ready(cached, blocks[0], call):
        return attend(replace(call, enc=cached.by, to=replace(call.to, keys=None)), "keys")
    stages = rule_of(call.enc) if cached is None else cached.stages
    pieces: list[tuple[Block, Tensor]] = []
    for block in blocks:
        first = _first_key(call.to, block)
        if stages is None:  # turned for the length of the text
            ready = None if cached is None else cached.by
            pieces.append((block, _attend_block(call, block, ready or call.enc.at(first + block.shape[1]), attend)))
            continue
        for part in _by_stage(stages, block, first, call.causal, call.at.window):
            stage = stages.stage(_first_key(call.to, part) + part.ahead)
            ready = cached.by if cached is not None and cached.stage == stage else None
            plain = ready or call.enc.at(stages.start(stage) + 1)
            pieces.append((part, _attend_block(call, part, plain, attend)))
    return assemble(call.q, call.v.shape[-1], pieces)


def _all_ready(cached: Keys, block: Block, call: Call) -> bool:
    """Whether every query is served by the keys as the cache holds them: what a decode meets at all but a few steps."""
    if block.row is not None or block.shape[0] != call.q.shape[2]:
        return False
    stages, first = cached.stages, _first_key(call.to, block) + block.ahead
    return stages is None or (stages.stage(first) == cached.stage == stages.stage(first + block.shape[0] - 1))


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


def _attend_block(call: Call, block: Block, plain: Encoding, attend: Callable[[Call, Turned], Tensor]) -> Tensor:
    """One block with one plain encoding: turn the queries, and those keys that are not turned for it already."""
    by: Encoding | None = None if call.to.keys is None else call.to.keys.by
    part = call.part(block)
    k, to = part.k, replace(part.to, keys=None)
    if by is not None and by is not plain and repr(by) != repr(plain):
        k = plain.rekey(k, to.pos, by, to.pos)
    return attend(replace(part, k=k, enc=plain, to=to), "keys" if by is not None else False)
