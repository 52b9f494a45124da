"""mlx-lm's server: text in, log-likelihoods of generated tokens and their 10 likeliest, most of which can be reached.

    POST /v1/completions    prompt (text), max_tokens, logprobs true, top_logprobs <= 11, logit_bias
                            choices[0].logprobs.content[{id, token, logprob, top_logprobs}]: after the bias
                            usage.prompt_tokens_details.cached_tokens
    GET /v1/models          its own names; "default_model" is the one that it was started with

A bias b on one token turns its probability p into p' with p'/(1 - p') = e^b p/(1 - p), so that p is known from p', with
an error of about 1e-6 e^b nats in float32. With b = 6 nearly every target is among the likeliest; for others,
p e^b <= q / (1 - q), q the least of them, is a bound.

A prompt that its cache holds whole ends its generation thread ("has an empty prompt"): no prompt, and no start of an
earlier one with what it generated, is sent again, and checks that repeat prompts are not asked of it.
Run: mlx-lm 0.32.2 on mlx 0.32.4.
"""

from __future__ import annotations

import math
import re
from typing import Any

from milepost.served.servers.client import Client
from milepost.served.servers.openai import OpenAI
from milepost.served.servers.server import Abilities, Ids, Step

LIKELIEST = 10
FINGERPRINT = re.compile(r"^\d+\.\d+\.\d+-\d+\.\d+\.\d+")
"""mlx-lm's and mlx's versions, which every answer of its has."""
RAISED = 6.0
"""The bias of a target."""


class MlxLm(OpenAI):
    """mlx_lm.server."""

    name = "mlx-lm"

    @staticmethod
    def recognise(client: Client) -> bool:
        told = client.post("/v1/completions", {"prompt": "the", "max_tokens": 1, "model": "default_model"})
        return isinstance(told, dict) and bool(FINGERPRINT.match(str(told.get("system_fingerprint", ""))))

    def discover(self, model: str | None) -> Abilities:
        self.model = model or "default_model"
        self.can = Abilities(ids=False, prompt=False, likeliest=LIKELIEST, repeats=False)
        told = self.client.post("/v1/completions", self.body("the", 1) | self.wish(LIKELIEST))
        choices = told.get("choices") or [{}]
        likeliest = len((self.steps_of(choices[0]) or [Step(0, 0.0)])[0].likeliest)
        return Abilities(ids=False, prompt=False, likeliest=likeliest, repeats=False)

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

    def forced(self, prefix: Ids, target: int, fresh: bool) -> tuple[float, bool]:
        """One request, since a prompt must not be repeated: the target is raised by ``RAISED`` at once."""
        step = self.first_step(self.ask(prefix, bias={target: RAISED}))
        value = step.likeliest.get(target)
        if value is None:
            least = min(step.likeliest.values(), default=step.loglikelihood)
            return least - RAISED - math.log1p(-math.exp(least)), True
        odds = value - math.log(-math.expm1(min(value, -1e-12))) - RAISED  # log p / (1 - p)
        return -math.log1p(math.exp(-odds)) if odds > -30 else odds, False
