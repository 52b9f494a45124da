"""Figures of formulas: biases by distance, spectra, scalings and planes, as the package's own code gives them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from milepost import T5, ALiBi, attend, build
from milepost.draw.figure import Figure
from milepost.encodings.alibi import slopes
from milepost.portrait import portrait
from milepost.spectrum import geometric


def _numbers(count: int, first: int = 0) -> list[float]:
    return [float(n) for n in range(first, first + count)]


def three() -> list[Figure]:
    """One picture for each point of entry."""
    made = {
        name: portrait(build(name, heads=8, head_dim=64, width=64), 64).figures
        for name in ("sinusoidal", "rope", "alibi")
    }
    return [made["sinusoidal"][0], made["rope"][0], made["alibi"][1]]


def reach() -> list[Figure]:
    """How far a head of ALiBi sees: where its weight for equal keys has fallen to 1/e."""
    lines = {f"{heads} heads": [*(1 / m for m in slopes(heads)), *[None] * (16 - heads)] for heads in (2, 4, 8, 16)}
    return [
        Figure(
            "lines",
            "ALiBi: the distance at which weight falls to 1/e",
            "head",
            "tokens",
            _numbers(16),
            lines=lines,
            log_y=True,
        )
    ]  # type: ignore[arg-type]


def weights() -> list[Figure]:
    """Logits and weights of ALiBi where all keys are alike."""
    nothing = torch.zeros(1, 8, 64, 8, dtype=torch.float64)
    seen = attend(nothing, nothing, nothing, ALiBi(heads=8), details=True)
    rows = {f"head {h}": h for h in (0, 2, 4, 6)}
    logits = {name: seen.logits[0, h, -1].flip(0).tolist() for name, h in rows.items()}
    shares = {name: seen.weights[0, h, -1].flip(0).clamp(min=1e-12).tolist() for name, h in rows.items()}
    return [
        Figure("lines", "ALiBi: logits fall like a line", "distance", "logit", _numbers(64), lines=logits),
        Figure("lines", "and weights exponentially", "distance", "weight", _numbers(64), lines=shares, log_y=True),
    ]


def buckets() -> list[Figure]:
    far = torch.arange(300)
    lines = {
        f"max_distance={most}": T5(heads=1, max_distance=most).bucket(far).double().tolist() for most in (128, 256)
    }
    lines["Shaw, clipped at 16"] = far.clamp(max=16).double().tolist()
    return [Figure("lines", "T5: the bucket of each distance", "distance", "bucket", _numbers(300), lines=lines)]


def bases() -> list[Figure]:
    names = {"base 100": 100.0, "base 10000": 10000.0, "base 500000": 500000.0}
    waves_of = {name: list(geometric(128, base).wavelengths) for name, base in names.items()}
    far = torch.arange(0, 2000, 4, dtype=torch.float64)
    alike = {
        name: (far[:, None] * geometric(128, base).tensor()).cos().mean(-1).tolist() for name, base in names.items()
    }
    return [
        Figure("lines", "Wavelength of each pair", "pair", "tokens", _numbers(64), lines=waves_of, log_y=True),
        Figure("lines", "Logit / D of equal vectors", "distance", "logit / D", far.tolist(), lines=alike),
    ]


def wrap() -> list[Figure]:
    """One pair comes back to where it was; all of them together do not."""
    far = torch.arange(0, 129, dtype=torch.float64)
    turns = (far[:, None] * geometric(64).tensor()).cos()
    lines = {
        "pair 0 alone": turns[:, 0].tolist(),
        "pair 4 alone": turns[:, 4].tolist(),
        "all 32 pairs": turns.mean(-1).tolist(),
    }
    return [Figure("lines", "Likeness with distance 0", "distance", "mean of cos", far.tolist(), lines=lines)]


def pairs() -> list[Figure]:
    far = torch.arange(0, 513, dtype=torch.float64)
    turns = (far[:, None] * geometric(64).tensor()).cos()
    lines = {
        f"pair {pair}, one turn in {geometric(64).wavelengths[pair]:.0f}": turns[:, pair].tolist()
        for pair in (6, 12, 18, 31)
    }
    return [
        Figure(
            "lines",
            "Fast pairs tell near places apart, slow ones far places",
            "distance",
            "cos",
            far.tolist(),
            lines=lines,
        )
    ]


def stretches() -> list[Figure]:
    """What each method leaves of every frequency, for 8 times 4096 tokens."""
    plain = geometric(128)
    specs = {
        "linear": "linear(factor=8.0)",
        "ntk": "ntk(factor=8.0)",
        "yarn": "yarn(factor=8.0, trained=4096)",
        "llama3": "llama3(factor=8.0, trained=4096)",
        "larger base": "larger_base(base=500000.0)",
    }
    kept = {
        name: [
            a / b
            for a, b in zip(
                build(f"rope(scaling={spec})", head_dim=128).spectrum.frequencies, plain.frequencies, strict=True
            )
        ]
        for name, spec in specs.items()
    }
    turns = {f"{n} tokens": [n * w / (2 * math.pi) for w in plain.frequencies] for n in (4096, 32768)}
    turns["one turn"] = [1.0] * 64
    return [
        Figure("lines", "What is left of each pair's frequency", "pair", "new / old", _numbers(64), lines=kept),
        Figure(
            "lines",
            "Turns of each pair: below one, the end is unseen",
            "pair",
            "turns",
            _numbers(64),
            lines=turns,
            log_y=True,
        ),
    ]


def planes() -> list[Figure]:
    """The middle of a square of 12 x 12 places with all others, one panel for each scheme."""
    names = ("sinusoidal_nd", "axial", "mixed", "alibi_2d")
    torch.manual_seed(0)
    found = []
    for name in names:
        drawn = portrait(build(name, heads=8, head_dim=64, width=64, length=144), 144).figures[0]
        what = "bias of head 0" if drawn.title.startswith("Bias") else "likeness"
        found.append(replace(drawn, title=f"{name}: {what} with the middle"))
    return found


FIGURES = {
    "three": three,
    "reach": reach,
    "weights": weights,
    "buckets": buckets,
    "bases": bases,
    "wrap": wrap,
    "pairs": pairs,
    "stretches": stretches,
    "planes": planes,
}
