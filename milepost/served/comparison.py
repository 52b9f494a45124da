"""compare, for models behind servers: two servers, versions or flags on the same tokens; where do their losses part?

    done = compare(connect(old), connect(new), "book.txt", 4096)
    done.ok, done.parts_from

The last tokens of eight stretches of each window are scored by both. For each stretch: the mean of B - A, with a
bootstrap's interval over windows, and the mean of |B - A|. They part where the interval of a stretch lies beyond the
threshold, on either side: by default 2% of A's loss. A folder or a GGUF file can stand for B: it is run here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from milepost.checkpoints.diagnosis.plan import SHORTEST, Tell
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.result import CommandResult
from milepost.measure.intervals import DRAWS, Mean, Numbers, mean
from milepost.measure.losses import TOLERATED_RISE
from milepost.measure.results import provenance
from milepost.rope import ConfigError
from milepost.served import report
from milepost.served.diagnosis import FORCED, STRETCHES
from milepost.served.subject import Served

WINDOWS = 6


@dataclass(frozen=True)
class ServedComparison(CommandResult):
    """``rows`` are the stretches. ``parts_from`` is the first position from which on the losses part, or None."""

    a: str
    b: str
    ok: bool
    parts_from: int | None
    difference: dict[str, Any]
    threshold: float
    rows: tuple[dict[str, Any], ...]
    servers: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    document = staticmethod(report.comparison)


def compare(
    a: Served, b: Served | Loaded, text: str | Path, length: int, *, windows: int = WINDOWS,
    threshold: float | None = None, tell: Tell = lambda what, share: None,
) -> ServedComparison:  # fmt: skip
    """Compare what two models lose on the same tokens of texts of ``length``; ``threshold`` is in nats a token."""
    for subject in (a, b):
        if isinstance(subject, Served):
            subject.server.need_losses()
        served = subject.server.can.served if isinstance(subject, Served) else subject.end
        if served is not None and length + isinstance(subject, Served) > served:
            raise ConfigError(
                f"{subject.name} reads {served} tokens, and texts of {length} were asked for: ask for fewer"
            )
    if length < STRETCHES * 2 or length < SHORTEST:
        raise ConfigError(f"texts to compare on have at least {SHORTEST} tokens, got {length}")
    known_sizes = {s.server.can.vocabulary if isinstance(s, Served) else s.vocabulary for s in (a, b)} - {None}
    if len(known_sizes) > 1:
        raise ConfigError(
            f"{a.name} has a vocabulary of {a.vocabulary} tokens, and {b.name} one of {b.vocabulary}: they do not read "
            "the same tokens"
        )
    tell("reading the text", 0.0)
    words = a.read_text(text)
    tokens, groups = words.windows(length, windows)
    read = a.refit(tokens)
    a.need_same_tokens(read, b)
    places = _places(a, b, read)
    for subject in (a, b):
        if isinstance(subject, Served):
            tell(f"{subject.name}: {subject.cost(len(read), [length], len(places[0]))}", 0.05)
    tell(f"asking {a.name}", 0.1)
    first, outside = a.losses_of(read, places)
    tell(f"asking {b.name}", 0.5)
    second, also = b.losses_of(read, places) if isinstance(b, Served) else (_here(b, read, places), np.zeros(1, bool))
    known = ~(outside | also)
    limit = TOLERATED_RISE * float(first[known].mean()) if threshold is None else threshold
    parts = (_split(first), _split(second), _split(known))
    rows = [
        _row(parts[0][:, n], parts[1][:, n], parts[2][:, n], groups, end, limit)
        for n, end in enumerate(_ends(read.shape[1] - 1))
    ]
    parted = [row["start"] for row in rows if row["parts"]]
    tell("done", 1.0)
    return ServedComparison(
        a=a.name, b=b.name, ok=not parted, parts_from=parted[0] if parted else None,
        difference=_mean(second - first, known, groups).to_json(), threshold=limit, rows=tuple(rows),
        servers=tuple(s.to_json() if isinstance(s, Served) else {"folder": s.name} for s in (a, b)),
        notes=(*a.notes(), *(b.notes() if isinstance(b, Served) else ())),
        provenance=provenance(
            what="compare", length=length, windows=len(read), text=words.describe(),
            scored=f"the last {_scored(read.shape[1] - 1)} tokens of each of {STRETCHES} stretches",
            intervals=f"95%, bootstrap over windows or files, paired on the same targets, {DRAWS} draws",
        ),
    )  # fmt: skip


def _scored(longest: int) -> int:
    return max(1, min(FORCED, longest // STRETCHES))


def _ends(longest: int) -> list[int]:
    return [longest // STRETCHES * (n + 1) for n in range(STRETCHES - 1)] + [longest]


def _places(a: Served, b: Served | Loaded, read: Numbers) -> list[list[int]]:
    """The positions that both score."""
    longest, scored = read.shape[1] - 1, _scored(read.shape[1] - 1)
    asked = b if isinstance(b, Served) and not b.server.can.ids else a
    wished = [p for end in _ends(longest) for p in asked.ending(end, scored)]
    return [asked.places(row, wished) for row in read]


def _here(subject: Loaded, read: Numbers, places: list[list[int]]) -> Numbers:
    """Losses (n k) of a checkpoint in this process."""
    rows = []
    for row, at in zip(read, places, strict=True):
        ids = torch.from_numpy(np.ascontiguousarray(row[None, : at[-1] + 1])).to(subject.device)
        rows.append(subject.chosen_losses(ids, at)[0].double().cpu().numpy())
    return np.stack(rows)


def _split(values: Numbers) -> Numbers:
    """Values (n k) by stretch (n stretches tokens)."""
    return values.reshape(len(values), STRETCHES, -1)


def _mean(values: Numbers, known: Numbers, groups: Numbers) -> Mean:
    """The mean of what is known of values (n k)."""
    counts = known.sum(1)
    used = counts > 0
    return mean(np.where(known, values, 0.0).sum(1)[used, None], groups[used], counts=counts[used])


def _row(a: Numbers, b: Numbers, known: Numbers, groups: Numbers, end: int, limit: float) -> dict[str, Any]:
    found = {"start": end - a.shape[1], "end": end, "tokens": int(known.sum())}
    if not known.any():
        return {**found, "a": None, "b": None, **dict.fromkeys(("value", "low", "high")), "apart": None, "parts": False}
    difference = _mean(b - a, known, groups)
    beyond = difference.low is not None and difference.high is not None and (
        difference.low > limit or difference.high < -limit
    )  # fmt: skip
    return {
        **found, "a": float(a[known].mean()), "b": float(b[known].mean()), **difference.to_json(),
        "apart": float(np.abs(b - a)[known].mean()), "parts": beyond,
    }  # fmt: skip
