"""The checks of `milepost verify`, from its data alone."""

from __future__ import annotations

from typing import Any

from milepost.draw import Document, Figure, Mark, Numbers, Section, Table, facts

VERDICTS = ("PASS", "FAIL", "WARN", "BLIND", "NONE")
WORDS = {"BLIND": "????", "NONE": "-"}
"""What the table shows for them."""
FLOOR = 1e-6
"""A found zero is drawn here."""
HEAD = ("verdict", "check", "found", "allowed", "a fault gives", "in", "what it says")


def _cells(check: dict[str, Any]) -> list[str]:
    numbers = ["" if check[n] is None else f"{check[n]:.2g}" for n in ("measured", "allowed", "control")]
    return [WORDS.get(check["verdict"], check["verdict"]), check["name"], *numbers, check["unit"], check["sentence"]]


def summary(result: dict[str, Any]) -> str:
    """One line: how many of each."""
    count = {v: sum(c["verdict"] == v for c in result["checks"]) for v in VERDICTS}
    parts = [f"{count['PASS']} checks passed", f"{count['FAIL']} failed"]
    parts += [
        f"{count[v]} {words}"
        for v, words in (
            ("WARN", "warnings"),
            ("BLIND", "could not have failed (????): nothing is proved"),
            ("NONE", "do not apply"),
        )
        if count[v]
    ]
    return f"{'PASS' if result['ok'] else 'FAIL'} {result['model']}: {', '.join(parts)}"


def _how(result: dict[str, Any]) -> str:
    p = result["provenance"]["protocol"]
    return (
        f"Run in {p['dtype']} on {p['device']} with {p['attention']} attention. Logits may differ by {p['tolerance']}. "
        '"of rounding": 1 is what float32 angles may be off. "A fault gives": the same number with other positions, '
        "or without the bias; "
        "where that is not above what is allowed, nothing is proved (????)."
    )


def document(result: dict[str, Any]) -> Document:
    """The checks as a table, and how far each is from failing."""
    checks = result["checks"]
    drawn = [figure(result)] if any(check["measured"] is not None and check["allowed"] for check in checks) else []
    table = Table(HEAD, [_cells(check) for check in checks])
    return Document(
        f"verify {result['model']}", summary(result),
        f"Does this model ({result['model_type']}), loaded and run, do with positions what its config asks for?",
        sections=[Section("Checks", _how(result), drawn, [table]), facts(result["provenance"])],
        notes=result["notes"], ok=result["ok"], terminal_tables=[Table(["", "", ""], [_short(check) for check in
        checks])], inline=[Section("", tables=[table])],
    )  # fmt: skip


def _short(check: dict[str, Any]) -> list[str]:
    """A check where there is little room: its numbers below its sentence."""
    word, name, *numbers, unit, sentence = _cells(check)
    parts = [f"{title} {number}" for title, number in zip(HEAD[2:5], numbers, strict=True) if number]
    return [word, name, f"{sentence}\n{', '.join(parts)} ({unit})" if parts else sentence]


def figure(result: dict[str, Any]) -> Figure:
    """How far each check is from failing: what was found and what a fault would give, in units of what is allowed."""
    known = [c for c in result["checks"] if c["measured"] is not None and c["allowed"] and c["verdict"] != "NONE"]
    lines: dict[str, Numbers] = {
        name: [None if check[key] is None else max(check[key] / check["allowed"], FLOOR) for check in known]
        for name, key in (("found", "measured"), ("a fault gives", "control"))
    }
    axis, names = "times what is allowed: beyond 1 it fails (log scale)", tuple(check["name"] for check in known)
    return Figure(
        "points",
        "Found, and what a fault would give",
        axis,
        lines=lines,
        y_names=names,
        marks=(Mark("x", 1.0, ""),),
        log_x=True,
    )
