"""Attention: where the heads of a small model look, as it is and with positions shuffled, shifted or stretched.

Order is not position: the mask follows the order of the tokens, and stays; the encoding gets other positions. `random`
is the lab's model before training; `trained` models come with the package (tools/explore_models.py), for three
encodings.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milepost.attention import attend
from milepost.draw import Figure
from milepost.encoding import Encoding
from milepost.encodings import NAMES
from milepost.explore.seeded import seeded
from milepost.explore.view import Shown, choice, slider, text
from milepost.explore.words import PageWords
from milepost.lab.model import Decoder, Shape
from milepost.layout import Layout

TRAINED = ("rope", "alibi", "sinusoidal")
ENCODINGS = (*TRAINED, *(name for name in NAMES if name not in TRAINED))
LONGEST = 48
"""Bytes of text: the model reads bytes."""
SHAPE = Shape(vocabulary=256, layers=2, width=32, heads=4, length=64)
SIZES = {"heads": SHAPE.heads, "head_dim": SHAPE.head_dim, "width": SHAPE.width, "length": SHAPE.length}
CONTROLS = (
    choice("model", "trained", "random"),
    choice("change", "shuffled", "shifted", "stretched"),
    slider("amount", 16, 1, 1024, log=True),
    slider("layer", 0, 0, SHAPE.layers - 1),
    slider("head", 0, 0, SHAPE.heads - 1),
    text("text", "def add(a, b): return a + b", LONGEST),
)
SEEN = {ord(" "): "␣", ord("\n"): "↵", ord("\t"): "⇥"}
"""How bytes that are blank stand on an axis."""
FOLDER = Path(__file__).parents[2] / "measured" / "explore"


def show(enc: Encoding, asked: Mapping[str, Any], words: PageWords) -> Shown:
    """The weights of one head as they are, and with other positions."""
    read = asked["text"].encode()
    if not 2 <= len(read) <= LONGEST:
        raise ValueError(f"text has 2 to {LONGEST} bytes here, for the model reads bytes; got {len(read)}")
    for word in ("heads", "head_dim", "width"):
        if getattr(enc, word) not in (None, SIZES[word]):
            raise ValueError(
                f"the model of this view has {word}={SIZES[word]}, got {enc!r}; leave {word} out of the spec"
            )
    with seeded():  # a model draws its weights before it reads them
        model = _model(asked["model"], repr(enc))
    ids = torch.frombuffer(bytearray(read), dtype=torch.uint8).long()[None]
    plain = Layout.dense(len(read))
    other = plain.with_positions(changed(plain.pos[0], asked["change"], asked["amount"]))
    before, after = (weights(model, ids, at, asked["layer"], asked["head"]) for at in (plain, other))
    names = tuple(SEEN.get(byte, chr(byte) if byte < 128 else f"{byte:02x}") for byte in read)
    moved = float((before - after).abs().sum(-1).mean() / 2)  # the share of each query's attention that goes elsewhere
    how = words.say(f"attention.{asked['change']}", amount=asked["amount"])
    title = words.say("attention.title", layer=asked["layer"], head=asked["head"])
    figures = tuple(
        Figure(
            "heat",
            f"{title}: {label}",
            words.say("attention.key"),
            words.say("attention.query"),
            x=_count(p),
            y=_count(p),
            z=_masked(p),
            x_names=names,
            y_names=names,
            square=True,
            low=0.0,
            high=1.0,
        )
        for label, p in ((words.say("attention.plain"), before), (how, after))
    )
    kind = "same" if moved < 1e-4 else "moved"
    return Shown(
        figures, words.say(f"attention.{kind}", how=how, share=f"{moved:.1%}"), ("attention.backends.reference",)
    )


def changed(pos: Tensor, change: str, amount: int) -> Tensor:
    """Other positions for the same tokens.

    They are shuffled (``amount`` is the seed), all later by ``amount``, or ``amount`` times as far apart.
    """
    if change == "shifted":
        return pos + amount
    if change == "stretched":
        return pos * amount
    return pos[torch.randperm(len(pos), generator=torch.Generator().manual_seed(amount))]


@torch.no_grad()
def weights(model: Decoder, ids: Tensor, at: Layout, layer: int, head: int) -> Tensor:
    """The attention of one head (L L)."""
    q, k, enc, f = model.looks(ids, at)[layer]
    v = torch.zeros_like(k)
    return attend(q, k, v, enc, at=at, turned=True, features=f, details=True).weights[0, head].double()


@cache
def _trained(name: str) -> Decoder:
    from milepost.lab import checkpoint

    try:
        return checkpoint.load(FOLDER / name)
    except ImportError:
        raise ValueError(
            "trained models are saved as safetensors: pip install 'milepost[explore]', or choose the random model"
        ) from None


def _model(kind: str, spec: str) -> Decoder:
    """The trained model of an encoding, or one as it is before training."""
    if kind == "random":
        return Decoder(SHAPE, spec).start(0).eval()
    name = spec.partition("(")[0]
    if " + " not in spec and spec in (repr(SHAPE.build(known)) for known in TRAINED):
        return _trained(name)
    if (
        " + " not in spec and name == "rope"
    ):  # the same weights, with another base or scaling: it has nothing of its own to train
        return _trained(name).with_encoding(spec)
    come = f"{', '.join(TRAINED)} as they are, and for rope with another base or scaling"
    raise ValueError(f"trained models come for {come}; got {spec}: choose the random model")


def _count(p: Tensor) -> list[float]:
    return [float(n) for n in range(p.shape[0])]


def _masked(p: Tensor) -> list[list[float | None]]:
    """Rows of weights, with gaps where the mask hides."""
    return [[v if j <= i else None for j, v in enumerate(row)] for i, row in enumerate(p.tolist())]
