"""llama.cpp's server (llama-server): token ids in, log-likelihoods of generated tokens alone, which can be forced.

    POST /completion    prompt (ids), n_predict, n_probs, cache_prompt, logit_bias
                        completion_probabilities[].logprob, .top_logprobs[{id, logprob}]: before any bias
                        timings.cache_n and prompt_n: tokens from the cache, tokens that were computed
    GET /props          default_generation_settings.n_ctx, total_slots
    GET /v1/models      data[].meta: n_vocab, n_ctx_train

A text that is longer than n_ctx is refused (400, exceed_context_size_error). By default there are four slots, which
share n_ctx cells: texts side by side that do not fit together are broken off (500). Run: llama.cpp of October 2026
(`xllamacpp` 2026.10.11549; `llama-server` of build 11669).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.server import Abilities, Answer, Ids, Server, Step, number_of, whole_number

LIKELIEST = 1000
"""Tokens that are asked for; the server has no limit but its vocabulary."""
FORCING = 1e9
"""A bias that no logit comes near."""


class LlamaCppServer(Server):
    """llama-server."""

    name = "llama.cpp"

    @staticmethod
    def recognise(client: Client) -> bool:
        found = client.get("/props")
        return isinstance(found, dict) and "default_generation_settings" in found

    def discover(self, model: str | None) -> Abilities:
        props, listed = self.client.get("/props"), self.client.get("/v1/models")
        rows = [row for row in listed.get("data") or [] if isinstance(row, dict)]
        if not rows:
            raise ServerError(f"{self.client.url} has no model loaded")
        self.model, meta = str(rows[0].get("id", "")), rows[0].get("meta") or {}
        vocabulary, slots = whole_number(meta.get("n_vocab")), whole_number(props.get("total_slots")) or 1
        self.can = Abilities(
            ids=True, prompt=False, likeliest=min(LIKELIEST, vocabulary or LIKELIEST), exact=True,
            served=whole_number((props.get("default_generation_settings") or {}).get("n_ctx")),
            vocabulary=vocabulary, trained=whole_number(meta.get("n_ctx_train")),
            slots=slots, batches=slots > 1, shared=True,
        )  # fmt: skip
        step = self.first_step(self.request([1, 2], 1, 1, False, {3: FORCING}, True))
        if step.token != 3:
            raise ServerError(f"{self.client.url} does not obey logit_bias, so that no token can be forced")
        return self.can

    def request(
        self, ids: Ids, steps: int, likeliest: int, prompt: bool, bias: Mapping[int, float], fresh: bool
    ) -> Answer:
        body: dict[str, Any] = {
            "prompt": list(ids), "n_predict": steps, "n_probs": max(1, likeliest), "cache_prompt": not fresh,
            "temperature": 0.0, "samplers": ["temperature"], "ignore_eos": False,
            "logit_bias": [[token, by] for token, by in bias.items()],
            "response_fields": ["completion_probabilities", "timings", "tokens_evaluated", "truncated"],
        }  # fmt: skip
        told = self.client.post("/completion", body)
        rows = told.get("completion_probabilities") if isinstance(told, dict) else None
        if not isinstance(rows, list):
            raise ServerError(
                f"{self.client.url} answered without completion_probabilities: log-likelihoods are missing"
            )
        if told.get("truncated"):
            raise ServerError(f"{self.client.url} cut the text of {len(ids)} tokens, as it says itself (truncated)")
        made = tuple(
            Step(
                int(row["id"]), number_of(row.get("logprob")),
                {int(top["id"]): number_of(top.get("logprob")) for top in row.get("top_logprobs") or []},
            )
            for row in rows
        )  # fmt: skip
        timings = told.get("timings") or {}
        return Answer(made, None, whole_number(told.get("tokens_evaluated")), whole_number(timings.get("cache_n")))

    def forced(self, prefix: Ids, target: int, fresh: bool) -> tuple[float, bool]:
        """The likeliest need not be looked at: the target is forced at once."""
        step = self.first_step(self.ask(prefix, likeliest=1, bias={target: FORCING}, fresh=fresh))
        if step.token != target:
            raise ServerError(f"{self.client.url} generated token {step.token} where {target} was forced")
        return step.loglikelihood, False
