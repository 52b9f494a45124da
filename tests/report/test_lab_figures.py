"""The figures of a lab report, as data: what is drawn where, in which colour, and named how."""

import itertools
import json
import math
import re

import pytest

from milepost.report import lab, lab_figures, lab_page
from milepost.report.lab_style import COLOURS, look

MANY = tuple(f"encoding{n}" for n in range(13))
PAPER = ("#ffffff", "#16161a")
"""The two colours of the page."""


def lines(fig, label):
    return [trace for trace in fig.data if trace.meta["label"] == label and trace.name]


def bands(fig, label):
    return [trace for trace in fig.data if trace.meta["label"] == label and trace.fill]


def every_figure(results):
    return [figure for section in lab.sections(results) for figure in section.get("figures", [])]


@pytest.fixture
def whole(made):
    return made(encodings=("nope", "learned", "sinusoidal", "alibi", "rope"), tasks={"recall": {"rope": 0.5, "nope": 2.1}, "index": {"rope": 0.7}})


def test_every_seed_is_a_line_with_a_band_of_its_interval(made):
    fig = lab_figures.by_length(made())
    assert list(lines(fig, "alibi")[0].y) == pytest.approx([2.4, 2.41, 2.42, 2.43])
    assert list(lines(fig, "alibi")[1].y) == pytest.approx([2.41, 2.42, 2.43, 2.44])
    assert [trace.showlegend for trace in lines(fig, "alibi")] == [True, False]
    low, high = [2.35, 2.36, 2.37, 2.38], [2.45, 2.46, 2.47, 2.48]
    assert list(bands(fig, "alibi")[0].y) == pytest.approx([*high, *low[::-1]])


def test_a_line_stops_where_a_table_ends(made):
    fig = lab_figures.by_length(made())
    assert list(lines(fig, "learned")[0].x) == [16]
    assert max(lines(lab_figures.by_position(made()), "learned")[0].x) < 16


def test_without_an_interval_there_is_a_line_and_no_band(made):
    results = made(encodings=("nope",), seeds=(0,))
    for row in results["runs"][0]["loss_by_length"]:
        row["low"] = row["high"] = None
    fig = lab_figures.by_length(results)
    assert len(lines(fig, "nope")) == 1 and not bands(fig, "nope")


def test_the_trained_length_is_marked(made):
    for fig, place in ((lab_figures.by_length(made()), math.log10(16)), (lab_figures.by_position(made()), 16)):
        assert fig.layout.shapes[0].x0 == fig.layout.shapes[0].x1 == 16
        assert fig.layout.annotations[0].x == place and "trained length, 16" in fig.layout.annotations[0].text


def test_positions_are_the_middles_of_their_buckets(made):
    assert list(lines(lab_figures.by_position(made()), "nope")[0].x)[:3] == [4, 12, 20]


def test_gains_and_the_cost_are_drawn_with_paired_intervals(made):
    fig = lab_figures.strategies(made(seeds=(0,)))
    assert list(fig.layout.yaxis.ticktext) == ["rope, linear", "rope, yarn"]
    paid, *gained = fig.data
    assert list(paid.x) == pytest.approx([-0.8, -0.15])
    assert list(gained[2].x) == pytest.approx([-0.15, 0.36])
    assert list(gained[2].error_x.arrayminus) == pytest.approx([0.03, 0.03]) and list(gained[2].error_x.array) == pytest.approx([0.02, 0.02])
    assert all(round(y) == row for trace in fig.data for row, y in enumerate(trace.y))


def test_heat_maps_have_a_row_for_each_head_and_a_column_for_each_distance(made):
    fig = lab_figures.attention(made(seeds=(0,)))
    first = fig.data[0]
    assert list(first.y) == ["0, 0", "0, 1", "1, 0", "1, 1"]
    assert list(first.x) == ["0", "1", "2-3", "4-7", "8-15", "16-31", "32-63", "64-127"]
    assert list(first.z[0]) == [0.05, 0.05, 0.1, 0.1, 0.1, 0.2, 0.3, 0.1]
    assert [trace.visible for trace in fig.data] == [True] + [False] * (len(fig.data) - 1)
    assert {trace.zmax for trace in fig.data} == {0.3}
    assert first.meta["label"] == "nope, 128 tokens" and fig.layout.shapes[0].x0 == 4.5


def test_each_task_has_a_figure_with_chance(whole):
    index, recall = lab_figures.tasks(whole)
    assert index.layout.title.text.startswith("index") and recall.layout.title.text.startswith("recall")
    assert list(lines(recall, "chance")[0].y) == [2.0] * 4 and list(lines(recall, "rope")[0].y) == [0.5] * 4


def test_the_published_curve_and_ours_share_a_colour(made):
    fig = lab_figures.published(made(encodings=("rope", "alibi"), seeds=(0,)))
    theirs, ours = lines(fig, "rope, published")[0], lines(fig, "rope, ours")[0]
    assert theirs.line.color == ours.line.color and theirs.line.dash != ours.line.dash
    assert theirs.y[0] == ours.y[0] == 1.0 and list(ours.y) == pytest.approx([math.exp(0.2 * n) for n in range(4)])
    assert theirs.y[2] == pytest.approx(21.37 / 20.07)
    assert lines(fig, "t5, published") and not lines(fig, "t5, ours")


def test_every_figure_has_a_title_and_titled_axes(whole):
    found = every_figure(whole)
    assert len(found) == 7
    for fig in found:
        assert fig.layout.title.text and fig.layout.xaxis.title.text and fig.layout.yaxis.title.text


# -- looks --------------------------------------------------------------------------------------------------------------------


def oklab(colour):
    """Where a colour is for the eye (Ottosson, 2020)."""
    red, green, blue = rgb(colour)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def rgb(colour):
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def light(colour):
    return sum(share * value for share, value in zip((0.2126, 0.7152, 0.0722), rgb(colour), strict=True)) + 0.05


def test_colours_are_far_from_each_other_and_from_both_papers():
    assert min(math.dist(oklab(a), oklab(b)) for a, b in itertools.combinations(COLOURS, 2)) > 0.1
    for colour, paper in itertools.product(COLOURS, PAPER):
        assert max(light(colour), light(paper)) / min(light(colour), light(paper)) > 2.1, (colour, paper)


def test_thirteen_encodings_have_thirteen_colours(made):
    results = made(encodings=MANY)
    assert len({look(run, results).colour for run in results["runs"]}) == 13
    assert len(set(COLOURS)) == len(COLOURS)


def test_beyond_the_colours_marks_differ(made):
    results = made(encodings=tuple(f"e{n}" for n in range(40)), seeds=(0,))
    assert len({look(run, results) for run in results["runs"]}) == 40


def test_strategies_share_their_encoding_s_colour_and_differ_in_dashes(made):
    names = ("base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope")
    results = made(encodings=("nope", "rope"), strategies=names, seeds=(0,))
    rope = [look(run, results) for run in results["runs"] if run["encoding"] == "rope"]
    assert len({one.colour for one in rope}) == 1 and len({one.dash for one in rope}) == 8 and rope[0].dash == "solid"
    tuned = {**results["runs"][-1], "strategy": "rerope tuned", "tuned_steps": 5}
    assert look(tuned, results | {"runs": [*results["runs"], tuned]}).mark == rope[-1].mark + "-open"


# -- the page -----------------------------------------------------------------------------------------------------------------

BAD = "<script>document.title='owned'</script>"


def page_of(results):
    return lab_page.page("t", "q", lab.answer(results), lab.notes(results), lab.sections(results))


def test_a_name_with_a_script_in_it_is_only_words(made):
    results = made(encodings=("nope", BAD), seeds=(0,), failed=[{"encoding": BAD, "seed": 1, "why": BAD}], tasks={"recall": {BAD: 0.5}})
    results["provenance"]["protocol"]["text"]["source"] = BAD
    said = page_of(results)
    assert BAD not in said and said.count("&lt;script&gt;document.title") > 5
    data = re.findall(r'<script type="application/json" id="[^"]*">(.*?)</script>', said, flags=re.S)
    assert len(data) == 5 and all("<" not in one for one in data)
    names = [trace.get("name", "") for one in data for trace in json.loads(one)["data"]]
    assert any("&lt;script&gt;" in name for name in names) and not any("<" in name for name in names)


def test_no_text_in_a_figure_can_end_its_script():
    class Figure:
        def to_json(self):
            return json.dumps({"data": [], "layout": {"title": "</script><b>"}})

    said = lab_page.page("t", "q", "a", [], [{"title": "x", "words": "", "figures": [Figure()]}])
    assert "</script><b>" not in said and "\\u003c/script>\\u003cb>" in said


def test_a_page_asks_for_nothing_outside_itself(made):
    head = page_of(made()).split("</title>")[0]
    assert "default-src 'none'" in head and "http://" not in head and "https://" not in head


def test_a_run_with_nothing_finished_still_has_a_page(made):
    results = made(encodings=(), missing=[{"encoding": "rope", "seed": 0, "data": "text"}])
    said = page_of(results)
    assert "No trial has been finished yet." in said and "not run yet" in said
    assert "No trial has been finished yet." in lab.text(results)
