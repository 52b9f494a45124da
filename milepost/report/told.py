"""What was done to a checkpoint, told: the parts that the reports of `extend`, `migrate` and `resize` have in common. A part is a title, a head and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Part = tuple[str, list[str], list[list[str]]]
"""A title, a head and rows."""


def interval(mean: dict[str, Any], *, sign: bool = False) -> str:
    """A mean with its interval, where it has one."""
    if mean["value"] is None:
        return "no number"
    form = "+.4f" if sign else ".4f"
    known = "" if mean["low"] is None else f" ({mean['low']:{form}} to {mean['high']:{form}})"
    return f"{mean['value']:{form}}{known}"


def sure(gap: dict[str, Any]) -> str:
    """How sure a difference is, in words."""
    if gap["low"] is None:
        return "of one window alone, so it is not known how sure that is"
    if gap["low"] > 0 or gap["high"] < 0:
        return f"95% between {gap['low']:+.4f} and {gap['high']:+.4f}"
    return f"which may be chance: 95% between {gap['low']:+.4f} and {gap['high']:+.4f}"


def checks(title: str, found: Sequence[dict[str, Any]]) -> Part:
    """Every check that applies, in a row."""
    rows = [[check["verdict"], check["name"], check["sentence"]] for check in found if check["verdict"] != "NONE"]
    return title, ["", "check", ""], rows


def tuned(told: dict[str, Any] | None) -> Part:
    """How a model was tuned."""
    if told is None:
        return "", [], []
    rows = [
        ["steps", f"{told['steps']}, of {told['windows_a_step']} windows of {told['length']} tokens each"],
        ["text", f"{told['windows']} windows of {told['text']['source']} (sha256 {told['text']['sha256'][:12]}), read {told['times_read']:g} times"],
        ["measured on", str(told["measured_on"]["source"])],
        ["rate", f"{told['rate']:g} after {told['warm_up']} steps of warm-up, seed {told['seed']}"],
        ["weights", "all" if told["lora"] is None else f"LoRA of rank {told['lora']['r']}, merged"],
        ["precision", told["mixed_precision"] or "float32"],
    ]
    if told["loss"]:
        first, last = told["loss"][0], told["loss"][-1]
        rows.append(["training loss", f"{first['loss']:.4f} at step {first['step']}, {last['loss']:.4f} at step {last['step']}"])
    return "tuning", ["", ""], rows


# -- drawn -------------------------------------------------------------------------------------------------------------------------


def markdown(title: str, summary: str, sentences: Sequence[str], parts: Sequence[Part], notes: Sequence[str]) -> str:
    """report.md."""
    lines = [f"# {title}", "", summary, "", *[f"- {_cell(sentence)}" for sentence in sentences], ""]
    for name, head, rows in parts:
        lines += [f"## {name}", "", "| " + " | ".join(map(_cell, head)) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows] + [""]
    if notes:
        lines += ["## Notes", "", *[f"- {_cell(note)}" for note in notes], ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_FRAGMENT = """<p>{{ summary }}</p><ul>{% for sentence in sentences %}<li>{{ sentence }}</li>{% endfor %}</ul>
{% for title, head, rows in parts %}<h3>{{ title }}</h3><div class="wide"><table>
{%- if head | select | list %}<thead><tr>{% for cell in head %}<th scope="col">{{ cell }}</th>{% endfor %}</tr></thead>{% endif %}<tbody>
{%- for row in rows %}<tr>{% for cell in row %}<td{% if cell in ("PASS", "FAIL") %} class="{{ cell }}"{% endif %}>{{ cell }}</td>{% endfor %}</tr>{% endfor %}
</tbody></table></div>
{% endfor %}{% if notes %}<h3>Notes</h3><ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}"""


def fragment(summary: str, sentences: Sequence[str], parts: Sequence[Part], notes: Sequence[str]) -> str:
    """The tables as HTML, for a notebook."""
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(_FRAGMENT).render(summary=summary, sentences=sentences, parts=parts, notes=notes)


def sections(parts: Sequence[Part], figures: dict[str, list[Any]], about: dict[str, Any]) -> list[dict[str, Any]]:
    """The sections of a page: every part with its figures, and where it all came from."""
    made: list[dict[str, Any]] = [
        {
            "title": title.capitalize(),
            "words": "",
            "figures": figures.get(title, []),
            "table": ([head[0] or ("" if not any(head) else "what"), *head[1:]], rows),
        }
        for title, head, rows in parts
    ]
    told = [[key, str(value)] for key, value in {**about["protocol"], **{k: v for k, v in about.items() if k != "protocol"}}.items()]
    return [*made, {"title": "Protocol and provenance", "words": "", "table": (["", ""], told)}]


def training(told: dict[str, Any]) -> Any:
    """The loss of tuning, step by step."""
    fig = figure("Loss while it was tuned")
    fig.add_scatter(
        x=[row["step"] for row in told["loss"]], y=[row["loss"] for row in told["loss"]], name="tuning", mode="lines+markers",
        meta={"label": "tuning", "kind": "loss"},
    )  # fmt: skip
    fig.update_xaxes(title_text="step")
    fig.update_yaxes(title_text="loss, nats a token")
    return fig


def figure(title: str) -> Any:
    """An empty figure."""
    import plotly.graph_objects as go

    return go.Figure(layout={"title": {"text": title}, "height": 380, "margin": {"l": 60, "r": 20, "t": 50, "b": 50}})
