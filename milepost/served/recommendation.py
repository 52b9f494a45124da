"""recommend, for models behind servers: which of several served settings reads long texts best?

    recommend_served(running(["http://127.0.0.1:8001", "http://127.0.0.1:8002"]), "book.txt", 16384, 4096)
    recommend_served(started("llama-server -m model.gguf --port {port} {flags}", spec, 16384, "llama.cpp"), ...)

Nothing is started but what a command says: ``{flags}`` stands for the flags that `milepost export` writes for each
scaling, the length served among them, and ``{port}`` for a port that is free. Each is waited for until it answers,
measured, and ended. The same last tokens of each window are scored in texts as long as a server of the target's length
takes, which has to hold the token that is scored and one that is generated, and in texts of the trained length:

    gain    the first setting's loss at the target, less this one's, paired on the same tokens
    cost    this one's loss at the trained length, less the first one's

The first setting is the first that could be measured: the model as it is may refuse the target, and that is said.

Of the settings that can't be told from the one with the largest gain, the answer is the one with the smallest cost.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from milepost.checkpoints.diagnosis.plan import Tell
from milepost.checkpoints.result import CommandResult
from milepost.measure.intervals import DRAWS, Numbers, difference, mean
from milepost.measure.losses import TOLERATED_RISE
from milepost.measure.results import provenance
from milepost.rope import ConfigError, export
from milepost.rope.engines.written import Refused
from milepost.rope.spec import METHODS, RopeSpec
from milepost.served import report
from milepost.served.connection import connect
from milepost.served.servers.client import ServerError, UnreachedError
from milepost.served.subject import Served
from milepost.served.verification.truncation import REFUSALS

Setting = tuple[str, Callable[[], AbstractContextManager[Served]]]
"""What it is called, and how it is reached."""
WINDOWS, SCORED = 6, 16
AS_IT_IS, PLACES = "the model as it is", ("MODEL", "MODEL.gguf")
"""The setting without a scaling of ours, and where a model's name stands in what `export` writes."""
ROOM = 2
"""Tokens of the target that no text may take: the one that is scored, and one that is generated."""
PATIENCE, GRACE = 600.0, 10.0
"""Seconds until a started server has to answer, and to end when it is told to."""


@dataclass(frozen=True)
class ServedRecommendation(CommandResult):
    """``rows`` are the settings, the largest gain first; ``best`` is the answer."""

    target_length: int
    short_length: int
    best: str
    works: bool
    rows: tuple[dict[str, Any], ...]
    verdict: tuple[str, ...]
    how: str
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    document = staticmethod(report.recommendation)


def running(urls: Sequence[str], **how: Any) -> list[Setting]:
    """Servers that run already, one for each setting."""

    def setting(url: str) -> Setting:
        return url, lambda: contextlib.nullcontext(connect(url, setting=url, **how))

    return [setting(url) for url in urls]


def started(command: str, spec: RopeSpec, target: int, engine: str, **how: Any) -> tuple[list[Setting], list[str]]:
    """A server for each scaling that an engine has words for, started by a command; and notes about the others."""
    if "{flags}" not in command or "{port}" not in command:
        raise ConfigError("the command needs {flags}, where each setting's flags go, and {port}, the port to listen on")
    flags: dict[str, str] = {}
    notes = []
    for method in (AS_IT_IS, *METHODS):
        try:
            if method == AS_IT_IS:
                asked = replace(spec, served=target)
            else:
                asked = spec.extended(target, method)  # type: ignore[arg-type]
            text = _flags_of(export(asked, engine).text, engine)
        except (Refused, ValueError) as refusal:
            if method == AS_IT_IS:
                flags[method] = ""
                notes.append(f"{method} gets no flags: {refusal}")
            else:
                notes.append(f"{method} is not tried: {refusal}")
            continue
        if text not in flags.values():
            flags[method] = text
    return [(name, partial(_serving, command, words, how | {"setting": words})) for name, words in flags.items()], notes


def _flags_of(text: str, engine: str) -> str:
    """The flags of a command line that `export` writes: what comes after its MODEL."""
    words = shlex.split(text)
    start = next((number for number, word in enumerate(words) if word in PLACES), None)
    if start is None:
        raise ConfigError(f"what is exported for {engine} is no command line: name an engine that takes flags")
    return shlex.join(words[start + 1 :])


@contextlib.contextmanager
def _serving(command: str, flags: str, how: dict[str, Any]) -> Iterator[Served]:
    """A server that is started, waited for, and ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = shlex.split(command.replace("{flags}", flags).replace("{port}", str(port)))
    try:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise ConfigError(f"{words[0]} can't be started: {error.strerror}") from None
    try:
        yield _waited(process, f"http://127.0.0.1:{port}", how)
    finally:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _waited(process: subprocess.Popen[bytes], url: str, how: dict[str, Any]) -> Served:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return connect(url, **how)
        except ServerError as error:
            if process.poll() is not None:
                raise ConfigError(
                    f"the server ended with code {process.returncode} before it answered: try the command by hand"
                ) from None
            if time.monotonic() > end or (error.status is not None and error.status not in (503, 404)):
                raise
        time.sleep(0.3)


def recommend_served(
    settings: Sequence[Setting], text: str | Path, target: int, short: int, *, windows: int = WINDOWS,
    notes: Sequence[str] = (), tell: Tell = lambda what, share: None,
) -> ServedRecommendation:  # fmt: skip
    """Measure each setting in turn; a server that is given is left as it is, one that was started is ended."""
    if len(settings) < 2:
        why = "at least two settings are compared: give their servers' addresses, or a command with {flags}"
        raise ConfigError("; ".join([why, *notes]))
    if not SCORED <= short < target - ROOM:
        raise ConfigError(f"the trained length is from {SCORED} to below the target of {target} tokens, got {short}")
    losses: dict[str, tuple[Numbers, Numbers]] = {}
    servers, notes, groups = [], list(notes), None
    for number, (name, reach) in enumerate(settings):
        tell(f"measuring {name}", number / len(settings))
        try:
            with reach() as subject:
                subject.server.need_losses()
                words = subject.read_text(text)
                tokens, groups = words.windows(target, windows)
                tell(subject.cost(len(tokens), [short, target - ROOM], SCORED), number / len(settings))
                near, _ = subject.last_losses(tokens, short, SCORED, words.begin)
                far, _ = subject.last_losses(tokens, target - ROOM, SCORED, words.begin)
                losses[name] = (near, far)
                servers.append({"setting": name, **subject.to_json()})
                notes += [f"{name}: {note}" for note in subject.notes()]
        except ConfigError as error:
            refused = getattr(error, "status", None) in REFUSALS
            if isinstance(error, UnreachedError) or (number == 0 and not refused):
                raise
            notes.append(f"{name} could not be measured: {error}")
    if len(losses) < 2 or groups is None:
        raise ConfigError("; ".join(["fewer than two settings could be measured", *notes]))
    rows, best = _ranked(losses, groups)
    first = next(iter(losses))
    near, far = losses[first][0], losses[best][1]
    gap = difference(near, far, groups)
    works = gap.low is not None and gap.low <= TOLERATED_RISE * float(near.mean())
    tell("done", 1.0)
    return ServedRecommendation(
        target_length=target, short_length=short, best=best, works=works, rows=tuple(rows),
        verdict=tuple(_verdict(rows, best, first, target, short, works)),
        how=f"The last {SCORED} tokens of each window, after {target - ROOM} and {short} tokens, the same for all.",
        notes=tuple(notes),
        provenance=provenance(
            what="recommend", target=target, short=short, windows=windows, servers=servers,
            intervals=f"95%, bootstrap over windows or files, paired on the same targets, {DRAWS} draws",
        ),
    )  # fmt: skip


def _ranked(losses: dict[str, tuple[Numbers, Numbers]], groups: Numbers) -> tuple[list[dict[str, Any]], str]:
    """The settings, the largest gain first; and the answer."""
    first = next(iter(losses.values()))
    rows: list[dict[str, Any]] = [
        {
            "setting": name, "long": mean(far, groups).to_json(), "short": mean(near, groups).to_json(),
            "gain": difference(far, first[1], groups).to_json(), "cost": difference(first[0], near, groups).to_json(),
        }
        for name, (near, far) in losses.items()
    ]  # fmt: skip
    rows.sort(key=lambda row: row["gain"]["value"], reverse=True)
    top = losses[rows[0]["setting"]][1]
    equal = [row for row in rows if (difference(top, losses[row["setting"]][1], groups).low or 0.0) <= 0]
    return rows, str(min(equal, key=lambda row: row["cost"]["value"])["setting"])


def _verdict(
    rows: Sequence[dict[str, Any]], best: str, first: str, target: int, short: int, works: bool
) -> list[str]:  # fmt: skip
    row = next(row for row in rows if row["setting"] == best)
    reached = f"{best} reads {target} tokens best: {row['long']['value']:.3f} nats a token"
    cost = f"short texts pay {row['cost']['value']:+.3f} nats a token at {short}"
    gain = "and nothing is better" if best == first else f"{row['gain']['value']:+.3f} better than {first}"
    more = (
        "That is as good as short texts."
        if works
        else "That is worse than short texts: none of them reaches the target."
    )
    return [f"{reached}, {gain}; {cost}.", more]
