"""The checks of `milepost verify` as a table in the terminal, as report.md and as report.html."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.results import write, write_json

STYLES = {"PASS": "green", "FAIL": "bold red", "WARN": "yellow", "BLIND": "yellow", "NONE": "dim"}
WORDS = {"BLIND": "????", "NONE": "-"}
"""What the table shows for them."""
HEAD = ("", "check", "found", "allowed", "a fault gives", "in", "")


def _cells(check: dict[str, Any]) -> list[str]:
    numbers = ["" if check[n] is None else f"{check[n]:.2g}" for n in ("measured", "allowed", "control")]
    return [WORDS.get(check["verdict"], check["verdict"]), check["name"], *numbers, check["unit"], check["sentence"]]


def summary(result: dict[str, Any]) -> str:
    """One line: how many of each."""
    count = {v: sum(c["verdict"] == v for c in result["checks"]) for v in STYLES}
    parts = [f"{count['PASS']} checks passed", f"{count['FAIL']} failed"]
    parts += [
        f"{count[v]} {words}"
        for v, words in (("WARN", "warnings"), ("BLIND", "could not have failed (????): nothing is proved"), ("NONE", "do not apply"))
        if count[v]
    ]
    return f"{'PASS' if result['ok'] else 'FAIL'} {result['model']}: {', '.join(parts)}"


def terminal(result: dict[str, Any]) -> Iterator[Table | Text]:
    """The table, notes, and one line."""
    table = Table(title=Text(f"{result['model']} ({result['model_type']})"), title_justify="left", box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in result["checks"]:
        word, name, *numbers, unit, sentence = _cells(check)
        shown = Text(sentence)
        if any(numbers):
            parts = [f"{said} {n}" for said, n in zip(("found", "allowed", "a fault gives"), numbers, strict=True) if n]
            shown.append(f"\n{', '.join(parts)} ({unit})", "dim")
        table.add_row(Text(word, STYLES[check["verdict"]]), Text(name), shown)
    yield table
    for note in result["notes"]:
        yield Text(f"note: {note}", "yellow")
    yield Text(summary(result), "bold green" if result["ok"] else "bold red")


def markdown(result: dict[str, Any]) -> str:
    """report.md."""
    lines = [f"# verify {result['model']}", "", summary(result), "", "| | check | found | allowed | a fault gives | in | |", "|---|---|---:|---:|---:|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(check)) + " |" for check in result["checks"]]
    lines += ["", *[f"- {note}" for note in result["notes"]], "", _how(result)]
    return "\n".join(lines) + "\n"


def _how(result: dict[str, Any]) -> str:
    p = result["provenance"]["protocol"]
    return (
        f"Run in {p['dtype']} on {p['device']} with {p['attention']} attention. Logits may differ by {p['tolerance']}. "
        '"of rounding": 1 is what float32 angles may be off. "A fault gives": the same number with other positions, or without the bias; '
        "where that is not above what is allowed, nothing is proved (????)."
    )


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>verify {{ r.model }} · milepost</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 0 auto; padding: 1rem; color: #1c1c1c; background: #fff }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } .wide { overflow-x: auto }
.PASS { color: #17633a } .FAIL { color: #b00020; font-weight: 700 } .WARN, .BLIND { color: #7a5200; font-weight: 600 } .NONE { color: #555 }
</style></head><body>
<h1>verify {{ r.model }}</h1><p class="{{ 'PASS' if r.ok else 'FAIL' }}">{{ summary }}</p>
<div class="wide"><table><thead><tr>{% for h in head %}<th scope="col">{{ h }}</th>{% endfor %}</tr></thead><tbody>
{% for verdict, cells in rows %}<tr><td class="{{ verdict }}">{{ cells[0] }}</td><td>{{ cells[1] }}</td>
{% for c in cells[2:5] %}<td class="n">{{ c }}</td>{% endfor %}<td>{{ cells[5] }}</td><td>{{ cells[6] }}</td></tr>
{% endfor %}</tbody></table></div>
<ul>{% for note in r.notes %}<li>{{ note }}</li>{% endfor %}</ul><p>{{ how }}</p>
</body></html>
"""


def page(result: dict[str, Any]) -> str:
    """report.html, self-contained."""
    from jinja2 import Environment

    rows = [(check["verdict"], _cells(check)) for check in result["checks"]]
    return Environment(autoescape=True).from_string(PAGE).render(r=result, rows=rows, head=HEAD, summary=summary(result), how=_how(result))


def check_folder(out: Path) -> None:
    """Refuse a folder that holds something, before anything is run."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"--out {out} is there already, and not an empty folder: name another, or remove it")


def save(result: dict[str, Any], out: Path) -> Path:
    """Write report.html, report.md and verification.json."""
    write_json(out / "verification.json", result)
    write(out / "report.md", markdown(result))
    return write(out / "report.html", page(result))
