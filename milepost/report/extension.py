"""What `milepost extend` did: in the terminal, as report.md and as report.html. From its data alone.

Loss before and after first, then what was changed, what was verified and how it was tuned.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.report.lab_page import page as whole_page
from milepost.report.tables import plain
from milepost.report.verification import summary as verified
from milepost.results import write, write_json

Part = tuple[str, list[str], list[list[str]]]
"""A title, a head and rows."""
LONGEST = 160
"""Characters of a value that are shown."""


def summary(data: dict[str, Any]) -> str:
    """One line: what was done."""
    named = f"{data['method']}, factor {data['factor']:g} from the trained {data['trained']} tokens"
    return f"{data['model']} for {data['target']} tokens instead of {data['served']}: {named}; weights {data['weights']}; written to {data['out']}"


def sentences(data: dict[str, Any]) -> list[str]:
    """What the losses say, and whether it is more than chance; then the verdict of verify."""
    said = []
    for row in data["losses"]:
        gap = row["difference"]
        if gap["value"] is None:
            said.append(f"With {row['length']} tokens of context the loss is no number: the model overflows there.")
            continue
        if gap["low"] is None:
            known = "of one window alone, so it is not known how sure that is"
        elif gap["low"] > 0 or gap["high"] < 0:
            known = f"95% between {gap['low']:+.4f} and {gap['high']:+.4f}"
        else:
            known = f"which may be chance: 95% between {gap['low']:+.4f} and {gap['high']:+.4f}"
        word = "more" if gap["value"] > 0 else "less"
        said.append(f"With {row['length']} tokens of context it loses {abs(gap['value']):.4f} nats a token {word} than before, {known}.")
    return [*said, verified(data["verification"]) + "."]


def parts(data: dict[str, Any]) -> list[Part]:
    """Every table that has rows."""
    made = [_losses(data), _lengths(data), _changed(data), _checks(data), _tuned(data)]
    return [(title, head, rows) for title, head, rows in made if rows]


def _losses(data: dict[str, Any]) -> Part:
    rows = []
    for row in data["losses"]:
        cells = [_interval(row[name], sign=name == "difference") for name in ("before", "after", "difference")]
        rows.append([str(row["length"]), *cells, f"{row['windows']} x {row['targets']}"])
    return "loss of the same last tokens, nats a token, with 95% intervals", ["context", "before", "after", "after - before", "windows x tokens"], rows


def _interval(mean: dict[str, Any], *, sign: bool) -> str:
    if mean["value"] is None:
        return "no number"
    form = "+.4f" if sign else ".4f"
    known = "" if mean["low"] is None else f" ({mean['low']:{form}} to {mean['high']:{form}})"
    return f"{mean['value']:{form}}{known}"


def _lengths(data: dict[str, Any]) -> Part:
    rows = [["served tokens", str(data["served"]), str(data["target"])]]
    for kind in data["scaling"]["after"]:
        name = "" if kind == "all" else f" of {kind} layers"
        rows.append([f"rotation{name}", data["scaling"]["before"].get(kind, ""), data["scaling"]["after"][kind]])
    for kind in data["unseen"]["after"]:
        counts = [str(len(data["unseen"][when].get(kind, []))) for when in ("before", "after")]
        rows.append([f"pairs that meet unseen angles at {data['target']}" + ("" if kind == "all" else f", {kind}"), *counts])
    return "positions", ["", "before", "after"], rows


def _changed(data: dict[str, Any]) -> Part:
    return "config.json", ["key", "before", "after"], [[key, _short(old), _short(new)] for key, (old, new) in data["changed"].items()]


def _short(value: Any) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _checks(data: dict[str, Any]) -> Part:
    rows = [[check["verdict"], check["name"], check["sentence"]] for check in data["verification"]["checks"] if check["verdict"] != "NONE"]
    return "verify", ["", "check", ""], rows


def _tuned(data: dict[str, Any]) -> Part:
    tuned = data["tuned"]
    if tuned is None:
        return "", [], []
    rows = [
        ["steps", f"{tuned['steps']}, of {tuned['windows_a_step']} windows of {tuned['length']} tokens each"],
        ["text", f"{tuned['windows']} windows of {tuned['text']['source']} (sha256 {tuned['text']['sha256'][:12]}), read {tuned['times_read']:g} times"],
        ["measured on", str(tuned["measured_on"]["source"])],
        ["rate", f"{tuned['rate']:g} after {tuned['warm_up']} steps of warm-up, seed {tuned['seed']}"],
        ["weights", "all" if tuned["lora"] is None else f"LoRA of rank {tuned['lora']['r']}, merged"],
        ["precision", tuned["mixed_precision"] or "float32"],
    ]
    if tuned["loss"]:
        first, last = tuned["loss"][0], tuned["loss"][-1]
        rows.append(["training loss", f"{first['loss']:.4f} at step {first['step']}, {last['loss']:.4f} at step {last['step']}"])
    return "tuning", ["", ""], rows


def notes(data: dict[str, Any]) -> list[str]:
    """What its reader should know."""
    left = [f"not copied: {name}" for name in data["left_out"]]
    return [*data["notes"], *left]


# -- drawn -------------------------------------------------------------------------------------------------------------------------


def terminal(data: dict[str, Any]) -> Iterator[Table | Text]:
    """Losses and positions, then one sentence for each thing found."""
    for title, head, rows in (_losses(data), _lengths(data), _tuned(data)):
        if rows:
            yield plain(head, rows, title=title)
            yield Text("")
    for note in notes(data):
        yield Text(f"note: {note}", "yellow")
    yield Text(summary(data), "bold")
    for sentence in sentences(data):
        yield Text(sentence, "bold red" if sentence.startswith("FAIL") else "")


def markdown(data: dict[str, Any]) -> str:
    """report.md."""
    lines = [f"# {data['model']} for {data['target']} tokens", "", summary(data), "", *[f"- {_cell(sentence)}" for sentence in sentences(data)], ""]
    for title, head, rows in parts(data):
        lines += [f"## {title}", "", "| " + " | ".join(map(_cell, head)) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows] + [""]
    if notes(data):
        lines += ["## Notes", "", *[f"- {_cell(note)}" for note in notes(data)], ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_FRAGMENT = """<p>{{ summary }}</p><ul>{% for sentence in sentences %}<li>{{ sentence }}</li>{% endfor %}</ul>
{% for title, head, rows in parts %}<h3>{{ title }}</h3><div class="wide"><table>
{%- if head | select | list %}<thead><tr>{% for cell in head %}<th scope="col">{{ cell }}</th>{% endfor %}</tr></thead>{% endif %}<tbody>
{%- for row in rows %}<tr>{% for cell in row %}<td{% if cell in ("PASS", "FAIL") %} class="{{ cell }}"{% endif %}>{{ cell }}</td>{% endfor %}</tr>{% endfor %}
</tbody></table></div>
{% endfor %}{% if notes %}<h3>Notes</h3><ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}"""


def fragment(data: dict[str, Any]) -> str:
    """The tables as HTML, for a notebook."""
    from jinja2 import Environment

    made = Environment(autoescape=True).from_string(_FRAGMENT)
    return made.render(summary=summary(data), sentences=sentences(data), parts=parts(data), notes=notes(data))


def page(data: dict[str, Any]) -> str:
    """report.html, self-contained."""
    about = data["provenance"]
    drawn = {_losses(data)[0]: [by_length(data)] if data["losses"] else [], "tuning": [training(data)] if data["tuned"] and data["tuned"]["loss"] else []}
    sections: list[dict[str, Any]] = [
        {"title": title.capitalize(), "words": "", "figures": drawn.get(title, []), "table": ([head[0] or ("" if not any(head) else "what"), *head[1:]], rows)}
        for title, head, rows in parts(data)
    ]
    told = [[key, str(value)] for key, value in {**about["protocol"], **{k: v for k, v in about.items() if k != "protocol"}}.items()]
    sections.append({"title": "Protocol and provenance", "words": "", "table": (["", ""], told)})
    return whole_page(f"extend {data['model']}", summary(data), " ".join(sentences(data)), notes(data), sections)


def by_length(data: dict[str, Any]) -> Any:
    """Loss before and after at both lengths, with intervals."""
    fig = _figure("Loss of the same last tokens")
    for when, colour in (("before", "#d97706"), ("after", "#2563eb")):
        rows = [row for row in data["losses"] if row[when]["value"] is not None]
        sure = all(row[when]["low"] is not None for row in rows)
        above, below = ([abs(row[when][side] - row[when]["value"]) for row in rows] if sure else None for side in ("high", "low"))
        bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below} if sure else None
        fig.add_scatter(
            x=[row["length"] for row in rows], y=[row[when]["value"] for row in rows], error_y=bars, name=when, mode="lines+markers",
            line={"color": colour}, meta={"label": when, "kind": "loss"},
        )  # fmt: skip
    ticks = [row["length"] for row in data["losses"]]
    fig.update_xaxes(title_text="tokens of context", type="log", tickvals=ticks, ticktext=[str(n) for n in ticks])
    fig.update_yaxes(title_text="loss, nats a token")
    return fig


def training(data: dict[str, Any]) -> Any:
    """The loss of tuning, step by step."""
    rows = data["tuned"]["loss"]
    fig = _figure("Loss while it was tuned")
    fig.add_scatter(
        x=[row["step"] for row in rows], y=[row["loss"] for row in rows], name="tuning", mode="lines+markers", meta={"label": "tuning", "kind": "loss"}
    )
    fig.update_xaxes(title_text="step")
    fig.update_yaxes(title_text="loss, nats a token")
    return fig


def _figure(title: str) -> Any:
    import plotly.graph_objects as go

    return go.Figure(layout={"title": {"text": title}, "height": 380, "margin": {"l": 60, "r": 20, "t": 50, "b": 50}})


def save(data: dict[str, Any], out: Path) -> Path:
    """Write report.html, report.md and extension.json."""
    write_json(out / "extension.json", data)
    write(out / "report.md", markdown(data))
    return write(out / "report.html", page(data))
