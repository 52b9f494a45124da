"""The page of the claims as a template: one file that works offline, on a phone, in both colour schemes, and forbids itself to fetch anything."""

from __future__ import annotations

from milepost.report.lab_page import _STYLE


def template() -> str:
    """The page, for jinja2 with autoescape."""
    return _PAGE.replace("STYLE", _STYLE + _MORE).replace("SCRIPT", _SCRIPT)


_MORE = """
section { border-top: 1px solid var(--line); padding-top: .6rem } section h3 { margin: .6rem 0 .2rem } [hidden] { display: none }
.zh { color: var(--dim) } .verdict { font-weight: 700 } .holds { color: var(--good) } .fails { color: var(--bad) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .4rem 0 } dt { color: var(--dim) } dd { margin: 0 }
@media (max-width: 600px) { dl { display: block } dt { margin-top: .4rem } }
.chips button[aria-pressed=false] { opacity: 1; text-decoration: none } .chips button[aria-pressed=true] { background: var(--ink); color: var(--paper) }
.chips { position: sticky; top: 0; background: var(--paper); padding: .4rem 0; z-index: 2 }
.figure { min-height: 0 } .figure svg { max-width: 100%; height: auto } .halo { stroke: var(--paper); stroke-width: 4px; paint-order: stroke }
section, .group { scroll-margin-top: 4rem } .toc ul { columns: 16rem; padding-left: 1.2rem; margin: .3rem 0 1rem }
"""

_SCRIPT = """
const buttons = [...document.querySelectorAll(".chips button")];
function show(word) {
  for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.verdict === word);
  for (const one of document.querySelectorAll("[data-is]")) one.hidden = word !== "all" && one.dataset.is !== word;
  for (const group of document.querySelectorAll(".group, .toc > div"))
    group.hidden = ![...group.querySelectorAll("[data-is]")].some(one => !one.hidden);
}
for (const button of buttons) button.addEventListener("click", () => show(button.dataset.verdict));
show("all");
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<title>Claims of the notes, measured · milepost</title><style>STYLE</style></head><body>
{%- set kinds = {"holds": "holds", "holds with a limit": "holds", "fails": "fails", "not decided here": "note"} %}
<h1>Claims of the notes, measured</h1>
<p>What is said of positional encodings, and what comes out when it is tried. A verdict follows from the measurement by the rule beside it.</p>
<p class="answer">{{ answer }}</p>
<div class="chips" role="group" aria-label="Claims of one verdict"><button type="button" data-verdict="all">all ({{ total }})</button>
{%- for word, count in counts.items() if count %}<button type="button" data-verdict="{{ word }}">{{ word }} ({{ count }})</button>{% endfor %}</div>
<nav class="toc" aria-label="Contents" style="display: block">{% for title, rows in groups.items() %}<div><b>{{ title }}</b><ul>
{%- for row in rows %}<li data-is="{{ row.verdict }}"><a href="#{{ row.id }}">{{ row.id }}</a>:
<span class="{{ kinds[row.verdict] }}">{{ row.verdict }}</span></li>{% endfor %}</ul></div>{% endfor %}</nav>
{% for title, rows in groups.items() %}<div class="group"><h2>{{ title }}</h2>
{% for row in rows %}<section id="{{ row.id }}" data-is="{{ row.verdict }}"><h3><a href="#{{ row.id }}">{{ row.id }}</a>
<span class="verdict {{ kinds[row.verdict] }}">{{ row.verdict }}</span></h3>
<p>{{ row.statement }}</p><p class="zh" lang="zh">{{ row.statement_zh }}</p>
<dl><dt>source</dt><dd>{{ row.source }}</dd><dt>experiment ({{ row.kind }})</dt><dd>{{ row.experiment }}</dd><dt>evidence</dt><dd>{{ row.evidence }}</dd>
<dt>rule</dt><dd>{{ row.rule }}</dd></dl>
{% if row.drawn %}<div class="figures">{% for figure in row.drawn %}<div class="figure">{{ figure | safe }}</div>{% endfor %}</div>{% endif %}
<details><summary>the rule, clause by clause</summary><div class="wide" tabindex="0"><table><thead><tr>
{%- for cell in row.clause_rows[0] %}<th>{{ cell }}</th>{% endfor %}</tr></thead><tbody>
{%- for cells in row.clause_rows[1] %}<tr>
{%- for cell in cells %}<td{% if cell | length > 50 %} class="long"{% endif %}>{{ cell }}</td>{% endfor %}</tr>{% endfor -%}
</tbody></table></div></details></section>{% endfor %}</div>{% endfor %}
<h2>Protocol and provenance</h2><div class="wide" tabindex="0"><table class="words"><tbody>
{%- for key, value in facts %}<tr><td>{{ key }}</td><td>{{ value }}</td></tr>{% endfor %}</tbody></table></div>
<script>SCRIPT</script></body></html>
"""
