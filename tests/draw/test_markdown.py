"""Words of foreign files in a report's Markdown are words: no link, no image, no HTML; what we mean as code is code."""

import pytest
from markdown_it import MarkdownIt

from milepost.draw.markdown import table, words

FOREIGN = [
    "[click](http://evil)", "![seen](http://evil/a.png)", "[click][evil]", "[evil]: http://evil", "[![a](b)](http://evil)",
    "<a href='http://evil'>x</a>", "<http://evil>", "`[click](http://evil)``", "``a`[click](http://evil)``b`",
    "a `code` [click](http://evil)", "[a\n](http://evil)", "[click] (x) [click](http://evil 'title')",
]  # fmt: skip


@pytest.mark.parametrize("text", FOREIGN)
def test_links_and_images_of_foreign_text_are_shown_as_text(text):
    for made in (words(text), table(["a", "b"], [[text, "1"]])):
        shown = MarkdownIt("commonmark").enable("table").render(made)
        assert "<a " not in shown and "<img" not in shown and "evil" in shown


def test_intervals_and_code_stay_as_they_are():
    assert words("3.9 [3.8, 4.0] `rope(a=[1](2))`") == "3.9 [3.8, 4.0] `rope(a=[1](2))`"


@pytest.mark.parametrize("text", ["http://evil", "HTTPS://evil/a.png", "see www.evil.org", "`a` ftp://evil"])
def test_addresses_are_not_what_github_makes_links_of(text):
    """It makes a link of http://x and www.x as they stand, unless their sign is escaped; what is shown stays the same."""
    made = words(text)
    assert "://" not in made.replace("\\://", "") and "www." not in made
    assert MarkdownIt("commonmark").renderInline(made) == MarkdownIt("commonmark").renderInline(text)
