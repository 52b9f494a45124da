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
        self.page.on("console", lambda message: self.said.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.resolve().as_uri())
        if figures:
            self.until("document.querySelectorAll('.js-plotly-plot').length > 0")
        self.until("[...document.querySelectorAll('.js-plotly-plot')].every(one => one.querySelector('svg.main-svg'))")

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
        """Of each figure, how many lines, points, bars or heat maps there are to see."""
        marks = ".scatterlayer .trace, .heatmaplayer image, .barlayer .trace"
        return self.ask(f"[...document.querySelectorAll('.js-plotly-plot')].map(one => one.querySelectorAll('{marks}').length)")

    def visible(self, section):
        """The labels that a section's first figure shows."""
        code = f"[...new Set(document.querySelector('#{section} .figure').data.filter(t => t.visible !== false && t.name).map(t => t.meta.label))]"
        return self.ask(code)

    def check(self):
        """Nothing wrong, nothing fetched, and no need to scroll sideways."""
        assert self.said == []
        assert self.asked and all(url.startswith(("file://", "data:", "blob:")) for url in self.asked)
        assert len([url for url in self.asked if url.startswith("file://")]) == 1
        assert self.ask("document.documentElement.scrollWidth <= window.innerWidth")
