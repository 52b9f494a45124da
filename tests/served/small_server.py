"""A server of ours: a real small Llama run by torch, which answers in the documented form of vLLM, SGLang, Ollama or
OpenAI. It keeps the last prompts as a prefix cache, with real keys and values, and faults can be planted in it.

    no temperature         the rotation of YaRN without its temperature
    base 10000             another base than the config says
    off by one             after a cached prefix, positions are one too high
    cut                    of a text of more than half of what it serves, only the last tokens reach the model
    decode unscaled        tokens that are generated after the first are turned without the scaling
    history                after a long text, every text is turned without the scaling
"""

from __future__ import annotations

import contextlib
import copy
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VOCABULARY, TRAINED, FACTOR, SERVED = 64, 128, 4.0, 512
YARN = {"rope_type": "yarn", "rope_theta": 50000.0, "factor": FACTOR, "original_max_position_embeddings": TRAINED}
CONFIG = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": SERVED, "initializer_range": 0.25,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def build(rope: dict[str, Any] | None = None, seed: int = 0, **more: Any) -> Any:
    """A Llama with random weights, the same each time, with these rotary parameters."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(**{**CONFIG, **more}, rope_parameters=rope or YARN)
    return transformers.LlamaForCausalLM(config).eval()


@torch.no_grad()
def write_text(model: Any, rows: int, length: int) -> torch.Tensor:
    """Texts (rows length) that the model says by itself: it knows them well, and a fault shows as a higher loss."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(3, VOCABULARY, (rows, 1), generator=generator)
    out, past = ids, None
    for _ in range(length - 1):
        got = model(input_ids=ids, past_key_values=past, use_cache=True)
        past = got.past_key_values
        logits = got.logits[:, -1].float()
        logits[:, :3] = -torch.inf
        ids = torch.multinomial(torch.softmax(logits / 0.7, -1), 1, generator=generator)
        out = torch.cat([out, ids], 1)
    return out


class SmallModel:
    """The weights, with a prefix cache and the faults that are planted."""

    def __init__(self, model: Any, fault: str = "", served: int = SERVED):
        self.fault, self.served, self.lock = fault, served, threading.Lock()
        self.model = self._other(model)
        self.plain = model
        if fault:
            self.plain = build({"rope_type": "default", "rope_theta": 50000.0})
            self.plain.load_state_dict(model.state_dict())
        self.kept: list[tuple[list[int], Any]] = []
        self.longest = 0

    def _other(self, model: Any) -> Any:
        ropes = {"no temperature": {**YARN, "attention_factor": 1.0}, "base 10000": {**YARN, "rope_theta": 10000.0}}
        if self.fault not in ropes:
            return model
        made = build(ropes[self.fault])
        made.load_state_dict(model.state_dict())
        return made

    @torch.no_grad()
    def run(
        self, ids: list[int], steps: int, *, prompt: bool = False, fresh: bool = False, bias: dict[int, float] | None = None
    ) -> dict[str, Any]:  # fmt: skip
        """Log-likelihoods of the prompt (where asked for) and of each generated token, in order of decoding."""
        with self.lock:
            sent = ids
            if self.fault == "cut" and len(ids) > self.served // 2:
                ids = ids[-self.served // 2 :]
            model = self.plain if self.fault == "history" and self.longest > len(ids) else self.model
            self.longest = max(self.longest, len(ids))
            past, hit = None, 0
            if not prompt and not fresh:
                hit, past = self._prefix(ids)
            new = torch.tensor([ids[hit:]])
            shift = int(self.fault == "off by one" and hit > 0)
            at = torch.arange(hit + shift, len(ids) + shift)[None]
            out = model(input_ids=new, past_key_values=past, position_ids=at, use_cache=True)
            past = out.past_key_values
            if not prompt:
                grown = [row for row in self.kept if row[0] != ids[: len(row[0])]]
                self.kept = [*grown[-7:], (list(ids), copy.deepcopy(past))]
            told = []
            if prompt:
                logs = torch.log_softmax(out.logits[0].double(), -1)
                told = [None, *(float(logs[n, ids[n + 1]]) for n in range(len(ids) - 1))]
            tokens, rows = [], []
            logits = out.logits[0, -1].double()
            for n in range(steps):
                for token, by in (bias or {}).items():
                    logits[token] += by
                rows.append(torch.log_softmax(logits, -1))
                tokens.append(int(logits.argmax()))
                if n + 1 < steps:
                    turned = self.plain if self.fault == "decode unscaled" else model
                    place = torch.tensor([[len(ids) + shift + n]])
                    step = turned(
                        input_ids=torch.tensor([[tokens[-1]]]), past_key_values=past, position_ids=place, use_cache=True
                    )
                    past, logits = step.past_key_values, step.logits[0, -1].double()
        return {"prompt": told, "tokens": tokens, "rows": rows, "counted": len(sent), "cached": hit}

    def _prefix(self, ids: list[int]) -> tuple[int, Any]:
        """The longest prefix of a kept prompt, with its keys and values; at least one token is always computed."""
        best: tuple[int, Any] = (0, None)
        for kept, past in self.kept:
            same = next(
                (n for n, (a, b) in enumerate(zip(kept, ids, strict=False)) if a != b), min(len(kept), len(ids))
            )
            same = min(same, len(ids) - 1)
            if same > best[0]:
                best = (same, past)
        if best[1] is not None:
            past = copy.deepcopy(best[1])
            if past.get_seq_length() > best[0]:
                past.crop(best[0] - past.get_seq_length())
            return best[0], past
        return best


class Handler(BaseHTTPRequestHandler):
    """The forms. ``server`` has the model, the form, and what is to go wrong with requests themselves."""

    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *words: Any) -> None: ...

    def do_GET(self) -> None:
        self._answer(self._get())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append((self.path, dict(self.headers), body))
        trouble = self.server.trouble(len(self.server.bodies)) if self.server.trouble else None
        if trouble is not None:
            status, content, headers = trouble
            self._send(status, content, headers)
            return
        try:
            self._answer(getattr(self, f"_{self.server.form}")(body), body)
        except ValueError as error:
            told = {"message": str(error), "type": "BadRequestError", "param": None, "code": 400}
            self._send(400, json.dumps({"error": told}).encode(), {})

    def _answer(self, data: Any, body: Any = None) -> None:
        self.server.answers.append((self.path, body, data))
        if data is None:
            self._send(404, b'{"detail": "Not Found"}', {})
        else:
            self._send(200, json.dumps(data).encode(), {})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(content)

    def _get(self) -> Any:
        served = self.server.model.served
        card = {"id": "small", "object": "model", "max_model_len": served}
        paths: dict[str, dict[str, Any]] = {
            "vllm": {
                "/version": {"version": "0.32.0"},
                "/v1/models": {"object": "list", "data": [{**card, "owned_by": "vllm"}]},
            },
            "sglang": {
                "/model_info": {"model_path": "small", "is_generation": True},
                "/server_info": {"context_length": served, "version": "0.5.23"},
            },
            "ollama": {"/api/version": {"version": "0.13.0"}, "/api/tags": {"models": [{"name": "small:latest"}]}},
            "openai": {"/v1/models": {"object": "list", "data": [{"id": "small", "object": "model"}]}},
        }
        return paths[self.server.form].get(self.path)

    def _read(self, ids: Any, steps: int, **more: Any) -> dict[str, Any]:
        served = self.server.model.served
        if not all(isinstance(n, int) and 0 <= n < self.server.model.model.config.vocab_size for n in ids):
            raise ValueError("token ids out of vocabulary")
        if len(ids) + steps > served and self.server.model.fault != "cut":
            raise ValueError(f"This model's maximum context length is {served} tokens, and {len(ids)} were given")
        return self.server.model.run(list(ids), steps, **more)

    def _vllm(self, body: dict[str, Any]) -> Any:
        if self.path != "/v1/completions":
            return None
        if not isinstance(body["prompt"], list) or body["model"] != "small":
            raise ValueError("this test speaks in ids")
        whole = "prompt_logprobs" in body
        bias = {int(token): by for token, by in body.get("logit_bias", {}).items()}
        got = self._read(body["prompt"], body["max_tokens"], prompt=whole, fresh="cache_salt" in body, bias=bias)
        choice: dict[str, Any] = {"index": 0, "text": "", "finish_reason": "length", "logprobs": None}
        if whole:
            rows = zip(body["prompt"][-len(got["prompt"]) :], got["prompt"], strict=True)  # a cut prompt is shorter
            choice["prompt_logprobs"] = [
                None if value is None else {str(token): {"logprob": value, "rank": 1, "decoded_token": "?"}}
                for token, value in rows
            ]
        many = body.get("logprobs")
        if many is not None:
            if many > 20:
                raise ValueError("Requested sample logprobs of 21, which is greater than max allowed: 20")
            assert body["return_tokens_as_token_ids"]
            choice["logprobs"] = {
                "tokens": [f"token_id:{token}" for token in got["tokens"]],
                "token_logprobs": [float(row[t]) for t, row in zip(got["tokens"], got["rows"], strict=True)],
                "top_logprobs": [{f"token_id:{t}": v for t, v in _top(row, many)} for row in got["rows"]],
                "text_offset": [],
            }
        made = {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": "small"}
        return {**made, "choices": [choice], "usage": _usage(got)}

    def _sglang(self, body: dict[str, Any]) -> Any:
        if self.path != "/generate":
            return None
        start, sampling = body.get("logprob_start_len", -1), body["sampling_params"]
        bias = {int(token): by for token, by in sampling.get("logit_bias", {}).items()}
        got = self._read(body["input_ids"], sampling["max_new_tokens"], prompt=start == 0, bias=bias)
        whole = zip(body["input_ids"][-len(got["prompt"]) :], got["prompt"], strict=True) if start == 0 else ()
        meta = {
            "id": "0", "finish_reason": {"type": "length", "length": sampling["max_new_tokens"]},
            "prompt_tokens": got["counted"], "weight_version": "default", "num_retractions": 0,
            "input_token_logprobs": [[value, token, None] for token, value in whole],
            "output_token_logprobs": [[float(row[t]), t, None] for t, row in zip(got["tokens"], got["rows"], strict=True)],
            "output_token_logprobs_length": len(got["tokens"]),
            "reasoning_tokens": 0, "completion_tokens": len(got["tokens"]), "cached_tokens": got["cached"],
        }  # fmt: skip
        if body["top_logprobs_num"]:
            tops = [[[v, t, None] for t, v in _top(row, body["top_logprobs_num"])] for row in got["rows"]]
            meta |= {"input_top_logprobs": [], "output_top_logprobs": tops}
        return {"text": "", "output_ids": got["tokens"], "meta_info": meta}

    def _ollama(self, body: dict[str, Any]) -> Any:
        words = self.server.tokenizer
        if self.path == "/api/show":
            return {"model_info": {"llama.context_length": SERVED}, "parameters": ""}
        if self.path != "/api/generate":
            return None
        assert body["raw"] and not body["stream"] and body["top_logprobs"] <= 20
        ids = words(body["prompt"], add_special_tokens=False)["input_ids"]
        got = self._read(ids, body["options"]["num_predict"])
        rows = [
            {
                "token": words.decode([t]), "logprob": float(row[t]),
                "top_logprobs": [{"token": words.decode([n]), "logprob": v} for n, v in _top(row, body["top_logprobs"])],
            }
            for t, row in zip(got["tokens"], got["rows"], strict=True)
        ]  # fmt: skip
        return {"model": "small", "response": "", "done": True, "logprobs": rows, "prompt_eval_count": got["counted"]}

    def _openai(self, body: dict[str, Any]) -> Any:
        if self.path != "/v1/completions":
            return None
        many, echo = body.get("logprobs"), body.get("echo", False)
        if many is not None and many > 5:
            raise ValueError("logprobs is at most 5")
        got = self._read(body["prompt"], body["max_tokens"], prompt=echo)
        logs: Any = None
        if many is not None:
            values = [float(row[t]) for t, row in zip(got["tokens"], got["rows"], strict=True)]
            tops = [{self.server.tokenizer.decode([t]): v for t, v in _top(row, many)} for row in got["rows"]]
            words = [self.server.tokenizer.decode([t]) for t in [*(body["prompt"] if echo else []), *got["tokens"]]]
            logs = {
                "tokens": words,
                "token_logprobs": [*got["prompt"], *values],
                "top_logprobs": [*[None] * (len(body["prompt"]) if echo else 0), *tops],
            }
        return {"choices": [{"index": 0, "text": "", "logprobs": logs}], "usage": _usage(got)}


def _top(row: torch.Tensor, many: int) -> list[tuple[int, float]]:
    values, tokens = row.topk(min(many, len(row)))
    return list(zip(tokens.tolist(), values.tolist(), strict=True))


def _usage(got: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt_tokens": got["counted"], "completion_tokens": len(got["tokens"]),
        "total_tokens": got["counted"] + len(got["tokens"]),
        "prompt_tokens_details": {"cached_tokens": got["cached"]},
    }  # fmt: skip


@contextlib.contextmanager
def serving(model: Any, form: str, fault: str = "", *, tokenizer: Any = None, trouble: Any = None) -> Iterator[Any]:
    """A server on loopback; its ``url``, the ``bodies`` that it was sent, and its ``answers`` with what they answer."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.model = model if isinstance(model, SmallModel) else SmallModel(model, fault)
    server.form, server.tokenizer, server.trouble, server.bodies = form, tokenizer, trouble, []
    server.answers = []
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
