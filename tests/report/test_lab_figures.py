"""The figures of a lab report, as data: what is drawn where, in which colour, and named how."""

import itertools
import json
import math
import random
import re

import pytest

from milepost.draw.document import Document, Section
from milepost.draw.figure import Figure
from milepost.draw.svg import draw
from milepost.draw.svg.colours import COLOURS
from milepost.lab.choose import shipped
from milepost.lab.report import document
from milepost.lab.report import figures as lab_figures
from milepost.lab.report.figures import style
from milepost.lab.report.seeds import merged

MANY = tuple(f"encoding{n}" for n in range(13))
PAPER = ("#ffffff", "#16161a")
"""The two colours of the page."""


def lines(fig, label):
    return [
        (list(fig.x_of(line)), list(values)) for line, values in fig.lines.items() if fig.style(line).label == label
    ]


def bands(fig, label):
    return [fig.sides_of(line) for line in fig.lines if fig.style(line).label == label and fig.sides_of(line)]


def every_figure(results):
    return [figure for section in document(results).sections for figure in section.figures]


@pytest.fixture
def whole(made):
    return made(
        encodings=("nope", "learned", "sinusoidal", "alibi", "rope"),
        tasks={"recall": {"rope": 0.5, "nope": 2.1}, "index": {"rope": 0.7}},
    )


def test_every_seed_is_a_line_with_a_band_of_its_interval(made):
    fig = lab_figures.by_length(made())
    (x, first), (_, second) = lines(fig, "alibi")
    assert x == [16, 32, 64, 128] and first == pytest.approx([2.4, 2.41, 2.42, 2.43])
    assert second == pytest.approx([2.41, 2.42, 2.43, 2.44])
    assert list(fig.labels()).count("alibi") == 1  # both seeds have one entry in the legend
    low, high = zip(*bands(fig, "alibi")[0], strict=True)
    assert low == pytest.approx([2.35, 2.36, 2.37, 2.38]) and high == pytest.approx([2.45, 2.46, 2.47, 2.48])


def test_a_line_stops_where_a_table_ends(made):
    fig = lab_figures.by_length(made())
    assert lines(fig, "learned")[0][0] == [16]
    assert max(lines(lab_figures.by_position(made()), "learned")[0][0]) < 16


def test_without_an_interval_there_is_a_line_and_no_band(made):
    results = made(encodings=("nope",), seeds=(0,))
    for row in results["runs"][0]["loss_by_length"]:
        row["low"] = row["high"] = None
    fig = lab_figures.by_length(results)
    assert len(lines(fig, "nope")) == 1 and not bands(fig, "nope")


def test_the_trained_length_is_marked(made):
    for fig in (lab_figures.by_length(made()), lab_figures.by_position(made())):
        (mark,) = fig.marks
        assert (mark.axis, mark.at, mark.name) == ("x", 16, "trained length, 16")
        assert "trained length, 16" in draw(fig)


def test_positions_are_the_middles_of_their_buckets(made):
    assert lines(lab_figures.by_position(made()), "nope")[0][0][:3] == [4, 12, 20]


def test_gains_and_the_cost_are_drawn_with_paired_intervals(made):
    (fig,) = lab_figures.strategies(made(seeds=(0,)))
    assert fig.kind == "points" and fig.y_names == ("rope, linear", "rope, yarn")
    paid, *gained = fig.lines
    assert fig.lines[paid] == pytest.approx([-0.8, -0.15])
    assert fig.lines[gained[2]] == pytest.approx([-0.15, 0.36])
    low, high = zip(*fig.sides_of(gained[2]), strict=True)
    assert low == pytest.approx([-0.18, 0.33]) and high == pytest.approx([-0.13, 0.38])
    assert all(len(values) == 2 for values in fig.lines.values())
    (several,) = lab_figures.strategies(made(seeds=(0, 1)))
    assert list(several.labels()) == list(fig.labels()) and len(several.lines) == 2 * len(fig.lines)


def test_heat_maps_have_a_row_for_each_head_and_a_column_for_each_distance(made):
    long, short = lab_figures.attention(made(seeds=(0,)))
    assert long.y_names == ("0, 0", "0, 1", "1, 0", "1, 1")
    assert long.x_names == ("0", "1", "2-3", "4-7", "8-15", "16-31", "32-63", "64-127")
    first = long.alternatives[0]
    assert first.label == "nope, 128 tokens" and long.z == first.z
    assert list(first.z[0]) == [0.05, 0.05, 0.1, 0.1, 0.1, 0.2, 0.3, 0.1]
    assert {long.high, short.high} == {0.3} and all(map.label.endswith("16 tokens") for map in short.alternatives)
    assert long.marks[0].at == 5  # the left edge of the sixth column, 16-31
    assert long.note.format(*first.notes[0].split("|")).startswith("mean distance ")


def test_each_task_has_a_figure_with_chance(whole):
    index, recall = lab_figures.tasks(whole)
    assert index.title.startswith("index") and recall.title.startswith("recall")
    assert lines(recall, "chance")[0][1] == [2.0] * 4 and lines(recall, "rope")[0][1] == [0.5] * 4
    assert index.low == recall.low == 0


def test_the_published_curve_and_ours_share_a_colour(made):
    fig = lab_figures.published(made(encodings=("rope", "alibi"), seeds=(0,)))
    theirs, ours = fig.style("rope, published"), fig.style("rope, ours")
    assert theirs.colour == ours.colour and theirs.dash != ours.dash
    ((_, theirs),), ((_, ours),) = lines(fig, "rope, published"), lines(fig, "rope, ours")
    assert theirs[0] == ours[0] == 1.0 and ours == pytest.approx([math.exp(0.2 * n) for n in range(4)])
    assert theirs[4] == pytest.approx(21.37 / 20.07)  # 512, 552, 612, 712, 1012
    assert lines(fig, "t5, published") and not lines(fig, "t5, ours")


def test_every_figure_has_a_title_and_titled_axes(whole):
    found = every_figure(whole)
    assert len(found) == 8  # the maps of two lengths are two
    for fig in found:
        assert fig.title and fig.x_title and fig.y_title


# -- looks
# --------------------------------------------------------------------------------------------------------------------


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
    assert len({style(run, results).colour for run in results["runs"]}) == 13
    assert len(set(COLOURS)) == len(COLOURS)


def looks(results):
    """Everything but the name."""
    found = [style(run, results) for run in results["runs"]]
    return [(one.colour, one.dash, one.mark, one.hollow) for one in found]


def test_beyond_the_colours_marks_differ(made):
    results = made(encodings=tuple(f"e{n}" for n in range(40)), seeds=(0,))
    assert len(set(looks(results))) == 40


def test_strategies_share_their_encoding_s_colour_and_differ_in_dashes(made):
    names = ("base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope")
    results = made(encodings=("nope", "rope"), strategies=names, seeds=(0,))
    rope = [style(run, results) for run in results["runs"] if run["encoding"] == "rope"]
    assert len({one.colour for one in rope}) == 1 and len({one.dash for one in rope}) == 8 and rope[0].dash == 0
    tuned = {**results["runs"][-1], "strategy": "rerope tuned", "tuned_steps": 5}
    again = style(tuned, results | {"runs": [*results["runs"], tuned]})
    assert (again.mark, again.hollow) == (rope[-1].mark, True) and not rope[-1].hollow


# -- the page ------------------------------------------------------------------------------------------------------

BAD = "<script>document.title='owned'</script>"
JSON = re.compile(r'<script type="application/json">(.*?)</script>', flags=re.DOTALL)


def test_a_name_with_a_script_in_it_is_only_words(made):
    failed = [{"encoding": BAD, "seed": 1, "why": BAD}]
    results = made(encodings=("nope", BAD), seeds=(0,), failed=failed, tasks={"recall": {BAD: 0.5}})
    results["provenance"]["protocol"]["text"]["source"] = BAD
    said = document(results).html()
    assert BAD not in said and said.count("&lt;script&gt;document.title") > 5
    data = JSON.findall(said)
    assert len(data) == 6 and all("<" not in one for one in data)
    assert any(BAD in json.loads(one).get("lines", {}) for one in data)


def test_no_text_in_a_figure_can_end_its_script():
    figure = Figure("lines", "t", "</script><b>", "y", [0, 1], lines={"</script><b>": [0.0, 1.0]})
    said = Document("t", sections=[Section("x", figures=[figure])]).html()
    assert "</script><b>" not in said and "\\u003c/script>\\u003cb>" in said


def test_a_page_asks_for_nothing_outside_itself(made):
    page = document(made()).html()
    assert "default-src 'none'" in page.split("</title>")[0]
    assert set(re.findall(r"https?://[^\s\"'<>]*", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_the_report_of_the_standard_run_weighs_little():
    page = document(shipped("lab")).html()
    assert len(page.encode()) <= 400_000
    assert "default-src 'none'" in page and not re.search(r'(?:src|href)="(?!data:|#)', page)


def grown(results, encodings, scaled, seeds):
    """The first seed's results repeated to so many encodings, of which ``scaled`` have strategies, each with so many
    seeds.
    """
    chance, models = random.Random(0), {}
    first = min(run["seed"] for run in results["runs"])
    for run in results["runs"]:
        if run["seed"] == first:
            models.setdefault(run["encoding"], []).append(run)
    helped = [runs for runs in models.values() if len(runs) > 1]
    alone = [runs for runs in models.values() if len(runs) == 1]
    chosen = [helped[n % len(helped)] for n in range(scaled)] + [
        alone[n % len(alone)] for n in range(encodings - scaled)
    ]
    runs, comparisons = [], []
    for number, several in enumerate(chosen):
        for seed in range(seeds):
            model = f"{several[0]['encoding']} number {number}" if number else "nope"
            around = chance.gauss(0, 0.01)
            for run in several:
                rows = [{**row, "loss": row["loss"] and row["loss"] + around} for row in run["loss_by_length"]]
                runs.append({**run, "encoding": model, "seed": seed, "loss_by_length": rows})
            name = several[0]["encoding"]
            of = [row for row in results["comparisons"] if row["encoding"] == name and row["seed"] == first]
            comparisons += [{**row, "encoding": model, "seed": seed} for row in of]
    costs = {"rows": {run["encoding"]: {"train": 1.2345, "read": 1.5} for run in runs}, "about": "made up"}
    return {**results, "runs": runs, "comparisons": comparisons, "costs": costs}


def test_a_table_of_32_encodings_and_three_seeds_weighs_little_and_can_be_read():
    results = grown(shipped("lab"), encodings=32, scaled=8, seeds=3)
    assert len(results["runs"]) > 250
    said = document(results)
    assert len(said.html().encode()) <= 400_000
    overview, by_length, *_ = said.sections
    (table,) = overview.tables
    assert len(table.rows) == 32 and table.head[-3:] == ["training", "reading 512", "a token"]
    assert table.rows[0][2] == "3" and table.rows[0][-3:] == ["1.23", "1.50", "not measured"]
    (figure,) = by_length.figures
    assert len(figure.lines) == 32 and not any("seed" in line for line in figure.lines)
    strategies = next(section for section in said.sections if section.title == "Strategies")
    assert len(strategies.figures) == 8 and all(len(figure.y_names) == 7 for figure in strategies.figures)


def test_merged_seeds_have_their_mean_and_the_ends_of_all_intervals(made):
    results = made()
    few, many = lab_figures.by_length(results), lab_figures.by_length(merged(results))
    (x, first), (_, second) = lines(few, "alibi")
    ((same, mean),) = lines(many, "alibi")
    assert same == x and mean == pytest.approx([(a + b) / 2 for a, b in zip(first, second, strict=True)])
    ends, (around,) = bands(few, "alibi"), bands(many, "alibi")
    assert around == [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(*ends, strict=True)]
    (alone,), (both,) = lab_figures.strategies(merged(results)), lab_figures.strategies(results)
    for line, values in alone.lines.items():
        seeds = [both.lines[f"{line}, seed {seed}"] for seed in (0, 1)]
        assert values == pytest.approx([(a + b) / 2 for a, b in zip(*seeds, strict=True)])


def test_a_run_with_nothing_finished_still_has_a_page(made):
    results = made(encodings=(), missing=[{"encoding": "rope", "seed": 0, "data": "text"}])
    said = document(results).html()
    assert "No trial has been finished yet." in said and "not run yet" in said
    assert "No trial has been finished yet." in document(results).markdown()
