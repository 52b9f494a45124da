"""Ollama: text in, log-likelihoods of generated tokens and their 20 likeliest, as words.

    POST /api/generate    model, prompt (text), raw, stream, logprobs, top_logprobs <= 20, options {num_predict}
                          logprobs [{token, logprob, top_logprobs [{token, logprob}]}], prompt_eval_count
    GET /api/version      {"version": ...}
    GET /api/tags         models[].name
    POST /api/show        model_info {"<family>.context_length": ...}, parameters "num_ctx ..."

From 0.12.11 on. A prompt that is longer than num_ctx is cut from its left without an error, which `verify` looks for.
Nothing can be forced: of targets outside of the 20 likeliest only a bound is known. Form of Ollama's API documents,
answered by our own test server; not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.served.servers.client import Client, ServerError
from milepost.served.servers.server import Abilities, Answer, Ids, Server, Step, number_of, whole_number

LIKELIEST = 20


class Ollama(Server):
    """ollama serve."""

    name = "ollama"

    @staticmethod
    def recognise(client: Client) -> bool:
        version, tags = client.get("/api/version"), client.get("/api/tags")
        return isinstance(version, dict) and "version" in version and isinstance(tags.get("models"), list)

    def discover(self, model: str | None) -> Abilities:
        names = [str(row.get("name")) for row in self.client.get("/api/tags")["models"]]
        if model is None and len(names) != 1:
            raise ServerError(
                f"{self.client.url} serves {', '.join(names[:8]) or 'nothing'}: say which (--served-model)"
            )
        self.model = model or names[0]
        shown = self.client.post("/api/show", {"model": self.model})
        info = shown.get("model_info") or {}
        trained = next((info[name] for name in info if name.endswith(".context_length")), None)
        told = self.client.post("/api/generate", self._body("the", 1, 2))
        likeliest = LIKELIEST if told.get("logprobs") else 0
        return Abilities(ids=False, prompt=False, likeliest=likeliest, trained=whole_number(trained))

    def _body(self, text: str, steps: int, likeliest: int) -> dict[str, Any]:
        options = {"num_predict": steps, "temperature": 0.0}
        wish = {"logprobs": True, "top_logprobs": min(LIKELIEST, max(1, likeliest))}
        return {"model": self.model, "prompt": text, "raw": True, "stream": False, "options": options, **wish}

    def request(
        self, ids: Ids, steps: int, likeliest: int, prompt: bool, bias: Mapping[int, float], fresh: bool
    ) -> Answer:
        told = self.client.post("/api/generate", self._body(self.text_of(ids), steps, likeliest))
        rows = told.get("logprobs") if isinstance(told, dict) else None
        if not isinstance(rows, list):
            raise ServerError(f"{self.client.url} answered without logprobs, which Ollama has from 0.12.11 on")
        made = tuple(
            Step(
                self.token_of(row["token"]), number_of(row.get("logprob")),
                {self.token_of(top["token"]): number_of(top.get("logprob")) for top in row.get("top_logprobs") or []},
            )
            for row in rows
        )  # fmt: skip
        return Answer(made, None, whole_number(told.get("prompt_eval_count")), None)
