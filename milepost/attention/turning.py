"""turning: attend turns q, k and v itself, and never twice.

    attend(q, k, v, enc, at=at)                      q, k and v as they are: they are turned here, each by its own
                                                     positions
    attend(q, k, v, enc, at=at, to=to, turned="keys")    keys that were turned before, such as those of a cache
    attend(q, k, v, enc, at=at, turned=True)         both were turned before

Few encodings turn values; where one does, they go with the keys: who turned the keys has turned the values.

What `enc.query`, `enc.key` and `enc.value` return carries a mark (`milepost.encoding.Mark`: by which encoding, at
which positions). A marked tensor without ``turned=`` is refused, and so is one whose mark says another encoding or
other positions than the call does. Arithmetic, slices, copies and compiled graphs give tensors without a mark: there,
what ``turned`` says is believed.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from milepost.attention.call import Call
from milepost.encoding import Encoding, TurnMark, mark_of, marks_exist, parts_of, transform
from milepost.layout import Layout

Turned = Literal["keys"] | bool


def turns_by_length(enc: Encoding) -> bool:
    """Whether q and k are turned by angles that depend on the length of the text."""
    return enc.length_dependent and any(part.length_dependent and _turns(part) for part in parts_of(enc))


def turn(call: Call, turned: Turned) -> Call:
    """A call with q and k as its encoding turns them, those that ``turned`` does not name; as they are where the
    length decides.
    """
    if not isinstance(turned, bool) and turned != "keys":
        raise ValueError(
            'turned must be False (q and k as they are), "keys" (only the keys were turned before) or True (both '
            f"were), got {turned!r}"
        )
    q, k, v, enc, at, to = call.q, call.k, call.v, call.enc, call.at, call.to
    from_cache = to.keys is not None  # such keys are turned already, and `to` says how
    if turns_by_length(enc):
        if turned is True:
            raise ValueError(
                f"{enc!r} depends on the length of the text, so q and k can't have been turned before attend() knows "
                "that length; give them as they are, without turned=True, or use enc.at(length) for one length"
            )
        if turned == "keys" and not from_cache:
            raise ValueError(
                f"{enc!r} depends on the length of the text: keys that were turned before come from a KVCache, with "
                "the layout that its append() returns; give other keys as they are"
            )
        refuse_marked(q=q)
        if not from_cache:
            refuse_marked(k=k, v=v)
        return call
    points, keys_are_turned = enc.points, turned is not False or from_cache
    if marks_exist():
        if turned is True:
            check_marks(enc, at, q=q)
        else:
            refuse_marked(q=q)
        if keys_are_turned:
            check_marks(enc, to, k=k, v=v)
        else:
            refuse_marked(k=k, v=v)
    if turned is not True and "query" in points:
        q = transform("query", enc, q, at.pos)
    if not keys_are_turned and "key" in points:
        k = transform("key", enc, k, to.pos)
    if not keys_are_turned and "value" in points:
        v = transform("value", enc, v, to.pos)
    return call if q is call.q and k is call.k and v is call.v else call.given(q, k, v)


def refuse_marked(**given: Tensor) -> None:
    """Raise ValueError if one of them was turned before."""
    if not marks_exist():
        return
    for name, x in given.items():
        mark = mark_of(x)
        if mark is not None:
            raise ValueError(
                f"{name} was turned already, by {mark.encoding!r}, and would be turned twice. attend() turns q, k and "
                "v itself: give them as they are, attend(q, k, v, enc, at=at), or say that they come turned, "
                'attend(..., turned=True), or turned="keys" for the keys alone'
            )


def check_marks(enc: Encoding, where: Layout, **given: Tensor) -> None:
    """Raise ValueError if one of them carries the mark of another encoding or of other positions."""
    for name, x in given.items():
        mark = mark_of(x)
        if mark is None:
            continue
        if _turning(mark.encoding) != _turning(enc):
            raise ValueError(
                f"{name} was turned by {mark.encoding!r}, and attend() was given {enc!r}; use one encoding for both"
            )
        layout = "at" if name == "q" else "to"
        if not _same_positions(mark, where.pos):
            raise ValueError(
                f"{name} was turned for positions {_span(mark.positions)}, and `{layout}` says {_span(where.pos)}; "
                f"turn {name} by {layout}.pos, or give it as it is and let attend() turn it"
            )


def _same_positions(mark: TurnMark, pos: Tensor) -> bool:
    was = mark.positions
    if was is pos:
        return True
    if was.device != pos.device or pos.device.type != "cpu":
        return True  # comparing would wait for the device
    while was.dim() < pos.dim():
        was = was[None]
    if was.dim() != pos.dim() or any(1 not in (a, b) and a != b for a, b in zip(was.shape, pos.shape, strict=True)):
        return False
    return bool((was == pos).all())


def _span(pos: Tensor) -> str:
    ends = pos.flatten()[:1].tolist() + pos.flatten()[-1:].tolist()
    return f"{' to '.join(f'{end:.12g}' for end in ends) or 'of no token'} (shape {tuple(pos.shape)})"


def _turning(enc: Encoding) -> list[str]:
    return [repr(part) for part in parts_of(enc) if _turns(part)]


def _turns(enc: Encoding) -> bool:
    return bool({"query", "key", "value"} & set(enc.points))
