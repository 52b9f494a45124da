"""Rotary schemes: similarity by distance, which channels are a pair, and linear attention."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.claims.experiment import FAR, Claim, Measurement, Plot, control, core, gaussian, limit, max_abs
from milepost.claims.groups.relative.heads import ROPE_MODELS, measure_falls
from milepost.claims.groups.relative.rotation import HEAD, turned, vectors
from milepost.encodings.rope import RoPE
from milepost.rotation import permutation
from milepost.testing.layer import budget


def measure_decay() -> Measurement:
    """Scores by distance: of vectors with themselves, and of random pairs."""
    distances = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536]
    q, k = gaussian(4096, HEAD, seed=3), gaussian(4096, HEAD, seed=4)
    same = [float((q * turned(q, d)).sum(-1).mean()) / HEAD for d in distances]
    random = [float((q * turned(k, d)).sum(-1).pow(2).mean().sqrt()) / HEAD**0.5 for d in distances]
    ratios = [fmean(v[11:]) / fmean(v[1:5]) for v in (same, random)]
    rises = sum(b > a for a, b in pairwise(same[1:]))
    lines = {"q = k, mean": same, "random q and k, root mean square": random}
    x = [d + 1 for d in distances]
    figure = Plot("lines", "Scores by distance", "distance + 1", "score over that at 0", x, lines, log_x=True)
    note = f"for q = k the mean rises at {rises} of {len(same) - 2} doublings: it falls on the whole, not at every step"
    return Measurement({"same": ratios[0], "random": ratios[1]}, (figure,), (note,))


def split_as_in_the_notes(x: Tensor, angle: Tensor) -> Tensor:
    """The notes' function: rotate the front half of the channels (n D) with the back half, by angles (D/2)."""
    front, back = x.chunk(2, dim=-1)
    return torch.cat([front * angle.cos() - back * angle.sin(), back * angle.cos() + front * angle.sin()], dim=-1)


def measure_pairs() -> Measurement:
    """The notes' code against both pairings; and a model whose queries and keys are paired differently."""
    q, k = vectors()
    neighbours, halves = RoPE(HEAD, pairing="interleaved"), RoPE(HEAD)
    place, to = 1000, permutation(HEAD, to="interleaved")
    at = torch.tensor([place])
    noted = split_as_in_the_notes(q, place * halves.inv_freq)
    mixed = (halves.query(q[None, :, None], at)[0, :, 0] * turned(k, place, neighbours)).sum(-1)
    off = {
        "adjacent pairs": max_abs(noted - turned(q, place, neighbours)),
        "halves": max_abs(noted - turned(q, place, halves)),
        "halves, channels reordered": max_abs(noted[:, to] - turned(q[:, to], place, neighbours)),
        "query by halves, key by neighbours: scores": max_abs(mixed - (q * k).sum(-1)),
    }
    figure = Plot(
        "points",
        "The notes' code against",
        "",
        "largest difference",
        list(off),
        {"difference": list(off.values())},
        log_y=True,
        mark=budget(place),
    )
    adjacent, by_halves, reordered, scores = off.values()
    notes = (
        f"it differs from the rotation of channel i with i + d/2 by {by_halves:.2g}",
        f"with its channels reordered, it differs from the rotation of adjacent channels by {reordered:.2g}",
        f"a score at distance 0 that mixes the two is wrong by up to {scores:.2g}",
    )
    return Measurement({"adjacent": adjacent}, (figure,), notes)


def measure_linear_attention() -> Measurement:
    """Linear attention with rotated features: numerators moved together, and the signs of the weights."""
    n, apart, places = 64, 2048, (1, 1000, FAR - 64 * 2048)
    q, k = (F.elu(gaussian(1, 1, n, HEAD, seed=seed)) + 1 for seed in (1, 2))
    v, rope = gaussian(1, 1, n, HEAD, seed=3), RoPE(HEAD)

    def weights(start: int) -> Tensor:
        pos = start + apart * torch.arange(n)
        return (rope.query(q, pos) @ rope.key(k, pos).transpose(-1, -2)).tril()

    here = weights(0) @ v
    moved = [max_abs(weights(start) @ v - here) / max_abs(here) for start in places]
    seen = torch.ones(n, n).tril().bool()
    plain, negative = (float((w[0, 0][seen] < 0).double().mean()) for w in (q @ k.transpose(-1, -2), weights(0)))
    names, lines = ["features as they are", "features rotated"], {"share": [plain, negative]}
    figure = Plot("points", "Weights below zero", "", "share", names, lines)
    return Measurement({"moved": max(moved), "negative": negative, "plain": plain}, (figure,))


CLAIMS = (
    Claim(
        "rope-decay",
        "Similarity decays with distance.",
        "相似度随距离衰减。",
        "003, 002",
        "Scores at distances from 1,024 to 65,536 over those at 1 to 8: the mean of 4,096 random vectors with "
        "themselves (q = k), and the root mean square of random pairs. In heads of small models trained with rope, "
        "scores of the same queries and keys, set at distances 1 to 8 and from half the trained length on.",
        (
            core("same", "at most", 0.5, "the far mean score over the near one, for q = k"),
            limit("random", "at most", 0.5, "the far size of scores over the near one, for random q and k"),
            limit("heads", "at least", 0.5, "the share of trained heads whose mean score is smaller far away"),
        ),
        exact=measure_decay,
        trained=measure_falls,
        needs=(ROPE_MODELS,),
        exact_decides=True,
    ),
    Claim(
        "pairs-in-code",
        "The notes' rotary code rotates adjacent pairs.",
        "笔记中的旋转代码旋转的是相邻的维度对。",
        "003, the code",
        "The result of the notes' code at position 1000, against the rotation of adjacent channels and against that "
        "of channel i with i + d/2.",
        (core("adjacent", "at most", budget(1000), "its difference from the rotation of adjacent channels"),),
        exact=measure_pairs,
    ),
    Claim(
        "linear-attention",
        "RoPE works with linear attention.",
        "RoPE 可用于线性注意力。",
        "002 §2",
        "Features elu(x) + 1 of 64 random queries and keys, up to 129,024 positions apart, are rotated. The numerator "
        "of linear attention is compared with itself moved by up to 917,503. Weights below zero are counted: a "
        "denominator of positive numbers does not normalise them.",
        (
            control("plain", "at most", 0.0, "the share of weights below zero without rotation"),
            core(
                "moved",
                "at most",
                64 * budget(FAR),
                "the largest change of the numerator when all positions move, as a share",
            ),
            limit("negative", "at most", 0.0, "the share of weights below zero with rotation"),
        ),
        exact=measure_linear_attention,
    ),
)
