"""An inspection as tables: in the terminal, as report.md, as report.html, and as a fragment for notebooks. Layers alike share a row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.report.folder import save_folder
from milepost.report.tables import plain

Part = tuple[str, list[str], list[list[str]]]
"""A title, a head and rows."""
SLOPES = 4
"""Slopes that are written out; with more, the first and the last."""


def parts(data: dict[str, Any]) -> list[Part]:
    """What is known, as tables; those that have nothing to say are left out."""
    made = [_model(data), _lengths(data), _layers(data), _tables(data), _sources(data), _at_target(data), _weights(data), _found(data)]
    return [part for part in made if part[2]]


def _model(data: dict[str, Any]) -> Part:
    enters = ", ".join(data["where"]) or ("nowhere" if data["known"] else "not known")
    rows = [["family", data["family"] + ("" if data["known"] else " (unknown to milepost)")], ["position enters", enters], ["read from", data["form"]]]
    return data["model"], ["", ""], rows


def _lengths(data: dict[str, Any]) -> Part:
    rows = []
    for name in ("trained", "scaled", "served"):
        one = data[name]
        rows.append([name, "" if one["tokens"] is None else str(one["tokens"]), one["source"]])
    return "lengths", ["length", "tokens", "from"], rows


def _layers(data: dict[str, Any]) -> Part:
    """Neighbouring columns that no layer fills are left out."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for layer in data["layers"]:
        shown = _cells(layer)
        groups.setdefault((layer["stack"], *shown.values()), []).append(layer)
    names = list(_cells(data["layers"][0])) if data["layers"] else []
    rows = [[_numbers([layer["layer"] for layer in some]), *map(str, key)] for key, some in groups.items()]
    head = ["layers", "stack", *names]
    keep = [n for n in range(len(head)) if any(row[n] for row in rows)]
    return "layers", [head[n] for n in keep], [[row[n] for n in keep] for row in rows]


def _cells(layer: dict[str, Any]) -> dict[str, str]:
    turned = "" if layer["rotary"] is None else f"{layer['rotary']} of {layer['head_dim']}"
    window = "" if layer["window"] is None else str(layer["window"]) + (f", shifted by {layer['shift']}" if layer["shift"] else "")
    buckets = "" if layer["buckets"] is None else str(layer["buckets"])
    if layer["max_distance"] is not None:
        buckets += f" to distance {layer['max_distance']}" + (", both sides" if layer["both_sides"] else "")
    return {
        "scheme": layer["scheme"],
        "kind": layer["kind"],
        "window": window,
        "pairs": layer["pairing"] or "",
        "channels turned": turned,
        "base": "" if layer["base"] is None else f"{layer['base']:.10g}",
        "scaling": _cut(layer["scaling"] or "", 90),
        "logits x": "" if layer["temperature"] is None else f"{layer['temperature']:.6g}",
        "slopes": _slopes(layer["slopes"]),
        "buckets": buckets.strip(),
        "relative rows": "" if layer["rows"] is None else str(layer["rows"]),
    }


def _slopes(slopes: Any) -> str:
    if slopes is None:
        return ""
    some = list(slopes) if len(slopes) <= SLOPES else [*slopes[:2], None, slopes[-1]]
    return ", ".join("..." if slope is None else f"{slope:.4g}" for slope in some) + f" ({len(slopes)} heads)"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _numbers(numbers: list[int]) -> str:
    """``0-4, 6`` for 0, 1, 2, 3, 4, 6; with a step where there is one: ``0-10 by 2``."""
    if len(numbers) > 2:
        step = numbers[1] - numbers[0]
        if step > 1 and numbers == list(range(numbers[0], numbers[-1] + 1, step)):
            return f"{numbers[0]}-{numbers[-1]} by {step}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _tables(data: dict[str, Any]) -> Part:
    rows = []
    for one in data["tables"]:
        grid = "" if one["grid"] is None else f"{one['grid'][0]} x {one['grid'][1]} patches, {one['prefix']} before"
        sizes = [str(one["rows"]), str(one["usable"]), str(one["offset"]), str(one["width"] or ""), grid]
        rows.append([one["tensor"] or "learned positions", *sizes, one["source"]])
    return "learned positions, added to the embedding", ["table", "rows", "usable", "offset", "width", "grid", "from"], rows


def _at_target(data: dict[str, Any]) -> Part:
    title = "at the length that is served" if data["target"] is None else f"at {data['target']} tokens"
    rows = [[sentence, ""] for sentence in data["at_target"]]
    for one in data["analysis"]:
        if one["unseen_pairs"]:
            rows.append([f"pairs that meet angles never seen{'' if one['kind'] == 'all' else ' in ' + one['kind']}", _numbers(list(one["unseen_pairs"]))])
    return title, ["", ""], rows


def _weights(data: dict[str, Any]) -> Part:
    told = data["weights"]
    if told is None:
        return "", [], []
    rows = [[one["sentence"]] for one in told["tables"]] + [[one["sentence"]] for one in told["buckets"]]
    if told["read"] and not rows and not told["frequencies"]:
        rows.append([f"{len(told['read'])} tensors were read, and nothing in them is out of line"])
    rows += [[note] for note in (*told["notes"], told["word"]) if note and [note] not in rows]
    return "what the tensors say", [""], rows


def _sources(data: dict[str, Any]) -> Part:
    rows = [[name, source] for name, source in data["sources"].items() if name not in ("trained", "scaled", "served")]
    return "where values come from", ["", ""], rows


def _found(data: dict[str, Any]) -> Part:
    return "what could be read", ["", ""], [[key, value] for key, value in data["found"].items()]


def left(data: dict[str, Any]) -> list[str]:
    """The warnings that no table shows."""
    shown = {cell for _, _, rows in (_at_target(data), _weights(data)) for row in rows for cell in row}
    return [warning for warning in data["warnings"] if warning not in shown]


# -- drawn -------------------------------------------------------------------------------------------------------------------------


def terminal(data: dict[str, Any]) -> Iterator[Table | Text]:
    """Tables and warnings."""
    for title, head, rows in parts(data):
        if any(head):
            yield plain(head, rows, title=title)
        else:
            yield Text(title, "italic")
            for row in rows:
                yield Text("  " + ": ".join(cell for cell in row if cell))
        yield Text("")
    for warning in left(data):
        yield Text(f"warning: {warning}", "yellow")


def markdown(data: dict[str, Any]) -> str:
    """report.md."""
    lines = [f"# Positions of {data['model']}", ""]
    for title, head, rows in parts(data):
        lines += [f"## {title}", "", "| " + " | ".join(map(_cell, head)) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows] + [""]
    if left(data):
        lines += ["## Warnings", "", *[f"- {_cell(warning)}" for warning in left(data)], ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_FRAGMENT = """{% for title, head, rows in parts %}<h3>{{ title }}</h3><div class="wide"><table>
{%- if head | select | list %}<thead><tr>{% for cell in head %}<th>{{ cell }}</th>{% endfor %}</tr></thead>{% endif %}<tbody>
{%- for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</tbody></table></div>
{% endfor %}{% if warnings %}<h3>Warnings</h3><ul>{% for warning in warnings %}<li>{{ warning }}</li>{% endfor %}</ul>{% endif %}"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>inspect {{ model }} · milepost</title><style>
:root { --ink: #1c1c1c; --paper: #fff; --line: #d4d4d8; color-scheme: light dark }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e7ea; --paper: #16161a; --line: #3f3f46 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 0 auto; padding: 1rem; color: var(--ink); background: var(--paper) }
.wide { overflow-x: auto } table { border-collapse: collapse } th, td { text-align: left; vertical-align: top; padding: .3rem .7rem;
border-bottom: 1px solid var(--line) } h1, h3, td, li { overflow-wrap: anywhere } .figure { background: #fff }
</style>{% if plotly %}<script>{{ plotly | safe }}</script>{% endif %}</head><body>
<h1>Positions of {{ model }}</h1>{{ body | safe }}{% if figure %}<h3>turns of each pair</h3><div class="figure">{{ figure | safe }}</div>{% endif %}
</body></html>
"""


def fragment(data: dict[str, Any]) -> str:
    """The tables as HTML, for a notebook."""
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(_FRAGMENT).render(parts=parts(data), warnings=left(data))


def page(data: dict[str, Any]) -> str:
    """report.html, self-contained; with a figure where layers turn."""
    from jinja2 import Environment

    drawn, script = "", ""
    if data["analysis"]:
        from plotly.offline import get_plotlyjs

        from milepost.report.portrait import CONFIG
        from milepost.report.rope import figure

        drawn, script = figure(data["analysis"]).to_html(include_plotlyjs=False, full_html=False, config=CONFIG), get_plotlyjs()
    return Environment(autoescape=True).from_string(_PAGE).render(model=data["model"], body=fragment(data), figure=drawn, plotly=script)


def save(data: dict[str, Any], out: Path) -> Path:
    """Write report.html, report.md and inspection.json into ``out``: all three, or nothing."""
    return save_folder(out, "inspection", data, markdown(data), page(data))
