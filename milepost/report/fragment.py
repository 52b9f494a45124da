"""Fragments: pictures and tables as HTML for a notebook. No script and no style sheet; words take the notebook's own ink."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.report.figure import Figure
from milepost.report.svg import draw

WIDE = 460
"""Pixels of one picture."""


def pictures(title: str, figures: Sequence[Figure], sentences: Sequence[str], pages: Sequence[dict[str, str]]) -> str:
    """Drawings in a row that wraps, with what they say, and formulas with their references."""
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(_PICTURES).render(title=title, drawn=[draw(one, WIDE) for one in figures], sentences=sentences, pages=pages)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """A table with its title above it and notes below."""
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(_TABLE).render(title=title, head=head, rows=rows, notes=notes)


_PICTURES = """<div>{% if title %}<p><code>{{ title }}</code></p>{% endif %}
{%- for sentence in sentences %}<p>{{ sentence }}</p>{% endfor %}
{%- if drawn %}<div style="display: flex; flex-wrap: wrap; gap: 16px">{% for one in drawn %}<div>{{ one | safe }}</div>{% endfor %}</div>{% endif %}
{%- for page in pages %}<details><summary>{{ page.title }}</summary><pre>{{ page.formula }}</pre><p>{{ page.reference }}</p></details>{% endfor %}</div>"""

_TABLE = """<table><caption>{{ title }}</caption><thead><tr>{% for cell in head %}<th>{{ cell }}</th>{% endfor %}</tr></thead><tbody>
{%- for row in rows %}<tr>{% for cell in row %}<td style="text-align: left">{{ cell }}</td>{% endfor %}</tr>{% endfor -%}
</tbody></table>{% for note in notes %}<p>{{ note }}</p>{% endfor %}"""
