"""checks: what names and arguments must be. A refusal says what was expected, what came, and what could be meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any


def check_choice(name: str, value: Any, choices: dict[str, str] | tuple[str, ...]) -> None:
    """Refuse a word that is none of ``choices``; a dict says besides what each of them means."""
    if value not in choices:
        meanings = choices if isinstance(choices, dict) else dict.fromkeys(choices, "")
        *most, last = [f'"{word}" ({meaning})' if meaning else f'"{word}"' for word, meaning in meanings.items()]
        raise ValueError(f"{name} must be {', '.join(most)} or {last}, got {value!r}")


def check_at_least(least: int, **numbers: int) -> None:
    """Refuse numbers below ``least``, such as ``check_at_least(1, heads=heads)``."""
    if any(number < least for number in numbers.values()):
        *most, last = numbers
        got = ", ".join(f"{name}={number}" for name, number in numbers.items()) if most else numbers[last]
        raise ValueError(f"{' and '.join(filter(None, (', '.join(most), last)))} must be at least {least}, got {got}")


def check_known(what: str, name: str, known: Collection[str], where: str = "") -> None:
    """Refuse a name that is not among those that are known."""
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}{where}{nearest(name, known)}; there are {', '.join(known)}")


def nearest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'rope'?)``, or nothing."""
    close = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
