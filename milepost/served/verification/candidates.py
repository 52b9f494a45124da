"""Candidates: the rotations that a server may run, whether or not the config asks for them.

    as the config says                     and, on the same weights,
    no scaling                             the config's scaling was not read
    linear, NTK, YaRN                      by the config's factor, or by 2 and 4 where it has none
    YaRN without the temperature           logits are not multiplied by m^2
    base 10000                             the config's base was not read, the default of most code stands for it
    the other pairing                      channels i and i + d/2 for 2i and 2i + 1, or the other way round
    queries off by one                     a query is one position farther from its keys than it is

Each is run here on the same weights (`references`); `match` finds the ones that a server's losses fit. That texts are
cut is found without weights (`truncation`), and then tried here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from milepost.checkpoints.recommendation.candidates import encodings_by_layer
from milepost.encoding import Encoding
from milepost.rope import LayerRope, RopeSpec
from milepost.scaling import NTK, Linear, Scaling, YaRN

CONFIG, OFF_BY_ONE = "as the config says", "queries off by one"
FACTORS = (2.0, 4.0)
"""Factors that are tried where a config has no scaling."""
DEFAULT_BASE = 10000.0


@dataclass(frozen=True)
class Rotation:
    """A name, and what each layer would turn by; ``about`` says the same in words that no other rotation has."""

    name: str
    encodings: dict[int, Encoding]
    about: str

    @property
    def by_length(self) -> bool:
        """Whether the start of a text is turned otherwise in a longer text."""
        return any(enc.length_dependent for enc in self.encodings.values())


class OffByOne(Encoding):
    """``enc`` with queries one position farther along than they are."""

    def __init__(self, enc: Encoding):
        super().__init__()
        self.enc = enc

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return self.enc.query(q, pos + 1)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.enc.key(k, pos)


def _other_pairing(rope: LayerRope) -> LayerRope:
    return replace(rope, pairing="interleaved" if rope.pairing == "half" else "half")


def rotations(spec: RopeSpec, layers: int, trained: int | None) -> list[Rotation]:
    """Every candidate for a model, the one of its config first."""
    main = spec.main
    factors = FACTORS if main.scaling is None else (main.factor,)
    length = main.trained or trained or spec.trained

    def changed(name: str, change: Callable[[LayerRope], LayerRope]) -> Rotation:
        kinds = tuple((kind, rope if rope is None else change(rope)) for kind, rope in spec.kinds)
        other = replace(spec, kinds=kinds)
        return Rotation(name, encodings_by_layer(other, layers), repr(other))

    def scaled(name: str, scaling: Scaling | None) -> Rotation:
        return changed(name, lambda rope: replace(rope, scaling=scaling))

    own = encodings_by_layer(spec, layers)
    made = [Rotation(CONFIG, own, repr(spec))]
    made += [] if main.scaling is None else [scaled("no scaling", None)]
    for factor in factors if max(factors) > 1 else ():
        made += [scaled(f"linear, factor {factor:g}", Linear(factor)), scaled(f"NTK, factor {factor:g}", NTK(factor))]
        if length is not None:
            yarn = main.scaling if isinstance(main.scaling, YaRN) else YaRN(factor, length)
            without = replace(yarn, attention_factor=1.0, attn_factor=None)
            made += [scaled(f"YaRN, factor {factor:g}", YaRN(factor, length))]
            made += [scaled(f"YaRN, factor {factor:g}, without the temperature", without)]
    if main.base != DEFAULT_BASE:
        made.append(changed(f"base {DEFAULT_BASE:g}", lambda rope: replace(rope, base=DEFAULT_BASE)))
    made.append(changed("the other pairing", _other_pairing))
    made.append(Rotation(OFF_BY_ONE, {n: OffByOne(enc) for n, enc in own.items()}, f"off by one: {spec!r}"))
    return made
