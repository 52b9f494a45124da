"""RopeSpec: what a checkpoint means by its rotary positions, exactly; in no engine's words.

    spec = RopeSpec.from_config("path/to/model")      # a folder, config.json, params.json, a GGUF file, or a dict
    spec.layer(5).encoding()                          # the RoPE of layer 5, ready to use
    spec.extended(131072, "yarn")                     # the same model for a longer context

Models differ by kind of layer (full and sliding attention, layers without rotation), so a spec has a `LayerRope` for
each kind. It has three lengths, which are not the same:

    trained   what the model was trained for, before any scaling
    scaled    what the scaling is made for: trained * factor
    served    what its config says that may be served
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from milepost.rope.temperature import QueryTemperature
from milepost.scaling import NTK, Dynamic, LargerBase, Linear, Llama3, NTKByParts, Scaling, YaRN
from milepost.shown import html
from milepost.spectrum import Spectrum, geometric

if TYPE_CHECKING:
    from milepost.encodings.rope import RoPE
    from milepost.rotation import Pairing

METHODS = ("base", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3")
"""What `extended` can do."""
LONGEST = 1e12
"""Tokens that no text has."""


@dataclass(frozen=True)
class LayerRope:
    """The rotation of one kind of layer: ``rotary`` of ``head_dim`` channels.

    ``softmax`` is what the model multiplies its softmax scale by, besides the scaling's temperature (DeepSeek).
    ``sections`` are the numbers of pairs that take each axis of a multi-axis position (M-RoPE); text alone has equal
    axes. ``suffix``: the last channels of the head turn, not the first. ``one_key``: the part that turns is a key
    of its
    own, one for all heads, beside what does not turn (DeepSeek's MLA; ``head_dim`` is that part). ``values``:
    values turn
    by the key's position, and outputs back by the query's (DeepSeek-V4). ``indexer`` is the rope of what chooses
    keys for
    sparse attention, which may pair channels in another way.
    """

    head_dim: int
    base: float
    rotary: int
    pairing: Pairing = "half"
    scaling: Scaling | None = None
    softmax: float = 1.0
    sections: tuple[int, ...] | None = None
    sections_interleaved: bool = False
    suffix: bool = False
    one_key: bool = False
    values: bool = False
    indexer: LayerRope | None = None

    def __post_init__(self) -> None:
        if self.rotary < 2 or self.rotary % 2 or self.rotary > self.head_dim:
            raise ValueError(f"the rotary size must be even, from 2 to head_dim={self.head_dim}, got {self.rotary}")
        if self.sections is not None and sum(self.sections) != self.rotary // 2:
            raise ValueError(
                f"the sections of M-RoPE must add up to {self.rotary // 2} pairs, got {list(self.sections)}, "
                f"which is {sum(self.sections)}"
            )

    def plain(self) -> Spectrum:
        """The frequencies before scaling."""
        return geometric(self.rotary, self.base)

    def spectrum(self, length: int | None = None) -> Spectrum:
        """The frequencies and the temperature, for a text of ``length`` tokens where that matters."""
        if self.scaling is None:
            return self.plain()
        scaling: Scaling | None = self.scaling
        if self.scaling.length_dependent:
            if length is None:
                raise ValueError(f"{self.scaling!r} depends on the length of the text: say which")
            scaling = self.scaling.at(length)
        return self.plain() if scaling is None else scaling(self.plain())

    def temperature(self, length: int | None = None) -> float:
        """What logits are multiplied by in all, for a text of ``length`` tokens where that matters."""
        return self.spectrum(length).temperature * self.softmax

    def encoding(self) -> RoPE:
        """The rotation as an encoding. Queries carry the scaling's temperature, attend(scale=...) ``softmax``."""
        from milepost.encodings.rope import RoPE  # the one thing here that needs torch

        if self.suffix:
            raise ValueError(f"the last {self.rotary} of {self.head_dim} channels turn, and rope turns the first ones")
        return RoPE(
            self.head_dim,
            self.base,
            self.pairing,
            None if self.rotary == self.head_dim else self.rotary,
            "prefix",
            self.scaling,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data, the scaling as its spec."""
        sections = None if self.sections is None else list(self.sections)
        shown = {"head_dim": self.head_dim, "base": self.base, "rotary": self.rotary, "pairing": self.pairing}
        return {
            **shown,
            "scaling": None if self.scaling is None else repr(self.scaling),
            "softmax": self.softmax,
            "sections": sections,
            **{name: getattr(self, name) for name in ("suffix", "one_key", "values")},
            "indexer": None if self.indexer is None else self.indexer.to_json(),
        }

    @property
    def trained(self) -> int | None:
        """The length that its scaling starts from, where it has one."""
        return getattr(self.scaling, "trained", None)

    @property
    def factor(self) -> float:
        """How many times longer its scaling makes the context, as far as it says."""
        return float(getattr(self.scaling, "factor", 1.0))


class ReadConfig(Protocol):
    """A function that reads a config."""

    def __call__(self, config: Any, *, allow_unknown: bool = False) -> RopeSpec: ...


@dataclass(frozen=True)
class RopeSpec:
    """``kinds`` are the ropes by kind of layer (None: no rotation), ``layers`` the kind of each layer.

    ``layers`` is empty where they are not known, and there is one kind. ``temperatures`` are what queries are
    multiplied
    by according to their position, by kind of layer. ``sources`` says where each value came from, ``notes`` what its
    reader should know.
    """

    kinds: tuple[tuple[str, LayerRope | None], ...]
    layers: tuple[str, ...] = ()
    trained: int | None = None
    served: int | None = None
    model: str = ""
    temperatures: tuple[tuple[str, QueryTemperature], ...] = field(default=(), kw_only=True)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, hash=False)
    notes: tuple[str, ...] = field(default=(), compare=False, hash=False)

    def __post_init__(self) -> None:
        names = [name for name, _ in self.kinds]
        if not any(rope for _, rope in self.kinds):
            raise ValueError("a RopeSpec needs at least one kind of layer that rotates")
        if len(set(names)) < len(names) or not set(self.layers) <= set(names):
            raise ValueError(f"the layers are of kinds {sorted(set(self.layers))}, and the kinds are {names}")
        if not {kind for kind, _ in self.temperatures} <= set(names):
            raise ValueError(
                f"temperatures are of kinds {[k for k, _ in self.temperatures]}, and the kinds are {names}"
            )
        for name in ("trained", "served"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is a number of tokens, at least 1, got {value}")

    from_config: ClassVar[ReadConfig]
    """Read a config as its own program means it: a dict, a folder, config.json, params.json, a GGUF file, a name on the
    Hub, or a `Config`. The readers build specs, so this file can't know them: milepost/rope/__init__.py sets it."""

    def to_json(self) -> dict[str, Any]:
        """Plain data: the kinds with their specs as text, the lengths, where each value came from, and notes."""
        kinds = [
            {"kind": name, "layers": self.layers.count(name), "rope": None if rope is None else rope.to_json()}
            for name, rope in self.kinds
        ]
        lengths = {"trained": self.trained, "scaled": self.scaled, "served": self.served}
        return {
            "model": self.model,
            **lengths,
            "kinds": kinds,
            "layers": list(self.layers),
            "temperatures": {kind: asdict(temperature) for kind, temperature in self.temperatures},
            "sources": dict(self.sources),
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        """How it looks in a notebook."""
        return html(self)

    def ropes(self) -> dict[str, LayerRope]:
        """The kinds that rotate."""
        return {name: rope for name, rope in self.kinds if rope is not None}

    @property
    def main(self) -> LayerRope:
        """The rope of the layers that see farthest: full attention where there are kinds."""
        ropes = self.ropes()
        return ropes.get("full_attention") or next(iter(ropes.values()))

    def layer(self, number: int) -> LayerRope | None:
        """The rope of one layer; None where it does not rotate."""
        kinds = dict(self.kinds)
        if not self.layers:
            return self.main
        if not -len(self.layers) <= number < len(self.layers):
            raise ValueError(f"there are layers 0 to {len(self.layers) - 1}, got {number}")
        return kinds[self.layers[number]]

    @property
    def scaled(self) -> int | None:
        """The length that the scaling is made for; the trained length where there is no scaling."""
        length = None if self.trained is None else self.trained * self.main.factor
        if length is not None and not length < LONGEST:
            raise ValueError(
                f"a factor of {self.main.factor:g} makes {length:g} tokens of the trained {self.trained}, and no text "
                f"has {LONGEST:g}: is it the factor that was meant?"
            )
        return None if length is None else int(length)

    def extended(
        self,
        length: int,
        method: Literal["base", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3"] = "yarn",
    ) -> RopeSpec:
        """The model for ``length`` tokens. A scaling that it has is replaced by one from the trained length."""
        if method not in METHODS:
            raise ValueError(f"unknown method {method!r}; there are {', '.join(METHODS)}")
        if self.trained is None:
            raise ValueError("the trained length is not known: say it with dataclasses.replace(spec, trained=...)")
        if length < self.trained:
            raise ValueError(
                f"{length} tokens are fewer than the {self.trained} that the model was trained for: nothing to extend"
            )
        window = {name for name in self.ropes() if name == "sliding_attention"} if len(self.ropes()) > 1 else set()
        kinds = tuple(
            (name, rope if rope is None or name in window else _stretched(rope, self.trained, length, method))
            for name, rope in self.kinds
        )
        note = f"scaling set by extended({length}, {method!r}) from the trained length {self.trained}"
        return replace(
            self,
            kinds=kinds,
            served=length,
            notes=(*self.notes, note),
            sources={**self.sources, "scaling": "extended()", "served": "extended()"},
        )


def _stretched(rope: LayerRope, trained: int, length: int, method: str) -> LayerRope:
    factor = length / trained
    if factor == 1:
        return replace(rope, scaling=None)
    made: dict[str, Any] = {
        "base": lambda: LargerBase(LargerBase.needed(length, trained=trained, base=rope.base)),
        "linear": lambda: Linear(factor),
        "ntk": lambda: NTK(factor),
        "ntk_by_parts": lambda: NTKByParts(factor, trained),
        "dynamic": lambda: Dynamic(trained),
        "yarn": lambda: YaRN(factor, trained),
        "llama3": lambda: Llama3(factor, trained),
    }
    return replace(rope, scaling=made[method]())
