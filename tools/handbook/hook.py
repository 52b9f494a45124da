"""What mkdocs calls while it builds the handbook: pages of encodings, figures and notebooks are made here, and figures
put into their pages.

    make docs        or        mkdocs build --strict

A figure is an image in the Markdown, `![words](figures/NAME.svg)`. In the page it becomes the drawing itself, one for
each panel, so that it takes the colours of the page and the panels stand below each other on a phone.
"""

from __future__ import annotations

import html
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import claimed
import explored
import notebook
import pages
import portraits
import reference
from figures import FIGURES

from milepost.draw.figure import Figure
from milepost.draw.svg import draw, sheet

WIDTH = 460
IMAGE = re.compile(r'<p><img alt="([^"]*)" src="[^"]*figures/([\w-]+)\.svg"\s*/?></p>')


@cache
def figures() -> dict[str, list[Figure]]:
    """The drawings of every figure by its name."""
    made = {name: make() for name, make in FIGURES.items()}
    return made | portraits.all_portraits() | claimed.drawn() | explored.drawn()


def on_config(config: Any) -> Any:
    """Generated pages take their place in the navigation, before what was measured."""
    notebooks = [f"notebooks/{path.stem}.md" for path in sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb"))]
    more = [{"Notebooks": notebooks}] if notebooks else []
    config.nav = [*config.nav[:-1], *more, *pages.nav(), config.nav[-1]]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what is made: pages, figures as files, notebooks as pages."""
    for path, text in pages.all_pages().items():
        files.append(File.generated(config, path, content=text))
    for name, figure in figures().items():
        files.append(File.generated(config, f"figures/{name}.svg", content=sheet(figure, WIDTH)))
    for path in sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook.markdown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The reference's marks as what the package says of its public names."""
    return reference.filled(markdown) if page.file.src_uri == "reference.md" else markdown


def on_page_content(text: str, page: Any, config: Any, files: Files) -> str:
    """Figures as drawings in the page."""

    def drawn(found: re.Match[str]) -> str:
        words, name = found.groups()
        panels = "".join(draw(one, WIDTH) for one in figures()[name])
        caption = (
            f'<figcaption>{words} <a href="{_up(page)}figures/{html.escape(name)}.svg">svg</a></figcaption>'
            if words
            else ""
        )
        return f'<figure><div class="panels">{panels}</div>{caption}</figure>'

    return IMAGE.sub(drawn, text)


def _up(page: Any) -> str:
    return "../" * page.url.count("/")
