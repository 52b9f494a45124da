"""The handbook as a site: built strictly, whole, and without a word to another host."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from milepost.encodings import NAMES, SPACE
from milepost.maps import NAMES as MAPS
from milepost.scaling import SCALINGS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
SHOWN = [
    "index.html",
    "walk.html",
    "lengths.html",
    "questions/rope.html",
    "encodings/axial.html",
    "notebooks/see-an-encoding.html",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    run = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(
        run,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.fixture(scope="module")
def address(site):
    """Where the site is served, on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_every_page_is_there(site):
    wanted = [f"encodings/{name}.html" for name in (*NAMES, *SPACE)]
    wanted += [f"scalings/{name}.html" for name in SCALINGS] + [f"maps/{name}.html" for name in MAPS]
    wanted += [str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in (ROOT / "docs").rglob("*.md")]
    wanted += [f"notebooks/{path.stem}.html" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")]
    missing = [name for name in wanted if not (site / name).exists()]
    assert not missing
    assert len(list((ROOT / "docs" / "notebooks").glob("*.ipynb"))) == 2


def test_figures_are_drawings_in_their_pages(site):
    for page in (site / "encodings").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert page.stem == "index" or text.count('role="img"') >= 1, page
        assert not re.search(r"<img[^>]*figures/", text), page
    assert (site / "walk.html").read_text(encoding="utf-8").count("<figure>") >= 7


def test_a_figure_s_file_holds_every_panel_side_by_side(site):
    drawn = ElementTree.fromstring((site / "figures" / "encoding-rope.svg").read_text(encoding="utf-8"))
    parts = [one for one in drawn if one.tag.endswith("svg")]
    places = [(int(one.get("x")), int(one.get("y"))) for one in parts]
    assert len(parts) >= 2 and len(set(places)) == len(parts) and places[0] == (0, 0)
    for one, (x, y) in zip(parts, places, strict=True):
        assert x + int(one.get("width")) <= int(drawn.get("width")) and y + int(one.get("height")) <= int(
            drawn.get("height")
        )


def test_no_page_refers_to_another_host_for_a_script_a_style_a_font_or_a_picture(site):
    other = r'"((?:https?:)?//[^"]+)"'
    part = re.compile(rf"<(?:script|img|iframe|source|image|use)\b[^>]*?(?:src|href)={other}")
    link = re.compile(rf"<link\b(?![^>]*rel=\"canonical\")[^>]*href={other}")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not part.findall(text) and not link.findall(text), page
    for style in site.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import\s)['"]?(?:https?:)?//""", style.read_text(encoding="utf-8")), style


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (400, "dark")])
def test_pages_open_without_complaint_and_ask_nobody_else(chromium, address, width, scheme):
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        page = context.new_page()
        said, asked = [], []
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        for name in SHOWN:
            page.goto(address + name)
            page.wait_for_timeout(200)
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
            assert page.evaluate(
                "[...document.querySelectorAll('figure svg')].every(one => one.getBoundingClientRect().width > 200)"
            ), name
        assert said == []
        assert asked and all(url.startswith((address, "data:", "blob:")) for url in asked)
        colour = page.evaluate("getComputedStyle(document.querySelector('.panels svg')).color")
        light = sum(int(v) for v in re.findall(r"\d+", colour)[:3]) / 3
        assert light > 127 if scheme == "dark" else light < 127  # pictures are in the page's own ink
    finally:
        context.close()
