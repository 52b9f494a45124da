"""`transformers serve`: text in, text out. It tells no log-likelihoods, and its completions take no token ids.

    POST /v1/completions    model, prompt (text), max_tokens, temperature; logprobs and echo are refused (422)
                            choices[0].text, usage.prompt_tokens
    GET /v1/models          what is in the cache of the Hub
    POST /load_model        which no other server has

Losses can't be measured through it; how many tokens reach the model can, and `verify` does. Read in transformers
5.22.2, not run.
"""

from __future__ import annotations

from collections.abc import Mapping

from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.openai import OpenAI
from milepost.served.servers.server import Abilities, Answer, Ids, Step, only_choice, tokens_of_usage


class TransformersServe(OpenAI):
    """transformers serve."""

    name = "transformers serve"

    @staticmethod
    def recognise(client: Client) -> bool:
        found = client.get("/openapi.json")
        return isinstance(found, dict) and "/load_model" in (found.get("paths") or {})

    def discover(self, model: str | None) -> Abilities:
        if model is None:
            raise ServerError(f"transformers serve at {self.client.url} loads what it is asked for: say which model "
                              "(--served-model)")  # fmt: skip
        self.model = model
        return Abilities(ids=False, prompt=False, likeliest=0)

    def request(
        self, ids: Ids, steps: int, likeliest: int, prompt: bool, bias: Mapping[int, float], fresh: bool
    ) -> Answer:
        told = self.client.post("/v1/completions", self.body(self.text_of(ids), steps))
        text = str(only_choice(told, self.client.url).get("text", ""))
        return Answer(tuple(Step(token, 0.0) for token in self.tokens_of(text)[:steps]), None, *tokens_of_usage(told))
