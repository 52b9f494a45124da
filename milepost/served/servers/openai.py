"""Any server that speaks OpenAI's completions, as far as it does: ids or text, echo with logprobs or generated alone.

    POST /v1/completions    prompt (ids or text), max_tokens, temperature, logprobs, echo, logit_bias
                            choices[0].logprobs: {tokens, token_logprobs, top_logprobs}, in the form of 2020,
                            or {content: [{id, token, logprob, top_logprobs}]}, in the form of chats
                            usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens

Three small requests find out whether ids are taken, whether an echoed prompt brings its log-likelihoods, and how many
of the likeliest tokens are told. Where tokens come back as words, they are looked up among the words of our tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.server import (
    Abilities,
    Answer,
    Ids,
    Server,
    Step,
    number_of,
    only_choice,
    served_model,
    tokens_of_usage,
)

LIKELIEST = (20, 10, 5, 1)
"""How many of the likeliest are tried for."""
PROBE = (3, 4, 5)
"""Tokens that every vocabulary has."""


class OpenAI(Server):
    """A server in OpenAI's form."""

    name = "openai completions"

    @staticmethod
    def recognise(client: Client) -> bool:
        found = client.get("/v1/models")
        return isinstance(found, dict) and isinstance(found.get("data"), list)

    def discover(self, model: str | None) -> Abilities:
        self.model, row = served_model(self.client, model)
        served = row.get("max_model_len")
        self.can = Abilities(ids=True, prompt=False, likeliest=0, served=served if isinstance(served, int) else None)
        ids = self._takes(list(PROBE))
        self.can = Abilities(ids, prompt=False, likeliest=0, served=self.can.served)
        likeliest = next((many for many in LIKELIEST if self._tells(many)), 0)
        return Abilities(ids, ids and likeliest > 0 and self._echoes(), likeliest, served=self.can.served)

    def _takes(self, prompt: list[int]) -> bool:
        """Whether ids are taken as they are: counted as many."""
        try:
            told = self.client.post("/v1/completions", self.body(prompt, 1))
        except ServerError as error:
            if error.status in (400, 404, 415, 422, 500):
                return False
            raise
        counted, _ = tokens_of_usage(told)
        return counted in (len(prompt), len(prompt) + 1)

    def _tells(self, likeliest: int) -> bool:
        prompt: Any = list(PROBE) if self.can.ids else "the"
        try:
            told = self.client.post("/v1/completions", self.body(prompt, 1) | self.wish(likeliest))
            return bool(self.steps_of(only_choice(told, self.client.url)))
        except ServerError as error:
            if error.status is None:
                raise
            return False

    def _echoes(self) -> bool:
        try:
            answer = self.request(list(PROBE), 1, 1, True, {}, False)
        except ServerError as error:
            if error.status is None and "echo" not in str(error):
                raise
            return False
        return answer.prompt is not None and len(answer.prompt) == len(PROBE) and answer.prompt[-1] is not None

    def body(self, prompt: Any, steps: int) -> dict[str, Any]:
        """What every request says."""
        return {"model": self.model, "prompt": prompt, "max_tokens": steps, "temperature": 0.0, "stream": False}

    def wish(self, likeliest: int) -> dict[str, Any]:
        """How log-likelihoods are asked for."""
        return {"logprobs": likeliest}

    def request(
        self, ids: Ids, steps: int, likeliest: int, prompt: bool, bias: Mapping[int, float], fresh: bool
    ) -> Answer:
        words = list(ids) if self.can.ids else self.text_of(ids)
        body = self.body(words, steps) | (self.wish(max(1, likeliest)) if self.can.losses or prompt else {})
        body |= {"echo": True} if prompt else {}
        body |= {"logit_bias": {str(token): by for token, by in bias.items()}} if bias else {}
        told = self.client.post("/v1/completions", body)
        choice = only_choice(told, self.client.url)
        made, first = self.steps_of(choice), None
        if prompt:
            values = (choice.get("logprobs") or {}).get("token_logprobs")
            if not isinstance(values, list) or len(values) < len(ids):
                raise ServerError(f"{self.client.url} did not echo log-likelihoods of the prompt")
            first = tuple(None if value is None else number_of(value) for value in values[: len(ids)])
            made = made[len(ids) :]
        return Answer(tuple(made), first, *tokens_of_usage(told))

    def steps_of(self, choice: Mapping[str, Any]) -> list[Step]:
        """The generated tokens, in whichever of the two forms they come."""
        told = choice.get("logprobs")
        if not isinstance(told, dict):
            return []
        if isinstance(told.get("content"), list):
            return [self._step(row) for row in told["content"] if isinstance(row, dict) and row]
        tokens, values = told.get("tokens") or [], told.get("token_logprobs") or []
        tops = told.get("top_logprobs") or [{}] * len(tokens)
        return [
            Step(
                self.token_of(token), -9999.0 if value is None else number_of(value),
                {self.token_of(word): number_of(at) for word, at in (top or {}).items()},
            )
            for token, value, top in zip(tokens, values, tops, strict=False)
        ]  # fmt: skip

    def _step(self, row: Mapping[str, Any]) -> Step:
        tops = [top for top in row.get("top_logprobs") or [] if isinstance(top, dict)]
        likeliest = {self._id(top): number_of(top.get("logprob")) for top in tops}
        return Step(self._id(row), number_of(row.get("logprob")), likeliest)

    def _id(self, row: Mapping[str, Any]) -> int:
        return row["id"] if isinstance(row.get("id"), int) else self.token_of(str(row.get("token", "")))
