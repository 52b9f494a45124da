"""Rotary schemes: similarity by distance, which channels are a pair, and linear attention."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.claims.claim import Claim, Figure, Found
from milepost.claims.groups.practice.lengths import ROPE_ITSELF
from milepost.claims.groups.relative.heads import falls_found
from milepost.claims.groups.relative.rotation import HEAD, turned, vectors
from milepost.claims.rule import control, core, limit
from milepost.claims.world import FAR, drawn, largest
from milepost.encodings.rope import RoPE
from milepost.rotation import permutation
from milepost.testing.layer import budget


def decay_found() -> Found:
    """Scores by distance: of vectors with themselves, and of random pairs."""
    distances = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]
    many = drawn(4096, HEAD, seed=3), drawn(4096, HEAD, seed=4)
    same, pairs = [], []
    for d in distances:
        same.append(float((many[0] * turned(many[0], d)).sum(-1).mean()) / HEAD)
        pairs.append(float((many[0] * turned(many[1], d)).sum(-1).pow(2).mean().sqrt()) / HEAD**0.5)
    near, far = slice(1, 5), slice(11, None)
    equal = [sum(v[far]) / len(v[far]) / (sum(v[near]) / len(v[near])) for v in (same, pairs)]
    rises = sum(b > a for a, b in pairwise(same[1:]))
    figure = Figure(
        "lines", "Scores by distance", "distance + 1", "score over that at 0", [d + 1 for d in distances],
        {"q = k, mean": same, "random q and k, root mean square": pairs}, log_x=True,
    )  # fmt: skip
    note = f"for q = k the mean rises at {rises} of {len(same) - 2} doublings: it falls on the whole, not step by step"
    return Found({"same": equal[0], "random": equal[1]}, (figure,), (note,))


def split_as_in_the_notes(x: Tensor, angle: Tensor) -> Tensor:
    """What the notes' function computes: the front half of the channels against the back half (n D), by angles (D/2)."""
    front, back = x.chunk(2, dim=-1)
    return torch.cat([front * angle.cos() - back * angle.sin(), back * angle.cos() + front * angle.sin()], dim=-1)


def pairs_found() -> Found:
    """The notes' code against both pairings; and a model whose queries and keys are paired differently."""
    q, k = vectors()
    neighbours, halves = RoPE(HEAD, pairing="interleaved"), RoPE(HEAD)
    place = 1000
    noted = split_as_in_the_notes(q, place * halves.inv_freq)
    off = {
        "adjacent pairs": largest(noted - turned(q, place, neighbours)),
        "halves": largest(noted - turned(q, place, halves)),
    }
    to = permutation(HEAD, to="interleaved")
    off["halves, channels reordered"] = largest(noted[:, to] - turned(q[:, to], place, neighbours))
    at = torch.tensor([place])
    mixed = (halves.query(q[None, :, None], at)[0, :, 0] * turned(k, place, neighbours)).sum(-1)
    off["query by halves, key by neighbours: scores"] = largest(mixed - (q * k).sum(-1))
    figure = Figure(
        "points",
        "The notes' code against",
        "",
        "largest difference",
        list(off),
        {"difference": list(off.values())},
        log_y=True,
        mark=budget(place),
    )
    notes = (
        f"from the rotation of channel i with i + d/2 it differs by {off['halves']:.2g}; with its channels reordered, from that of adjacent ones by "
        f"{off['halves, channels reordered']:.2g}",
        f"mixing the two in one score, at distance 0, is off by up to {off['query by halves, key by neighbours: scores']:.2g}",
    )
    return Found({"adjacent": off["adjacent pairs"]}, (figure,), notes)


def linear_attention_found() -> Found:
    """Linear attention with rotated features: numerators moved together, and the signs of the weights."""
    n, apart, places = 64, 2048, (1, 1000, FAR - 64 * 2048)
    q, k = (F.elu(drawn(1, 1, n, HEAD, seed=seed)) + 1 for seed in (1, 2))
    v, rope = drawn(1, 1, n, HEAD, seed=3), RoPE(HEAD)

    def numerator(start: int) -> tuple[Tensor, Tensor]:
        pos = start + apart * torch.arange(n)
        weights = (rope.query(q, pos) @ rope.key(k, pos).transpose(-1, -2)).tril()
        return weights @ v, weights

    here, weights = numerator(0)
    size = largest(here)
    moved = [largest(numerator(start)[0] - here) / size for start in places]
    seen = torch.ones(n, n).tril().bool()
    negative = float((weights[0, 0][seen] < 0).double().mean())
    plain = float(((q @ k.transpose(-1, -2))[0, 0][seen] < 0).double().mean())
    figure = Figure(
        "points", "Weights below zero", "", "share", ["features as they are", "features rotated"], {"share": [plain, negative]},
    )  # fmt: skip
    return Found({"moved": max(moved), "negative": negative, "plain": plain}, (figure,))


CLAIMS = (
    Claim(
        "rope-decay",
        "Similarity decays with distance.",
        "相似度随距离衰减。",
        "003, 002",
        "Scores at distances from 1,024 to 65,536 over those at 1 to 8: the mean of 4,096 random vectors with themselves (q = k), and the root mean "
        "square of random pairs. Heads of small models trained with rope: scores of the same queries and keys, set at 1 to 8 and at half to whole the "
        "trained length.",
        (
            core("same", "at most", 0.5, "the far mean score over the near one, for q = k,"),
            limit("random", "at most", 0.5, "the far size of scores over the near one, for random q and k,"),
            limit("heads", "at least", 0.5, "the share of trained heads whose mean score is smaller far away"),
        ),
        exact=decay_found,
        trained=falls_found,
        needs=(ROPE_ITSELF,),
        exact_decides=True,
    ),
    Claim(
        "pairs-in-code",
        "The notes' rotary code rotates adjacent pairs.",
        "笔记中的旋转代码旋转的是相邻的维度对。",
        "003, the code",
        "What the notes' code computes, against the rotation of adjacent channels and against that of channel i with i + d/2, at position 1000.",
        (core("adjacent", "at most", budget(1000), "its difference from the rotation of adjacent channels"),),
        exact=pairs_found,
    ),
    Claim(
        "linear-attention",
        "RoPE works with linear attention.",
        "RoPE 可用于线性注意力。",
        "002 §2",
        "Features elu(x) + 1 of 64 random queries and keys, up to 129,024 positions apart, are rotated; the numerator of linear attention is compared "
        "with itself moved by up to 917,503, and the signs of its weights are looked at.",
        (
            control("plain", "at most", 0.0, "the share of weights below zero without rotation"),
            core(
                "moved",
                "at most",
                64 * budget(FAR),
                "the largest change of the numerator when all positions move, as a share,",
            ),
            limit(
                "negative",
                "at most",
                0.0,
                "the share of weights below zero with rotation, which no denominator of positive numbers norms,",
            ),
        ),
        exact=linear_attention_found,
    ),
)
