"""The page of a lab report: one file that works offline, on a phone, in both colour schemes.

Nothing is fetched: the page forbids itself to (its Content-Security-Policy). All words are escaped by the template, and figures travel
as JSON in which no "<" is left, so that no name can end a script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any


def page(title: str, question: str, answer: str, notes: Sequence[str], sections: Sequence[dict[str, Any]]) -> str:
    """A self-contained page of sections: a title, words, figures, a table, and more tables that fold away."""
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    shown = []
    for number, section in enumerate(sections):
        figures = [figure.to_json().replace("<", "\\u003c") for figure in section.get("figures", [])]
        tables = [("", *section["table"])] if "table" in section else []
        shown.append({**section, "id": f"part-{number}", "drawn": figures, "tables": tables, "more": section.get("more", [])})
    template = Environment(autoescape=True).from_string(_PAGE)
    return template.render(
        title=title, question=question, answer=answer, notes=notes, sections=shown, style=_STYLE, script=_SCRIPT, plotly=get_plotlyjs(), number=_is_number
    )


def _is_number(cell: str) -> bool:
    return (re.match(r"[+-]?\d", cell) is not None and re.search(r"[A-Za-z]{3}", cell) is None) or cell in ("not measured", "table ends", "")


_STYLE = """
:root { --ink: #1c1c1c; --dim: #5b5b66; --paper: #fff; --soft: #f4f4f5; --line: #d4d4d8; --good: #17633a; --bad: #b00020; color-scheme: light dark }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7e7ea; --dim: #a0a0ab; --paper: #16161a; --soft: #24242a; --line: #3f3f46; --good: #6ee7a0; --bad: #ff8a8a } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 0 auto; padding: 1rem; color: var(--ink); background: var(--paper);
  overflow-wrap: anywhere }
h1 { margin: .5rem 0; line-height: 1.2 } h2 { margin: 2.5rem 0 .3rem } p { margin: .4rem 0 .8rem; max-width: 46rem }
.answer { font-size: 1.15rem; background: var(--soft); padding: 1rem; border-radius: 8px; max-width: none }
.note { color: var(--dim) } nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: 1rem 0 } a { color: inherit }
.wide { overflow-x: auto; margin: .5rem 0 1rem; overflow-wrap: normal } table { border-collapse: collapse; font-size: .9rem }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left; white-space: nowrap; vertical-align: top }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper) }
th { font-weight: 600 } .n { text-align: right; font-variant-numeric: tabular-nums }
td.long { white-space: normal; min-width: 16rem } .words td + td { white-space: pre-wrap; min-width: 14rem }
summary { cursor: pointer; color: var(--dim) } .PASS { color: var(--good) } .FAIL, .WARN { color: var(--bad); font-weight: 700 }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 1rem } .figure { min-width: 0; min-height: 320px }
.chips { display: flex; flex-wrap: wrap; gap: .35rem; margin: .6rem 0 }
.chips button, .chips select { font: inherit; font-size: .85rem; color: inherit; background: var(--soft); border: 1px solid var(--line); border-radius: 999px;
  padding: .15rem .7rem; cursor: pointer; max-width: 100% }
.chips button[aria-pressed=false] { opacity: .45; text-decoration: line-through } .chips svg { vertical-align: middle; margin-right: .4rem }
.chips .some { border-radius: 6px; background: none }
"""

_SCRIPT = """
const scheme = matchMedia("(prefers-color-scheme: dark)");
const MANY = {encoding: "encodings only", strategy: "strategies only", published: "published only", ours: "ours only"};
const DASH = {solid: "", dash: "6 4", dot: "2 3", dashdot: "6 3 2 3", longdash: "10 4", longdashdot: "10 3 2 3"};

function colours(layout) {
  const ink = scheme.matches ? "#e7e7ea" : "#1c1c1c", grid = scheme.matches ? "#3f3f46" : "#e4e4e7", clear = "rgba(0,0,0,0)";
  const found = {paper_bgcolor: clear, plot_bgcolor: clear, "font.color": ink, "title.font.color": ink};
  for (const axis of Object.keys(layout).filter(key => /^[xy]axis/.test(key)))
    Object.assign(found, {[axis + ".gridcolor"]: grid, [axis + ".zerolinecolor"]: grid, [axis + ".linecolor"]: grid});
  return found;
}

function swatch(trace) {
  const paths = "http://www.w3.org/2000/svg", line = (trace.line || {}).color, dash = (trace.line || {}).dash || "solid";
  const drawing = document.createElementNS(paths, "svg"), stroke = document.createElementNS(paths, line ? "line" : "circle");
  const how = line ? {x1: 0, x2: 30, y1: 5, y2: 5, stroke: line, "stroke-width": 2.5, "stroke-dasharray": DASH[dash] ?? dash.replace(/px/g, "")}
                   : {cx: 15, cy: 5, r: 4, fill: (trace.marker || {}).color};
  for (const [key, value] of Object.entries({width: 30, height: 10, "aria-hidden": true})) drawing.setAttribute(key, value);
  for (const [key, value] of Object.entries(how)) stroke.setAttribute(key, value);
  drawing.append(stroke);
  return drawing;
}

// Buttons for the labels of a section's figures. A click shows or hides one; a double click shows it alone.
function chips(bar, places) {
  const labels = new Map();
  for (const place of places) for (const trace of place.data) if (trace.name) labels.set(trace.meta.label, labels.get(trace.meta.label) || trace);
  if (!labels.size) return;
  const hidden = new Set(), buttons = new Map(), bands = places.some(place => place.data.some(trace => trace.fill));
  let shaded = true;
  const show = keep => { hidden.clear(); for (const [label, trace] of labels) if (!keep(label, trace)) hidden.add(label); draw(); };
  function draw() {
    for (const [label, button] of buttons) button.setAttribute("aria-pressed", !hidden.has(label));
    for (const place of places) Plotly.restyle(place, {visible: place.data.map(trace => !hidden.has(trace.meta.label) && (shaded || !trace.fill))});
  }
  function add(text, act, some) {
    const button = document.createElement("button");
    button.type = "button"; button.append(text); button.addEventListener("click", act);
    if (some) button.className = "some";
    bar.append(button);
    return button;
  }
  add("all", () => show(() => true), true);
  add("none", () => show(() => false), true);
  const kinds = new Set([...labels.values()].map(trace => trace.meta.kind));
  if (kinds.size > 1) for (const kind of kinds) add(MANY[kind] || kind, () => show((label, trace) => trace.meta.kind === kind), true);
  if (bands) {
    const button = add("intervals", () => { shaded = !shaded; button.setAttribute("aria-pressed", shaded); draw(); }, true);
    button.setAttribute("aria-pressed", true);
  }
  for (const [label, trace] of labels) {
    const button = add(label, () => { hidden.has(label) ? hidden.delete(label) : hidden.add(label); draw(); });
    button.addEventListener("dblclick", () => show(other => other === label));
    button.prepend(swatch(trace)); button.setAttribute("aria-pressed", true); buttons.set(label, button);
  }
}

// A list to choose one label from.
function choice(bar, place) {
  const select = document.createElement("select");
  select.setAttribute("aria-label", "Which one to show");
  for (const trace of place.data) select.add(new Option(trace.meta.label));
  select.addEventListener("change", () => Plotly.restyle(place, {visible: place.data.map((_, n) => n === select.selectedIndex)}));
  bar.append(select);
}

// Lists to choose a patch and a kind of map from; a click on a patch chooses it too. All figures of the section follow.
function patches(bar, places) {
  const list = (words, options) => {
    const select = document.createElement("select");
    select.setAttribute("aria-label", words);
    for (const option of options) select.add(new Option(option));
    select.addEventListener("change", draw);
    bar.append(select);
    return select;
  };
  const {patches, views} = places[0].layout.meta;
  function draw() {
    const [row, column] = patches[patch.selectedIndex];
    for (const place of places) {
      const map = place.layout.meta.maps[view.selectedIndex] || place.layout.meta.maps[0];
      Plotly.restyle(place, {z: [map.z[patch.selectedIndex]], zmin: map.low, zmax: map.high, colorscale: [map.colours]}, [0]);
      Plotly.restyle(place, {x: [[column]], y: [[row]]}, [1]);
      Plotly.relayout(place, {"title.text": map.title});
    }
  }
  const patch = list("Which patch", patches.map(([row, column]) => `row ${row}, column ${column}`)), view = list("Which map", views);
  patch.selectedIndex = places[0].layout.meta.first;
  for (const place of places) place.on("plotly_click", event => {
    const {x, y} = event.points[0], found = patches.findIndex(([row, column]) => row === y && column === x);
    if (found >= 0) { patch.selectedIndex = found; draw(); }
  });
  draw();
}

const drawn = [];
for (const section of document.querySelectorAll("section")) {
  const places = [...section.querySelectorAll(".figure")];
  for (const place of places) {
    const figure = JSON.parse(document.getElementById(place.id + "-data").textContent);
    figure.layout.showlegend = false;
    if (matchMedia("(pointer: coarse)").matches) figure.layout.dragmode = false;
    Plotly.newPlot(place, figure.data, figure.layout, {responsive: true, displaylogo: false});
    Plotly.relayout(place, colours(figure.layout));
    drawn.push(place);
  }
  const bar = section.querySelector(".chips");
  const how = places.length ? (places[0].layout.meta || {}).choice : undefined;
  if (how === "one") choice(bar, places[0]);
  else if (how === "patch") patches(bar, places);
  else if (places.length) chips(bar, places);
}
scheme.addEventListener("change", () => drawn.forEach(place => Plotly.relayout(place, colours(place.layout))));
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<title>{{ title }} · milepost</title><style>{{ style | safe }}</style><script>{{ plotly | safe }}</script></head><body>
{%- macro table(head, rows) %}<div class="wide" tabindex="0"><table{% if not head[0] %} class="words"{% endif %}>
{%- if head[0] %}<thead><tr>
{%- for cell in head %}<th{% if rows and number(rows[0][loop.index0]) %} class="n"{% endif %}>{{ cell }}</th>{% endfor %}</tr></thead>
{%- endif %}<tbody>
{%- for row in rows %}<tr>{% for cell in row %}
{%- set kind = "n" if number(cell) and head[0] else cell if cell in ("PASS", "FAIL", "WARN") else "long" if cell | length > 50 else "" %}
<td{% if kind %} class="{{ kind }}"{% endif %}>{{ cell }}</td>{% endfor %}</tr>{% endfor -%}
</tbody></table></div>{% endmacro %}
<h1>{{ title }}</h1><p>{{ question }}</p><p class="answer">{{ answer }}</p>
{% for note in notes %}<p class="note">{{ note }}</p>{% endfor %}
<nav>{% for s in sections %}<a href="#{{ s.id }}">{{ s.title }}</a>{% endfor %}</nav>
{% for s in sections %}<section id="{{ s.id }}"><h2>{{ s.title }}</h2>{% if s.words %}<p>{{ s.words }}</p>{% endif %}
{% if s.drawn %}<div class="chips" role="group" aria-label="What to show"></div><div class="figures">
{%- for figure in s.drawn %}<div class="figure" id="{{ s.id }}-{{ loop.index0 }}"></div>{% endfor %}</div>
{%- for figure in s.drawn %}<script type="application/json" id="{{ s.id }}-{{ loop.index0 }}-data">{{ figure | safe }}</script>{% endfor %}{% endif %}
{% for _, head, rows in s.tables %}{{ table(head, rows) }}{% endfor %}
{% for words, head, rows in s.more %}<details><summary>{{ words }}</summary>{{ table(head, rows) }}</details>{% endfor %}
</section>{% endfor %}
<script>{{ script | safe }}</script></body></html>
"""
