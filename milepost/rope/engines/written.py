"""Written: a spec in an engine's words; Refused: why an engine has none for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from milepost.rope.config.keys import bounded


class Refused(ValueError):  # noqa: N818 (a refusal is an answer)
    """An engine that can't express a spec: why, with the numbers."""

    def __init__(self, sentence: str = ""):
        super().__init__(bounded(sentence))


@dataclass(frozen=True)
class Written:
    """``text`` is ready to paste; ``notes`` are what to know about it.

    ``config`` holds the keys of config.json where the engine reads that; ``version`` is the engine's, where versions
    of it were measured.
    """

    engine: str
    config: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    notes: tuple[str, ...] = ()
    version: str = ""
