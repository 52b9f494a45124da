"""What everybody shows with: figures as numbers, drawings of them as SVG and PNG, and documents as page, Markdown,
terminal and notebook.

It is below all other parts: it imports no torch and nothing of milepost but the writing of files, so that any part
may draw.
"""

from __future__ import annotations

from milepost.draw.document import Document, Section, facts
from milepost.draw.figure import GREY, Alternative, Dial, Figure, Mark, Numbers, Style, few
from milepost.draw.folder import fill
from milepost.draw.svg import alone, draw
from milepost.draw.table import Cells, Table

__all__ = [
    "GREY", "Alternative", "Cells", "Dial", "Document", "Figure", "Mark", "Numbers", "Section", "Style", "Table",
    "alone", "draw", "facts", "few", "fill",
]  # fmt: skip
