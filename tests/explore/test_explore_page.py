"""The explorer in a real browser: every view drawn, sliders that move figures, links that restore them, two languages,
a keyboard, contrast."""

import json
import struct

import pytest
from seen import CONTRAST, CUT, DESK, PHONE, Seen

from milepost.explore.answer import answer
from milepost.explore.views import VIEWS
from milepost.explore.words import table

OWNED = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
NUMBERS = "#settings input[type=number]"
REACHED = """(() => {
  const used = document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]');
  const all = [...used].filter(one => one.getClientRects().length);
  all.forEach((one, n) => { one.dataset.tab = n; });
  return all.length;
})()"""
"""Numbers everything that a reader can use, and says how many there are."""
COUNTED = """() => {
  const real = window.fetch;
  window.under_way = 0; window.most = 0; window.sent = [];
  window.fetch = async address => {
    window.most = Math.max(window.most, ++window.under_way); window.sent.push(String(address));
    const answer = await real(address); await answer.clone().text(); window.under_way -= 1;
    return answer;
  };
  const range = document.querySelector("#settings input[type=range]");
  for (let n = 20; n < 100; n += 1) { range.value = n; range.dispatchEvent(new Event("input")); }
  range.dispatchEvent(new Event("change"));
}"""
"""Moves a slider by eighty steps at once, and counts what is asked for."""
LINKS = (
    "?view=nothing",
    "?view=code&length=0",
    "?view=code&a=ropee",
    "?view=code&b=(((",
    "?view=clocks&leangth=3",
    "?lang=fr",
    "?view=<script>",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn_at_any_width_in_both_schemes_with_contrast(chromium, served, view, width, scheme):
    with Seen(chromium, served, f"?view={view}", width, scheme) as seen:
        seen.check()
        assert (
            seen.ask("document.querySelector('h1').textContent") == table("en")[f"page.view.{view}"]
            and not seen.trouble()
        )
        figures = seen.figures()
        assert len(figures) == len(answer(view, {})["figures"]) and all(
            "<path" in one or "<image" in one for one in figures
        )
        assert seen.ask(
            "[...document.querySelectorAll('details pre')].every(one => one.textContent.trim())"
        ) and seen.ask("document.querySelector('.reference').textContent")
        assert seen.ask(
            "[...document.querySelectorAll('.drawing svg')].every(one => one.getBoundingClientRect().right <= "
            "innerWidth + 1)"
        )
        sizes = seen.ask(
            "[...document.querySelectorAll('.drawing svg')].map(one => [one.width.baseVal.value, "
            "one.getBoundingClientRect().width])"
        )
        assert all(
            drawn == pytest.approx(shown, abs=1) for drawn, shown in sizes
        )  # words are as large as they were meant to be
        assert seen.ask("getComputedStyle(document.body).backgroundColor") == (
            "rgb(22, 22, 26)" if scheme == "dark" else "rgb(255, 255, 255)"
        )
        found = seen.ask(CONTRAST)
        assert found["looked"] > 30 and found["poor"] == []
        found = seen.ask(CUT)
        assert found["looked"] > 5 and found["cut"] == []


@pytest.mark.parametrize(
    "view", [view for view, made in VIEWS.items() if any(c.kind == "number" for c in made.CONTROLS)]
)
def test_a_slider_of_the_view_changes_the_figure_and_the_address(chromium, served, view):
    with Seen(chromium, served, f"?view={view}") as seen:
        before, address = seen.figures(), seen.page.url
        seen.press("#settings input[type=range]", "PageUp")
        assert seen.figures() != before and seen.page.url != address
        seen.check()


@pytest.mark.parametrize(
    ("view", "label"),
    [
        ("code", "base"),
        ("distance", "head_dim"),
        ("clocks", "base"),
        ("slopes", "heads"),
        ("buckets", "buckets"),
        ("scalings", "head_dim"),
        ("plane", "base"),
    ],
)
def test_a_slider_of_the_encoding_changes_the_figure_and_its_spec(chromium, served, view, label):
    with Seen(chromium, served, f"?view={view}") as seen:
        before, spec = seen.figures(), seen.page.locator("#spec-0").input_value()
        box = seen.page.locator(".parameters .control").filter(has=seen.page.locator("code", has_text=label)).first
        box.locator("input[type=range]").press("PageUp")
        seen.ready()
        after = seen.page.locator("#spec-0").input_value()
        assert seen.figures() != before and spec != after and f"{label}=" in after
        number = box.locator("input[type=number]").input_value()
        assert f"{label}={number}" in after.replace(".0", "")
        seen.check()


def test_a_list_and_a_typed_spec_set_the_same_thing(chromium, served):
    with Seen(chromium, served, "?view=code") as seen:
        seen.page.select_option("#encoding-0", "rope")
        seen.ready()
        listed = seen.figures()
        seen.page.fill("#spec-0", "rope(pairing='interleaved') + alibi")
        seen.page.locator("#spec-0").press("Enter")
        seen.ready()
        typed = seen.figures()
        assert len(typed) == 2 and typed != listed and seen.page.locator("#encoding-0").input_value() == ""
        assert (
            seen.ask("[...document.querySelectorAll('.parameters code')].map(one => one.textContent)").count(
                "alibi.heads"
            )
            == 1
        )
        seen.page.fill("#spec-0", "rope")
        seen.page.locator("#spec-0").press("Enter")
        seen.ready()
        assert seen.figures() == listed and seen.page.locator("#encoding-0").input_value() == "rope"
        seen.check()


def test_a_link_restores_the_whole_state(chromium, served):
    with Seen(chromium, served, "?view=clocks") as seen:
        seen.page.fill(f"{NUMBERS} >> nth=0", "1000")
        seen.page.locator(f"{NUMBERS} >> nth=0").press("Enter")
        seen.ready()
        seen.page.check("#compare")
        seen.ready()
        seen.page.fill("#spec-1", "rope(base=500000.0, scaling=yarn(factor=8.0, trained=1000))")
        seen.page.locator("#spec-1").press("Enter")
        seen.ready()
        seen.page.click("#language")
        seen.until("document.documentElement.lang === 'zh-CN'")
        seen.ready()
        link, figures, sentence = (
            seen.page.url,
            seen.figures(),
            seen.ask("[...document.querySelectorAll('.sentence')].map(one => one.textContent)"),
        )
        assert len(figures) == 4
        seen.check()
    with Seen(chromium, served, link.removeprefix(served)) as again:
        assert (
            again.figures() == figures
            and again.ask("[...document.querySelectorAll('.sentence')].map(one => one.textContent)") == sentence
        )
        assert (
            again.page.locator(f"{NUMBERS} >> nth=0").input_value() == "1000"
            and again.page.locator("#compare").is_checked()
        )
        assert "yarn(factor=8.0" in again.page.locator("#spec-1").input_value() and again.page.url == link
        again.check()


def test_going_back_restores_what_was_there(chromium, served):
    with Seen(chromium, served, "?view=distance&a=alibi&lang=en") as seen:
        first, figures = seen.page.url, seen.figures()
        seen.page.select_option("#encoding-0", "t5")
        seen.ready()
        seen.page.click("nav >> text=Clocks")
        seen.ready()
        assert seen.ask("document.querySelector('h1').textContent") == "Clocks"
        seen.page.go_back()
        seen.until("document.querySelector('h1').textContent === 'By distance'")
        seen.ready()
        assert seen.page.locator("#encoding-0").input_value() == "t5"
        seen.page.go_back()
        seen.until("document.getElementById('encoding-0').value === 'alibi'")
        seen.ready()
        assert seen.figures() == figures and seen.page.url == first
        seen.check()


def test_going_back_undoes_one_move_of_a_slider(chromium, served):
    with Seen(chromium, served, "?view=code&a=sinusoidal&length=50&lang=en") as seen:
        figures = seen.figures()
        seen.ask(COUNTED)  # eighty steps, one move
        seen.ready()
        assert "length=99" in seen.page.url
        seen.page.go_back()
        seen.until("document.querySelector('#settings input[type=number]').value === '50'")
        seen.ready()
        assert seen.figures() == figures and "length=50" in seen.page.url
        seen.page.go_forward()
        seen.until("document.querySelector('#settings input[type=number]').value === '99'")
        seen.check()


def test_what_is_typed_while_an_answer_is_on_its_way_is_not_lost(chromium, served):
    with Seen(chromium, served, "?view=code&a=rope&lang=en") as seen:
        seen.ask("""() => { const field = document.getElementById('spec-0'); field.focus();
          for (const text of ['rop', 'alibi', 'kerple', 't5']) {
            field.value = text; field.dispatchEvent(new Event('input'));
          } }""")
        seen.ready()
        assert seen.page.locator("#spec-0").input_value() == "t5" and "a=t5" in seen.page.url and not seen.trouble()


def test_a_rope_goes_along_to_the_next_view_of_ropes(chromium, served):
    with Seen(chromium, served, "?view=clocks&a=rope(base%3D500.0)") as seen:
        seen.page.click("nav >> text=Scalings")
        seen.ready()
        assert seen.page.locator("#spec-0").input_value() == "rope(base=500.0)"
        seen.page.click("nav >> text=T5 buckets")
        seen.ready()
        assert seen.page.locator("#spec-0").input_value() == "t5" and not seen.trouble()


def test_the_other_language_is_everywhere_on_the_page(chromium, served):
    with Seen(chromium, served, "?view=scalings&lang=en") as seen:
        seen.page.click("#language")
        seen.until("document.documentElement.lang === 'zh-CN'")
        seen.ready()
        words, text = table("zh"), seen.ask("document.body.innerText")
        for key in (
            "page.lead",
            "page.view.scalings",
            "page.intro.scalings",
            "page.compare",
            "page.link",
            "page.formulas",
            "page.encoding",
            "scalings.method",
        ):
            assert words[key] in text, key
        english = [
            table("en")[key] for key in table("en") if key.startswith("page.") and table("en")[key] != words[key]
        ]
        lines = {line.strip() for line in text.splitlines()}
        assert not lines & set(english) - {"English"} and "lang=zh" in seen.page.url
        assert words["scalings.kept"] in "".join(seen.figures()) and seen.page.title().startswith(
            words["page.view.scalings"]
        )
        seen.check()


@pytest.mark.parametrize("view", VIEWS)
def test_no_word_of_a_figure_is_cut_off_in_chinese(chromium, served, view):
    with Seen(chromium, served, f"?view={view}&lang=zh", PHONE) as seen:
        found = seen.ask(CUT)
        assert found["looked"] > 5 and found["cut"] == []


def test_a_reader_of_chinese_begins_in_chinese(chromium, served):
    with Seen(chromium, served, locale="zh-CN") as seen:
        assert seen.ask("document.documentElement.lang") == "zh-CN"


def test_two_encodings_stand_side_by_side_and_each_has_its_own_sliders(chromium, served):
    with Seen(chromium, served, "?view=distance&a=rope&b=alibi") as seen:
        assert (
            seen.ask("[...document.querySelectorAll('.side')].map(one => one.getBoundingClientRect().top)").count(
                seen.ask("document.querySelector('.side').getBoundingClientRect().top")
            )
            == 2
        )
        left, right = seen.figures()
        seen.press(".side >> nth=1 >> .parameters input[type=range]", "PageUp")
        now = seen.figures()
        assert now[0] == left and now[1] != right
        seen.page.uncheck("#compare")
        seen.ready()
        assert seen.figures() != [left] and len(seen.figures()) == 1 and "b=" not in seen.page.url  # alone, it is wider
        seen.check()


# -- keyboard ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_everything_can_be_reached_with_the_tab_key_and_shows_it(chromium, served, view):
    with Seen(chromium, served, f"?view={view}&b={VIEWS[view].ENCODINGS[0]}") as seen:
        wanted = seen.ask(REACHED)
        met, plain = set(), []
        for _ in range(wanted + 5):
            seen.page.keyboard.press("Tab")
            number, outline = seen.ask(
                "[document.activeElement.dataset.tab ?? null, getComputedStyle(document.activeElement).outlineStyle]"
            )
            if number is not None:
                met.add(int(number))
                if outline == "none":
                    plain.append(number)
        assert met == set(range(wanted)) and plain == []


def test_the_arrow_keys_read_a_figure_out(chromium, served):
    with Seen(chromium, served, "?view=distance&a=alibi(heads%3D1%2C+slopes%3D(0.5%2C))&lang=en") as seen:
        seen.press(".drawing", "ArrowRight", "ArrowRight", "ArrowRight")
        assert seen.ask("document.getElementById('spoken').textContent") == "distance 2, head 0: -1"
        assert seen.ask("document.querySelector('.cursor').textContent") == "distance 2\nhead 0: -1"
        seen.press(".drawing", "Escape")
        assert seen.ask("document.querySelector('.cursor').hidden")


def test_the_pointer_finds_the_number_of_a_cell(chromium, served):
    with Seen(chromium, served, "?view=code&a=alibi(heads%3D1%2C+slopes%3D(0.5%2C))&length=8&lang=en") as seen:
        x, y = seen.ask(
            """(() => { const svg = document.querySelector('.drawing svg');
            const box = svg.getBoundingClientRect(), d = svg.dataset;
            return [box.left + +d.left + d.width * (2.5 / 8), box.top + +d.top + d.height * (5.5 / 8)] })()"""
        )
        seen.page.mouse.move(x, y)
        assert seen.ask("document.querySelector('.cursor').textContent") == "key position 2\nquery position 5\n-1.5"


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lang", "why"),
    [
        ("en", "trained is a number from 16 to 131072 here, got 1"),
        ("zh", "trained 在此页要填 16 到 131072 之间的数，收到的是 1"),
    ],
)
def test_a_number_out_of_range_is_said_and_the_last_good_figure_stays(chromium, served, lang, why):
    with Seen(chromium, served, f"?view=clocks&lang={lang}") as seen:
        before, address = seen.figures(), seen.page.url
        seen.page.fill(f"{NUMBERS} >> nth=0", "1")
        seen.page.locator(f"{NUMBERS} >> nth=0").press("Enter")
        seen.ready()
        assert why in seen.trouble() and table(lang)["page.kept"] in seen.trouble()
        assert seen.figures() == before and seen.page.url == address and seen.ask(CONTRAST)["poor"] == []
        seen.page.fill(f"{NUMBERS} >> nth=0", "64")
        seen.ready()
        assert not seen.trouble() and seen.figures() != before
        seen.check()


def test_a_spec_that_can_t_be_is_said_in_the_package_s_own_words(chromium, served):
    with Seen(chromium, served, "?view=code&a=rope&lang=en") as seen:
        before = seen.figures()
        seen.page.fill("#spec-0", "rope(head_dim=7)")
        seen.ready()
        assert (
            "the rotary size must be even, from 2 to head_dim=7, got 7" in seen.trouble() and seen.figures() == before
        )
        seen.page.fill("#spec-0", "rope(base=10")
        seen.ready()
        assert (
            "can't read the spec" in seen.trouble()
            and seen.figures() == before
            and "Traceback" not in seen.ask("document.body.innerText")
        )
        seen.page.click("#trouble button")
        seen.ready()
        assert not seen.trouble() and seen.page.locator("#spec-0").input_value() == "sinusoidal"
        seen.check()


def test_the_button_of_a_refusal_is_still_there_when_a_slow_finger_lets_go(chromium, served):
    with Seen(chromium, served, "?view=code&a=rope&lang=en") as seen:
        seen.page.fill("#spec-0", "rope(base=10")
        seen.ready()
        box = seen.page.locator("#trouble button").bounding_box()
        seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        seen.page.mouse.down()  # the text field is left, so the same spec is asked for, and refused, once more
        seen.ready()
        seen.page.mouse.up()
        seen.ready()
        assert not seen.trouble() and seen.page.locator("#spec-0").input_value() == "sinusoidal"


@pytest.mark.parametrize("query", LINKS)
def test_a_link_that_can_t_be_shown_says_why_and_offers_a_way_on(chromium, served, query):
    with Seen(chromium, served, query) as seen:
        assert table("en")["page.refused"] in seen.trouble() and "Traceback" not in seen.ask("document.body.innerText")
        seen.page.click("#trouble button")
        seen.ready()
        assert not seen.trouble() and seen.figures()
        seen.check()


def test_script_tags_in_typed_text_are_shown_as_text(chromium, served):
    with Seen(chromium, served, "?view=permute&lang=en") as seen:
        seen.page.fill("#settings input[type=text]", f"{OWNED} the end")
        seen.ready()
        assert not seen.trouble() and "document.title='owned'</script>" in seen.ask(
            "document.querySelector('.sentence').textContent"
        )
        assert seen.ask("document.querySelectorAll('.side script, .side img, svg script').length") == 0
        assert "owned" not in seen.page.title() and "<img" in seen.ask(
            "document.querySelector('.drawing svg').textContent"
        )
        seen.page.reload()
        seen.ready()
        assert "owned" not in seen.page.title()
        seen.page.fill("#spec-0", OWNED)
        seen.ready()
        assert (
            OWNED[:20] in seen.trouble()
            and seen.ask("document.querySelectorAll('#trouble img, #trouble script').length") == 0
        )
        seen.check()


def test_a_very_long_text_is_refused_with_its_limit(chromium, served):
    with Seen(chromium, served, "?view=permute&lang=en") as seen:
        before = seen.figures()
        limits = {
            "long " * 70: "2 to 24 words",
            "a" * 500: "at most 400 characters here, got 500",
            "字" * 30_000: "at most 8192 characters",
        }
        for text, words in limits.items():
            seen.page.fill("#settings input[type=text]", text)
            seen.until("document.body.dataset.ready === 'yes' && !document.getElementById('trouble').hidden")
            assert words in seen.trouble() and seen.figures() == before


def test_a_server_that_has_gone_is_said(chromium, served):
    with Seen(chromium, served, "?view=code&lang=en") as seen:
        before = seen.figures()
        seen.page.route("**/api/**", lambda route: route.abort())
        seen.press("#settings input[type=range]", "PageUp")
        assert table("en")["page.unreachable"] in seen.trouble() and seen.figures() == before


# -- work done, and files ----------------------------------------------------------------------------------------------


def test_a_first_visit_asks_for_little_and_draws_at_once(chromium, served):
    with Seen(chromium, served, "?view=code&lang=en") as seen:
        asked = [url.removeprefix(served).split("?")[0] for url in seen.asked]
        assert sorted(set(asked)) == sorted(
            ["", "page.css", "page.js", "controls.js", "figures.js", "icon.svg", "api/start", "api/code"]
        )
        assert asked.count("api/code") == 1


def test_while_a_slider_moves_one_request_is_under_way_and_the_last_state_is_shown(chromium, served):
    with Seen(chromium, served, "?view=code&lang=en") as seen:
        seen.ask(COUNTED)
        seen.ready()
        assert seen.ask("window.most") == 1 and len(seen.ask("window.sent")) == 2
        assert "length=99" in seen.ask("window.sent[1]") and "length=99" in seen.page.url
        assert seen.ask("document.querySelector('.sentence').textContent").endswith("99 positions.")
        seen.check()


def test_figures_download_as_png_svg_and_data(chromium, served, tmp_path):
    with Seen(chromium, served, "?view=distance&a=rope&length=64&lang=en") as seen:
        for word in ("PNG", "SVG", "CSV", "JSON"):
            with seen.page.expect_download() as waiting:
                seen.page.locator("figcaption").get_by_text(word, exact=True).click()
            done = waiting.value
            assert done.suggested_filename == f"milepost-distance-0.{word.lower()}"
            done.save_as(tmp_path / word)
        png = (tmp_path / "PNG").read_bytes()
        wide, tall = struct.unpack(">II", png[16:24])
        shown = seen.ask(
            "[document.querySelector('.drawing svg').width.baseVal.value, document.querySelector('.drawing "
            "svg').height.baseVal.value]"
        )
        assert (
            png[:8] == b"\x89PNG\r\n\x1a\n" and [wide, tall] == [2 * round(size) for size in shown] and len(png) > 5000
        )
        assert (tmp_path / "SVG").read_text().startswith("<svg xmlns") and (tmp_path / "CSV").read_text().startswith(
            "distance,ones with itself"
        )
        assert len(json.loads((tmp_path / "JSON").read_text())["x"]) == 64
        seen.check()


def test_the_link_button_copies_the_address(chromium, served):
    with Seen(chromium, served, "?view=clocks&lang=en") as seen:
        seen.context.grant_permissions(["clipboard-read", "clipboard-write"])
        seen.page.click("#link")
        seen.until("document.getElementById('link').textContent === 'Link copied'")
        assert seen.ask("navigator.clipboard.readText()") == seen.page.url


def test_a_figure_is_drawn_again_for_another_width(chromium, served):
    with Seen(chromium, served, "?view=code&lang=en") as seen:
        wide = seen.ask("document.querySelector('.drawing svg').width.baseVal.value")
        seen.page.set_viewport_size({"width": PHONE, "height": 800})
        seen.until(f"document.querySelector('.drawing svg').width.baseVal.value < {wide / 2}")
        seen.check()
