"""Figures as a file: an SVG, a PNG, or a page. What is drawn needs no browser and no font of the machine: the package
has its own.

The fonts are parts of Noto Sans SC (see fonts/OFL.txt): the letters of English pages and the characters of our
Chinese ones. Another character is drawn in a font of the machine that has it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.draw.figure import Figure
from milepost.draw.svg import sheet
from milepost.draw.svg.shapes import FAMILY
from milepost.measure.results import write

if TYPE_CHECKING:
    from milepost.draw.document import Document

FORMATS = (".html", ".png", ".svg")
WIDTH, FINE = 540, 2.0
"""Pixels of a figure, and pixels of a PNG for each of them."""
FONT = "Noto Sans SC"
DRAW = "import json, sys, resvg_py; sys.stdout.buffer.write(resvg_py.svg_to_bytes(**json.load(sys.stdin)))"
"""What another process runs."""


def check_name(out: Path) -> None:
    """Refuse a file that can't be drawn, before anything is worked out."""
    if out.suffix not in FORMATS:
        raise ValueError(f"--out {out}: the ending says what to draw, and must be one of {', '.join(FORMATS)}")


def save(out: Path, document: Document, figures: Sequence[Figure]) -> Path:
    """Write ``out`` as its ending says: the document as a page, or its figures in one picture."""
    check_name(out)
    if out.suffix == ".html":
        return write(out, document.html())
    drawn = sheet(figures, WIDTH)
    return write(out, drawn if out.suffix == ".svg" else png(drawn))


def png(svg: str, *, aside: bool = False) -> bytes:
    """A drawing that is a file of its own, as PNG; ``aside``: by another process, so that threads of this one go on.

    resvg holds Python's lock while it draws, up to half a second for the widest figures.
    """
    fonts = [str(path) for path in sorted((Path(__file__).parent / "fonts").glob("*.otf"))]
    how: dict[str, Any] = {
        "svg_string": svg.replace(f'font-family="{FAMILY}"', f'font-family="{FONT}"'), "zoom": FINE,
        "font_files": fonts, "font_family": FONT, "image_rendering": "optimize_speed",  # cells of a map stay cells
    }  # fmt: skip
    if aside:
        command = [sys.executable, "-P", "-c", DRAW]
        return subprocess.run(command, input=json.dumps(how).encode(), stdout=subprocess.PIPE, check=True).stdout
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(**how))
