"""Changes to valid data: JSON by its structure, bytes by their places."""

from __future__ import annotations

import json
import random
from typing import Any

NUMBERS = (0, 1, -1, 2, 3, 7, 64, 255, 4096, 131072, 2**20, 2**31, 2**40, 2**63, 2**64, 10**30, 10**400)
FRACTIONS = (0.0, -0.0, 0.5, 1.0, 1.5, -1.0, 1e-320, 1e-9, 1e300, 1.7e308, float("inf"), float("nan"))
WORDS = (
    "",
    " ",
    "\x1b[2J",
    "[x](http://e)",
    "<script>",
    "../..",
    "\u202e",
    "é",
    "a" * 3000,
    "0",
    "1e9",
    "none",
    "rope",
)
WORD_BYTES = (b"\0", b"\xff", b"\xff" * 8, b"\0" * 8, b"\x01" + b"\0" * 7, b"{", b'"', b"[" * 64, b"GGUF")


def value(rng: random.Random, depth: int = 0) -> Any:
    """Anything that JSON can hold."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind <= 2:
        return rng.choice(NUMBERS) if rng.random() < 0.7 else rng.randrange(-300, 300)
    if kind == 3:
        return rng.choice(FRACTIONS) if rng.random() < 0.7 else rng.uniform(-10, 10)
    if kind <= 5:
        return rng.choice(WORDS)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    if kind == 7:
        return {rng.choice(WORDS): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [rng.choice(NUMBERS)] * rng.choice((1, 2, 1000, 100000))


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every (parent, key) inside of a value."""
    found: list[tuple[Any, Any]] = []
    todo = [data]
    while todo:
        parent = todo.pop()
        inside = parent.items() if isinstance(parent, dict) else enumerate(parent) if isinstance(parent, list) else ()
        for key, held in inside:
            found.append((parent, key))
            todo.append(held)
    return found


def changed(data: Any, rng: random.Random, words: tuple[str, ...] = ()) -> Any:
    """A copy of a JSON value with one to four changes; ``words`` are keys and texts that mean something there."""
    data = json.loads(json.dumps(data))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        spots = places(data)
        if not spots:
            return value(rng)
        parent, key = rng.choice(spots)
        action = rng.randrange(8)
        if action == 0:
            del parent[key]
        elif action == 1:
            other, there = rng.choice(spots)
            parent[key] = json.loads(json.dumps(other[there])) if _holds(other, there) else None
        elif action == 2 and isinstance(parent, dict):
            parent[rng.choice(words or WORDS)] = value(rng)
        elif action == 3 and isinstance(parent[key], list):
            parent[key] = parent[key] * rng.choice((0, 2, 50))
        elif action == 4 and isinstance(parent[key], int | float):
            parent[key] = rng.choice((parent[key] * 2, -parent[key], parent[key] + 1, str(parent[key]), [parent[key]]))
        elif action == 5 and words:
            parent[key] = rng.choice(words)
        else:
            parent[key] = value(rng)
    return data


def _holds(parent: Any, key: Any) -> bool:
    return key in parent if isinstance(parent, dict) else key < len(parent)


def as_json(data: Any) -> bytes:
    """JSON as Python writes it, NaN and infinities included."""
    return json.dumps(data).encode()


def damaged(raw: bytes, rng: random.Random, most: int = 4) -> bytes:
    """Bytes with some of them changed, cut, doubled or filled in."""
    made = bytearray(raw)
    for _ in range(rng.randrange(1, most + 1)):
        at = rng.randrange(len(made) + 1)
        action = rng.randrange(6)
        if action == 0:
            del made[at:]
        elif action == 1:
            made[at : at + rng.randrange(1, 9)] = rng.choice(WORD_BYTES)
        elif action == 2:
            made[at:at] = rng.choice(WORD_BYTES)
        elif action == 3 and at < len(made):
            made[at] ^= 1 << rng.randrange(8)
        elif action == 4:
            made[at:at] = made[at : at + rng.choice((1, 8, 64, 512))]
        else:
            del made[at : at + rng.choice((1, 8, 64))]
    return bytes(made)
