"""Repeats: the same text must get the same answer, however it comes.

    prefill and decode     tokens that the server generates one by one, scored again as part of a prompt
    prefix cache           the same prompt, first never seen, then after its first half was cached
    alone and in a batch   the same prompts one by one, and all at once, of different lengths
    history                a short text before and after a long one

The number of each is the mean absolute difference of log-likelihoods. Allowed is what 8-bit arithmetic explains, where
the weights are here to find that out, else `TOLERATED`. On some weights (4 bits) another rotation changes answers less
than that: then a quarter of what it changes is allowed, and what is between the two proves nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from milepost.checkpoints.model.probe import Check, finite
from milepost.measure.drift import ALLOWANCE
from milepost.measure.intervals import Numbers
from milepost.served.servers.server import Step
from milepost.served.subject import Served
from milepost.served.verification.truncation import after

TOLERATED = 0.05
"""Nats that bfloat16 and other kernels for other batch sizes may cost, on average, where no weights are here."""
STEPS, CROWD = 8, 4
"""Tokens that are generated, and prompts at once."""


def repeats(
    subject: Served, windows: Numbers, history: list[float], allowed: float, control: float | None,
    shifted: float | None = None,
) -> list[Check]:  # fmt: skip
    """Every check of this page; ``control`` is what another rotation does to the same numbers, where that is known,
    and ``shifted`` what positions that are off by one do.

    ``history`` is what `read_history` gave, which has to be asked first: later a server has read long texts already.
    """
    if not subject.server.can.losses:
        return [Check(name, "BLIND", f"nothing is proved: {subject.family} tells no log-likelihoods") for name in NAMES]
    tried = ((_decode, control), (_prefix, shifted or control), (_crowd, control))
    checks = [check(subject, windows, allowed, known) for check, known in tried]
    return [*checks, _history(history, allowed, control)]


NAMES = ("prefill and decode", "prefix cache", "alone and in a batch", "history")


def _difference(a: Step, b: Step) -> float:
    """How far apart two answers are about the first one's own token; at least so far where the second has only a
    bound."""
    if a.token in b.likeliest:
        return abs(a.loglikelihood - b.likeliest[a.token])
    if a.token == b.token:
        return abs(a.loglikelihood - b.loglikelihood)
    return abs(a.loglikelihood - min(b.likeliest.values(), default=b.loglikelihood))


def _judged(name: str, off: list[float], allowed: float, control: float | None, right: str, wrong: str) -> Check:
    number = float(np.mean(off))
    close = allowed if control is None or control > allowed else control / ALLOWANCE
    if number <= close:
        return Check(name, "PASS", f"{right}: {number:.2g} nats apart", number, close, control, "nats")
    if not number <= allowed:
        sentence = f"{wrong}: {number:.3g} nats apart, and arithmetic explains {allowed:.2g}"
        return Check(name, "FAIL", sentence, finite(number), allowed, control, "nats")
    sentence = (
        f"nothing is proved: {number:.2g} nats apart, which is above a quarter of what another rotation changes "
        f"({control:.2g}), and below what 8-bit arithmetic explains ({allowed:.2g})"
    )
    return Check(name, "BLIND", sentence, number, close, control, "nats")


def _decode(subject: Served, windows: Numbers, allowed: float, control: float | None) -> Check:
    """Where a prompt's log-likelihoods are not told, each is the answer to a prompt of its own: two are asked for."""
    off: list[float] = []
    for row in windows if subject.server.can.prompt else windows[:1]:
        start = row[: len(row) - STEPS - 1]
        steps = subject.server.greedy(start.tolist(), STEPS, fresh=True)
        whole = np.concatenate([start, [step.token for step in steps]]).astype(np.int64)
        positions = list(range(len(start) + 1, len(whole)))
        if not positions or (whole < 0).any():
            continue
        if subject.server.can.prompt:
            read = subject.server.read(whole.tolist(), positions).loglikelihoods
        else:
            positions = sorted({positions[len(positions) // 2], positions[-1]})
            read = np.array([
                subject.server.forced(whole[:p].tolist(), int(whole[p]), True)[0] for p in positions
            ])  # fmt: skip
        off += [
            abs(steps[p - len(start)].loglikelihood - value) for p, value in zip(positions, read, strict=True)
        ]  # fmt: skip
    if not off:
        return Check(NAMES[0], "BLIND", "nothing is proved: the server generated no token after its first")
    return _judged(
        NAMES[0], off, allowed, control, "tokens that are generated one by one score as they do in a prompt",
        "tokens that are generated one by one score otherwise than in a prompt: decode does not turn as prefill does",
    )  # fmt: skip


def _prefix(subject: Served, windows: Numbers, allowed: float, control: float | None) -> Check:
    off = []
    for row in windows if subject.server.can.prompt else windows[:1]:
        end = len(row) - 2  # not asked before: the first answer can't be from a cache
        first = after(subject, row[:end], fresh=True)
        after(subject, row[: end // 2])
        off += [_difference(first, after(subject, row[:end])) for _ in range(2)]
    return _judged(
        NAMES[1], off, allowed, control, "a prompt gets the same answer when its start is cached",
        "a prompt gets another answer when its start is cached: positions after a cached prefix are not those before",
    )  # fmt: skip


def _crowd(subject: Served, windows: Numbers, allowed: float, control: float | None) -> Check:
    if not subject.server.can.batches:
        return Check(NAMES[2], "NONE", f"{subject.family} runs one request at a time here, so that there is no batch")
    longest = crowd_length(subject, windows.shape[1])
    rows = [row[: longest - n * longest // (2 * CROWD)] for n, row in enumerate(_cycle(windows))]
    alone = [after(subject, row, fresh=True) for row in rows]
    with ThreadPoolExecutor(CROWD) as pool:
        together = list(pool.map(lambda row: after(subject, row, fresh=True), rows))
    off = [_difference(a, b) for a, b in zip(alone, together, strict=True)]
    return _judged(
        NAMES[2], off, allowed, control, f"{len(rows)} prompts at once get the answers that they get alone",
        f"{len(rows)} prompts at once get other answers than alone",
    )  # fmt: skip


def crowd_length(subject: Served, length: int) -> int:
    """The longest of the prompts at once: all of a text, where the server has room for that."""
    return min(length - 3, subject.server.can.room(CROWD) or length)


def _cycle(windows: Numbers) -> list[Numbers]:
    return [windows[n % len(windows)] for n in range(CROWD)]


def read_history(subject: Served, windows: Numbers) -> list[float]:
    """How far apart the answers to short texts are, before and after a long one was read."""
    if not subject.server.can.losses:
        return []
    shorts = [row[: max(8, len(row) // 8)] for row in windows]
    before = [after(subject, short, fresh=True) for short in shorts]
    after(subject, windows[0], fresh=True)
    return [_difference(step, after(subject, short, fresh=True)) for step, short in zip(before, shorts, strict=True)]


def _history(off: list[float], allowed: float, control: float | None) -> Check:
    return _judged(
        NAMES[3], off, allowed, control, "a short text gets the same answer after a long one",
        "a short text gets another answer after a long one: the server remembers the longer text",
    )  # fmt: skip
