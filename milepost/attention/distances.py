"""distances: a bias of the distance as a table, one number a head and distance, by falling distance; and the vectors of
the distance that a score meets.

A decode needs the same numbers at every token, so the table of an encoding is kept, together with a copy of every
number that it was made of (parameters, buffers, attributes). It is taken again only while all of them are equal to
those copies: whoever writes to a parameter, by an optimizer, through ``.data`` or through numpy, the next token sees
it. Only milepost's own encodings are kept so: what a stranger's ``bias`` reads can't be known, and it is asked anew at
every call.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Encoding, Relative, Sum


def falling(
    enc: Encoding, heads: int, first_head: int, far: int, count: int,
    *, causal: bool, window: int, dtype: torch.dtype, device: torch.device,
) -> Tensor:  # fmt: skip
    """The bias of every head by falling distance, from ``far`` down, ``count`` numbers (H, count); -inf where
    hidden.
    """
    low = far - count + 1
    if low >= 0 and not window and not torch.compiler.is_compiling() and not _learning(enc):
        whole = _whole(enc, far + 1, heads, first_head, dtype, device)
        if whole is not None:
            return whole[:, whole.shape[1] - 1 - far : whole.shape[1] - low]
    distance = torch.arange(far, low - 1, -1, device=device)
    table = _bias(enc, distance, heads, first_head, dtype)
    if causal and low < 0:
        table = table.masked_fill(distance < 0, float("-inf"))
    if window:
        table = table.masked_fill(distance.abs() >= window, float("-inf"))
    return table


def _bias(enc: Encoding, distance: Tensor, heads: int, first_head: int, dtype: torch.dtype) -> Tensor:
    if "bias" not in enc.points:
        return torch.zeros(heads, distance.shape[0], dtype=dtype, device=distance.device)
    h = torch.arange(first_head, first_head + heads, device=distance.device)[:, None]
    return enc.bias(h, distance, torch.zeros_like(distance)).to(dtype).expand(heads, -1)


def _learning(enc: Encoding) -> bool:
    return torch.is_grad_enabled() and any(p.requires_grad for p in enc.parameters())


@dataclasses.dataclass(frozen=True)
class _Memo:
    """A table of distances that fall to 0, and copies of all that it was made of."""

    made_of: list[Any]
    table: Tensor


_memos: weakref.WeakKeyDictionary[Encoding, _Memo] = weakref.WeakKeyDictionary()


def _whole(
    enc: Encoding, reach: int, heads: int, first_head: int, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    """Distances from ``reach`` - 1 or more down to 0, kept; None where it can't be known what the bias is made of."""
    numbers = numbers_of(enc)
    if numbers is None:
        return None
    made_of = [heads, first_head, dtype, device, *numbers]
    memo = _memos.get(enc)
    if memo is None or memo.table.shape[1] < reach or not same(memo.made_of, made_of):
        size = 1 << max(8, (reach - 1).bit_length())
        with torch.inference_mode(False), torch.no_grad():  # in this order: leaving inference mode turns gradients on
            distance = torch.arange(size - 1, -1, -1, device=device)
            table = _bias(enc, distance, heads, first_head, dtype).contiguous()
            memo = _Memo(copied(made_of), table)
        _memos[enc] = memo
    return memo.table


@dataclasses.dataclass(frozen=True)
class _Vectors:
    """Vectors of the distances ``far`` down to ``near``, and copies of all that they were made of."""

    made_of: list[Any]
    far: int
    near: int
    relative: Relative


_vectors: weakref.WeakKeyDictionary[Encoding, _Vectors] = weakref.WeakKeyDictionary()


def vectors(enc: Encoding, far: int, near: int, device: torch.device) -> Relative:
    """``enc.relative`` for the distances from ``far`` down to ``near``; where nothing is learned, kept like a table."""
    numbers = None if torch.compiler.is_compiling() or _learning(enc) else numbers_of(enc)
    if numbers is None:
        made = enc.relative(torch.arange(far, near - 1, -1, device=device))
        assert made is not None
        return made
    made_of = [device, *numbers]
    memo = _vectors.get(enc)
    if memo is None or memo.far < far or memo.near != near or not same(memo.made_of, made_of):
        reach = far if enc.alike_from is not None else max(255, (1 << far.bit_length()) - 1)
        with torch.inference_mode(False), torch.no_grad():
            made = enc.relative(torch.arange(reach, near - 1, -1, device=device))
            assert made is not None
            memo = _Vectors(copied(made_of), reach, near, made)
        _vectors[enc] = memo
    kept, skipped = memo.relative, memo.far - far
    a, b, values = (t if t is None else t[:, skipped:] for t in (kept.a, kept.b, kept.values))
    return dataclasses.replace(kept, a=a, b=b, values=values)


def numbers_of(enc: Encoding) -> list[Any] | None:
    """All that the hooks of one of milepost's own encodings are made of; None for a stranger's."""
    numbers: list[Any] = []
    for module in enc.modules():
        if not type(module).__module__.startswith(("milepost.encodings.", "milepost.maps.")) and type(module) not in (
            Encoding,
            Sum,
            torch.nn.ModuleList,
        ):
            return None
        own = [value for name, value in vars(module).items() if not name.startswith("_")]
        for value in (*own, *module._parameters.values(), *module._buffers.values()):
            if isinstance(value, Tensor):
                if value.device.type != "cpu":
                    return None  # comparing would wait for the device
            elif not _unchanging(value):
                return None
            numbers.append(value)
    return numbers


def _unchanging(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_unchanging, value))
    if dataclasses.is_dataclass(value):
        return bool(vars(type(value))["__dataclass_params__"].frozen)
    return value is None or isinstance(value, int | float | str)


def copied(numbers: list[Any]) -> list[Any]:
    """Copies that `same` can be asked about later."""
    return [x.detach().clone() if isinstance(x, Tensor) else x for x in numbers]


def same(was: list[Any], now: list[Any]) -> bool:
    """Whether all numbers are still those that were copied."""
    return len(was) == len(now) and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
        if isinstance(a, Tensor) and isinstance(b, Tensor)
        else a == b
        for a, b in zip(was, now, strict=True)
    )
