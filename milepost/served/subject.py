"""Served: a model behind a server as a subject that is measured, with the text and the needles of a loaded checkpoint.

    losses, outside = subject.losses_at(windows, positions)    # nats of chosen tokens of each window (n k)

Windows are read side by side as far as the server bears, the first one alone and the shortest lengths first. What was
read is kept in a journal where one is given, so that a run that is ended goes on where it was. A journal holds numbers
and digests, and no text.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milepost.checkpoints.model.text import Text, read_tokens
from milepost.checkpoints.model.tokenizers import Tokenized, Tokenizer
from milepost.measure.intervals import Numbers
from milepost.served.servers.client import ServerError
from milepost.served.servers.server import Server
from milepost.served.servers.words import Words

PROBE = "The river is wide, and the ship is small."
TRIED, AT = 4, 8
"""Windows, and positions of each, on which a first token is tried."""
LONGEST_TRIED = 128
SAFE, GROWTH = 1024, 4
"""Tokens whose log-likelihoods any server is asked for at once, and how much longer the next text may be."""


def growing(length: int, known: int = 0) -> list[int]:
    """Lengths that are asked for before ``length`` is, where ``known`` was borne: a prompt's log-likelihoods take
    memory that some servers have not planned for, and the first one that is too long should not be the longest."""
    sizes = [SAFE * GROWTH**n for n in range(32)]
    return [size for size in sizes if known < size <= length // 2]


class Served(Tokenized):
    """A model behind a server. ``begin`` is the token that every text begins with, ``trained`` its trained length.

    ``outside`` counts targets of which only a bound is known, ``asked`` all of them. ``borne`` is the longest text
    whose log-likelihoods the server has told. ``alone``: it has broken off texts that were read side by side.
    ``setting`` tells servers apart that share a journal.
    """

    def __init__(
        self, server: Server, tokenizer: Tokenizer | None, trained: int | None = None, journal: Path | None = None,
        setting: str = "",
    ):  # fmt: skip
        self.server, self.tokenizer = server, tokenizer
        self.name, self.family = server.client.url, server.name
        self.vocabulary = server.can.vocabulary or (tokenizer.size if tokenizer is not None else 1 << 30)
        self.trained = trained or server.can.trained
        self.begin: int | None = None
        self.adds_begin = False
        self.outside, self.asked, self.borne, self.alone = 0, 0, 0, False
        self._journal, self._known, self._lock, self._setting = journal, _load_journal(journal), Lock(), setting
        if tokenizer is not None:
            self._compare_tokenizers(tokenizer)

    def _compare_tokenizers(self, tokenizer: Tokenizer) -> None:
        """The tokens that a server counts in a text against ours, where it takes nothing but text."""
        if self.server.can.ids:
            if self.server.can.vocabulary is not None and tokenizer.size > self.server.can.vocabulary:
                raise ServerError(
                    f"the tokenizer does not fit: it has {tokenizer.size} tokens, and the model at {self.name} "
                    f"{self.server.can.vocabulary}; name the right one"
                )
            return
        ours = [int(n) for n in tokenizer.encode(f"{PROBE} {secrets.randbelow(10**12)}")]  # never the same twice
        counted = self.server.ask(ours, likeliest=1).counted
        if counted == len(ours) + 1 and tokenizer.begin is not None:
            self.adds_begin, self.begin = True, tokenizer.begin
            self.server.words = Words(tokenizer, tokenizer.begin)
        elif counted is not None and counted != len(ours):
            raise ServerError(
                f"{self.name} counts {counted} tokens in a text in which the tokenizer finds {len(ours)}: it has "
                "another tokenizer; name the right one (--tokenizer)"
            )

    # -- text ------------------------------------------------------------------------------------------------------

    def read_text(self, path: str | Path) -> Text:
        """A text in the model's tokens, with the first token that it loses less with."""
        text = read_tokens(path, self)
        if self.adds_begin:
            return replace(text, begin=self.begin)
        token = None if self.tokenizer is None or text.tokenizer == "token ids" else self.tokenizer.begin
        length = min(LONGEST_TRIED, max(map(len, text.files)) - 1)
        if token is None or length < 2 * AT or not self.server.can.losses:
            return text
        windows, _ = text.windows(length, TRIED, least=1)
        positions = np.linspace(length // 2, length, AT).astype(int)
        begun = windows.copy()
        begun[:, 0] = token
        lost = {word: float(self.losses_at(some, positions)[0].mean()) for word, some in
                (("with", begun), ("without", windows))}  # fmt: skip
        self.begin = token if lost["with"] < lost["without"] else None
        return replace(text, begin=self.begin, began=lost)

    def need_same_tokens(self, windows: Numbers, other: Any) -> None:
        """ServerError where a text has tokens that another model does not know."""
        largest = int(windows.max())
        if largest >= other.vocabulary:
            raise ServerError(
                f"the text has token {largest}, and {other.name} knows {other.vocabulary}: it has another vocabulary "
                f"than the model at {self.name}"
            )

    def refit(self, windows: Numbers) -> Numbers:
        """Windows that are read back as the same tokens, for a server that takes text: cut to their shortest."""
        if self.server.can.ids:
            return windows
        words = self.server.need_words()
        first = [] if words.begin is None else [words.begin]
        rows = [np.array([*first, *words.tokens_of(words.spell(row))]) for row in windows]
        shortest = min(len(row) for row in rows)
        return np.stack([row[:shortest] for row in rows])

    def places(self, row: Numbers, positions: Sequence[int]) -> list[int]:
        """Positions of a window at which its text can be ended: those that were wished for, or the next ones."""
        if self.server.can.ids or self.server.words is None:
            return [int(p) for p in positions]
        fit: list[int] = []
        for p in map(int, positions):
            start = max(p, fit[-1] + 1 if fit else p)
            place = next((n for n in range(start, len(row)) if self.server.words.reads_back(row[:n])), None)
            if place is None:
                raise ServerError(f"the text can't be ended near token {p} so that {self.name} reads the same tokens")
            fit.append(place)
        return fit

    # -- readings --------------------------------------------------------------------------------------------------

    def last_losses(
        self, windows: Numbers, length: int, count: int, begin: int | None = None
    ) -> tuple[Numbers, Numbers]:
        """`losses_at` the last ``count`` tokens of each window, read with ``length`` tokens in all.

        ``begin`` is put in place of the first token that is read. A server that takes text may read a few tokens more,
        so that the text begins where its tokens do.
        """
        if not 1 <= count <= length < windows.shape[1]:
            raise ValueError(
                f"the last {count} of {length} tokens can't be scored in windows of {windows.shape[1] - 1}"
            )
        rows = [self._ending(row, length, begin) for row in windows]
        return self.losses_of(rows, [self.ending(len(row) - 1, count) for row in rows])

    def ending(self, end: int, count: int) -> list[int]:
        """The last ``count`` positions up to ``end``; every other one where a prompt can't be repeated.

        Such a server has the token that it generated in its cache, and with it the whole of a prompt that is one token
        longer.
        """
        stride = 1 if self.server.can.repeats else 2
        return list(range(end - stride * (count - 1), end + 1, stride))

    def _ending(self, row: Numbers, length: int, begin: int | None) -> Numbers:
        words, end = self.server.words, len(row)
        for first in range(end - length - 1, -1, -1):
            cut = row[first:].copy()
            if begin is not None:
                cut[0] = begin
            if self.server.can.ids or words is None or words.reads_back(cut):
                return cut
        return row

    def losses_at(
        self, windows: Numbers, positions: Sequence[int] | Numbers, *, fresh: bool = False
    ) -> tuple[Numbers, Numbers]:
        """Nats of the tokens at ``positions`` of each window (n L), and which of them are lower bounds (both n k)."""
        ordered = [int(p) for p in positions]
        if not ordered or ordered != sorted(set(ordered)) or not 1 <= ordered[0] <= ordered[-1] < windows.shape[1]:
            raise ValueError(f"positions grow, from 1 to {windows.shape[1] - 1}, got {ordered[:3]} to {ordered[-1:]}")
        return self.losses_of(list(windows), [ordered] * len(windows), fresh)

    def losses_of(
        self, texts: Sequence[Numbers] | Numbers, positions: list[list[int]], fresh: bool = False
    ) -> tuple[Numbers, Numbers]:
        """`losses_at` positions of each text's own."""

        def read(row: Numbers, wished: list[int]) -> tuple[list[float], list[bool]]:
            return self._read(row, self.places(row, wished), fresh)

        if self.server.can.prompt:  # elsewhere positions are forced one after the other, and grow by themselves
            self._grow([int(n) for n in texts[0][: positions[0][-1] + 1]])
        first = read(texts[0], positions[0])  # alone: a length that ends the server ends one request
        rows = [first, *self._side_by_side(read, texts[1:], positions[1:])]
        losses = -np.array([values for values, _ in rows])
        outside = np.array([bounds for _, bounds in rows], bool)
        self.asked += losses.size
        self.outside += int(outside.sum())
        return losses, outside

    def cost(self, texts: int, lengths: Sequence[int], targets: int) -> str:
        """What it costs to read ``targets`` tokens of each text at some lengths, the shortest first, in words."""
        can = self.server.can
        each = 1 if can.prompt else targets
        grown = growing(lengths[-1] + 1, self.borne) if can.prompt else []
        requests = texts * each * len(lengths) + len(grown)
        tokens = texts * sum(n + (1 if can.prompt else each) for n in lengths) + sum(grown)
        return f"at most {requests} requests, in which {self.family} computes {tokens} tokens"

    def _side_by_side(
        self, read: Callable[[Numbers, list[int]], Any], texts: Sequence[Numbers] | Numbers, positions: list[list[int]]
    ) -> list[Any]:
        """Texts that are read side by side as far as the server bears; one by one from the first that it breaks off."""
        can, longest = self.server.can, max((at[-1] + 1 for at in positions), default=0)
        many = next((n for n in range(can.slots, 1, -1) if longest <= (can.room(n) or longest)), 1)
        if not self.alone and many > 1:
            try:
                with ThreadPoolExecutor(many) as pool:
                    return list(pool.map(read, texts, positions))
            except ServerError as error:
                if error.status is None or error.status < 500:
                    raise
                self.alone = True
        return list(map(read, texts, positions))

    def _grow(self, ids: list[int]) -> None:
        """Ask for shorter texts first, where this one is much longer than what the server has borne."""
        for size in growing(len(ids), self.borne):
            self.server.read(ids[:size], [size - 1])
        self.borne = max(self.borne, len(ids))

    def _read(self, row: Numbers, positions: list[int], fresh: bool) -> tuple[list[float], list[bool]]:
        ids = np.ascontiguousarray(row[: positions[-1] + 1], dtype=np.int64)
        about = json.dumps([self._setting, self.server.name, self.server.model, positions, fresh]).encode()
        name = hashlib.sha256(about + ids.tobytes()).hexdigest()[:32]
        if name not in self._known:
            reading = self.server.read(ids.tolist(), positions, fresh=fresh)
            told = (reading.loglikelihoods.tolist(), reading.outside.tolist())
            with self._lock:
                self._known[name] = told
                if self._journal is not None:
                    with self._journal.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([name, *told]) + "\n")
        return self._known[name]

    def last(self, ids: Tensor) -> Tensor:
        """Logits (1 V) after the last token, as far as they are told: others stand at the least of the likeliest."""
        step = self.server.first_step(self.server.ask(ids[0].tolist()))
        known = {token: value for token, value in step.likeliest.items() if token >= 0} or {
            step.token: step.loglikelihood
        }
        least = min(step.likeliest.values(), default=step.loglikelihood)
        size = max(self.vocabulary if self.vocabulary < 1 << 30 else 0, int(ids.max()) + 1, *(n + 1 for n in known))
        logits = torch.full((1, size), least, dtype=torch.float64)
        for token, value in known.items():
            logits[0, token] = value
        return logits

    def to_json(self) -> dict[str, Any]:
        """What a result says of a served model: no key, and no text."""
        return {
            **self.server.to_json(), "trained": self.trained, "begin": self.begin,
            "requests": self.server.client.requests, "tokens_sent": self.server.sent,
            "tokens_computed": self.server.computed if self.server.count_known else None,
            "targets": self.asked, "targets_outside_of_the_likeliest": self.outside,
        }  # fmt: skip

    def notes(self) -> list[str]:
        """What a reader should know of numbers that came through this server."""
        notes = []
        if self.outside:
            notes.append(
                f"{self.outside} of {self.asked} targets were outside of the {self.server.can.likeliest} likeliest "
                f"tokens, which is all that {self.family} tells: they count with the least of these, so that losses, "
                "and rises of losses, are larger than what is shown"
            )
        if not self.server.count_known:
            notes.append(f"{self.family} does not say how many tokens came from its cache")
        return notes


def _load_journal(path: Path | None) -> dict[str, tuple[list[float], list[bool]]]:
    """What was read before; a last line that was not written whole is passed over."""
    known: dict[str, tuple[list[float], list[bool]]] = {}
    if path is None or not path.is_file():
        return known
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            name, values, outside = json.loads(line)
        except ValueError:
            continue
        if all(isinstance(value, float) and math.isfinite(value) for value in values):
            known[name] = (values, outside)
    return known
