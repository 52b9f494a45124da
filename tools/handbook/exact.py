"""Figures that need no training: what the package's own formulas give, in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from milepost import T5, ALiBi, Encoding, Layout, RoPE, Sinusoidal, attend, build
from milepost.encodings.alibi import slopes
from milepost.portrait import Panel, portrait
from milepost.spectrum import geometric

WIDTH, HEADS = 64, 4


def _numbers(count: int, first: int = 0) -> list[float]:
    return [float(n) for n in range(first, first + count)]


def _code(spec: str, count: int) -> Tensor:
    """What an encoding adds to zeros: L C."""
    enc = build(spec, width=WIDTH, length=count)
    enc = enc.at(count) if enc.length_dependent else enc
    with torch.no_grad():
        return enc.embed(torch.zeros(1, count, WIDTH, dtype=torch.float64), torch.arange(count))[0]


# ------------------------------------------------------------------------------------------------ the walk


def integers() -> list[Panel]:
    """How large the code is beside an embedding of size 1."""
    raw = _code("integer", 64).abs().mean(-1)
    short, long = (_code('integer(over="length")', n).abs().mean(-1) for n in (16, 64))
    lines = {"the embedding": [1.0] * 64, "p": raw.tolist(), "p / 16, a short text": [*short.tolist(), *[None] * 48], "p / 64, a longer one": long.tolist()}
    return [Panel("lines", "Integers: the size of what is added", "position", "size of a channel", _numbers(64), lines=lines)]  # type: ignore[arg-type]


def bits() -> list[Panel]:
    code = _code("binary", 64)[:, :8]
    return [_heat("Binary: a channel for each bit", "bit", code)]


def neighbours() -> list[Panel]:
    """The step from each code to the next one."""
    step = {name: (code[1:] - code[:-1]).norm(dim=-1).tolist() for name in ("binary", "sinusoidal") if (code := _code(name, 65)) is not None}
    return [Panel("lines", "The step from a code to the next one", "position", "length of the step", _numbers(64), lines=step)]


def waves() -> list[Panel]:
    code = _code("sinusoidal", 128)
    lines = {f"pair {pair}": code[:, 2 * pair].tolist() for pair in (0, 4, 8, 12)}
    return [_heat("Sinusoids: the code of each position", "channel", code), Panel("lines", "Four of its sines", "position", "sin", _numbers(128), lines=lines)]


def offsets() -> list[Panel]:
    """Code times code by distance, from several places; then the same after two random projections."""
    code, far = Sinusoidal(width=WIDTH).code(torch.arange(1200)), _numbers(100)
    made = torch.Generator().manual_seed(0)
    w_q, w_k = (torch.randn(WIDTH, WIDTH, generator=made, dtype=torch.float64) / WIDTH**0.5 for _ in range(2))
    code = code.double().view(-1, WIDTH)
    plain = {f"from {p}": (code[p : p + 100] @ code[p]).tolist() for p in (0, 100, 1000)}
    mixed = {f"from {p}": ((code[p : p + 100] @ w_k) @ (code[p] @ w_q)).tolist() for p in (0, 100, 1000)}
    return [
        Panel("lines", "Code times code: one curve from every place", "distance", "product", far, lines=plain),
        Panel("lines", "After random W_q and W_k: a curve for each place", "distance", "product", far, lines=mixed),
    ]


def rotation() -> list[Panel]:
    """The logit of one query and one key by distance, with the query at several places."""
    made = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 1, WIDTH, generator=made, dtype=torch.float64) for _ in range(2))
    enc, far = RoPE(head_dim=WIDTH), torch.arange(100)
    lines = {}
    for place in (100, 1000, 100000):
        turned = enc.query(q, torch.tensor([place]))
        keys = enc.key(k.expand(1, 1, 100, WIDTH), place - far)
        lines[f"query at {place}"] = ((turned * keys).sum(-1)[0, 0] / WIDTH**0.5).tolist()
    lines["key and query exchanged"] = [
        float((enc.query(q, torch.tensor([1000 - d])) * enc.key(k, torch.tensor([1000]))).sum() / WIDTH**0.5) for d in range(100)
    ]
    return [Panel("lines", "RoPE: the logit of one query and one key", "distance", "logit", _numbers(100), lines=lines)]


def recurrent() -> list[Panel]:
    """Exchange two neighbours so far back: does the last state notice? And can the position be read off a state?"""
    length, texts = 64, 256
    made = torch.Generator().manual_seed(0)
    words = torch.randn(32, WIDTH, generator=made, dtype=torch.float64)
    tokens = words[torch.randint(0, 32, (texts, length), generator=made)]
    torch.manual_seed(0)
    gru = torch.nn.GRU(WIDTH, WIDTH, batch_first=True, dtype=torch.float64)
    readers = {
        "GRU": lambda x: gru(x)[0],
        "attention without position, 1 layer": lambda x: _stack(x, None, 1),
        "attention without position, 3 layers": lambda x: _stack(x, None, 3),
    }
    noticed, read = {}, {"the position": _numbers(length)}
    with torch.no_grad():
        for name, reader in readers.items():
            states = reader(tokens)
            noticed[name] = [_noticed(reader, tokens[:16], states[:16, -1], back) for back in range(1, 33)]
            line, share = straight(states)
            read[f"{name}, R2 = {share:.2f}"] = line.tolist()
    return [
        Panel("lines", "Two neighbours exchanged: the last state changes by", "tokens back", "change / size", _numbers(32, 1), lines=noticed),
        Panel("lines", "The position, as a straight line reads it off a state", "position", "read off", _numbers(length), lines=read),
    ]


def _noticed(reader: Callable[[Tensor], Tensor], tokens: Tensor, before: Tensor, back: int) -> float:
    order = list(range(tokens.shape[1]))
    a = tokens.shape[1] - 1 - back
    order[a], order[a - 1] = order[a - 1], order[a]
    return float((reader(tokens[:, order])[:, -1] - before).norm() / before.norm())


def straight(states: Tensor) -> tuple[Tensor, float]:
    """Least squares from states (B L C) to positions, fitted on three quarters of the texts: what it reads off the others (L), and its R2 there."""
    texts, length = states.shape[:2]
    wide, part = torch.cat((states, torch.ones_like(states[..., :1])), -1), texts * 3 // 4
    place = torch.arange(length, dtype=states.dtype)
    found = torch.linalg.lstsq(wide[:part].flatten(0, 1), place.repeat(part)[:, None]).solution
    guess = (wide[part:] @ found)[..., 0]
    return guess.mean(0), float(1 - (guess - place).square().mean() / (place - place.mean()).square().mean())


# ------------------------------------------------------------------------------------------------ order and attention


def _stack(x: Tensor, enc: Encoding | None, layers: int, causal: bool = True) -> Tensor:
    """Random layers of attention and a small network on x (B L C), the same numbers for every encoding."""
    made = torch.Generator().manual_seed(1)
    size = x.shape[-1]
    at = Layout.dense(x.shape[1])
    enc = enc or Encoding()

    def weight() -> Tensor:
        return torch.randn(size, size, generator=made, dtype=torch.float64) * 1.5 / size**0.5

    for _ in range(layers):
        normed = torch.nn.functional.layer_norm(x, (size,))
        q, k, v = ((normed @ weight()).unflatten(-1, (HEADS, -1)).transpose(1, 2) for _ in range(3))
        y = attend(enc.query(q, at.pos), enc.key(k, at.pos), v, enc, at=at, causal=causal, backend="reference")
        x = x + y.transpose(1, 2).flatten(2) @ weight()
        x = x + torch.tanh(torch.nn.functional.layer_norm(x, (size,)) @ weight()) @ weight()
    return x


def shuffled() -> list[Panel]:
    """How far the last token's state moves when the tokens before it are shuffled, as a share of its size."""
    made = torch.Generator().manual_seed(0)
    x = torch.randn(8, 32, WIDTH, generator=made, dtype=torch.float64)
    other = torch.cat((x[:, torch.randperm(31, generator=made)], x[:, 31:]), 1)
    cases = {"no position, no mask": (None, False), "no position, causal mask": (None, True), "rope, causal mask": (RoPE(head_dim=WIDTH // HEADS), True)}
    lines = {}
    for name, (enc, causal) in cases.items():
        moved = []
        for layers in range(1, 7):
            a, b = (_stack(one, enc, layers, causal)[:, -1] for one in (x, other))
            moved.append(float((a - b).norm() / a.norm()))
        lines[name] = [0.0 if m < 1e-12 else m for m in moved]  # rounding of float64
    return [Panel("lines", "The last token, when the others are shuffled", "layers", "change / size", _numbers(6, 1), lines=lines)]


def three() -> list[Panel]:
    """One picture for each point of entry."""
    made = {name: portrait(build(name, heads=8, head_dim=64, width=64), 64).panels for name in ("sinusoidal", "rope", "alibi")}
    return [made["sinusoidal"][0], made["rope"][0], made["alibi"][1]]


# ------------------------------------------------------------------------------------------------ biases


def reach() -> list[Panel]:
    """How far a head of ALiBi sees: where its weight for equal keys has fallen to 1/e."""
    lines = {f"{heads} heads": [*(1 / m for m in slopes(heads)), *[None] * (16 - heads)] for heads in (2, 4, 8, 16)}
    return [Panel("lines", "ALiBi: the distance at which weight falls to 1/e", "head", "tokens", _numbers(16), lines=lines, log_y=True)]  # type: ignore[arg-type]


def weights() -> list[Panel]:
    """Logits and weights of ALiBi where all keys are alike."""
    nothing = torch.zeros(1, 8, 64, 8, dtype=torch.float64)
    seen = attend(nothing, nothing, nothing, ALiBi(heads=8), details=True)
    rows = {f"head {h}": h for h in (0, 2, 4, 6)}
    logits = {name: seen.logits[0, h, -1].flip(0).tolist() for name, h in rows.items()}
    shares = {name: seen.weights[0, h, -1].flip(0).clamp(min=1e-12).tolist() for name, h in rows.items()}
    return [
        Panel("lines", "ALiBi: logits fall like a line", "distance", "logit", _numbers(64), lines=logits),
        Panel("lines", "and weights exponentially", "distance", "weight", _numbers(64), lines=shares, log_y=True),
    ]


def buckets() -> list[Panel]:
    far = torch.arange(300)
    lines = {f"max_distance={most}": T5(heads=1, max_distance=most).bucket(far).double().tolist() for most in (128, 256)}
    lines["Shaw, clipped at 16"] = far.clamp(max=16).double().tolist()
    return [Panel("lines", "T5: the bucket of each distance", "distance", "bucket", _numbers(300), lines=lines)]


# ------------------------------------------------------------------------------------------------ rotations


def bases() -> list[Panel]:
    names = {"base 100": 100.0, "base 10000": 10000.0, "base 500000": 500000.0}
    waves_of = {name: list(geometric(128, base).wavelengths) for name, base in names.items()}
    far = torch.arange(0, 2000, 4, dtype=torch.float64)
    alike = {name: (far[:, None] * geometric(128, base).tensor()).cos().mean(-1).tolist() for name, base in names.items()}
    return [
        Panel("lines", "Wavelength of each pair", "pair", "tokens", _numbers(64), lines=waves_of, log_y=True),
        Panel("lines", "Logit / D of equal vectors", "distance", "logit / D", far.tolist(), lines=alike),
    ]


def wrap() -> list[Panel]:
    """One pair comes back to where it was; all of them together do not."""
    far = torch.arange(0, 129, dtype=torch.float64)
    turns = (far[:, None] * geometric(64).tensor()).cos()
    lines = {"pair 0 alone": turns[:, 0].tolist(), "pair 4 alone": turns[:, 4].tolist(), "all 32 pairs": turns.mean(-1).tolist()}
    return [Panel("lines", "Likeness with distance 0", "distance", "mean of cos", far.tolist(), lines=lines)]


def pairs() -> list[Panel]:
    far = torch.arange(0, 513, dtype=torch.float64)
    turns = (far[:, None] * geometric(64).tensor()).cos()
    lines = {f"pair {pair}, one turn in {geometric(64).wavelengths[pair]:.0f}": turns[:, pair].tolist() for pair in (6, 12, 18, 31)}
    return [Panel("lines", "Fast pairs tell near places apart, slow ones far places", "distance", "cos", far.tolist(), lines=lines)]


def stretches() -> list[Panel]:
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
        name: [a / b for a, b in zip(build(f"rope(scaling={spec})", head_dim=128).spectrum.frequencies, plain.frequencies, strict=True)]
        for name, spec in specs.items()
    }
    turns = {f"{n} tokens": [n * w / (2 * math.pi) for w in plain.frequencies] for n in (4096, 32768)}
    turns["one turn"] = [1.0] * 64
    return [
        Panel("lines", "What is left of each pair's frequency", "pair", "new / old", _numbers(64), lines=kept),
        Panel("lines", "Turns of each pair: below one, the end is unseen", "pair", "turns", _numbers(64), lines=turns, log_y=True),
    ]


def planes() -> list[Panel]:
    """The middle of a square of 12 x 12 places with all others, one panel for each scheme."""
    names = ("sinusoidal_nd", "axial", "mixed", "alibi_2d")
    torch.manual_seed(0)
    found = []
    for name in names:
        panel = portrait(build(name, heads=8, head_dim=64, width=64, length=144), 144).panels[0]
        what = "bias of head 0" if panel.title.startswith("Bias") else "likeness"
        found.append(Panel(panel.kind, f"{name}: {what} with the middle", panel.x_title, panel.y_title, panel.x, panel.y, panel.z))
    return found


def _heat(title: str, x_title: str, z: Tensor) -> Panel:
    return Panel("heat", title, x_title, "position", _numbers(z.shape[1]), _numbers(z.shape[0]), z=z.tolist())


PANELS = {
    "integers": integers, "bits": bits, "neighbours": neighbours, "waves": waves, "offsets": offsets, "rotation": rotation, "recurrent": recurrent,
    "shuffled": shuffled, "three": three, "reach": reach, "weights": weights, "buckets": buckets, "bases": bases, "wrap": wrap, "pairs": pairs,
    "stretches": stretches, "planes": planes,
}  # fmt: skip
