"""Drawings: well-formed, escaped, and with every number where it belongs."""

import base64
import math
import re
import struct
import zlib
from xml.etree import ElementTree

import pytest

from milepost.draw.figure import Dial, Figure, Mark
from milepost.draw.svg import alone, draw, in_a_page, sheet
from milepost.draw.svg.axis import linear, logarithmic, short, words_width
from milepost.draw.svg.colours import RED, SIGNED, VIRIDIS, shade
from milepost.draw.svg.heat import png
from milepost.draw.svg.shapes import wrapped

SVG = "{http://www.w3.org/2000/svg}"
OWNED = "<script>x</script>\"&'<b>"


def tree(figure, width=640):
    return ElementTree.fromstring(draw(figure, width))


def words(root):
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


def path(root, colour):
    """The places that a line goes through."""
    drawn = next(node.get("d") for node in root.iter(f"{SVG}path") if node.get("stroke") == colour)
    places = []
    for kind, x, y in re.findall(r"([Ml])(-?[\d.]+)\s*(-?[\d.]+)", drawn):
        places.append(
            (float(x), float(y))
            if kind == "M"
            else (round(places[-1][0] + float(x), 1), round(places[-1][1] + float(y), 1))
        )
    return places


def test_a_line_goes_through_its_points_with_larger_values_higher_up():
    root = tree(Figure("lines", "t", "x", "y", [0, 5, 10], lines={"a": [1.0, 3.0, 2.0]}))
    (x0, y0), (x1, y1), (x2, y2) = path(root, "#2563eb")
    assert x0 == float(root.get("data-left")) and x2 == pytest.approx(x0 + float(root.get("data-width")), abs=0.1)
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y1 < y2 < y0 and (y0 - y2) == pytest.approx((y0 - y1) / 2, abs=0.2)


def test_a_logarithmic_axis_gives_every_factor_the_same_room():
    root = tree(Figure("lines", "t", x=[0, 1, 2], lines={"a": [1.0, 10.0, 100.0]}, log_y=True))
    ys = [y for _, y in path(root, "#2563eb")]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2) and ys[0] > ys[2]
    assert {"1", "10", "100"} <= set(words(root))


def test_gaps_break_a_line_and_points_are_dots_and_warnings_red():
    figure = Figure(
        "lines",
        "t",
        x=[0, 1, 2, 3],
        lines={"a": [1, None, 2, 3], "bad": [None, 2, None, 1]},
        points=("bad",),
        red=("bad",),
    )
    root = tree(figure)
    drawn = next(node.get("d") for node in root.iter(f"{SVG}path") if node.get("stroke") == "#2563eb")
    assert drawn.count("M") == 2 and drawn.count("l") == 1
    dots = [node for node in root.iter(f"{SVG}circle") if node.get("fill") == RED]
    assert len(dots) == 2 + 1  # and its key
    assert {"a", "bad"} <= set(words(root))


def test_a_value_without_neighbours_is_a_dot_where_the_line_would_be():
    root = tree(Figure("lines", "t", x=[0, 1, 2, 3, 4, 5], lines={"a": [1.0, None, 2.0, 3.0, None, 4.0]}))
    dots = [(float(node.get("cx")), float(node.get("cy"))) for node in root.iter(f"{SVG}circle")]
    assert dots == [path(root, "#2563eb")[0], path(root, "#2563eb")[-1]]
    assert not list(tree(Figure("lines", "t", x=[0, 1], lines={"a": [1.0, 2.0]})).iter(f"{SVG}circle"))


def test_points_stand_in_rows_within_their_intervals():
    figure = Figure(
        "points",
        "t",
        "share",
        y_names=("first", "a second one"),
        lines={"a": [1.0, 3.0], "b": [2.0, None]},
        sides={"a": [(0.0, 2.0), (2.5, 4.0)]},
    )
    root = tree(figure)
    blue = [
        (float(node.get("cy")), float(node.get("cx")))
        for node in root.iter(f"{SVG}circle")
        if node.get("fill") == "#2563eb"
    ][:2]  # then its key
    (path,) = [node.get("d") for node in root.iter(f"{SVG}path") if node.get("stroke") == "#2563eb"]
    bars = [tuple(map(float, bar)) for bar in re.findall(r"M([\d.]+) ([\d.]+)H([\d.]+)", path)]
    for (y, x), (low, at, high) in zip(blue, bars, strict=True):
        assert low < x < high and at == y
    (y0, x0), (y1, x1) = blue
    assert y0 < y1 and x0 < x1 and bars[0] != bars[1]
    low, _, high = bars[0]
    assert x0 == pytest.approx((low + high) / 2, abs=0.11)  # 1 lies between 0 and 2
    assert {"first", "a second one", "share", "a", "b"} <= set(words(root))
    assert (
        figure.to_csv()
        == ',a,"a, low","a, high",b,"b, low","b, high"\nfirst,1.0,0.0,2.0,2.0,,\na second one,3.0,2.5,4.0,,,\n'
    )


def test_the_names_of_points_have_their_room_however_long():
    name = "the share of images by which mixed rope is ahead of a learned table of one axis"
    root = tree(Figure("points", "t", y_names=(name, "b"), lines={"a": [0.1, 0.2]}, marks=(Mark("x", 0.0, ""),)), 400)
    lines = [line for line in words(root) if len(line) > 1 and line in name]
    assert " ".join(lines) == name and all(words_width(line, 12) <= 0.42 * 400 for line in lines)
    assert float(root.get("data-left")) < 200 and float(root.get("data-left")) + float(root.get("data-width")) <= 400


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1e-6, "1e-6"),
        (2.5e-5, "2.5e-5"),
        (-4e-5, "-4e-5"),
        (1e-15, "1e-15"),
        (0.001, "0.001"),
        (5e6, "5e6"),
        (100.0, "100"),
    ],
)
def test_ticks_are_short(value, said):
    assert short(value, abs(value)) == said


def test_numbers_of_the_y_axis_leave_room_for_its_title():
    for values in ([1e3, 9e5], [1.0, 2.0]):
        root = tree(Figure("lines", "t", "x", "tokens", [0, 1], lines={"a": values}, log_y=True), 400)
        ticks = [node for node in root.iter(f"{SVG}text") if node.get("text-anchor") == "end"]
        starts = [float(node.get("x")) - words_width("".join(node.itertext()), 12) for node in ticks]
        assert ticks and min(starts) >= 19  # the title stands at 13, and is 12 pixels high
        assert float(root.get("data-left")) + float(root.get("data-width")) <= 400


def test_a_long_title_of_the_y_axis_stands_in_lines_beside_its_plot():
    title = "largest difference of a score over heads and places up to 1,048,575"
    root = tree(Figure("lines", "t", "x", title, [0, 1], lines={"a": [1.0, 2.0]}), 400)
    turned = [node for node in root.iter(f"{SVG}text") if "rotate(-90" in (node.get("transform") or "")]
    said = ["".join(node.itertext()) for node in turned]
    assert " ".join(said) == title and len(said) > 1
    assert [float(node.get("x")) for node in turned] == [13 + 15 * n for n in range(len(said))]
    assert all(words_width(line, 12) <= float(root.get("data-height")) for line in said)
    ticks = [node for node in root.iter(f"{SVG}text") if node.get("text-anchor") == "end"]
    starts = [float(node.get("x")) - words_width("".join(node.itertext()), 12) for node in ticks]
    assert min(starts) >= max(float(node.get("x")) for node in turned) + 6  # half of a line of 12 pixels


def test_the_last_number_of_an_x_axis_is_whole():
    root = tree(Figure("lines", "t", "k", "y", [1, 131071], lines={"a": [1.0, 2.0]}, log_x=True), 400)
    ends = [
        float(node.get("x")) + words_width("".join(node.itertext()), 12) / 2
        for node in root.iter(f"{SVG}text")
        if "".join(node.itertext()) == "100000"
    ]
    assert ends == pytest.approx([400], abs=0.1)  # moved as far as it must be
    free = tree(Figure("lines", "t", "k", "y", [1, 9e5], lines={"a": [1.0, 2.0]}, log_x=True), 400)
    ticks = {"".join(node.itertext()): float(node.get("x")) for node in free.iter(f"{SVG}text")}
    assert ticks["100"] - ticks["10"] == pytest.approx(
        ticks["100000"] - ticks["10000"], abs=0.2
    )  # where there is room, a number stands under its tick


ALPHABET = [chr(n) for n in range(33, 127)] + list("²±×−≈→θπ·位置编码")
SAID = [
    "appended",
    "nope",
    "mmmm",
    "WWWW",
    "largest error over places up to 1,048,575",
    "PE(p + k) against the rotation by k of PE(p)",
    "100000",
    "相似度，按距离",
]


def test_words_are_never_wider_than_they_are_taken_for(chromium):
    page = chromium.new_page()
    page.set_content(draw(Figure("lines", "t", "here", x=[0, 1], lines={"a": [0.0, 1.0]})))
    measure = (
        "said => { const words = document.querySelector('text:last-of-type'); words.removeAttribute('font-size'); "
        "words.removeAttribute('font-weight');"
    )
    measure += " return said.map(one => { words.textContent = one; return words.getComputedTextLength(); }); }"
    said = [20 * letter for letter in ALPHABET] + SAID
    real = page.evaluate(measure, said)
    page.close()
    assert all(wide > 0 for wide in real)
    assert [(one[:20], wide) for one, wide in zip(said, real, strict=True) if wide > words_width(one, 12) + 0.5] == []
    assert all(
        words_width(one, 12) < 1.5 * wide for one, wide in zip(SAID, real[-len(SAID) :], strict=True) if one.isascii()
    )  # nor much narrower


def test_stairs_go_across_before_they_go_up():
    root = tree(Figure("lines", "t", x=[0, 1], lines={"a": [0.0, 1.0]}, stepped=True))
    drawn = next(node.get("d") for node in root.iter(f"{SVG}path") if node.get("stroke") == "#2563eb")
    assert re.fullmatch(r"M[\d.]+ [\d.]+H[\d.]+V[\d.]+", drawn)


def test_many_lines_differ_in_colour_or_dash():
    root = tree(Figure("lines", "t", x=[0, 1], lines={str(n): [0.0, float(n)] for n in range(40)}))
    looks = [
        (node.get("stroke"), node.get("stroke-dasharray"))
        for node in root.iter(f"{SVG}path")
        if node.get("stroke-width") == "2"
    ]
    assert len(looks) == 40 and len(set(looks)) == 40


def test_marks_stand_at_their_values_with_their_names():
    figure = Figure(
        "lines", "t", x=[0, 10], lines={"a": [0.0, 10.0]}, marks=(Mark("y", 5.0, "half"), Mark("x", 2.0, "early"))
    )
    root = tree(figure)
    dashed = [node.get("d") for node in root.iter(f"{SVG}path") if node.get("stroke-dasharray") == "3 4"]
    (x0, y0), (x1, y1) = path(root, "#2563eb")
    assert float(re.match(r"M[\d.]+ ([\d.]+)H", dashed[0]).group(1)) == pytest.approx((y0 + y1) / 2, abs=0.2)
    assert float(re.match(r"M([\d.]+) ", dashed[1]).group(1)) == pytest.approx(x0 + 0.2 * (x1 - x0), abs=0.2)
    assert {"half", "early"} <= set(words(root))


def test_the_name_of_an_upright_mark_is_where_no_line_is():
    def height(values, at, x=(0, 10)):
        root = tree(Figure("lines", "t", x=x, lines={"a": values}, marks=(Mark("x", at, "early"),)))
        return next(float(node.get("y")) for node in root.iter(f"{SVG}text") if node.text == "early")

    foot = height([10.0, 0.0], 0.2)  # a line that is high there
    head = height([0.0, 10.0], 0.2)
    assert head < foot - 100  # heights grow downwards
    assert (
        height([0.0, 10.0], 9.8) == foot and height([10.0, 0.0], 9.8) == head
    )  # the name stands left of a mark on the right
    assert (
        height([10.0, 0.0, 0.0, 10.0, 10.0], 9.8, (0, 9.2, 9.6, 9.8, 10)) == head
    )  # what is low stands left of the mark, where the name would be
    assert height([0.0, 10.0], 3.0) == foot  # nothing is in the way


# -- heat maps ---------------------------------------------------------------------------------------------------------


def pixels(data):
    """A PNG with a palette, read back by hand: rows of (red, green, blue, alpha)."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    raw = zlib.decompress(chunks[b"IDAT"])
    rows = [raw[r * (width + 1) + 1 : (r + 1) * (width + 1)] for r in range(height)]
    return [[(*chunks[b"PLTE"][3 * n : 3 * n + 3], 0 if n == 0 else 255) for n in row] for row in rows]


def test_a_heat_map_has_a_pixel_for_each_number_and_none_for_a_gap():
    got = pixels(png([[0.0, 0.5, 1.0], [None, 1.0, 0.0]], 0.0, 1.0, VIRIDIS))
    assert got[0][0][:3] == shade(0, VIRIDIS) == (0x44, 0x01, 0x54) and got[0][2][:3] == shade(1, VIRIDIS) == (
        0xFD,
        0xE7,
        0x25,
    )
    assert got[1][0][3] == 0 and got[1][1] == got[0][2] and got[1][2] == got[0][0]
    assert got[0][1][:3] == shade(127 / 254, VIRIDIS)


def test_what_has_both_signs_is_blue_below_zero_white_at_zero_and_red_above():
    root = tree(Figure("heat", "t", "x", "y", [0, 1, 2], [0], [[-2.0, 0.0, 1.0]]))
    image = next(iter(root.iter(f"{SVG}image")))
    ((low, zero, high),) = pixels(base64.b64decode(image.get("href").partition("base64,")[2]))
    assert low[2] > low[0] and high[0] > high[2] and min(zero[:3]) > 240
    assert low[:3] == shade(0, SIGNED) and high[:3] != shade(1, SIGNED)  # 1 is half as far as -2


def test_a_map_of_one_number_and_of_gaps_alone_is_drawn():
    for z in ([[3.0]], [[None]], [[0.0, 0.0]]):
        root = tree(Figure("heat", "t", "x", "y", list(range(len(z[0]))), [0], z))
        assert any(True for _ in root.iter(f"{SVG}image"))


def test_the_first_row_is_at_the_top_and_words_stand_at_their_rows():
    root = tree(
        Figure(
            "heat",
            "t",
            "x",
            "y",
            [0, 1],
            [0, 1],
            [[1.0, 2.0], [3.0, 4.0]],
            x_names=("left", "right"),
            y_names=("above", "below"),
            square=True,
        )
    )
    where = {"".join(node.itertext()): (float(node.get("x")), float(node.get("y"))) for node in root.iter(f"{SVG}text")}
    assert where["above"][1] < where["below"][1] and where["left"][0] < where["right"][0]


def test_crowded_names_are_turned_and_left_out_evenly():
    names = tuple(f"a long word {n}" for n in range(60))
    root = tree(
        Figure("heat", "t", "x", "y", list(range(60)), [0], [[float(n) for n in range(60)]], x_names=names), 400
    )
    shown = [text for text in words(root) if text.startswith("a long word")]
    assert 5 < len(shown) < 60 and shown[0] == names[0]


# -- clocks ------------------------------------------------------------------------------------------------------------


def test_a_dial_has_a_red_arc_from_what_was_seen_to_what_is_met():
    root = tree(
        Figure(
            "dials",
            "t",
            dials=(Dial("p", "n", 0.25, 0.5, True), Dial("q", "n", 3.0, 12.0, False)),
            points=("seen",),
            red=("new",),
        )
    )
    arcs = [node for node in root.iter(f"{SVG}path") if "A" in (node.get("d") or "")]
    blue, red = (next(node.get("d") for node in arcs if node.get("stroke") == colour) for colour in ("#2563eb", RED))
    start, middle = (re.match(r"M([\d.]+) ([\d.]+)A24.0 24.0 0 0 1 ([\d.]+) ([\d.]+)", d).groups() for d in (blue, red))
    x, y = float(start[0]), float(start[1]) + 24  # the first arc begins at the top of its dial
    assert (float(start[2]), float(start[3])) == (
        pytest.approx(x + 24, abs=0.1),
        pytest.approx(y, abs=0.1),
    )  # a quarter turn: to the right
    assert (float(middle[2]), float(middle[3])) == (
        pytest.approx(x, abs=0.1),
        pytest.approx(y + 24, abs=0.1),
    )  # half a turn: to the bottom
    full = [node for node in root.iter(f"{SVG}circle") if node.get("stroke") == "#2563eb"]
    assert len(full) == 1  # the second has seen everything
    assert len([node for node in root.iter(f"{SVG}g") if "unseen" in (node.get("class") or "")]) == 1


# -- what all share ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lines", "heat", "dials"])
def test_words_are_words_and_nothing_else(kind):
    figure = Figure(
        kind,
        OWNED,
        OWNED,
        OWNED,
        [0, 1],
        [0],
        [[1.0, 2.0]],
        {OWNED: [1.0, 2.0], "b": [0.0, 1.0]},
        x_names=(OWNED, "b"),
        y_names=(OWNED,),
        marks=(Mark("y", 1.0, OWNED),),
        dials=(Dial(OWNED, OWNED, 0.5, 1.0, True),),
        red=(OWNED,),
    )
    for text in (draw(figure), alone(draw(figure))):
        root = ElementTree.fromstring(text)
        assert not [
            node for node in root.iter() if node.tag.rpartition("}")[2] in ("script", "b", "style", "foreignObject")
        ]
        assert not [name for node in root.iter() for name in node.attrib if name.startswith("on") or name == "style"]
    assert any("<script>" in text for text in words(root))


def test_a_drawing_alone_can_be_put_back_into_a_page():
    figures = [
        Figure("lines", "t", x=[0, 1], lines={"a": [0.0, 1.0]}, marks=(Mark("y", 0.5, "m"),)),
        Figure("heat", "u", x=[0], y=[0], z=[[1.0]]),
    ]
    drawn = [draw(figure, 300) for figure in figures]
    assert [in_a_page(alone(one)) for one in drawn] == drawn
    assert [in_a_page(one) for one in drawn] == drawn
    assert re.sub(r'(<svg) x="\d+" y="\d+"', r"\1", in_a_page(sheet(figures, 300))) == "".join(drawn)


def test_a_drawing_alone_is_dark_on_white_and_its_words_have_a_white_rim():
    text = alone(draw(Figure("lines", "t", x=[0, 1], lines={"a": [0.0, 1.0]}, marks=(Mark("y", 0.5, "m"),))))
    assert 'color="#1c1c1c"' in text and '<rect width="100%" height="100%" fill="#fff"/>' in text and "halo" not in text
    assert text.startswith("<svg xmlns=")


@pytest.mark.parametrize("width", [160, 400, 1000])
def test_a_drawing_is_as_wide_as_asked_and_long_titles_go_on_below(width):
    root = tree(Figure("lines", "a title of many words " * 5, x=[0, 1], lines={"a": [0.0, 1.0]}), width)
    assert root.get("width") == str(width)
    titles = [node for node in root.iter(f"{SVG}text") if node.get("font-weight") == "600"]
    assert "".join(node.text for node in titles).replace(" ", "") == ("atitleofmanywords" * 5) and (
        len(titles) > 1
    ) == (width < 1000)
    assert float(root.get("data-top")) == 30 + 18 * (len(titles) - 1)


def test_a_width_that_nobody_could_read_is_refused():
    for width in (10, 100_000):
        with pytest.raises(ValueError, match=f"160 to 4000 pixels wide, got {width}"):
            draw(Figure("lines", "t", x=[0, 1], lines={"a": [0.0, 1.0]}), width)


def test_lines_of_words_are_no_wider_than_their_room():
    for text in (
        "one two three four five six seven",
        "一二三四五六七八九十一二三四五六七八九十",
        "第 3 个头 的 偏置 and more",
    ):
        rows = wrapped(text, 90)
        assert len(rows) > 1 and all(words_width(row, 12) <= 90 for row in rows)
        assert "".join(rows).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 7), (0.001, 0.0012), (0, 1e7), (5, 5), (-1e-9, 1e-9), (0, 95)])
def test_ticks_are_round_inside_the_axis_and_in_their_places(low, high):
    axis = linear([low, high], 0.0, 400.0, tight=True)
    values = [value for value, _ in axis.ticks]
    assert (
        2 <= len(values) <= 12
        and values == sorted(values)
        and all(axis.low - 1e-9 <= v <= axis.high * (1 + 1e-9) + 1e-9 for v in values)
    )
    assert len({label for _, label in axis.ticks}) == len(values)
    for value, label in axis.ticks:
        assert float(label) == pytest.approx(value, rel=0.01, abs=1e-12)
    assert axis.at(axis.low) == 0 and axis.at(axis.high) == pytest.approx(400)


@pytest.mark.parametrize(("low", "high"), [(1, 10), (6.28, 54000), (0.05, 1300), (3, 3), (100, 130)])
def test_ticks_of_a_logarithmic_axis(low, high):
    axis = logarithmic([low, high], 250.0, 0.0)
    assert len(axis.ticks) >= 1 and all(
        axis.low <= value * (1 + 1e-9) and value <= axis.high * (1 + 1e-9) for value, _ in axis.ticks
    )
    assert axis.at(math.sqrt(axis.low * axis.high)) == pytest.approx(125)
