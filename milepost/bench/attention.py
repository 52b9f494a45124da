"""bench attention: what a position costs, as the ratio of a scheme's time to attention with no position, in one run.

Forward and training (forward and backward, with the gradients of the scheme's own parameters), 8 heads x 64, float32, causal.
Memory is the peak of one call beyond that of no position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from milepost.bench.contestants import SCHEMES, Run, baseline, contestants, encoding, milepost
from milepost.bench.timing import best_seconds, check_sizes
from milepost.encoding import Encoding
from milepost.measure.memory import peak_mb
from milepost.measure.results import provenance


def bench_attention(
    lengths: Sequence[int] = (4096, 16384),
    schemes: Sequence[str] = SCHEMES[1:],
    *,
    passes: Sequence[str] = ("forward", "training"),
    heads: int = 8,
    head_dim: int = 64,
    rounds: int = 5,
    ours_only: bool = False,
    device: str = "cpu",
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Rows of ``scheme``, ``implementation``, ``pass``, ``length``, ``ratio``, ``seconds``, ``peak_mb``, ``note``."""
    check_sizes(device, rounds=rounds + 1, heads=heads, head_dim=head_dim, shortest=min(lengths, default=0))
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise ValueError(f"unknown scheme {scheme!r}; there are {', '.join(SCHEMES[1:])}")
    rows: list[dict[str, Any]] = []
    for length in lengths:
        for kind in passes:
            rows += _group(length, kind, schemes, heads, head_dim, rounds, ours_only, device, tell)
    protocol = {
        "heads": heads,
        "head_dim": head_dim,
        "rounds": rounds,
        "dtype": "float32",
        "causal": True,
        "device": device,
    }
    return {"rows": rows, "provenance": provenance(**protocol, threads=torch.get_num_threads())}


def _group(
    length: int,
    kind: str,
    schemes: Sequence[str],
    heads: int,
    head_dim: int,
    rounds: int,
    ours_only: bool,
    device: str,
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """One length and pass: each scheme's contestants take turns with the baseline."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, length, head_dim, generator=generator).to(device).requires_grad_(kind == "training")
        for _ in range(3)
    )
    few = max(2, rounds * 4096 // length) if length > 4096 and rounds else rounds
    plain = peak_mb(_step(baseline, None, kind, q, k, v), device)
    rows = [_row("nope", "torch sdpa", kind, length, 1.0, None, plain, "what ratios and memory are measured against")]
    for scheme in schemes:
        enc = encoding(scheme, heads, head_dim).to(device)
        found = contestants(enc, length, kind == "training", device)
        if ours_only:
            found = {"milepost": found["milepost"]}
        runs = {name: _step(run, enc, kind, q, k, v) for name, run in found.items() if not isinstance(run, str)}
        peaks: dict[str, float | None] = {}
        for name, run in list(runs.items()):
            tell(f"{scheme} {kind} {length}: memory of {name}")
            try:
                if "compiled" in name:
                    run()  # compile first
                peaks[name] = peak_mb(run, device)
            except Exception as error:  # a peer that can't is a finding, not the end of the run
                if name == "milepost":
                    raise
                found[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                del runs[name]
        rows += _rows(
            scheme,
            kind,
            length,
            found,
            peaks,
            plain,
            _timed(runs, few, kind, q, k, v, device, partial(_say, tell, f"{scheme} {kind} {length}")),
        )
    return rows


def _timed(
    runs: dict[str, Callable[[], Any]],
    rounds: int,
    kind: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    device: str,
    tell: Callable[[str], None],
) -> dict[str, float]:
    """Seconds of each run, and of the baseline as "none"; nothing where only memory is measured (no rounds)."""
    if not rounds:
        return {}
    return best_seconds(
        {"none": _step(baseline, None, kind, q, k, v), **runs}, rounds, device=device, warm=True, tell=tell
    )


def _rows(
    scheme: str,
    kind: str,
    length: int,
    found: dict[str, Run | str],
    peaks: dict[str, float | None],
    plain: float | None,
    seconds: dict[str, float],
) -> list[dict[str, Any]]:
    rows = []
    for name, given in found.items():
        if isinstance(given, str):
            rows.append(_row(scheme, name, kind, length, None, None, None, given))
            continue
        peak = peaks[name]
        extra = None if peak is None or plain is None else max(0.0, peak - plain)
        ratio = seconds[name] / seconds["none"] if seconds else None
        rows.append(_row(scheme, name, kind, length, ratio, seconds.get(name), extra, "" if seconds else "memory only"))
    return rows


def _say(tell: Callable[[str], None], what: str, text: str) -> None:
    tell(f"{what}: {text}")


def _step(run: Run, enc: Encoding | None, kind: str, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Any]:
    """One pass of a contestant; training takes all gradients and drops them."""
    learn = [q, k, v, *(enc.parameters() if enc is not None else ())]

    def forward() -> None:
        with torch.no_grad():
            run(q, k, v)

    def training() -> None:
        out = run(q, k, v)
        torch.autograd.grad(out, learn, torch.ones_like(out), allow_unused=True)

    return training if kind == "training" else forward


def _row(
    scheme: str,
    name: str,
    kind: str,
    length: int,
    ratio: float | None,
    seconds: float | None,
    peak: float | None,
    note: str,
) -> dict[str, Any]:
    return {
        "scheme": scheme,
        "implementation": name,
        "pass": kind,
        "length": length,
        "ratio": ratio,
        "seconds": seconds,
        "peak_mb": peak,
        "note": note,
    }


def bench_memory(
    length: int = 65536,
    head_dim: int = 64,
    schemes: Sequence[str] = ("alibi", "t5"),
    tell: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """The peak of one forward pass of one head over a very long text, beyond the process's size at its start."""
    rows = []
    for scheme in schemes:
        tell(f"{scheme}, one head, {length}: memory")
        q, k, v = (torch.randn(1, 1, length, head_dim) for _ in range(3))
        enc = encoding(scheme, 1, head_dim)
        peak = peak_mb(_step(milepost(enc, length, "cpu"), enc, "forward", q, k, v))
        rows.append(_row(scheme, "milepost", "forward", length, None, None, peak, "one head, memory beyond the start"))
    return rows
