"""Keys: a config's values, asked for by name and kind. Says where each was found; says no in one sentence.

Several names may mean one thing (`rope_theta`, `rotary_emb_base`): all that are there must agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ConfigError(ValueError):
    """A config that can't be read for certain: one sentence with the key and the value."""


@contextmanager
def as_config_error(where: str = "", separator: str = ": ") -> Iterator[None]:
    """What a spec or a scaling itself refuses, or no float holds, becomes a ConfigError that says where it stood."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, ArithmeticError) as error:
        raise ConfigError(f"{where}{separator}{error}" if where else str(error)) from None


def pass_over(problem: str, allow_unknown: bool, notes: list[str]) -> None:
    """A key that nobody reads is an error; with ``allow_unknown``, a note."""
    if not allow_unknown:
        raise ConfigError(f"{problem}; remove it, or read with --allow-unknown to pass over it")
    notes.append(f"{problem} (passed over: --allow-unknown)")


@dataclass(frozen=True)
class Found(Generic[T]):
    """A value and the key that it stood under."""

    value: T
    key: str


class Keys:
    """The keys of one mapping that stands at ``where`` in the config. ``asked`` are the names that somebody knows."""

    def __init__(self, config: Mapping[str, Any], where: str = ""):
        if not isinstance(config, Mapping):
            raise ConfigError(f"{where or 'a config'} must be a mapping of names to values, got {short(config)}")
        for name in config:
            if not isinstance(name, str):
                raise ConfigError(f"the keys of {where or 'a config'} are texts, got {short(name)}")
        self.config, self.where = config, where
        self.asked: set[str] = set()

    def path(self, name: str) -> str:
        """The key with where it stands."""
        return f"{self.where}.{name}" if self.where else name

    def has(self, name: str) -> bool:
        """Whether the key is there and is not null."""
        self.asked.add(name)
        return self.config.get(name) is not None

    def number(self, *names: str, above: float | None = None, least: float | None = None) -> Found[float] | None:
        """A finite number under one of these names."""

        def kind(path: str, value: Any) -> float:
            if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
                raise ConfigError(f"{path} must be a finite number, got {short(value)}")
            if (above is not None and not value > above) or (least is not None and not value >= least):
                bound = f"above {above:g}" if above is not None else f"at least {least:g}"
                raise ConfigError(f"{path} must be {bound}, got {short(value)}")
            return float(value)

        return self._agreed(names, kind)

    def whole(self, *names: str, least: int = 1, most: int = 1 << 40) -> Found[int] | None:
        """A whole number under one of these names."""

        def kind(path: str, value: Any) -> int:
            if isinstance(value, float) and _finite(value) and value == int(value):
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ConfigError(f"{path} must be a whole number from {least} to {most}, got {short(value)}")
            return int(value)

        return self._agreed(names, kind)

    def flag(self, *names: str) -> Found[bool] | None:
        """True or false under one of these names."""

        def kind(path: str, value: Any) -> bool:
            if not isinstance(value, bool):
                raise ConfigError(f"{path} must be true or false, got {short(value)}")
            return value

        return self._agreed(names, kind)

    def text(self, *names: str) -> Found[str] | None:
        """A text under one of these names."""

        def kind(path: str, value: Any) -> str:
            if not isinstance(value, str):
                raise ConfigError(f"{path} must be a text, got {short(value)}")
            return value

        return self._agreed(names, kind)

    def items(self, *names: str) -> Found[list[Any]] | None:
        """A list under one of these names."""

        def kind(path: str, value: Any) -> list[Any]:
            if not isinstance(value, list | tuple):
                raise ConfigError(f"{path} must be a list, got {short(value)}")
            return list(value)

        return self._agreed(names, kind)

    def numbers(self, *names: str) -> Found[tuple[float, ...]] | None:
        """A list of finite numbers above 0 under one of these names."""
        found = self.items(*names)
        if found is None:
            return None
        bad = [
            v for v in found.value if isinstance(v, bool) or not isinstance(v, int | float) or not _finite(v) or v <= 0
        ]
        if bad or not found.value:
            raise ConfigError(
                f"{found.key} must be a list of finite numbers above 0, got {short(bad[0] if bad else [])}"
            )
        return Found(tuple(float(v) for v in found.value), found.key)

    def inner(self, name: str) -> Keys | None:
        """The mapping under a name."""
        return Keys(self.config[name], self.path(name)) if self.has(name) else None

    def _agreed(self, names: tuple[str, ...], kind: Any) -> Found[Any] | None:
        return agreed(*(Found(kind(self.path(n), self.config[n]), self.path(n)) for n in names if self.has(n)))


def agreed(*found: Found[T] | None) -> Found[T] | None:
    """The first of several places where a value may stand; all that have it must agree."""
    there = [f for f in found if f is not None]
    if len({repr(f.value) for f in there}) > 1:
        raise ConfigError(
            "contradictory keys: "
            + ", ".join(f"{f.key} = {short(f.value)}" for f in there)
            + "; they mean the same: keep one"
        )
    return there[0] if there else None


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def short(value: Any) -> str:
    """A value for a sentence."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # numbers of too many digits, lists of themselves
        text = type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."
