"""Server: what is asked of any server, and what it can tell. Each server's own file says only how it is spelled.

One request, `ask`, gives an `Answer`: the log-likelihood of each token of the prompt where the server tells it, and of
each token that it generates, with its likeliest other tokens. On it stand the two readings that all measures need:

    read      log-likelihoods of chosen tokens of a text, each after all tokens before it
    greedy    the tokens that the server goes on with, one by one, and their log-likelihoods: what its decode does

Where a prompt's own log-likelihoods are not told, chosen positions are forced over a cached prefix: the text up to each
position is sent in turn, and the next token is looked up among the likeliest. A target outside of them is reached by
`force`, where the server has a way: a bias on that one token,

    llama.cpp    reports log-likelihoods before the bias: what it says of the forced token is exact
    mlx-lm       reports them after the bias b:  p' / (1 - p') = e^b p / (1 - p), which gives p

Elsewhere only a bound is known: it is at most that of the last of the likeliest. ``outside`` marks these.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.words import Words

Numbers = np.ndarray[Any, Any]
Ids = Sequence[int]


@dataclass(frozen=True)
class Step:
    """A token that was generated, its log-likelihood, and those of the likeliest tokens, by their ids."""

    token: int
    loglikelihood: float
    likeliest: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """``prompt`` are log-likelihoods of the prompt's tokens, None for the first, or None where they are not told.

    ``counted`` are the tokens that the server says it read, ``cached`` those of them that it had read before; None
    where it does not say.
    """

    steps: tuple[Step, ...]
    prompt: tuple[float | None, ...] | None = None
    counted: int | None = None
    cached: int | None = None


@dataclass(frozen=True)
class Reading:
    """Log-likelihoods of chosen tokens; ``outside`` are those of which only this upper bound is known."""

    loglikelihoods: Numbers
    outside: Numbers


@dataclass(frozen=True)
class Abilities:
    """What a server can tell. ``ids``: it takes token ids. ``prompt``: it tells a prompt's log-likelihoods.

    ``likeliest`` is how many of the likeliest tokens it tells, 0 where it tells no log-likelihoods at all. ``exact``:
    that of any token can be had. ``served`` is the longest text that it says it takes, ``vocabulary`` its tokens,
    ``trained`` the length that it says the model was trained for. ``slots`` are the requests that it says it runs side
    by side; ``batches`` is False where it says that it runs one at a time. ``shared``: texts that are read side by side
    have the ``served`` tokens together. ``repeats``: the same prompt can be sent twice.
    """

    ids: bool
    prompt: bool
    likeliest: int
    exact: bool = False
    served: int | None = None
    vocabulary: int | None = None
    trained: int | None = None
    slots: int = 1
    batches: bool = True
    shared: bool = False
    repeats: bool = True

    @property
    def losses(self) -> bool:
        """Whether it tells any log-likelihoods."""
        return self.prompt or self.likeliest > 0

    def room(self, count: int) -> int | None:
        """Tokens that each of ``count`` texts may have that are read side by side; None where that is not known."""
        return self.served if self.served is None or not self.shared else self.served // count - 1


class Server(ABC):
    """A running server. ``words`` writes tokens as text, for those that take nothing else.

    ``sent`` counts tokens of all prompts, ``computed`` those that the server did not have in its cache, as it says;
    ``count_known`` is whether it always said so.
    """

    name: ClassVar[str]

    def __init__(self, client: Client, model: str | None = None, words: Words | None = None):
        self.client, self.model, self.words = client, model or "", words
        self.sent, self.computed, self.count_known = 0, 0, True
        self.can = self.discover(model)

    @staticmethod
    @abstractmethod
    def recognise(client: Client) -> bool:
        """Whether this is the server at that address; asks a path that only it has."""

    @abstractmethod
    def discover(self, model: str | None) -> Abilities:
        """Find out what the server can tell, by asking; sets ``model``, the name that it serves it under."""

    @abstractmethod
    def request(
        self, ids: Ids, steps: int, likeliest: int, prompt: bool, bias: Mapping[int, float], fresh: bool
    ) -> Answer:
        """See `ask`."""

    def ask(
        self, ids: Ids, *, steps: int = 1, likeliest: int | None = None, prompt: bool = False,
        bias: Mapping[int, float] | None = None, fresh: bool = False,
    ) -> Answer:  # fmt: skip
        """One request: a prompt, then ``steps`` tokens, always the likeliest.

        ``prompt`` asks for the prompt's own log-likelihoods. ``bias`` is added to the logits of some tokens. ``fresh``
        asks that nothing be taken from a cache, where the server can be asked that.
        """
        many = self.can.likeliest if likeliest is None else likeliest
        answer = self.request([int(n) for n in ids], steps, many, prompt, bias or {}, fresh)
        self._check(answer, len(ids), steps)
        self.sent += len(ids)
        self.computed += len(ids) - (answer.cached or 0)
        self.count_known &= answer.cached is not None
        return answer

    def _check(self, answer: Answer, sent: int, steps: int) -> None:
        steps_told = answer.steps if self.can.losses else ()
        told = [number for step in steps_told for number in (step.loglikelihood, *step.likeliest.values())]
        told += [number for number in answer.prompt or () if number is not None]
        if any(math.isnan(number) for number in told):
            raise ServerError(f"{self.client.url} gave a log-likelihood that is not a number, in a text of {sent}")
        if -math.inf in told[: len(told) if answer.prompt else 0]:
            raise ServerError(f"{self.client.url} gave a log-likelihood of minus infinity, in a text of {sent}")
        if any(number > 1e-3 for number in told):
            raise ServerError(f"{self.client.url} gave a log-likelihood of {max(told):.3g}, and none is above 0")
        if len(answer.steps) > steps:
            raise ServerError(f"{self.client.url} generated {len(answer.steps)} tokens where {steps} were asked for")
        if answer.prompt is not None and len(answer.prompt) != sent:
            raise ServerError(
                f"{self.client.url} gave log-likelihoods of {len(answer.prompt)} tokens for a prompt of {sent}: it cut "
                "the prompt, or added to it"
            )

    def need_losses(self) -> None:
        """ServerError where no log-likelihoods are told."""
        if not self.can.losses:
            raise ServerError(
                f"{self.name} at {self.client.url} tells no log-likelihoods, so that losses can't be measured through "
                "it: serve the model with an engine that does; verify without --against finds out how much of a text "
                "reaches the model"
            )

    # -- readings --------------------------------------------------------------------------------------------------

    def read(self, ids: Ids, positions: Sequence[int], *, fresh: bool = False) -> Reading:
        """Log-likelihoods of ``ids[p]`` after ``ids[:p]``, for positions p that grow, from 1 on."""
        self.need_losses()
        if self.can.prompt:
            told = self.ask(ids[: positions[-1] + 1], prompt=True, likeliest=0, fresh=fresh).prompt
            if told is None or any(told[p] is None for p in positions):
                raise ServerError(f"{self.client.url} left out log-likelihoods of the prompt that it was asked for")
            values = np.array([told[p] for p in positions], float)
            return Reading(values, np.zeros(len(values), bool))
        pairs = [self.forced(ids[:p], int(ids[p]), fresh and n == 0) for n, p in enumerate(positions)]
        return Reading(np.array([value for value, _ in pairs]), np.array([bound for _, bound in pairs]))

    def forced(self, prefix: Ids, target: int, fresh: bool) -> tuple[float, bool]:
        step = self.first_step(self.ask(prefix, fresh=fresh))
        if target in step.likeliest:
            return step.likeliest[target], False
        if target == step.token:
            return step.loglikelihood, False
        return self.force(prefix, target, step)

    def force(self, prefix: Ids, target: int, step: Step) -> tuple[float, bool]:
        """The log-likelihood of a target that is not among the likeliest; True where it is only a bound."""
        return min(step.likeliest.values(), default=step.loglikelihood), True

    def first_step(self, answer: Answer) -> Step:
        if not answer.steps:
            raise ServerError(
                f"{self.client.url} generated nothing, so that no log-likelihood is known: its log-likelihoods are "
                "missing from the answer"
            )
        return answer.steps[0]

    def greedy(self, ids: Ids, steps: int, *, fresh: bool = False) -> tuple[Step, ...]:
        """The tokens that the server goes on with, each the likeliest after those before it."""
        return self.ask(ids, steps=steps, likeliest=1, fresh=fresh).steps

    def text_of(self, ids: Ids) -> str:
        """Tokens as text, for a server that takes no ids."""
        return self.need_words().spell(ids)

    def token_of(self, word: str) -> int:
        """The token that is written as a word; a negative number where we know of none."""
        return self.need_words().token_of(word)

    def tokens_of(self, text: str) -> list[int]:
        """A text's tokens."""
        return self.need_words().tokens_of(text)

    def need_words(self) -> Words:
        """What writes tokens as text; ServerError where there is none."""
        if self.words is None:
            raise ServerError(
                f"{self.name} takes text and no token ids: give the model's tokenizer (--tokenizer), so that tokens "
                "can be written as text"
            )
        return self.words

    def to_json(self) -> dict[str, Any]:
        """What a result says of its server: no key, and no prompt."""
        can = {name: getattr(self.can, name) for name in self.can.__dataclass_fields__}
        return {"server": self.name, "url": self.client.url, "model": self.model, "can": can}


def served_model(client: Client, model: str | None) -> tuple[str, dict[str, Any]]:
    """The name and the entry of the model under /v1/models: the one that is asked for, or the only one."""
    found = client.get("/v1/models")
    data = found.get("data") if isinstance(found, dict) else None
    rows = [row for row in data or [] if isinstance(row, dict) and isinstance(row.get("id"), str)]
    if not rows:
        raise ServerError(f"{client.url} lists no models under /v1/models")
    names = [row["id"] for row in rows]
    if model is None:
        if len(rows) > 1:
            raise ServerError(f"{client.url} serves {', '.join(names[:8])}: say which (--served-model)")
        model = names[0]
    if model not in names:
        raise ServerError(f"{client.url} serves {', '.join(names[:8])}, and not {model}")
    return model, rows[names.index(model)]


def whole_number(value: object) -> int | None:
    """A count in an answer; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def number_of(value: object) -> float:
    """A log-likelihood in an answer; NaN for anything else, which `ask` refuses. vLLM writes -inf as -9999."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def tokens_of_usage(answer: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The tokens that were read, and those of them from a cache, as OpenAI's form says it."""
    usage = answer.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    return whole_number(usage.get("prompt_tokens")), whole_number(details.get("cached_tokens"))


def only_choice(answer: Any, url: str) -> dict[str, Any]:
    """The one choice of an answer in OpenAI's form."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise ServerError(f"{url} answered without the one choice that was asked for")
    return choices[0]
