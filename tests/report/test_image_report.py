"""The reports of image and signal labs: answers, tables and pictures say what the results hold, in a real browser
too.
"""

import copy
import json

import pytest
from made_images import images, signals
from opened import DESK, OWNED, PHONE, Opened

from milepost.draw.svg.colours import shade
from milepost.draw.svg.heat import scale
from milepost.lab import report as lab_any
from milepost.lab.report import image, image_answer, image_figures, image_tables, signal
from milepost.lab.report import read as lab_read


def put(results, folder):
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def test_a_notebook_shows_images_by_size_and_signals_as_a_table(tmp_path):
    shown = lab_any.load(put(images(), tmp_path))._repr_html_()
    assert shown.count("<svg") == 1 and "Right answers, trained at 8 x 12" in shown and shown.count("<table>") == 1
    assert all(f">{word}<" in shown for word in ("axial, linear", "16 x 24", "4 x 6"))
    figure = image_figures.mean_by_size(images())
    assert figure.x_names == ("4 x 6", "8 x 12", "16 x 24")
    assert figure.lines["axial"] == pytest.approx([0.755, 0.955, 0.755])  # 0.95, and 0.2 less elsewhere; two seeds
    assert figure.lines["learned"] == [pytest.approx(0.605), pytest.approx(0.905), None]
    other = lab_any.document(signals("eeg", ("nope", OWNED))).fragment()
    assert "<svg" not in other and other.count("<table>") == 1 and "<img" not in other


# -- words
# --------------------------------------------------------------------------------------------------------------------


def test_the_answer_says_who_is_right_there_and_elsewhere():
    said = image_answer.answer(images())
    assert said == (
        "At the trained 8 x 12 pixels axial is right most often (95.5% of 100 test images) and nope least (40.5%). "
        "Over 2 other sizes, 4 x 6 to 16 x 24, axial, linear is right most often (90.5%, -5.0 points) and nope is "
        "right least often (40.5%, +0.0 points); "
        "learned can't be used at all of them, because its table ends."
    )


def test_the_answer_of_little_says_little():
    assert image_answer.answer(images(encodings=())) == "No trial has been finished yet."
    assert image_answer.answer(images(sizes=((8, 12),))).endswith("Other sizes were not tested.")
    assert image_answer.answer(images(sizes=((4, 6),))).startswith("The trained 8 x 12 pixels were not tested.")
    alone = image_answer.answer(images(encodings=("learned",)))
    assert (
        "learned is right most often (90.5% of 100 test images). Over 2 other sizes, 4 x 6 to 16 x 24, nothing is "
        "known; learned can't" in alone
    )


def test_notes_warn_of_one_seed_of_what_is_missing_and_of_twins():
    said = image_answer.notes(images(seeds=(0,), missing=[{"encoding": "mixed", "seed": 0}]))
    assert said[0] == "Trials without numbers: 1 not run yet. The end of this page names them." and said[1].startswith(
        "One seed"
    )
    assert "learned and grid are one model at the trained size" in said[2]
    assert image_answer.notes(images(encodings=("nope", "axial"))) == []


def test_tables_hold_means_seeds_and_paired_differences():
    head, rows = image_tables.size_table(images())
    assert head == ["encoding", "4 x 6 (0.5x)", "8 x 12 (1x)", "16 x 24 (2x)"]
    assert rows[0] == ["nope", "40.5% (+0.0)", "40.5%", "40.5% (+0.0)"] and rows[1] == [
        "learned",
        "60.5% (-30.0)",
        "90.5%",
        "table ends",
    ]
    assert rows[4] == ["axial, linear", "90.5% (-5.0)", "95.5%", "90.5% (-5.0)"]
    assert image_tables.seed_table(images())[1][6] == [
        "learned",
        "1",
        "61.0% [56.0%, 66.0%]",
        "91.0% [86.0%, 96.0%]",
        "table ends",
    ]
    assert image_tables.comparison_table(images(), "learned")[1][0] == [
        "axial",
        "0",
        "+50.0 [+40.0, +60.0]",
        "+50.0 [+40.0, +60.0]",
        "not measured",
    ]
    assert image_tables.loss_table(images())[1][1] == ["learned", "1.395", "1.095", "table ends"]


def test_the_figure_has_a_line_and_a_band_for_each_seed_and_marks_the_trained_size():
    fig = image_figures.by_size(images())
    assert len(fig.lines) == 10 and all(fig.sides_of(line) for line in fig.lines)
    learned = next(line for line in fig.lines if fig.style(line).label == "learned")
    assert fig.x_of(learned) == [4, 8] and fig.lines[learned] == [0.9 - 0.3, 0.9]
    assert fig.marks[0].at == 8 and fig.x_names == ("4 x 6", "8 x 12", "16 x 24") and fig.percent
    tall = image_figures.by_size(images(sizes=((6, 4), (12, 8)), trained=(12, 8)))
    assert tall.x == [4, 8] and tall.marks[0].at == 8


def test_maps_are_of_each_encoding_with_rows_as_rows():
    found = image_figures.maps(images())
    assert len(found) == 8 and [figure.view for figure in found[:2]] == list(image_figures.VIEWS)
    alone, attention = found[:2]
    for figure, cell, value in ((alone, (3, 5), -abs(8 - 23) / 10), (attention, (0, 4), (8 + 4) / 100)):
        chosen = next(map for map in figure.alternatives if map.label == "row 1, column 2")
        assert chosen.cell == (1, 2) and chosen.z[cell[0]][cell[1]] == value
    assert len(alone.z) == 4 and len(alone.z[0]) == 6
    assert alone.cell == alone.alternatives[0].cell == (2, 3) and alone.z == alone.alternatives[0].z  # the middle first


def test_the_markdown_has_every_table(tmp_path):
    written = lab_any.save(images(failed=[{"encoding": OWNED, "seed": 0, "data": "image", "why": "a | b"}]), tmp_path)
    text = written[1].read_text()
    assert text.startswith(f"# {image.TITLE}\n") and "| grid | 80.5% (-10.0) | 90.5% | 80.5% (-10.0) |" in text
    assert (
        "## Failed or missing" in text
        and "a \\| b" in text
        and "<img" not in text
        and "sha256 abababababababab" in text
    )


# -- reading
# ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "results", [images(), signals(), signals("eeg", ("nope", "axial(axes=4)"))], ids=["image", "video", "eeg"]
)
def test_what_was_written_is_read_and_drawn_from_results_alone(results, tmp_path):
    home = put(results, tmp_path / "run")
    assert lab_any.load(home) == results
    assert [file.name for file in lab_any.save(lab_any.load(home), home)] == ["report.html", "report.md"]


def test_a_run_on_images_is_not_taken_for_one_on_text(tmp_path):
    home = put(images(), tmp_path / "run")
    with pytest.raises(
        ValueError,
        match=r"another modality than text \(image\): `milepost report` draws it, and only runs on text are compared",
    ):
        lab_read.load(home)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("provenance", "protocol", "images"), "images is missing"),
        (("provenance", "protocol", "plan", "sizes"), "plan.sizes is missing"),
        (("runs", 0, "seed"), r"runs\[0\]\.seed is missing"),
        (("runs", 0, "accuracy_by_size", 0, "grid"), "accuracy_by_size wants rows with size, grid, accuracy"),
        (("runs", 0, "similarity", "maps"), r"similarity\.maps is missing"),
        (("schema",), "has schema None"),
    ],
)
def test_results_that_are_not_whole_are_said(tmp_path, path, said):
    results = copy.deepcopy(images())
    here = results
    for step in path[:-1]:
        here = here[step]
    del here[path[-1]]
    with pytest.raises(ValueError, match=said):
        lab_any.load(put(results, tmp_path / "run"))


# -- signals
# ------------------------------------------------------------------------------------------------------------------


def test_the_answer_on_signals_says_which_axes_are_known_and_what_a_move_changes():
    said = signal.answer(signals())
    assert said == (
        "nope knows the order on no axis (12.5% of signals told right, chance 12.5%); axial(axes=3) knows the order "
        "on all 3 axes (90.0% of signals told "
        "right, chance 12.5%). To move a signal by 1,048,576 places along any axis changes a logit by 1e-12 at most, "
        "rounding of float64; to move half of it, "
        "by 0.5 at least."
    )
    some = signals(encodings=("axial(axes=3)",))
    some["runs"][0]["by_axis"][1]["learned"] = False
    assert "knows the order on frame and column (" in signal.answer(some)
    assert signal.answer(signals(encodings=())) == "No trial has been finished yet."


def test_the_table_of_axes():
    head, rows = signal.axis_table(signals())
    assert head[:4] == ["encoding", "seed", "axis", "right"] and len(rows) == 6
    assert rows[3] == [
        "axial(axes=3)",
        "0",
        "frame",
        "97.0% [95.0%, 99.0%]",
        "95.0% [93.0%, 97.0%]",
        "1.0%",
        "1.0e-12",
        "5.0e-01",
        "learned",
    ]


# -- in a browser
# -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    lost = [{"encoding": OWNED, "seed": 1, "data": "image", "why": OWNED}]
    return lab_any.save(
        images(encodings=("nope", "learned", "grid", "axial", OWNED), failed=lost), tmp_path_factory.mktemp("images")
    )[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_draws_everything_in_both_schemes_at_any_width(chromium, report, width, scheme):
    with Opened(chromium, report, width, scheme) as seen:
        seen.check()
        marks = seen.drawn()
        assert len(marks) == 6 and all(marks)
        titles = seen.ask("[...document.querySelectorAll('section h2')].map(one => one.textContent)")
        assert titles == ["Accuracy by size", "Similarity maps", "Cost", "Failed or missing", "Protocol and provenance"]
        assert seen.page.title() == f"{image.TITLE} · milepost" and seen.count("img[src=x]") == 0


def shown(seen):
    """What each map shows: its pixel at row 3, column 5, where the frame is, and its title."""
    code = """async () => {
        const found = [];
        for (const figure of document.querySelectorAll('#part-1 .figure')) {
            const svg = [...figure.querySelectorAll('svg')].find(one => one.getClientRects().length);
            if (!svg) continue;
            const image = svg.querySelector('.map'), framed = svg.querySelector('.framed'), canvas = document.createElement('canvas');
            const picture = new Image();
            picture.src = image.getAttribute('href');
            await picture.decode();
            canvas.width = 6; canvas.height = 4;
            const context = canvas.getContext('2d');
            context.drawImage(picture, 0, 0);
            const at = name => framed.getAttribute(name) - image.getAttribute(name), wide = framed.getAttribute('width');
            const pixel = [...context.getImageData(5, 3, 1, 1).data.slice(0, 3)];
            found.push([pixel, Math.round(at('y') / framed.getAttribute('height')), Math.round(at('x') / wide), svg.getAttribute('aria-label')]);
        }
        return found; }"""
    return [(tuple(pixel), row, column, title) for pixel, row, column, title in seen.ask(code)]


def colour(figure, value):
    """The colour of a number in a figure, near enough."""
    low, high, colours = scale(figure)
    return shade((value - low) / (high - low), colours)


def near(found, wanted):
    return all(max(abs(a - b) for a, b in zip(pixel, wanted, strict=True)) <= 4 for pixel in found)


def test_a_patch_and_a_view_are_chosen_for_all_maps_at_once(chromium, report):
    alone, attention = image_figures.maps(images(encodings=("nope", "learned", "grid", "axial", OWNED)))[:2]
    with Opened(chromium, report) as seen:
        first = shown(seen)
        assert len(first) == 5 and {(row, column) for _, row, column, _ in first} == {(2, 3)}
        assert near([pixel for pixel, *_ in first], colour(alone, -abs(15 - 23) / 10))
        seen.page.select_option("#part-1 select >> nth=0", "row 1, column 2")
        after = shown(seen)
        assert {(row, column) for _, row, column, _ in after} == {(1, 2)}
        assert near([pixel for pixel, *_ in after], colour(alone, -1.5))
        seen.page.select_option("#part-1 select >> nth=1", "attention of the trained model")
        after = shown(seen)
        assert len(after) == 5 and all("attention of the trained model" in title for *_, title in after)
        assert near([pixel for pixel, *_ in after], colour(attention, (8 + 23) / 100))
        seen.check()


def test_a_click_on_a_patch_chooses_it(chromium, report):
    with Opened(chromium, report) as seen:
        place = seen.page.locator("#part-1 .figure image:visible").first
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        x, y = box["x"] + box["width"] * 0.5 / 6, box["y"] + box["height"] * 3.5 / 4  # column 0, row 3
        seen.page.mouse.move(x, y)
        seen.page.mouse.click(x, y)
        seen.until("document.querySelector('#part-1 select').selectedOptions[0].textContent === 'row 3, column 0'")
        assert {(row, column) for _, row, column, _ in shown(seen)} == {(3, 0)}


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_of_signals(chromium, tmp_path, width):
    with Opened(chromium, lab_any.save(signals("eeg", ("nope", "axial(axes=4)", OWNED)), tmp_path)[0], width) as seen:
        seen.check()
        assert len(seen.drawn()) == 2 and all(seen.drawn()) and seen.count("img[src=x]") == 0
