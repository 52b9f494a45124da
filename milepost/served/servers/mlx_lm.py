"""mlx-lm's server: text in, log-likelihoods of generated tokens and their 10 likeliest, any of which can be reached.

    POST /v1/completions    prompt (text), max_tokens, logprobs true, top_logprobs <= 11, logit_bias
                            choices[0].logprobs.content[{id, token, logprob, top_logprobs}]: after the bias
                            usage.prompt_tokens_details.cached_tokens
    GET /v1/models          its own names; "default_model" is the one that it was started with

A bias b on one token turns its probability p into p' with p'/(1 - p') = e^b p/(1 - p), so that p is known from p'. b is
raised until the token is among the likeliest. Run: mlx-lm 0.32.2 on mlx 0.32.4.
"""

from __future__ import annotations

import math
import re
from typing import Any

from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.openai import OpenAI
from milepost.served.servers.server import Abilities, Ids, Step

LIKELIEST = 10
FINGERPRINT = re.compile(r"^\d+\.\d+\.\d+-\d+\.\d+\.\d+")
"""mlx-lm's and mlx's versions, which every answer of its has."""
RAISED = 8
"""How often a bias is raised, at most."""


class MlxLm(OpenAI):
    """mlx_lm.server."""

    name = "mlx-lm"

    @staticmethod
    def recognise(client: Client) -> bool:
        told = client.post("/v1/completions", {"prompt": "the", "max_tokens": 1, "model": "default_model"})
        return isinstance(told, dict) and bool(FINGERPRINT.match(str(told.get("system_fingerprint", ""))))

    def discover(self, model: str | None) -> Abilities:
        self.model = model or "default_model"
        self.can = Abilities(ids=False, prompt=False, likeliest=LIKELIEST, exact=True)
        told = self.client.post("/v1/completions", self.body("the", 1) | self.wish(LIKELIEST))
        choices = told.get("choices") or [{}]
        likeliest = len((self.steps_of(choices[0]) or [Step(0, 0.0)])[0].likeliest)
        return Abilities(ids=False, prompt=False, likeliest=likeliest, exact=likeliest > 0)

    def wish(self, likeliest: int) -> dict[str, Any]:
        return {"logprobs": True, "top_logprobs": min(LIKELIEST, likeliest)}

    def steps_of(self, choice: Any) -> list[Step]:
        """The likeliest come in no order, and their first stands for the token: the likeliest of them is that."""
        made = super().steps_of(choice)
        return [
            Step(max(step.likeliest, key=step.likeliest.__getitem__), max(step.likeliest.values()), step.likeliest)
            if step.likeliest else step
            for step in made
        ]  # fmt: skip

    def force(self, prefix: Ids, target: int, step: Step) -> tuple[float, bool]:
        ranked = sorted(step.likeliest.values())
        bias = ranked[-1] - ranked[0] + 2.0
        for _ in range(RAISED):
            raised = self.first_step(self.ask(prefix, bias={target: bias}))
            if target in raised.likeliest:
                value = raised.likeliest[target]
                odds = value - math.log(-math.expm1(min(value, -1e-12))) - bias  # log p / (1 - p)
                return -math.log1p(math.exp(-odds)) if odds > -30 else odds, False
            bias += 6.0
        raise ServerError(f"{self.client.url} does not show token {target} even with a bias of {bias:g}")
