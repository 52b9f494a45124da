"""SGLang's server: token ids in, the log-likelihoods of a whole prompt in one request.

    POST /generate     input_ids, sampling_params {max_new_tokens, temperature}, return_logprob, logprob_start_len 0
                       (the default, -1, is output alone), top_logprobs_num
                       meta_info.input_token_logprobs [[logprob, id, text], ...], output_token_logprobs,
                       output_top_logprobs, prompt_tokens, cached_tokens
    GET /model_info    (before 0.5: /get_model_info)    {"model_path": ...}
    GET /server_info   (before 0.5: /get_server_info)   {"context_length" or "max_total_num_tokens": ...}

Prefixes of a prompt whose log-likelihoods are asked for are not taken from the cache. Form of SGLang 0.5.23, answered
by our own test server; not run on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.server import Abilities, Answer, Ids, Server, Step, number_of, whole_number

LIKELIEST, SIDE_BY_SIDE = 100, 4


class SGLangServer(Server):
    """sglang.launch_server."""

    name = "sglang"

    @staticmethod
    def recognise(client: Client) -> bool:
        found = _either(client, "/model_info", "/get_model_info")
        return isinstance(found, dict) and "model_path" in found

    def discover(self, model: str | None) -> Abilities:
        self.model = str(_either(self.client, "/model_info", "/get_model_info")["model_path"])
        said = _either(self.client, "/server_info", "/get_server_info")
        served = whole_number(said.get("context_length")) or whole_number(said.get("max_total_num_tokens"))
        self.can = Abilities(ids=True, prompt=True, likeliest=LIKELIEST, served=served, slots=SIDE_BY_SIDE)
        told = self.request([3, 4, 5], 1, 1, True, {}, False).prompt
        prompt = told is not None and len(told) == 3 and told[-1] is not None
        return Abilities(True, prompt, LIKELIEST, served=served, slots=SIDE_BY_SIDE)

    def request(
        self, ids: Ids, steps: int, likeliest: int, prompt: bool, bias: Mapping[int, float], fresh: bool
    ) -> Answer:
        sampling: dict[str, Any] = {"max_new_tokens": steps, "temperature": 0.0, "ignore_eos": True}
        sampling |= {"logit_bias": {str(token): by for token, by in bias.items()}} if bias else {}
        body = {
            "input_ids": list(ids), "sampling_params": sampling, "return_logprob": True,
            "logprob_start_len": 0 if prompt or fresh else -1, "top_logprobs_num": likeliest,
        }  # fmt: skip
        told = self.client.post("/generate", body)
        meta = told.get("meta_info") if isinstance(told, dict) else None
        if not isinstance(meta, dict) or not isinstance(meta.get("output_token_logprobs"), list):
            raise ServerError(f"{self.client.url} answered without meta_info.output_token_logprobs")
        tops = meta.get("output_top_logprobs") or [[]] * steps
        made = tuple(
            Step(int(row[1]), number_of(row[0]), {int(top[1]): number_of(top[0]) for top in many or []})
            for row, many in zip(meta["output_token_logprobs"], tops, strict=False)
        )
        first = None
        if prompt:
            rows = meta.get("input_token_logprobs")
            if not isinstance(rows, list) or [row[1] for row in rows] != list(ids):
                raise ServerError(f"{self.client.url} gave input_token_logprobs of other tokens than it was sent")
            first = tuple(None if row[0] is None else number_of(row[0]) for row in rows)
        return Answer(made, first, whole_number(meta.get("prompt_tokens")), whole_number(meta.get("cached_tokens")))


def _either(client: Client, new: str, old: str) -> Any:
    """What one of two names of a path gives."""
    try:
        return client.get(new)
    except ServerError as error:
        if error.status is None:
            raise
        return client.get(old)
