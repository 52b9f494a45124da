"""Still pictures: what is drawn is what the panel holds, at the place where it belongs."""

import base64
import re
import struct
import xml.etree.ElementTree as ET
import zlib

import pytest

from milepost.portrait import Panel
from milepost.report.still import HEIGHT, LEFT, TOP, WIDTH, sheet, svg


def lines(values, **more):
    return Panel("lines", "a < b", "x & y", "up", [float(n) for n in range(len(values))], lines={"one": values}, **more)


def points(text):
    path = re.search(r'<path d="(M[^"]*)" fill="none" stroke="#', text).group(1)
    return [(kind, float(x), float(y)) for kind, x, y in re.findall(r"([ML])([\d.]+) ([\d.]+)", path)]


def test_higher_values_are_higher_up_and_later_ones_further_right():
    found = points(svg(lines([0.0, 1.0, 4.0])))
    xs, ys = [x for _, x, _ in found], [y for _, _, y in found]
    assert xs == sorted(xs) and ys == sorted(ys, reverse=True)
    assert (ys[0] - ys[1]) * 3 == pytest.approx(ys[1] - ys[2], abs=0.3)  # equal scale; numbers have one decimal
    assert min(xs) >= LEFT and max(xs) <= WIDTH and min(ys) >= TOP and max(ys) <= TOP + HEIGHT


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios():
    ys = [y for _, _, y in points(svg(lines([1.0, 10.0, 100.0], log_y=True)))]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)
    panel = Panel("lines", "t", "x", "y", [128.0, 256.0, 512.0], lines={"one": [1.0, 2.0, 3.0]})
    xs = [x for _, x, _ in points(svg(panel, log_x=True))]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)


def test_what_is_not_known_is_a_gap():
    assert [kind for kind, _, _ in points(svg(lines([1.0, None, 2.0, float("inf"), 3.0, 4.0])))] == ["M", "M", "M", "L"]


def test_a_value_without_neighbours_is_a_point():
    assert svg(lines([1.0, 2.0, 3.0])).count("<circle") == 0
    found = svg(lines([1.0, None, 2.0, 3.0, None, 4.0]))
    assert found.count("<circle") == 2
    place = re.findall(r'<circle cx="([\d.]+)"', found)
    assert [float(x) for x in place] == [points(found)[0][1], points(found)[-1][1]]


def pixels(text):
    raw = base64.b64decode(re.search(r'pixelated" href="data:image/png;base64,([^"]+)"', text).group(1))
    wide, high = struct.unpack(">II", raw[16:24])
    start = raw.index(b"IDAT") + 4
    rows = zlib.decompress(raw[start:])
    return [[tuple(rows[r * (4 * wide + 1) + 1 + 4 * c :][:4]) for c in range(wide)] for r in range(high)]


def test_a_heat_map_has_a_pixel_for_each_number_rows_from_the_top_and_none_is_clear():
    panel = Panel("heat", "t", "x", "y", [0.0, 1.0, 2.0], [0.0, 1.0], z=[[0.0, 1.0, None], [2.0, 0.0, 1.0]])
    found = pixels(svg(panel))
    assert len(found) == 2 and len(found[0]) == 3
    assert found[0][0] == found[1][1] and found[0][1] == found[1][2]
    assert len({found[0][0], found[0][1], found[1][0]}) == 3
    assert found[0][2] == (0, 0, 0, 0)
    low, high = found[0][0], found[1][0]
    assert sum(high[:3]) > sum(low[:3])  # viridis grows lighter


def test_signed_numbers_have_a_scale_that_is_pale_at_zero():
    found = pixels(svg(Panel("heat", "t", "x", "y", [0.0, 1.0, 2.0], [0.0], z=[[-2.0, 0.0, 1.0]])))
    assert min(found[0][1][:3]) > 230
    assert found[0][0][0] > found[0][0][2] and found[0][2][2] > found[0][2][0]  # below zero red, above blue


def test_it_is_xml_with_its_words_escaped_and_fetches_nothing():
    text = sheet([lines([1.0, 2.0]), lines([2.0, 1.0]), lines([0.0, 0.0])])
    tree = ET.fromstring(text)
    assert len(tree) == 3
    assert "a < b" in "".join(tree.itertext())
    assert not [value for node in tree.iter() for value in node.attrib.values() if value.startswith(("http", "//", "url"))]
    assert "<script" not in text
    with pytest.raises(ValueError, match="at least one panel"):
        sheet([])
