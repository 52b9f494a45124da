"""The request of a migration: a length that the new positions reach, and the old ones too where they fade."""

from __future__ import annotations

from milepost.checkpoints.migration.source import Origin
from milepost.rope.config.keys import ConfigError


def check_length(origin: Origin, to: str, length: int | None, anneal: bool) -> int:
    """What the new model is tuned for; an error where its new positions, or the old that fade, do not reach as far."""
    old = origin.length
    asked = length if length is not None else 2 * old if to == "longer-table" else old
    if asked < 2:
        raise ConfigError(f"the length is a number of tokens, at least 2, got {asked}")
    if to == "longer-table" and asked <= old:
        raise ConfigError(f"the table has {old} rows already: a longer one wants more (--length), got {asked}")
    if to == "nope" and origin.added and asked > old:
        raise ConfigError(
            f"nope is a table of zeros here, which ends at {old} tokens: give at most that (got {asked}), or move to "
            "rope or alibi"
        )
    if anneal and to == "longer-table":
        raise ConfigError(
            "--anneal fades old positions while others come in, and a longer table keeps the old: leave it out"
        )
    if anneal and asked > old:
        raise ConfigError(
            f"--anneal fades positions that end at {old} tokens, and can't be tuned with {asked}: give --length "
            f"{old}, or leave --anneal out"
        )
    return asked
