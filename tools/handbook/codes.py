"""Figures of the walk: integers, bits, waves, and the rotation that was in them."""

from __future__ import annotations

import torch
from torch import Tensor

from milepost import RoPE, Sinusoidal, build
from milepost.draw.figure import Figure

WIDTH = 64


def _numbers(count: int, first: int = 0) -> list[float]:
    return [float(n) for n in range(first, first + count)]


def _code(spec: str, count: int) -> Tensor:
    """What an encoding adds to zeros: L C."""
    enc = build(spec, width=WIDTH, length=count)
    enc = enc.at(count) if enc.length_dependent else enc
    with torch.no_grad():
        return enc.embed(torch.zeros(1, count, WIDTH, dtype=torch.float64), torch.arange(count))[0]


def integers() -> list[Figure]:
    """How large the code is beside an embedding of size 1."""
    raw = _code("integer", 64).abs().mean(-1)
    short, long = (_code('integer(over="length")', n).abs().mean(-1) for n in (16, 64))
    lines = {
        "the embedding": [1.0] * 64,
        "p": raw.tolist(),
        "p / 16, a short text": [*short.tolist(), *[None] * 48],
        "p / 64, a longer one": long.tolist(),
    }
    return [
        Figure(
            "lines", "Integers: the size of what is added", "position", "size of a channel", _numbers(64), lines=lines
        )
    ]  # type: ignore[arg-type]


def bits() -> list[Figure]:
    code = _code("binary", 64)[:, :8]
    return [_heat("Binary: a channel for each bit", "bit", code)]


def neighbours() -> list[Figure]:
    """The step from each code to the next one."""
    step = {
        name: (code[1:] - code[:-1]).norm(dim=-1).tolist()
        for name in ("binary", "sinusoidal")
        if (code := _code(name, 65)) is not None
    }
    return [
        Figure(
            "lines", "The step from a code to the next one", "position", "length of the step", _numbers(64), lines=step
        )
    ]


def waves() -> list[Figure]:
    code = _code("sinusoidal", 128)
    lines = {f"pair {pair}": code[:, 2 * pair].tolist() for pair in (0, 4, 8, 12)}
    return [
        _heat("Sinusoids: the code of each position", "channel", code),
        Figure("lines", "Four of its sines", "position", "sin", _numbers(128), lines=lines),
    ]


def offsets() -> list[Figure]:
    """Code times code by distance, from several places; then the same after two random projections."""
    code, far = Sinusoidal(width=WIDTH).code(torch.arange(1200)), _numbers(100)
    made = torch.Generator().manual_seed(0)
    w_q, w_k = (torch.randn(WIDTH, WIDTH, generator=made, dtype=torch.float64) / WIDTH**0.5 for _ in range(2))
    code = code.double().view(-1, WIDTH)
    plain = {f"from {p}": (code[p : p + 100] @ code[p]).tolist() for p in (0, 100, 1000)}
    mixed = {f"from {p}": ((code[p : p + 100] @ w_k) @ (code[p] @ w_q)).tolist() for p in (0, 100, 1000)}
    return [
        Figure("lines", "Code times code: one curve from every place", "distance", "product", far, lines=plain),
        Figure("lines", "After random W_q and W_k: a curve for each place", "distance", "product", far, lines=mixed),
    ]


def rotation() -> list[Figure]:
    """The logit of one query and one key by distance, with the query at several places."""
    made = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 1, WIDTH, generator=made, dtype=torch.float64) for _ in range(2))
    enc, far = RoPE(head_dim=WIDTH), torch.arange(100)
    lines = {}
    for place in (100, 1000, 100000):
        turned = enc.query(q, torch.tensor([place]))
        keys = enc.key(k.expand(1, 1, 100, WIDTH), place - far)
        lines[f"query at {place}"] = ((turned * keys).sum(-1)[0, 0] / WIDTH**0.5).tolist()
    lines["key and query exchanged"] = [
        float((enc.query(q, torch.tensor([1000 - d])) * enc.key(k, torch.tensor([1000]))).sum() / WIDTH**0.5)
        for d in range(100)
    ]
    return [
        Figure("lines", "RoPE: the logit of one query and one key", "distance", "logit", _numbers(100), lines=lines)
    ]


def _heat(title: str, x_title: str, z: Tensor) -> Figure:
    return Figure("heat", title, x_title, "position", _numbers(z.shape[1]), _numbers(z.shape[0]), z=z.tolist())


FIGURES = {
    "integers": integers,
    "bits": bits,
    "neighbours": neighbours,
    "waves": waves,
    "offsets": offsets,
    "rotation": rotation,
}
