"""A page in a real browser, with all that it complained of or asked for."""

from pathlib import Path

import pytest

PHONE, DESK = 400, 1200
CUT = (Path(__file__).parents[1] / "cut.js").read_text()
OWNED = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


class Opened:
    """A page in the browser, with all that it complained of or asked for."""

    def __init__(self, browser, file, width=DESK, scheme="light", figures=True):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on(
            "console", lambda message: self.said.append(message.text) if message.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.resolve().as_uri())
        if figures:
            self.until("document.querySelectorAll('.figure svg').length > 0")
        self.until("[...document.querySelectorAll('.drawing')].every(one => one.onpointermove)")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()

    def count(self, what):
        return self.page.locator(what).count()

    def ask(self, code):
        return self.page.evaluate(code)

    def until(self, code):
        """Wait until it is so. (Playwright's own waiting evaluates text inside the page, which the page forbids.)"""
        for _ in range(200):
            if self.ask(code):
                return
            self.page.wait_for_timeout(50)
        pytest.fail(f"after 10 seconds it is not so that {code}; the page said {self.said}")

    def drawn(self):
        """Of each figure, how many lines and bands, or points, or maps there are to see."""
        lines, others = (
            ".band, [data-label] > path[stroke-width]:not([fill])",
            "[data-label] circle, [data-label] path, image",
        )
        code = """([lines, others]) => [...document.querySelectorAll('.figure')].filter(one => one.checkVisibility()).map(one => {
            const seen = marks => [...one.querySelectorAll(marks)].filter(mark => mark.getClientRects().length).length;
            return seen(lines) || seen(others); })"""
        return self.page.evaluate(code, [lines, others])

    def visible(self, section, figure=0):
        """The labels that a section's figure shows: of its lines, or of the map that was chosen."""
        code = """([section, at]) => {
            const box = document.getElementById(section), list = box.querySelector('select');
            const figure = [...box.querySelectorAll('.figure')].filter(one => one.checkVisibility())[at];
            if (list) return JSON.parse(figure.querySelector('script').textContent).alternatives.map(map => map.label).filter(label => label === list.value);
            const shown = [...figure.querySelectorAll('[data-label]')].filter(one => one.getClientRects().length);
            return [...new Set(shown.map(one => one.dataset.label))]; }"""
        return self.page.evaluate(code, [section, figure])

    def ink(self):
        """The colour of the words of a drawing."""
        return self.ask("getComputedStyle(document.querySelector('.figure svg text')).fill")

    def check(self):
        """Nothing wrong, nothing fetched, and no need to scroll sideways."""
        assert self.said == []
        assert self.asked and all(url.startswith(("file://", "data:", "blob:")) for url in self.asked)
        assert len([url for url in self.asked if url.startswith("file://")]) == 1
        assert self.ask("document.documentElement.scrollWidth <= window.innerWidth")
