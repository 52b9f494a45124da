"""The report of a lab run: one page that works offline, and the same tables in Markdown. From results.json alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from milepost.report import lab_tables as tables
from milepost.report.lab_figures import attention, by_length, by_position, strategies, tasks
from milepost.results import write

TITLE = "Train short, test long"
QUESTION = "Does a model still know where its tokens are, in texts longer than those it was trained on?"


def load(folder: str | Path) -> dict[str, Any]:
    """The results in a folder."""
    file = Path(folder) / "results.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no results.json: run `milepost lab --out {folder}` first") from None
    except (OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} can't be read as results: {error}") from None
    if not isinstance(found, dict) or found.get("schema") != 1:
        raise ValueError(f"{file} has schema {found.get('schema') if isinstance(found, dict) else None!r}, and this milepost reads schema 1")
    return found


def joined(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Several runs as one: of the same text and the same lengths, or it would be no comparison."""
    first = next(iter(found.values()))
    known = first["provenance"]["protocol"]
    for folder, results in found.items():
        protocol = results["provenance"]["protocol"]
        for field, mine, other in (
            ("text", known["text"]["sha256"], protocol["text"]["sha256"]),
            ("lengths", known["plan"]["lengths"], protocol["plan"]["lengths"]),
            ("trained length", known["plan"]["shape"]["length"], protocol["plan"]["shape"]["length"]),
        ):
            if mine != other:
                raise ValueError(f"{folder} has another {field} than {next(iter(found))} ({other} and {mine}): their losses can't be compared")
    whole = dict(first)
    for part in ("runs", "comparisons", "missing", "failed"):
        whole[part] = [dict(one) for results in found.values() for one in results[part]]
    if len(found) > 1:
        for folder, results in found.items():
            for one in results["runs"]:
                if sum(1 for run in whole["runs"] if (run["encoding"], run["seed"], run["strategy"]) == (one["encoding"], one["seed"], one["strategy"])) > 1:
                    mark = Path(folder).name
                    for run in whole["runs"]:
                        if run == one:
                            run["strategy"] = f"{run['strategy']} ({mark})" if run["strategy"] != "none" else f"of {mark}"
    return whole


def save(results: dict[str, Any], folder: str | Path) -> list[Path]:
    """Write report.html and report.md."""
    folder = Path(folder)
    return [write(folder / "report.html", page(results)), write(folder / "report.md", text(results))]


def sections(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a report: a title, words, a figure, a table; each where there is something to show."""
    plan = results["provenance"]["protocol"]["plan"]
    targets = results["provenance"]["protocol"]["targets"]
    found: list[dict[str, Any]] = [
        {
            "title": "Loss by length",
            "words": f"The same last {targets} tokens of each test text, read with more and more context before them; nats a token. Bands are 95% intervals.",
            "figure": by_length(results),
            "table": tables.length_table(results),
        },
        {
            "title": "Loss by position",
            "words": "One long text: what is lost on the tokens at each place in it.",
            "figure": by_position(results),
        },
    ]
    if any(run["strategy"] != "none" for run in tables.texts(results)):
        said = "What can be done to a trained model at test time: nats gained against doing nothing, on the same tokens, and what a short text pays."
        found.append({"title": "Strategies", "words": said, "figure": strategies(results), "table": tables.strategy_table(results)})
    if any(run.get("attention") for run in results["runs"]):
        said = "The share of each head's attention by distance, in texts of the longest length that was tested."
        found.append({"title": "How far heads look", "words": said, "figure": attention(results)})
    if any(run.get("tasks") for run in results["runs"]):
        said = "Loss of the answers (share of right ones in brackets), beside one who knows the language and not the place."
        found.append({"title": "Tasks", "words": said, "figure": tasks(results), "table": tables.task_table(results)})
    found.append({"title": "Cost", "words": "Of training, on this machine.", "table": tables.cost_table(results)})
    said = "Perplexity over perplexity at the trained length; windows without overlap. Theirs: 247 M parameters, trained at 512 (Press et al., 2022, table 2)."
    found.append({"title": "Beside what was published", "words": said, "table": tables.published_table(results)})
    lost = [[one["encoding"], str(one["seed"]), one["data"], one.get("why", "not run yet")] for one in (*results["failed"], *results["missing"])]
    lost += [[run["encoding"], str(run["seed"]), run["data"], run["failed"]] for run in results["runs"] if run.get("failed")]
    if lost:
        found.append({"title": "Failed or missing", "words": "", "table": (["encoding", "seed", "data", "why"], lost)})
    about = results["provenance"]
    text_of = about["protocol"]["text"]
    rows = [
        ["text", f"{text_of['source']}, {text_of['train_tokens']:,} tokens to train, {text_of['test_files']} test files; sha256 {text_of['sha256'][:16]}"],
        ["model", ", ".join(f"{k} {v}" for k, v in plan["shape"].items())],
        ["training", f"{plan['steps']} steps of {plan['rows']} x {plan['shape']['length']} tokens, seeds {', '.join(map(str, plan['seeds']))}"],
        ["intervals", about["protocol"]["intervals"]],
        ["made", f"{about['date']}, {about['cores']} cores, Python {about['python']}, " + ", ".join(f"{k} {v}" for k, v in about["versions"].items())],
    ]
    found.append({"title": "Protocol", "words": "", "table": (["", ""], rows)})
    return found


def text(results: dict[str, Any]) -> str:
    """The report in Markdown."""
    parts = [f"# {TITLE}", QUESTION, tables.answer(results)]
    for section in sections(results):
        if "table" in section:
            parts += [f"## {section['title']}", section["words"], tables.markdown(*section["table"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def page(results: dict[str, Any]) -> str:
    """The report as one self-contained page."""
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    found = sections(results)
    for number, section in enumerate(found):
        if section.get("figure") is not None:
            section["drawn"] = section["figure"].to_json().replace("<", "\\u003c")  # no text can end the script
            section["id"] = f"figure-{number}"
    template = Environment(autoescape=True).from_string(_PAGE)
    return template.render(title=TITLE, question=QUESTION, answer=tables.answer(results), sections=found, plotly=get_plotlyjs())


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }} · milepost</title>
<style>
:root { --ink: #1c1c1c; --paper: #fff; --soft: #f4f4f5; --line: #d4d4d8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e7ea; --paper: #16161a; --soft: #24242a; --line: #3f3f46 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 0 auto; padding: 1rem; color: var(--ink); background: var(--paper) }
.answer { font-size: 1.15rem; background: var(--soft); padding: 1rem; border-radius: 8px }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0 1.5rem }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left; white-space: nowrap } .figure { min-height: 320px }
</style><script>{{ plotly | safe }}</script></head><body>
<h1>{{ title }}</h1><p>{{ question }}</p><p class="answer">{{ answer }}</p>
{% for s in sections %}<section><h2>{{ s.title }}</h2>{% if s.words %}<p>{{ s.words }}</p>{% endif %}
{% if s.drawn %}<div class="figure" id="{{ s.id }}"></div>
<script type="application/json" id="{{ s.id }}-data">{{ s.drawn | safe }}</script>{% endif %}
{% if s.table %}<div class="wide"><table><tr>{% for cell in s.table[0] %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in s.table[1] %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table></div>{% endif %}
</section>{% endfor %}
<script>
for (const place of document.querySelectorAll(".figure")) {
  const figure = JSON.parse(document.getElementById(place.id + "-data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const clear = "rgba(0,0,0,0)", font = {family: "system-ui, sans-serif", color: dark ? "#e7e7ea" : "#1c1c1c"};
  Object.assign(figure.layout, {paper_bgcolor: clear, plot_bgcolor: clear, font});
  for (const key of Object.keys(figure.layout)) if (/^[xy]axis/.test(key)) figure.layout[key].gridcolor = dark ? "#3f3f46" : "#e4e4e7";
  Plotly.newPlot(place, figure.data, figure.layout, {responsive: true, displaylogo: false});
}
</script></body></html>
"""
