"""The page of the claims in a real browser."""

import gzip
from pathlib import Path

import pytest
from opened import CUT, DESK, OWNED, PHONE, Opened

from milepost.claims import report
from milepost.claims.judge import document, judge

SHIPPED = Path(__file__).parents[2] / "docs" / "claims" / "claims.html"
IDS = ["rope-sign", "rope-norm", "sin-dot", "alibi-weights-linear", "alice-bob"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    rows = judge(IDS)
    rows[0] |= {"statement": OWNED, "evidence": OWNED}
    rows[0]["figures"][0] |= {"title": OWNED}
    return report.save(document(rows), tmp_path_factory.mktemp("claims"))


def shown(seen):
    return seen.ask(
        "[...document.querySelectorAll('section[data-is]')].filter(one => one.offsetParent !== null).map(one => one.id)"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_every_figure_is_drawn_in_the_ink_of_the_page(chromium, page, width, scheme):
    with Opened(chromium, page, width, scheme, figures=False) as seen:
        marks = seen.drawn()
        assert len(marks) == seen.count(".figure") == 4 and all(marks)
        assert seen.ask(
            "[...document.querySelectorAll('.figure svg')].every(one => one.getBoundingClientRect().right <= "
            "window.innerWidth)"
        )
        seen.check()
        assert seen.ink() == ("rgb(231, 231, 234)" if scheme == "dark" else "rgb(28, 28, 28)")


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_no_word_of_the_shipped_figures_is_cut_off(chromium, width):
    with Opened(chromium, SHIPPED, width, figures=False) as seen:
        found = seen.ask(CUT)
        assert found["looked"] > 500 and found["cut"] == []


def test_each_claim_has_all_that_was_asked_for(chromium, page):
    with Opened(chromium, page, figures=False) as seen:
        words = seen.ask("document.querySelector('#sin-dot').textContent")
        for part in (
            "PE(i)·PE(j) is a function of i - j alone.",
            "只是 i - j 的函数",
            "002 §1",
            "experiment (exact)",
            "evidence",
            "rule",
            "The claim holds if",
            "holds with a limit",
        ):
            assert part in words
        assert seen.ask("[...document.querySelectorAll('nav a')].map(one => one.textContent)") == [
            "alice-bob",
            "sin-dot",
            "alibi-weights-linear",
            "rope-sign",
            "rope-norm",
        ]


def test_buttons_show_the_claims_of_one_verdict(chromium, page):
    with Opened(chromium, page, figures=False) as seen:
        assert len(shown(seen)) == 5
        seen.page.get_by_role("button", name="fails (2)").click()
        assert shown(seen) == ["alibi-weights-linear", "rope-sign"]
        assert seen.ask("document.querySelector('[data-status=fails]').getAttribute('aria-pressed')") == "true"
        seen.page.get_by_role("button", name="not decided here (1)").click()
        assert shown(seen) == ["alice-bob"]
        seen.page.get_by_role("button", name="all (5)").click()
        assert len(shown(seen)) == 5
        seen.check()


def test_a_link_leads_to_its_claim(chromium, page):
    with Opened(chromium, page, figures=False) as seen:
        seen.page.locator("nav a", has_text="rope-norm").click()
        assert seen.ask("location.hash") == "#rope-norm"
        seen.check()


def test_words_of_results_are_words(chromium, page):
    with Opened(chromium, page, figures=False) as seen:
        assert seen.page.title() == "Claims of the notes, measured · milepost"
        assert seen.count("img[src=x]") == 0 and OWNED in seen.ask("document.querySelector('#rope-sign').textContent")


def test_the_page_weighs_little(page):
    assert len(gzip.compress(page.read_bytes())) < 3 * 2**20


def test_a_threshold_is_drawn_and_what_a_logarithm_has_no_place_for_is_a_gap():
    data = {
        "kind": "points",
        "title": "t",
        "x_title": "",
        "y_title": "nats",
        "x": ["a", "b"],
        "lines": {"m": [0.0, 1.0]},
        "low": {"m": [-1.0, 0.5]},
    }
    data |= {"high": {"m": [0.5, 2.0]}, "log_x": False, "log_y": True, "mark": 0.1}
    drawn = report.figure(data)
    assert (drawn.lines, drawn.sides, drawn.marks[0].at) == ({"m": [None, 1.0]}, {"m": [(None, 0.5), (0.5, 2.0)]}, 0.1)
    assert report.figure({**data, "mark": 0.0}).marks == () and report.figure({**data, "log_y": False}).lines == {
        "m": [0.0, 1.0]
    }
    lines = report.figure({**data, "kind": "lines", "x": [1, 2], "log_y": False})
    assert (lines.kind, lines.x, lines.marks[0].axis) == ("lines", [1, 2], "y")
