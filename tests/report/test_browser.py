"""Pages opened in a real browser: every figure drawn, no error, no request that leaves the page, both colour
schemes, a phone's width.
"""

import json

import pytest
from opened import DESK, OWNED, PHONE, Opened
from typer.testing import CliRunner

from milepost.cli import app
from milepost.lab import report as lab
from milepost.lab.report.read import joined


@pytest.fixture(scope="module")
def report(made, tmp_path_factory):
    results = made(
        encodings=("nope", "learned", "alibi", "rope", OWNED),
        tasks={"recall": {"rope": 0.5, "nope": 2.1}, "index": {"rope": 0.7}},
        failed=[{"encoding": OWNED, "seed": 1, "data": "text", "why": OWNED}],
        missing=[{"encoding": "shaw", "seed": 0, "data": "text"}],
    )
    folder = tmp_path_factory.mktemp("report")
    return lab.save(results, folder)[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_lab_s_report_draws_everything_in_both_schemes_at_any_width(chromium, report, width, scheme):
    with Opened(chromium, report, width, scheme) as seen:
        seen.check()
        marks = seen.drawn()
        assert len(marks) == 7 and all(marks)
        titles = seen.ask("[...document.querySelectorAll('section h2')].map(one => one.textContent)")
        assert titles == [
            "Loss by length",
            "Loss by position",
            "Strategies",
            "How far heads look",
            "Tasks",
            "Published patterns",
            "Cost",
            "Beside what was published",
            "Failed or missing",
            "Protocol and provenance",
        ]
        dark = scheme == "dark"
        assert seen.ask("getComputedStyle(document.body).backgroundColor") == (
            "rgb(22, 22, 26)" if dark else "rgb(255, 255, 255)"
        )
        assert seen.ink() == ("rgb(231, 231, 234)" if dark else "rgb(28, 28, 28)")


def test_a_figure_follows_when_the_scheme_changes(chromium, report):
    with Opened(chromium, report) as seen:
        seen.page.emulate_media(color_scheme="dark")
        seen.until("getComputedStyle(document.querySelector('.figure svg text')).fill === 'rgb(231, 231, 234)'")
        seen.check()


def test_names_from_results_are_words_and_nothing_else(chromium, report):
    with Opened(chromium, report) as seen:
        assert seen.page.title() == "Train short, test long · milepost"
        assert seen.count("img[src=x]") == 0
        assert OWNED in seen.ask("document.querySelector('#part-0 .chips').textContent")
        assert OWNED in seen.ask("document.querySelector('#part-8 table').textContent")


def test_a_click_on_a_name_hides_its_lines_and_another_shows_them(chromium, report):
    with Opened(chromium, report) as seen:
        before, lines = seen.visible("part-0"), seen.drawn()[0]
        button = seen.page.locator("#part-0 .chips button", has_text="alibi")
        button.click()
        assert set(before) - set(seen.visible("part-0")) == {"alibi"}
        assert (
            button.get_attribute("aria-pressed") == "false" and seen.drawn()[0] == lines - 4
        )  # two seeds, each a line and a band
        button.click()
        assert seen.visible("part-0") == before and seen.drawn()[0] == lines
        assert seen.visible("part-1") == before


def test_a_double_click_shows_one_alone(chromium, report):
    with Opened(chromium, report) as seen:
        seen.page.locator("#part-0 .chips button", has_text="rope, yarn").dblclick()
        assert seen.visible("part-0") == ["rope, yarn"]


def test_buttons_show_all_none_one_kind_and_the_intervals(chromium, report):
    with Opened(chromium, report, PHONE) as seen:
        everything = seen.visible("part-0")

        def press(words):
            seen.page.get_by_role("button", name=words, exact=True).first.click()

        press("strategies only")
        assert seen.visible("part-0") == ["rope, linear", "rope, yarn"]
        press("encodings only")
        assert seen.visible("part-0") == ["nope", "learned", "alibi", "rope", OWNED]
        press("none")
        assert seen.visible("part-0") == [] and seen.drawn()[0] == 0
        press("all")
        assert seen.visible("part-0") == everything
        lines = seen.drawn()[0]
        press("intervals")
        assert seen.visible("part-0") == everything and seen.drawn()[0] == lines // 2
        seen.check()


def test_one_name_hides_its_line_in_the_figures_of_every_task(chromium, report):
    with Opened(chromium, report) as seen:
        seen.page.locator("#part-4 .chips button", has_text="rope").click()
        assert [seen.visible("part-4", figure) for figure in (0, 1)] == [["chance"], ["nope", "chance"]]


def test_the_heat_map_of_another_encoding_is_chosen_from_a_list(chromium, report):
    with Opened(chromium, report) as seen:
        assert seen.visible("part-3") == ["nope, 128 tokens, seed 0"]
        image = (
            "[...document.querySelectorAll('#part-3 image')].find(one => "
            "one.getClientRects().length).getAttribute('href')"
        )
        first = seen.ask(image)
        seen.page.select_option("#part-3 select", "alibi, 128 tokens, seed 1")
        assert seen.visible("part-3") == ["alibi, 128 tokens, seed 1"] and seen.ask(image) != first
        seen.page.select_option("#part-3 select", "alibi, 16 tokens, seed 1")
        assert seen.visible("part-3") == ["alibi, 16 tokens, seed 1"]
        assert len(seen.drawn()) == 7 and seen.drawn()[3] == 1


def test_wide_tables_scroll_inside_their_box(chromium, report):
    with Opened(chromium, report, PHONE) as seen:
        boxes = seen.ask(
            "[...document.querySelectorAll('.scroll')].filter(b => b.offsetParent).map(b => [b.scrollWidth, "
            "b.clientWidth])"
        )
        assert any(inner > outer for inner, outer in boxes) and all(outer <= PHONE for _, outer in boxes)
        for fold in seen.page.locator("summary").all():
            fold.click()
        seen.check()


def test_a_comparison_of_two_runs_is_drawn(made, chromium, tmp_path):
    both = joined({"runs/a": made(), "runs/b": made(encodings=("rope", "sinusoidal"))})
    with Opened(chromium, lab.save(both, tmp_path)[0], PHONE) as seen:
        seen.check()
        assert all(seen.drawn()) and {"rope (a)", "rope (b)", "sinusoidal"} <= set(seen.visible("part-0"))


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_of_show(chromium, tmp_path, width):
    done = CliRunner().invoke(app, ["show", "alibi", "--out", str(tmp_path / "alibi.html"), "--length", "64"])
    assert done.exit_code == 0, done.output
    with Opened(chromium, tmp_path / "alibi.html", width) as seen:
        seen.check()
        assert seen.drawn() and all(seen.drawn())


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_of_spec(chromium, tmp_path, width):
    config = {
        "model_type": "llama",
        "head_dim": 64,
        "num_hidden_layers": 2,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "hidden_size": 256,
        "num_attention_heads": 4,
    }
    words = [
        "spec",
        json.dumps(config),
        "--target-length",
        "16k",
        "--rope-scaling",
        "yarn",
        "--out",
        str(tmp_path / "spec.html"),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    with Opened(chromium, tmp_path / "spec.html", width) as seen:
        seen.check()
        assert seen.drawn() and all(seen.drawn())


# -- the numbers under the pointer ---------------------------------------------------------------------------------


def under(seen, section, across, down):
    """What is said at a place of the plot of a section's figure, as shares of its width and height."""
    place = seen.page.locator(f"#{section} .figure:not([hidden]) .drawing:visible").first
    place.scroll_into_view_if_needed()
    code = """([section, across, down]) => {
        const svg = [...document.querySelectorAll(`#${section} .drawing svg`)].find(one => one.getClientRects().length);
        const box = svg.getBoundingClientRect(), by = box.width / svg.viewBox.baseVal.width, d = svg.dataset;
        return [box.left + by * (+d.left + across * d.width), box.top + by * (+d.top + down * d.height)]; }"""
    seen.page.mouse.move(*seen.page.evaluate(code, [section, across, down]))
    return place.locator(".cursor").text_content()


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_pointer_names_the_numbers_of_lines_points_and_maps(chromium, report, width):
    with Opened(chromium, report, width) as seen:
        words = under(seen, "part-0", 0.99, 0.99)
        assert words.startswith("tokens of context (log scale) 128\n") and words.count("\n") == 1, (
            "of many lines, the nearest"
        )
        seen.page.locator("#part-0 .chips button", has_text="none").click()
        for name in ("alibi", "rope, yarn"):
            seen.page.locator("#part-0 .chips button", has_text=name).click()
        first, *words = under(seen, "part-0", 0.01, 0.5).splitlines()
        said = ["alibi, seed 0: 2.4", "alibi, seed 1: 2.41", "rope, yarn, seed 0: 2.3", "rope, yarn, seed 1: 2.31"]
        assert first == "tokens of context (log scale) 16" and sorted(words) == said
        words = under(seen, "part-2", 0.5, 0.9)
        assert words.startswith("rope, yarn\n") and "at 128, seed 0: 0.36 (0.33 to 0.38)" in words
        words = under(seen, "part-3", 0.01, 0.01)
        assert words.startswith("tokens back 0\nlayer, head 0, 0\n5%\nmean distance ")
        seen.check()


def test_the_keyboard_reads_a_figure_aloud(chromium, report):
    with Opened(chromium, report) as seen:
        seen.page.locator("#part-4 .drawing:visible").first.focus()
        seen.page.keyboard.press("ArrowRight")
        seen.page.keyboard.press("ArrowRight")
        assert (
            seen.ask("document.getElementById('spoken').textContent") == "tokens (log scale) 32, rope: 0.7, chance: 2"
        )
        seen.page.keyboard.press("Escape")
        assert seen.page.locator("#part-4 .cursor:visible").count() == 0


def test_a_click_on_a_column_s_head_sorts_the_table(chromium, report):
    cells = """[...document.querySelectorAll('#part-0 table')].find(table => table.tHead.rows[0].cells[0].textContent ===
        'encoding').tBodies[0]"""
    column = f"[...{cells}.rows].map(row => row.cells[2].textContent)"
    with Opened(chromium, report) as seen:
        before = seen.ask(column)
        press = f"{cells}.previousElementSibling.rows[0].cells[2].querySelector('button').click()"
        seen.ask(press)
        up = seen.ask(column)
        ended = [cell for cell in before if not cell[0].isdigit()]
        numbers = sorted((cell for cell in before if cell[0].isdigit()), key=lambda cell: float(cell.split()[0]))
        assert ended and up == [*numbers, *ended]  # what is no number comes last
        seen.ask(press)
        assert seen.ask(column) == [*sorted(numbers, key=lambda cell: -float(cell.split()[0])), *ended]
        assert seen.ask("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"
        seen.check()
