"""The picture on each page of an encoding, a scaling or a map: made by the package, at sizes that show."""

from __future__ import annotations

import json
from pathlib import Path

import torch

import milepost
from milepost import build
from milepost.draw.figure import Figure
from milepost.encodings import NAMES, SPACE
from milepost.maps import NAMES as MAPS
from milepost.portrait import portrait
from milepost.rope import RopeSpec
from milepost.scaling import SCALINGS, Scaling
from milepost.spectrum import geometric

LENGTH, TRAINED, FACTOR = 128, 4096, 8.0
SPECS = {
    "self_extend": "self_extend(rope=rope, group=4, window=32)",
    "rerope": "rerope(rope=rope, window=32)",
    "dual_chunk": "dual_chunk(rope=rope, chunk=48, local=8)",
    "streaming": "streaming(rope=rope, window=32)",
}
"""Maps with windows that show in a short text; `milepost show` draws any other."""
STRETCHED = {
    "larger_base": "larger_base(base=500000.0)",
    "dynamic": f"dynamic(trained={TRAINED})",
    "staged": f"staged(trained={TRAINED})",
    "linear": f"linear(factor={FACTOR})",
    "ntk": f"ntk(factor={FACTOR})",
    "proportional": "proportional(share=0.75)",
    "hybrid": f"hybrid(edges=(16, 48), scalings=(None, ntk(factor={FACTOR}), linear(factor={FACTOR})))",
}
"""Scalings whose arguments are not a factor and a trained length."""


def encoding(name: str) -> list[Figure]:
    """An encoding over 128 positions."""
    return list(portrait(build(name, heads=8, head_dim=64, width=64, length=LENGTH), LENGTH).figures)


def mapped(name: str) -> list[Figure]:
    """A map: how far it lets a model look, and the logit of a vector of ones with itself, beside RoPE's own."""
    enc, rope = build(SPECS[name], head_dim=64), build("rope", head_dim=64)
    lengths = [float(n) for n in range(1, 4 * LENGTH + 1)]
    reach = [float(enc.reach(int(n))) for n in lengths]  # type: ignore[operator]
    far = {"rope": [n - 1 for n in lengths], name: reach}
    ones, pos = torch.ones(1, 1, LENGTH, 64, dtype=torch.float64), torch.arange(LENGTH)
    seen = (pos <= pos[:, None])[None, None]
    plain = (rope.query(ones, pos) @ rope.key(ones, pos).transpose(-1, -2)).masked_fill(~seen, float("-inf"))
    raw = (ones @ ones.transpose(-1, -2)).masked_fill(~seen, float("-inf"))
    told = enc.rescore(raw, ones, ones, pos[None, None, :, None], pos[None, None, None, :])
    logits = {
        who: [v if v > float("-inf") else None for v in (s[0, 0, -1].flip(0) / 64).tolist()]
        for who, s in (("rope", plain), (name, told))
    }
    distances = [float(d) for d in range(LENGTH)]
    return [
        Figure(
            "lines", "The largest distance that the model meets", "length of the text", "distance", lengths, lines=far
        ),
        Figure(
            "lines",
            f"Logit of ones with themselves, query at {LENGTH - 1}",
            "distance",
            "logit / D",
            distances,
            lines=logits,
        ),  # type: ignore[arg-type]
    ]


def scaling(name: str) -> tuple[Scaling, str]:
    """A scaling at a setting that shows, for one length where it depends on it; and the setting as text."""
    if name == "longrope":
        config = json.loads(
            (Path(milepost.__file__).parent / "rope" / "golden" / "phi-3.5-mini.json").read_text(encoding="utf-8")
        )["config"]
        spec = RopeSpec.from_config(config)
        made = spec.main.scaling
        assert made is not None
        return made.at(131072) or made, "the long list of Phi-3.5-mini"
    text = STRETCHED.get(name, f"{name}(factor={FACTOR}, trained={TRAINED})")
    enc = build(f"rope(scaling={text})", head_dim=128)
    long = int(FACTOR * TRAINED)
    made = enc.at(long).scaling if enc.length_dependent else enc.scaling  # type: ignore[union-attr]
    return made, text + (f", for a text of {long} tokens" if enc.length_dependent else "")


def stretched(name: str) -> list[Figure]:
    """What a scaling leaves of each frequency, and the wavelengths that come of it."""
    made, _ = scaling(name)
    plain = geometric(96 if name == "longrope" else 128)
    new = made(plain)
    pairs = [float(i) for i in range(len(plain.frequencies))]
    kept = {"kept": [a / b for a, b in zip(new.frequencies, plain.frequencies, strict=True)]}
    waves = {
        "plain": list(plain.wavelengths),
        name: [w if w < float("inf") else None for w in new.wavelengths],
        f"trained {TRAINED}": [float(TRAINED)] * len(pairs),
    }
    return [
        Figure("lines", "What is left of each pair's frequency", "pair", "new / old", pairs, lines=kept),
        Figure("lines", "Wavelength of each pair", "pair", "tokens", pairs, lines=waves, log_y=True),
    ]


def all_portraits() -> dict[str, list[Figure]]:
    """Every picture by its name."""
    found = {f"encoding-{name}": encoding(name) for name in (*NAMES, *SPACE)} | {
        f"map-{name}": mapped(name) for name in MAPS
    }
    return found | {f"scaling-{name}": stretched(name) for name in SCALINGS}
