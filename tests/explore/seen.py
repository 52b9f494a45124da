"""The explorer in a real browser, with all that it complained of or asked for."""

from pathlib import Path

import pytest

PHONE, DESK = 400, 1280
FIGURES = "[...document.querySelectorAll('.drawing svg')].map(one => one.outerHTML)"
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
CUT = (Path(__file__).parents[1] / "cut.js").read_text()


class Seen:
    """A page of the explorer."""

    def __init__(self, browser, served, query="", width=DESK, scheme="light", **more):
        self.served = served
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True, **more
        )
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on(
            "console", lambda message: self.said.append(message.text) if message.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(served + query)
        self.ready()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()

    def ask(self, code):
        return self.page.evaluate(code)

    def until(self, code):
        """Wait until it is so. (Playwright's own waiting evaluates text inside the page, which its policy forbids.)"""
        for _ in range(400):
            if self.ask(code):
                return
            self.page.wait_for_timeout(25)
        pytest.fail(f"after 10 seconds it is not so that {code}; the page said {self.said}")

    def ready(self):
        """Wait until what is shown is what was asked for."""
        self.until("document.body.dataset.ready === 'yes'")

    def figures(self):
        """The drawings, as text."""
        return self.ask(FIGURES)

    def press(self, what, *keys):
        """Keys on an element, and what comes of it."""
        place = self.page.locator(what).first
        place.focus()
        for key in keys:
            place.press(key)
        self.ready()

    def trouble(self):
        """What the page refuses, or nothing."""
        return self.ask(
            "document.getElementById('trouble').hidden ? '' : document.getElementById('trouble').textContent"
        )

    def check(self):
        """Nothing wrong, nothing from elsewhere, and no need to scroll sideways."""
        assert self.said == []
        assert self.asked and all(url.startswith((self.served, "data:", "blob:")) for url in self.asked)
        assert self.ask("document.documentElement.scrollWidth <= window.innerWidth")
