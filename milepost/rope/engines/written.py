"""Written: a spec in an engine's words, with proof: the words are read back as that engine reads them, and must give the same table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.rope.engines.parity import differences
from milepost.rope.spec import RopeSpec


class Refused(ValueError):  # noqa: N818 (a refusal is an answer)
    """An engine that can't express a spec: why, with the numbers."""


@dataclass(frozen=True)
class Written:
    """``text`` is ready to paste; ``config`` holds the keys of config.json where the engine reads that; ``notes`` are what to know."""

    engine: str
    config: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    notes: tuple[str, ...] = ()


def proved(spec: RopeSpec, written: Written, back: RopeSpec) -> Written:
    """``written``, if what the engine would make of it is ``spec``; refused otherwise, with the first difference."""
    found = differences(spec, back)
    if found:
        raise Refused(
            f"{written.engine} can't say this: it would read its own keys as {found[0].sentence('the spec', written.engine)}"
        )
    notes = [note for note in back.notes if note not in spec.notes and note not in written.notes]
    return replace(written, notes=(*written.notes, *notes))
