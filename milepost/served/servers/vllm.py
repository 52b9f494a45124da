"""vLLM's server: token ids in, the log-likelihoods of a whole prompt in one request.

    POST /v1/completions    prompt (ids), prompt_logprobs 0: choices[0].prompt_logprobs [null, {id: {logprob}}, ...]
                            logprobs k <= --max-logprobs, return_tokens_as_token_ids: tokens are "token_id:7"
                            cache_salt: requests with different salts share no prefix
    GET /version            {"version": ...}
    GET /v1/models          data[].max_model_len

-inf is written as -9999. A prompt's log-likelihoods are computed for all of its logits at once, which its memory is not
planned for (vllm-project/vllm #14239): lengths grow, and 0 further tokens are asked for. Form of vLLM 0.32, answered by
our own test server; not run on a GPU.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.openai import PROBE, OpenAI
from milepost.served.servers.server import Abilities, Answer, Ids, number_of, only_choice, tokens_of_usage

SIDE_BY_SIDE = 4


class VLLMServer(OpenAI):
    """vllm serve."""

    name = "vllm"

    @staticmethod
    def recognise(client: Client) -> bool:
        listed, version = client.get("/v1/models"), client.get("/version")
        owners = {row.get("owned_by") for row in listed.get("data") or [] if isinstance(row, dict)}
        return isinstance(version, dict) and "version" in version and "vllm" in owners

    def discover(self, model: str | None) -> Abilities:
        found = super().discover(model)
        self.can = found
        try:
            prompt = self.request(list(PROBE), 1, 0, True, {}, False).prompt is not None
        except ServerError as error:
            if error.status is None:
                raise
            prompt = False
        return Abilities(True, prompt, found.likeliest, served=found.served, slots=SIDE_BY_SIDE)

    def wish(self, likeliest: int) -> dict[str, Any]:
        return {"logprobs": likeliest, "return_tokens_as_token_ids": True}

    def token_of(self, word: str) -> int:
        number = word.removeprefix("token_id:")
        return int(number) if number != word and number.isdigit() else super().token_of(word)

    def request(
        self, ids: Ids, steps: int, likeliest: int, prompt: bool, bias: Mapping[int, float], fresh: bool
    ) -> Answer:
        body = self.body(list(ids), steps)
        body |= {"prompt_logprobs": 0} if prompt else self.wish(max(1, likeliest))
        body |= {"logit_bias": {str(token): by for token, by in bias.items()}} if bias else {}
        body |= {"cache_salt": secrets.token_hex(8)} if fresh else {}
        told = self.client.post("/v1/completions", body)
        choice, first = only_choice(told, self.client.url), None
        if prompt:
            rows = choice.get("prompt_logprobs")
            if not isinstance(rows, list) or len(rows) != len(ids):
                raise ServerError(f"{self.client.url} answered without the prompt_logprobs of {len(ids)} tokens")
            first = tuple(_of(row, token) for row, token in zip(rows, ids, strict=True))
        return Answer(tuple(self.steps_of(choice)), first, *tokens_of_usage(told))


def _of(row: Any, token: int) -> float | None:
    """The prompt's own token in a row of tokens."""
    return None if row is None else number_of((row.get(str(token)) or {}).get("logprob"))
