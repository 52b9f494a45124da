"""The parts of an `Inspection`: a layer, a table of learned positions, a length with where it came from. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

EMBEDDING, ROTATED, LOGITS, CONTENT = "the embedding", "q and k", "logits, by position", "logits, by content too"
"""Where position enters."""


@dataclass(frozen=True)
class InspectedLayer:
    """One layer of attention. What its scheme has no use for is None.

    ``scheme`` is rope, alibi, t5, deberta, relative_logits or swin; "none" where the layer adds no position of its own,
    "bias" where logits get one that was measured and has no name here. ``stack`` is
    encoder or decoder where there are both. ``window`` is how many tokens may be seen (swin: the side of its square).
    ``temperature`` is what logits are multiplied by. ``slopes`` are ALiBi's, by head. ``buckets`` and ``max_distance``
    are T5's and DeBERTa's (and how far relative logits reach), ``rows`` those of a layer's relative table. ``text`` is
    the layer as `milepost.build` reads it, where its reader says so.
    """

    layer: int
    scheme: str
    stack: str = ""
    kind: str = "full_attention"
    window: int | None = None
    pairing: str | None = None
    head_dim: int | None = None
    rotary: int | None = None
    base: float | None = None
    scaling: str | None = None
    temperature: float | None = None
    slopes: tuple[float, ...] | None = None
    buckets: int | None = None
    max_distance: int | None = None
    both_sides: bool | None = None
    rows: int | None = None
    shift: int | None = None
    text: str = ""


@dataclass(frozen=True)
class LearnedTable:
    """Learned positions that are added to the embedding: ``rows`` in all, of which ``usable`` serve tokens, from row
    ``offset`` on.

    For images ``grid`` is its rows and columns of patches, and the first ``prefix`` rows are for class tokens.
    ``tensor`` is its name in the checkpoint, where that was seen.
    """

    rows: int
    usable: int
    offset: int = 0
    width: int | None = None
    tensor: str | None = None
    grid: tuple[int, int] | None = None
    prefix: int = 0
    source: str = ""


@dataclass(frozen=True)
class Length:
    """A number of tokens (None: not known, or no such limit), and where it came from."""

    tokens: int | None = None
    source: str = "not in the config"


@dataclass(frozen=True)
class Positions:
    """What one family's reader makes of a config, with what its reader should know in ``notes``.

    ``init`` is the standard deviation that tables begin with, as far as the config says.
    """

    where: tuple[str, ...]
    layers: tuple[InspectedLayer, ...]
    tables: tuple[LearnedTable, ...] = ()
    trained: Length = Length()
    scaled: Length = Length()
    served: Length = Length()
    notes: tuple[str, ...] = ()
    init: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
