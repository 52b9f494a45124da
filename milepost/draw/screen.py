"""Screen: the one way in which text reaches a terminal: names, keys and words of foreign files are shown as they are.

Nothing in a text is taken for markup, and a control character (an escape sequence that would move the cursor, change a
title or hide a line) is shown as its code: `\\x1b`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but tab and new line, and those that turn the direction of writing."""


def visible(text: str) -> str:
    """A text whose control characters are shown as codes."""
    return CONTROL.sub(lambda m: m[0].encode("unicode_escape").decode("ascii"), text)


class Screen(Console):
    """A console that reads no markup and sends no control character of a text."""

    def __init__(self, *, stderr: bool = False, **how: Any):
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **how)

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        shown = (s if s.control else Segment(visible(s.text), s.style, s.control) for s in buffer)
        return super()._render_buffer(shown)
