"""Pictures as files: PNG without a browser and without a font of the machine, in English and in Chinese."""

import io
import json
import re
from pathlib import Path

import pytest
import resvg_py
from PIL import Image
from typer.testing import CliRunner

import milepost
from milepost.cli import app
from milepost.draw import picture
from milepost.draw.figure import Figure
from milepost.draw.svg import alone, draw, sheet

FONTS = Path(milepost.__file__).parent / "draw" / "fonts"
WORDS = Path(milepost.__file__).parent / "explore" / "words" / "zh.json"
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="40"><text x="4" y="28" font-family="{}" '
    'font-weight="{}">{}</text></svg>'
)


@pytest.fixture
def bare(monkeypatch):
    """A machine without fonts: none but those that are given by their files."""
    real = resvg_py.svg_to_bytes
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **about: real(**{**about, "skip_system_fonts": True}))


def opened(png):
    return Image.open(io.BytesIO(png)).convert("RGBA")


def ink(text, family=picture.FONT, weight=400):
    """How much is drawn of some words."""
    return sum(opened(picture.png(SVG.format(family, weight, text))).getchannel("A").getdata())


def test_every_letter_is_drawn_on_a_machine_without_fonts(bare):
    assert ink("") == 0
    words = set("".join(json.loads(WORDS.read_text(encoding="utf-8")).values()))
    letters = {chr(n) for n in range(0x21, 0x7F)} - set("&<>") | {letter for letter in words if ord(letter) > 0x7F}
    assert len(letters) > 300
    missing = [letter for letter in sorted(letters) if not letter.isspace() and ink(letter) == 0]
    assert missing == [], "run tools/fonts.py"


def test_a_letter_that_no_font_has_is_not_another_one(bare):
    assert ink("\N{HIRAGANA LETTER NU}") == 0, "no box stands for it"


def test_bold_words_are_bolder(bare):
    for words in ("Loss by length", "位置编码"):
        assert ink(words, weight=600) > 1.1 * ink(words) > 0


@pytest.mark.parametrize("title", ["Loss by length", "每个位置的编码"])
def test_a_figure_s_words_are_in_its_picture(bare, title):
    named, nameless = (
        opened(picture.png(sheet([Figure("lines", name, "x", "y", [0, 1], lines={"a": [0.0, 1.0]})], 300)))
        for name in (title, "")
    )
    assert named.size == nameless.size and named.width == 600
    dark = [sum(value < 100 for value in one.crop((0, 0, 300, 44)).convert("L").getdata()) for one in (named, nameless)]
    assert dark[0] > 200 and dark[1] == 0
    assert named.crop((0, 60, *named.size)).tobytes() == nameless.crop((0, 60, *named.size)).tobytes(), (
        "nothing else differs"
    )


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_show_writes_what_the_ending_says(tmp_path, monkeypatch, ending, bare):
    monkeypatch.setenv("PATH", "")  # nobody can be asked to draw
    out = tmp_path / f"rope.{ending}"
    done = CliRunner().invoke(app, ["show", "rope", "--length", "32", "--out", str(out)])
    assert done.exit_code == 0, done.output
    head = out.read_bytes()[:15]
    assert head.startswith({"png": b"\x89PNG", "svg": b"<svg xmlns=", "html": b"<!doctype html>"}[ending])
    assert out.stat().st_size < 500_000


def test_the_licence_of_the_fonts_is_beside_them():
    assert "SIL OPEN FONT LICENSE Version 1.1" in (FONTS / "OFL.txt").read_text(encoding="utf-8")
    fonts = sorted(FONTS.glob("*.otf"))
    assert [font.name for font in fonts] == ["NotoSansSC-Bold.otf", "NotoSansSC-Regular.otf"]
    assert sum(font.stat().st_size for font in fonts) < 300_000


def test_the_cells_of_a_map_are_cells(bare):
    """Between the middles of two cells there are their two colours alone, not a blur."""
    figure = Figure(kind="heat", title="", x=[0, 1], y=[0, 1], z=[[0.0, 1.0], [1.0, 0.0]])
    drawn = alone(draw(figure, picture.WIDTH))
    box = re.search(r'<image[^>]* x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', drawn)
    left, top, wide, tall = (picture.FINE * float(number) for number in box.groups())
    row = opened(picture.png(drawn))
    seen = [row.getpixel((round(left + wide * share / 100), round(top + tall / 4))) for share in range(25, 76)]
    assert len(set(seen[:25])) == len(set(seen[26:])) == 1 and seen[0] != seen[-1]


def test_a_picture_by_another_process_is_the_same(monkeypatch):
    drawn = sheet([Figure(kind="heat", title="每个位置", x=[0, 1], y=[0], z=[[0.0, 1.0]])], picture.WIDTH)
    here = picture.png(drawn)
    monkeypatch.setattr(resvg_py, "svg_to_bytes", lambda **about: pytest.fail("this process would draw"))
    assert picture.png(drawn, aside=True) == here
