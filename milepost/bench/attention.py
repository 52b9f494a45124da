"""bench attention: what a position costs, as the ratio of a scheme's time to attention with no position, in one run.

Forward and training (forward and backward, with the gradients of the scheme's own parameters), 8 heads x 64, float32,
causal (encoders' schemes without the mask, against attention without it). Memory is the peak of one call beyond that
of no position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from milepost.bench.contestants import SCHEMES, USUAL, baseline, contestants, encoding, is_causal
from milepost.bench.peers import Run
from milepost.bench.timing import best_seconds, check_sizes
from milepost.checks import check_known
from milepost.encoding import Encoding
from milepost.measure.memory import peak_mb
from milepost.measure.results import provenance


def bench_attention(
    lengths: Sequence[int] = (4096, 16384),
    schemes: Sequence[str] = USUAL,
    *,
    passes: Sequence[str] = ("forward", "training"),
    heads: int = 8,
    head_dim: int = 64,
    rounds: int = 5,
    ours_only: bool = False,
    memory: bool = True,
    device: str = "cpu",
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Rows of ``scheme``, ``implementation``, ``pass``, ``length``, ``ratio``, ``seconds``, ``peak_mb``, ``note``."""
    check_sizes(device, rounds=rounds + 1, heads=heads, head_dim=head_dim, shortest=min(lengths, default=0))
    for scheme in schemes:
        check_known("scheme", scheme, SCHEMES[1:])
    rows = [
        line
        for length in lengths
        for kind in passes
        for line in _group(length, kind, schemes, heads, head_dim, rounds, ours_only, memory, device, tell)
    ]
    protocol = {"heads": heads, "head_dim": head_dim, "rounds": rounds, "dtype": "float32", "causal": True}
    return {"rows": rows, "provenance": provenance(**protocol, device=device, threads=torch.get_num_threads())}


def _group(
    length: int,
    kind: str,
    schemes: Sequence[str],
    heads: int,
    head_dim: int,
    rounds: int,
    ours_only: bool,
    memory: bool,
    device: str,
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """One length and pass: each scheme's contestants take turns with the baseline. Without rounds, memory alone."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, length, head_dim, generator=generator).to(device).requires_grad_(kind == "training")
        for _ in range(3)
    )
    few = max(2, rounds * 4096 // length) if length > 4096 and rounds else rounds
    plains = {causal: step(partial(baseline, causal=causal), None, kind, q, k, v) for causal in (True, False)}
    plain_mb = _peak(plains[True], memory, device)
    note = "what ratios and memory are measured against"
    rows = [row("nope", kind, length, 1.0, name="torch sdpa", peak=plain_mb, note=note)]
    for scheme in schemes:
        enc, label = encoding(scheme, heads, head_dim, length).to(device), f"{scheme} {kind} {length}"
        plain, about = plains[is_causal(enc)], "" if is_causal(enc) else "not causal, nor what it is measured against"
        known = contestants(enc, length, kind == "training", device)
        if ours_only:
            known = {"milepost": known["milepost"]}
        runs: dict[str, Callable[[], Any]] = {}
        peaks: dict[str, float | None] = {}
        for name, contestant in known.items():
            if isinstance(contestant, str):
                continue
            tell(f"{label}: {'memory of' if memory else 'warming up'} {name}")
            run = step(contestant, enc, kind, q, k, v)
            try:
                if "compiled" in name:
                    run()  # compile first
                peaks[name] = _peak(run, memory, device)
                runs[name] = run
            except Exception as error:  # a peer that can't is a finding, not the end of the run
                if name == "milepost":
                    raise
                known[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
        seconds: dict[str, float] = {}
        if few:
            tell_round = partial(_tell_round, tell, label)
            seconds = best_seconds({"none": plain, **runs}, few, device=device, warm=True, tell=tell_round)
        for name, contestant in known.items():
            if isinstance(contestant, str):
                rows.append(row(scheme, kind, length, name=name, note=contestant))
                continue
            peak, took = peaks[name], seconds.get(name)
            extra = None if peak is None or plain_mb is None else max(0.0, peak - plain_mb)
            ratio = None if took is None else took / seconds["none"]
            rows.append(row(scheme, kind, length, ratio, took, name, extra, about if seconds else "memory only"))
    return rows


def _peak(run: Callable[[], Any], memory: bool, device: str) -> float | None:
    """The peak of one run where it is asked for; the run warms up in either case."""
    if memory:
        return peak_mb(run, device)
    run()
    return None


def _tell_round(tell: Callable[[str], None], label: str, text: str) -> None:
    tell(f"{label}: {text}")


def step(run: Run, enc: Encoding | None, kind: str, q: Tensor, k: Tensor, v: Tensor) -> Callable[[], Any]:
    """One pass of a contestant; training takes all gradients and drops them."""
    learn = [q, k, v, *(enc.parameters() if enc is not None else ())]

    def forward() -> None:
        with torch.no_grad():
            run(q, k, v)

    def training() -> None:
        out = run(q, k, v)
        torch.autograd.grad(out, learn, torch.ones_like(out), allow_unused=True)

    return training if kind == "training" else forward


def row(
    scheme: str,
    kind: str,
    length: int,
    ratio: float | None = None,
    seconds: float | None = None,
    name: str = "milepost",
    peak: float | None = None,
    note: str = "",
) -> dict[str, Any]:
    """One line of a result; what was not measured is None."""
    about = {"scheme": scheme, "implementation": name, "pass": kind, "length": length}
    return {**about, "ratio": ratio, "seconds": seconds, "peak_mb": peak, "note": note}
