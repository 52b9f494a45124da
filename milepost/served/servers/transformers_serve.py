"""`transformers serve`: text in, text out. It tells no log-likelihoods, and its completions take no token ids.

    POST /v1/completions    model (not needed where it was started with one), prompt (text), max_tokens, temperature
                            choices[0].text, usage.prompt_tokens
                            ids are refused (400); logprobs, echo and logit_bias are taken, and nothing comes of them
    POST /load_model        which no other server has
    GET /v1/models          what is in the cache of the Hub; 500 where the Hub can't be reached

Whether log-likelihoods come is asked, as everywhere: should a later version tell them, they are used. Without them
losses can't be measured; how many tokens reach the model, and whether the start of a text matters to the words that
follow, can, and `verify` asks for that. Run: transformers 5.22.2.
"""

from __future__ import annotations

from collections.abc import Mapping

from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.openai import LIKELIEST, OpenAI
from milepost.served.servers.server import Abilities, Answer, Ids, Step, only_choice, tokens_of_usage


class TransformersServe(OpenAI):
    """transformers serve."""

    name = "transformers serve"

    @staticmethod
    def recognise(client: Client) -> bool:
        found = client.get("/openapi.json")
        return isinstance(found, dict) and "/load_model" in (found.get("paths") or {})

    def discover(self, model: str | None) -> Abilities:
        self.model = model or self._started_with()
        self.can = Abilities(ids=False, prompt=False, likeliest=0)
        return Abilities(
            ids=False, prompt=False, likeliest=next((many for many in LIKELIEST if self._tells(many)), 0)
        )  # fmt: skip

    def _started_with(self) -> str:
        """The model that it was started with: it answers without being told a name then, and says it."""
        try:
            told = self.client.post("/v1/completions", {"prompt": "the", "max_tokens": 1})
            return str(told["model"]).removesuffix("@main")
        except (ServerError, KeyError, TypeError) as error:
            if isinstance(error, ServerError) and error.status is None:
                raise
            raise ServerError(
                f"transformers serve at {self.client.url} was started without a model, and loads what it is asked for: "
                "say which model (--served-model)"
            ) from None

    def request(
        self, ids: Ids, steps: int, likeliest: int, prompt: bool, bias: Mapping[int, float], fresh: bool
    ) -> Answer:
        if self.can.losses:
            return super().request(ids, steps, likeliest, prompt, bias, fresh)
        told = self.client.post("/v1/completions", self.body(self.text_of(ids), steps))
        text = str(only_choice(told, self.client.url).get("text", ""))
        return Answer(tuple(Step(token, 0.0) for token in self.tokens_of(text)[:steps]), None, *tokens_of_usage(told))
