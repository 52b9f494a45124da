"""bench rope: the time to rotate q and k, against the peers' own functions and against a plain copy.

Every contestant gets its table of angles ready-made, as it would have it inside a model, and its own layout of q and k.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from milepost.bench.timing import best_seconds, check_sizes
from milepost.encodings.rope import RoPE
from milepost.measure.results import provenance


def bench_rope(
    heads: int = 32,
    length: int = 4096,
    head_dim: int = 128,
    *,
    rounds: int = 7,
    device: str = "cpu",
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Rows of ``implementation``, ``mode`` (eager or compiled), ``seconds``, ``ratio`` (to a copy), ``times_ours``."""
    check_sizes(device, rounds=rounds, heads=heads, length=length, head_dim=head_dim)
    ours = RoPE(head_dim=head_dim)
    q, k = (torch.randn(1, heads, length, head_dim, device=device) for _ in range(2))
    pos = torch.arange(length, device=device)
    runs: dict[str, Callable[[], Any]] = {
        "clone": lambda: (q.clone(), k.clone()),
        "milepost": lambda: (ours.query(q, pos), ours.key(k, pos)),
    }
    runs |= {name: make(q, k, pos) for name, make in PEERS.items() if _installed(name)}
    missing = [name for name in PEERS if not _installed(name)]
    compiled = torch.compile(lambda q, k, pos: (ours.query(q, pos), ours.key(k, pos)), dynamic=True)
    runs["milepost compiled"] = lambda: compiled(q, k, pos)
    seconds = best_seconds(runs, rounds, device=device, tell=tell)
    rows = [
        {
            "implementation": name.removesuffix(" compiled"),
            "mode": "compiled" if name.endswith("compiled") else "eager",
            "seconds": best,
            "ratio": best / seconds["clone"],
            "times_ours": best / seconds["milepost compiled" if name.endswith("compiled") else "milepost"],
        }
        for name, best in seconds.items()
    ]
    protocol = {
        "heads": heads,
        "length": length,
        "head_dim": head_dim,
        "dtype": "float32",
        "rounds": rounds,
        "device": device,
        "threads": torch.get_num_threads(),
    }
    return {"rows": rows, "not_installed": missing, "provenance": provenance(**protocol)}


def _installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name.replace("-", "_")) is not None


def _transformers(q: Tensor, k: Tensor, pos: Tensor) -> Callable[[], Any]:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    cos, sin = _angles(q, pos)
    both = torch.cat([cos, cos], dim=-1)[None], torch.cat([sin, sin], dim=-1)[None]
    return lambda: apply_rotary_pos_emb(q, k, *both)


def _x_transformers(q: Tensor, k: Tensor, pos: Tensor) -> Callable[[], Any]:
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    freqs, scale = RotaryEmbedding(q.shape[-1]).to(q.device)(pos)
    return lambda: (apply_rotary_pos_emb(q, freqs, scale), apply_rotary_pos_emb(k, freqs, scale))


def _rotary_embedding_torch(q: Tensor, k: Tensor, pos: Tensor) -> Callable[[], Any]:
    from rotary_embedding_torch import RotaryEmbedding

    peer = copy.deepcopy(RotaryEmbedding(dim=q.shape[-1])).to(q.device)  # its own table is cached after the first call
    return lambda: (peer.rotate_queries_or_keys(q), peer.rotate_queries_or_keys(k))


def _angles(q: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
    angle = pos.double()[:, None] * RoPE(head_dim=q.shape[-1]).inv_freq.to(pos.device)
    return angle.cos().to(q.dtype), angle.sin().to(q.dtype)


PEERS = {
    "transformers": _transformers,
    "x-transformers": _x_transformers,
    "rotary-embedding-torch": _rotary_embedding_torch,
}
