"""Engine: a program that turns queries and keys by a model's config. One file for each, with a subclass of this.

    engine.read(config, served=32768)   what it makes of a config that is open (`open_config`)
    engine.write(spec)                  a spec in its words, ready to paste; read back, they give the same table
    engine.at("0.29")                   the same engine in an older version, where versions were measured

An engine that has no words for a spec refuses it (`written.Refused`), with the numbers.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import Self, TypeVar

from milepost.rope.config.config import Config
from milepost.rope.config.keys import ConfigError, short
from milepost.rope.engines import measured
from milepost.rope.engines.parity import differences
from milepost.rope.engines.written import Refused, Written
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import Dynamic, LargerBase, LongRoPE, Staged

T = TypeVar("T")


class Engine(ABC):
    """``name`` is what users call it, ``title`` what sentences do; ``reads`` says whether it reads a model's config.

    ``package`` is its name on PyPI, ``version`` the one that is meant: None where no version was measured.
    """

    name: str
    title: str
    package = ""
    reads = True
    version: str | None = None

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that were measured, newest first."""
        return measured.versions(self.name)

    @property
    def installed(self) -> str | None:
        """The version that is installed beside milepost, if any."""
        try:
            return metadata.version(self.package) if self.package else None
        except metadata.PackageNotFoundError:
            return None

    @property
    def named(self) -> str:
        """The engine and the version that is meant, in words."""
        return self.title if self.version is None else f"{self.title} {self.version}"

    def evidence(self, *types: str | None, named: Iterable[str] = ()) -> str:
        """What stands behind statements about this engine, of a model that its config names by ``types``.

        ``named`` are the rope types of the config.
        """
        if self.version is None or self.version not in self.versions:
            return "not measured, from reading"
        known = measured.model_types(self.name, self.version)
        found = [known[name] for name in types if name in known]
        unheard = [name for name in named if name not in measured.rope_types(self.name)]
        if unheard:
            return f"not measured with {self.named}, from reading: no rope type {unheard[0]} was among the configs"
        if "" in found or not types:
            return f"measured with {self.named}"
        why = found[0] if found else f"no {types[0] or 'model of this type'} was among the configs"
        return f"not measured with {self.named}, from reading: {why}"

    def at(self, version: str | None = None) -> Self:
        """The engine in a version: ``0.29`` is 0.29.0. Without one, that which is installed, else the newest."""
        known = self.versions
        if version is None:
            version = self.installed if self.installed in known else next(iter(known), None)
        elif version not in known:
            same = [
                v for v in known if measured.numbers(v)[: len(measured.numbers(version))] == measured.numbers(version)
            ]
            if not same or not measured.numbers(version):
                near = sorted(known, key=partial(distance, version)) if measured.numbers(version) else known
                there = f"the nearest that were are {', '.join(near)}" if near else "no version of it was"
                raise ValueError(f"{self.title} {short(version)[1:-1]} was not measured; {there}")
            version = same[0]
        chosen = copy.copy(self)
        chosen.version = version
        return chosen

    def since(self, table: Mapping[str, T]) -> T:
        """The entry of the newest version in a table that is not after the version meant."""
        meant = measured.numbers(self.version or next(iter(self.versions), "999"))
        return table[max((v for v in table if measured.numbers(v) <= meant), key=measured.numbers)]

    def read(self, config: Config, *, served: int | None = None) -> RopeSpec:
        """What the engine makes of a config; ``served`` is the length that it is started for, where it has a flag."""
        raise ValueError(
            f"{self.name} has no config of its own to read: milepost only writes it; "
            "read the config as transformers does"
        )

    def write(self, spec: RopeSpec) -> Written:
        """``spec`` in the engine's words; refused where it has none."""
        for rope in spec.ropes().values():
            if isinstance(rope.scaling, Staged):
                raise Refused(
                    f"{rope.scaling!r} is milepost's own: no engine has it, and it is not the published dynamic NTK; "
                    "export another method"
                )
        dropped = dropped_by_flags(spec)
        if dropped and not self.reads:
            raise Refused(f"{self.title} has no words for {dropped}, and would drop it silently")
        return replace(self._write(spec), version=self.version or "")

    @abstractmethod
    def _write(self, spec: RopeSpec) -> Written: ...

    def proved(self, spec: RopeSpec, written: Written, read_back: Callable[[], RopeSpec]) -> Written:
        """``written``, if the engine would make ``spec`` of it; refused otherwise, with the first difference."""
        try:
            back = read_back()
        except ConfigError as error:
            raise Refused(f"{written.engine} can't express this: {error}") from None
        if self.reads:  # what queries are multiplied by stays in the model's own keys, beside those written
            back = replace(back, temperatures=spec.temperatures)
        wrong = differences(spec, back)
        if wrong:
            difference = wrong[0].sentence("the spec", written.engine)
            why = "".join(f"; {note}" for note in back.notes if "silently" in note or "does not read the base" in note)
            raise Refused(f"{written.engine} can't express this: it would read its own keys as {difference}{why}")
        notes = [note for note in back.notes if note not in spec.notes and note not in written.notes]
        return replace(written, notes=(*written.notes, *notes))

    def one_rope(self, spec: RopeSpec, remedy: str = "use an engine that reads config.json") -> LayerRope:
        """The rope of all layers, for engines that are told one; refused where kinds of layers differ."""
        others = [kind for kind, rope in spec.ropes().items() if rope != spec.main]
        if others:
            differ = "differs" if len(others) == 1 else "differ"
            raise Refused(
                f"what is written for {self.title} is one rope for all layers, and {', '.join(others)} {differ} from "
                f"the rest; {remedy}"
            )
        return spec.main

    def settled(self, rope: LayerRope, spec: RopeSpec) -> LayerRope:
        """A rope for engines with one table for texts of all lengths; refused where the table depends on the length.

        Dynamic NTK of one length is a larger base.
        """
        scaling = rope.scaling
        if scaling is not None and scaling.length_dependent:
            trained = rope.trained or spec.trained or 1
            far = spec.served if spec.served is not None and spec.served > trained else 2 * trained
            if isinstance(scaling, Dynamic):
                near_base, far_base = (rope.spectrum(length).base for length in (trained, far))
                raise Refused(
                    f"{self.title} has one base for texts of all lengths, and {scaling!r} has {near_base:.10g} up to "
                    f"{trained} tokens and {far_base:.10g} at {far}; fix the length: {replace(scaling, length=far)!r}"
                )
            if isinstance(scaling, LongRoPE):
                raise Refused(
                    f"{self.title} has one list of factors for texts of all lengths, and this longrope has the short "
                    f"one up to {trained} tokens and the long one beyond; fix the length: length={far} for the long "
                    f"factors, length={trained} for the short ones"
                )
            raise Refused(
                f"{self.title} has one table for texts of all lengths, and {scaling!r} depends on the length; "
                f"fix it with .at({far})"
            )
        if isinstance(scaling, Dynamic):
            base = rope.spectrum().base
            return replace(rope, scaling=None if base == rope.base else LargerBase(base))
        return rope


def dropped_by_flags(spec: RopeSpec) -> str:
    """What a spec has that no rope flag of any engine says; nothing for most."""
    ropes = spec.ropes().values()
    parts = {
        "what queries are multiplied by according to their position": bool(spec.temperatures),
        "values that turn": any(rope.values for rope in ropes),
        "the rope of an indexer": any(rope.indexer is not None for rope in ropes),
        "channels at the head's end that turn": any(rope.suffix for rope in ropes),
    }
    return ", nor for ".join(words for words, there in parts.items() if there)


def distance(asked: str, known: str) -> tuple[int, ...]:
    """How far two versions are from each other: 0.32 is nearer to 1.0 than 0.29 is, and farther from 0.1."""
    a, b = measured.numbers(known), measured.numbers(asked)
    size = max(len(a), len(b))
    x, y = (numbers + (0,) * (size - len(numbers)) for numbers in (a, b))
    towards = 1 if x > y else -1
    return tuple(towards * (p - q) for p, q in zip(x, y, strict=True))
