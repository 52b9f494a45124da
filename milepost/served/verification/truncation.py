"""Truncation: how many tokens of a text really reach the model?

    counted     the tokens that the server says it read, against those that were sent
    canary      the first eighth of the text is changed, all but its first token: what comes after the last token
                must change with it. It can't where the start was cut off, and then the place is searched by halving
    refused     a text of more than the served length must be an error, not a shorter text

Where the weights are here, the candidate that explains a cut is run too: the same text, cut to the tokens that reach
the model, must go on as it does on the server.

Any model that sees the start of its text moves a little when that changes, so that no needle has to be found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.probe import Check
from milepost.checkpoints.model.quiet import quiet
from milepost.measure.intervals import Numbers
from milepost.served.servers.client import ServerError
from milepost.served.servers.server import Step
from milepost.served.subject import Served
from milepost.served.verification.candidates import Rotation

PART = 8
"""The canary is the first eighth of a text."""
ROOM = 16
"""Tokens of what is served that are left for what is generated."""
SAID = 16
"""Words that are compared where nothing else is told."""
REFUSALS = (400, 413, 422)
"""With which a text that is too long is refused."""
MOVED = 1e-5
"""Nats below which nothing moved: less than any float32 logit is rounded by."""


def served_part(subject: Served, windows: Numbers) -> tuple[Numbers, str | None]:
    """The windows (n L) as far as they are served, and a sentence where that is less than all of them.

    A server that does not say how much it serves is asked: with the whole text, and then by halving.
    """
    sent, served = windows.shape[1], subject.server.can.served
    if served is not None and sent + ROOM > served:
        part = windows[:, : max(0, served - ROOM)]
        if sent - 1 <= served:  # what was asked for is served, but for the tokens that are generated after it
            return part, None
        status = _refusal(subject, windows[0])
        how = "does not refuse them" if status is None else f"refuses them ({status})"
        return part, f"it serves {served} tokens, texts of {sent} were asked for, and it {how}"
    status = None if served is not None else _refusal(subject, windows[0])
    if status is None:
        return windows, None
    low, high = 0, sent  # ``low`` tokens are taken, ``high`` are refused
    while high - low > max(1, sent // 64):
        middle = (low + high) // 2
        low, high = (middle, high) if _refusal(subject, windows[0, :middle]) is None else (low, middle)
    return windows[:, :low], f"it refuses texts of {high} tokens ({status}), and takes {low}; {sent} were asked for"


def _refusal(subject: Served, ids: Numbers) -> int | None:
    """The status with which a text is refused, None where it is read."""
    try:
        subject.server.ask(ids.tolist(), likeliest=1)
    except ServerError as error:
        if error.status not in REFUSALS:
            raise
        return error.status
    return None


def truncation(subject: Served, window: Numbers) -> tuple[list[Check], int]:
    """Every check of this page, on one window; and how many of its tokens reach the model."""
    canary, reached = _canary(subject, window)
    return [_counted(subject, window), canary, _refused(subject, window)], reached


def cut_here(subject: Served, against: Loaded, rotation: Rotation, window: Numbers, reached: int) -> str:
    """Whether the server's next token after a text that it cut is that of its last tokens alone, run here."""
    step = after(subject, window)
    told = {token: value for token, value in step.likeliest.items() if token >= 0} or {step.token: step.loglikelihood}
    apart = []
    for ids in (window[-reached:], window):
        with quiet(), against.turned(rotation.encodings):
            logits = against.last(torch.from_numpy(np.ascontiguousarray(ids[None], np.int64)).to(against.device))
        here = torch.log_softmax(logits[0].double(), -1).cpu()
        apart.append(float(np.mean([abs(float(here[token]) - value) for token, value in told.items()])))
    return (
        f"run here on its last {reached} tokens alone, the text goes on as on the server, {apart[0]:.2g} nats apart; "
        f"on the whole text, {apart[1]:.2g} apart"
    )


def after(subject: Served, ids: Numbers, *, fresh: bool = False) -> Step:
    """What the server says of the token after a text."""
    return subject.server.first_step(subject.server.ask(ids.tolist(), fresh=fresh))


def moved(a: Step, b: Step) -> float:
    """The largest difference of two answers about a next token, over the tokens that both tell."""
    both = a.likeliest.keys() & b.likeliest.keys()
    if a.token != b.token and not both:
        return float("inf")
    told = [abs(a.likeliest[token] - b.likeliest[token]) for token in both]
    return max([*told, 0.0 if a.token != b.token else abs(a.loglikelihood - b.loglikelihood)])


def _counted(subject: Served, window: Numbers) -> Check:
    counted = subject.server.ask(window.tolist(), likeliest=1).counted
    if counted is None:
        return Check("tokens counted", "NONE", f"{subject.family} does not say how many tokens it read")
    sent = len(window)
    verdict: Any = "PASS" if counted == sent else "FAIL" if counted < sent else "WARN"
    sentence = {
        "PASS": f"it read {counted} tokens, as many as were sent",
        "FAIL": f"it read {counted} of the {sent} tokens that were sent, and said nothing",
        "WARN": f"it read {counted} tokens where {sent} were sent: it adds tokens of its own",
    }[verdict]
    return Check("tokens counted", verdict, sentence, float(abs(sent - counted)), 0.0, unit="tokens")


def _changed(window: Numbers, count: int) -> Numbers:
    """The window with its tokens 1 to ``count`` - 1 in another order."""
    made = window.copy()
    made[1:count] = np.roll(window[1:count], max(1, (count - 1) // 3))
    return made


def _canary(subject: Served, window: Numbers) -> tuple[Check, int]:
    name, sent = "start of the text", len(window)
    if not subject.server.can.losses:
        return _words_change(subject, window, name), sent
    here, again = after(subject, window, fresh=True), after(subject, window, fresh=True)
    noise = max(MOVED, moved(here, again))

    def reaches(count: int) -> bool:
        return moved(here, after(subject, _changed(window, count), fresh=True)) > noise

    start = max(4, sent // PART)
    by = moved(here, after(subject, _changed(window, start), fresh=True))
    if by > noise:
        sentence = f"the first of {sent} tokens reach the model: changed, they move the next token by {by:.2g} nats"
        return Check(name, "PASS", sentence, noise, noise, by, "nats"), sent
    low, high = start, sent  # changing up to ``low`` does nothing; changing up to ``high`` does something
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    sentence = (
        f"of {sent} tokens only the last {sent - low} reach the model, without an error: changing those before moves "
        f"the next token by {by:.2g} nats"
    )
    return Check(name, "FAIL", sentence, float(low), 0.0, None, "tokens"), sent - low


def _words_change(subject: Served, window: Numbers, name: str) -> Check:
    """The canary where no log-likelihoods are told: other words may follow another start. The same words prove
    nothing."""
    goes_on, changed = (
        [step.token for step in subject.server.greedy(ids.tolist(), SAID)]
        for ids in (window, _changed(window, max(4, len(window) // PART)))
    )
    if not goes_on or goes_on == changed:
        why = "it goes on with the same words when they are changed, and it tells no log-likelihoods"
        return Check(name, "BLIND", f"nothing is proved of the first of {len(window)} tokens: {why}")
    words = "changed, they change the words that follow"
    return Check(name, "PASS", f"the first of {len(window)} tokens reach the model: {words}")


def _refused(subject: Served, window: Numbers) -> Check:
    name, served = "too long a text", subject.server.can.served
    if served is None:
        return Check(name, "NONE", f"{subject.family} does not say how long a text it serves")
    if served > 1 << 18:
        return Check(name, "NONE", f"it serves {served} tokens, and more are not sent to try that")
    long = np.resize(window, served + 1)
    try:
        counted = subject.server.ask(long.tolist(), likeliest=1).counted
    except ServerError as error:
        if error.status is None:
            raise
        return Check(name, "PASS", f"a text of {served + 1} tokens is refused ({error.status}), as {served} are served")
    read = "does not say how many it read" if counted is None else f"says that it read {counted}"
    return Check(
        name, "FAIL", f"it serves {served} tokens, takes {served + 1} without an error, and {read}", 1.0, 0.0,
        unit="tokens",
    )  # fmt: skip
