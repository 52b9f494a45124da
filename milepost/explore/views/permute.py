"""Permute: the words of a sentence in another order. Does attention notice?

One layer of attention with random projections (the one that the laws use), over a vector for each word. Words are put
in another order, and the output of each word is compared with its own output before. Without positions the two are
equal up to rounding, unless a causal mask is on: it knows the order.

A word that received nothing before, as the first one of stick_breaking does, has no share by which its output could
have changed: it is left blank, and the sentence says so.

Words stand between spaces. Chinese and Japanese have none, so each of their characters is a word.
"""

from __future__ import annotations

import copy
import unicodedata
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from milepost.attention import Attended, attend
from milepost.draw import Figure
from milepost.encoding import Encoding
from milepost.encodings import NAMES
from milepost.explore import specs
from milepost.explore.view import Shown, choice, slider, text
from milepost.explore.words import PageWords
from milepost.layout import Layout
from milepost.testing import Layer

ENCODINGS = ("nope", *(name for name in NAMES if name != "nope"))
MOST, LONGEST = 24, 400
"""Words, and letters of a sentence."""
SIZES = dict(specs.SIZES)
"""The layer's own, without sliders: they change nothing that is to be seen."""
UNSPACED = ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "FULLWIDTH")
"""How Unicode begins the names of characters that are written without spaces between words."""
CONTROLS = (
    text("sentence", "the dog bit the man and ran away", LONGEST),
    slider("order", 1, 0, 99),
    choice("mask", "none", "causal"),
)


def show(enc: Encoding, asked: Mapping[str, Any], words: PageWords) -> Shown:
    """The attention before and after, and how much each word's output has changed."""
    typed = words_of(asked["sentence"])
    if not 2 <= len(typed) <= MOST:
        raise ValueError(
            f"sentence has 2 to {MOST} words here (between spaces; of Chinese, characters), got {len(typed)}"
        )
    causal = asked["mask"] == "causal"
    order = _order(len(typed), asked["order"])
    layer = Layer(copy.deepcopy(enc.at(len(typed))).double(), seed=1)  # weights, too, in the vectors' float64
    x = torch.stack([_vector(word, layer.width) for word in typed])[None]
    with torch.no_grad():
        before, after = (_attended(layer, rows, causal) for rows in (x, x[:, order]))
    was, now = before.output[0].transpose(0, 1).flatten(1)[order], after.output[0].transpose(0, 1).flatten(1)
    change = _change(was, now)
    mixed = [typed[n] for n in order.tolist()]
    most = max((share for share in change if share is not None), default=0.0)
    names = tuple(_short(word) for word in mixed)
    figures = (
        Figure(
            "heat",
            words.say("permute.before"),
            words.say("attention.key"),
            words.say("attention.query"),
            **_map(before, typed),
        ),
        Figure(
            "heat",
            words.say("permute.after"),
            words.say("attention.key"),
            words.say("attention.query"),
            **_map(after, mixed),
        ),
        Figure(
            "heat",
            words.say("permute.change"),
            words.say("permute.word"),
            "",
            [float(n) for n in range(len(typed))],
            [0.0],
            [change],
            x_names=names,
            y_names=(" ",),
            low=0.0,
            high=max(1.0, most),
        ),
    )
    same = most < 1e-9 and None not in change
    kind = "same" if same else "moved" if not causal else "both" if enc.points else "masked"
    sentence = words.say(f"permute.{kind}", share=f"{most:.0%}", order=" ".join(mixed))
    return Shown(
        figures,
        sentence + words.say("permute.blank") if None in change else sentence,
        ("attention.backends.reference",),
    )


def words_of(sentence: str) -> list[str]:
    """The words of a sentence, in their order."""
    letters = unicodedata.normalize("NFC", sentence)
    return "".join(
        f" {letter} " if unicodedata.name(letter, "").startswith(UNSPACED) else letter for letter in letters
    ).split()


def _order(count: int, seed: int) -> Tensor:
    """A permutation; 0 leaves the words where they are."""
    return torch.arange(count) if seed == 0 else torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def _vector(word: str, width: int) -> Tensor:
    """The same random vector for the same word, always."""
    return torch.randn(
        width,
        generator=torch.Generator().manual_seed(zlib.crc32(word.encode("utf-8", "surrogatepass"))),
        dtype=torch.float64,
    )


def _change(was: Tensor, now: Tensor) -> list[float | None]:
    """By what share of itself each row has changed; None for a row of zeros that has become another."""
    sizes = zip((now - was).norm(dim=-1).tolist(), was.norm(dim=-1).tolist(), strict=True)
    return [change / before if before else None if change else 0.0 for change, before in sizes]


def _attended(layer: Layer, x: Tensor, causal: bool) -> Attended:
    at = Layout.dense(x.shape[1])
    q, k, v = layer.project(x, at)
    f = layer.features(x, at)
    return attend(q, k, v, layer.enc, at=at, turned=True, causal=causal, features=f, details=True)


def _map(result: Attended, typed: list[str]) -> dict[str, Any]:
    """The weights of head 0 with words on both sides."""
    count, names = [float(n) for n in range(len(typed))], tuple(_short(word) for word in typed)
    return {
        "x": count,
        "y": count,
        "z": result.weights[0, 0].tolist(),
        "x_names": names,
        "y_names": names,
        "square": True,
        "low": 0.0,
        "high": 1.0,
    }


def _short(word: str) -> str:
    return word if len(word) <= 12 else word[:11] + "…"
