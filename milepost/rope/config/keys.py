"""Keys: a config's values, asked for by name and type, each with the key that it stood under.

Several names may mean one thing (`rope_theta`, `rotary_emb_base`): all that are there must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
D = TypeVar("D")
LONGEST = 1200
"""Letters of the longest sentence of an error."""


class ConfigError(ValueError):
    """A config that can't be read for certain: one sentence with the key and the value."""

    def __init__(self, sentence: str = ""):
        super().__init__(bounded(sentence))


def bounded(sentence: str) -> str:
    """A sentence of at most `LONGEST` letters: what it quotes of a foreign file may be of any length."""
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 300]} ... {sentence[-200:]}"


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
class Entry(Generic[T]):
    """A value and the key that it stood under."""

    value: T
    key: str


class ConfigKeys:
    """The keys of one mapping that stands at ``where`` in the config."""

    def __init__(self, config: Mapping[str, Any], where: str = ""):
        if not isinstance(config, Mapping):
            raise ConfigError(f"{where or 'a config'} must be a mapping of names to values, got {short(config)}")
        for name in config:
            if not isinstance(name, str):
                raise ConfigError(f"the keys of {where or 'a config'} are texts, got {short(name)}")
        self.config, self.where = config, where

    def path(self, name: str) -> str:
        """The key with where it stands."""
        return f"{self.where}.{name}" if self.where else name

    def has(self, name: str) -> bool:
        """Whether the key is there and is not null."""
        return self.config.get(name) is not None

    def number(self, *names: str, above: float | None = None, least: float | None = None) -> Entry[float] | None:
        """A finite number under one of these names."""
        number = self._entry(names, "a finite number", lambda value: float(value) if _is_finite(value) else None)
        if number is not None and above is not None and not number.value > above:
            raise ConfigError(f"{number.key} must be above {above:g}, got {number.value:g}")
        if number is not None and least is not None and not number.value >= least:
            raise ConfigError(f"{number.key} must be at least {least:g}, got {number.value:g}")
        return number

    def whole(self, *names: str, least: int = 1, most: int = 1 << 40) -> Entry[int] | None:
        """A whole number under one of these names."""

        def convert(value: Any) -> int | None:
            return int(value) if _is_finite(value) and value == int(value) and least <= value <= most else None

        return self._entry(names, f"a whole number from {least} to {most}", convert)

    def flag(self, *names: str) -> Entry[bool] | None:
        """True or false under one of these names."""
        return self._entry(names, "true or false", lambda value: value if isinstance(value, bool) else None)

    def text(self, *names: str) -> Entry[str] | None:
        """A text under one of these names."""
        return self._entry(names, "a text", lambda value: value if isinstance(value, str) else None)

    def items(self, *names: str) -> Entry[list[Any]] | None:
        """A list under one of these names."""
        return self._entry(names, "a list", lambda value: list(value) if isinstance(value, list | tuple) else None)

    def numbers(self, *names: str) -> Entry[tuple[float, ...]] | None:
        """A list of finite numbers above 0 under one of these names."""
        numbers = self.items(*names)
        if numbers is None:
            return None
        bad = [value for value in numbers.value if not _is_finite(value) or value <= 0]
        if bad or not numbers.value:
            wrong = short(bad[0] if bad else [])
            raise ConfigError(f"{numbers.key} must be a list of finite numbers above 0, got {wrong}")
        return Entry(tuple(float(value) for value in numbers.value), numbers.key)

    def inner(self, name: str) -> ConfigKeys | None:
        """The mapping under a name."""
        return ConfigKeys(self.config[name], self.path(name)) if self.has(name) else None

    def _entry(self, names: tuple[str, ...], expected: str, convert: Callable[[Any], T | None]) -> Entry[T] | None:
        """The value under the names that are there; ``convert`` gives None for a wrong one."""
        entries = []
        for name in filter(self.has, names):
            value = convert(self.config[name])
            if value is None:
                raise ConfigError(f"{self.path(name)} must be {expected}, got {short(self.config[name])}")
            entries.append(Entry(value, self.path(name)))
        return agreed(*entries)


def or_default(entry: Entry[T] | None, default: D) -> T | D:
    """The value of an entry; ``default`` where the config has none."""
    return default if entry is None else entry.value


def agreed(*entries: Entry[T] | None) -> Entry[T] | None:
    """The first of several places where a value may stand; all that have it must agree."""
    there = [entry for entry in entries if entry is not None]
    if len({repr(entry.value) for entry in there}) > 1:
        shown = ", ".join(f"{entry.key} = {short(entry.value)}" for entry in there)
        raise ConfigError(f"contradictory keys: {shown}; they mean the same: keep one")
    return there[0] if there else None


def _is_finite(value: Any) -> bool:
    """Whether a value is a number that a float holds."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def short(value: Any) -> str:
    """A value for a sentence."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # numbers of too many digits, lists of themselves
        text = type(value).__name__
    return text if len(text) <= 80 else text[:77] + "..."
