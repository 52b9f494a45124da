"""What was done to a checkpoint: the words and tables that the reports of `extend`, `migrate` and `resize` have in
common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milepost.draw import Document, Figure, Section, Table, facts


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


def checks(title: str, found: Sequence[dict[str, Any]]) -> Table:
    """Every check that applies, in a row."""
    rows = [[check["verdict"], check["name"], check["sentence"]] for check in found if check["verdict"] != "NONE"]
    return Table(["verdict", "check", "sentence"], rows, title)


def tuned(how: dict[str, Any] | None) -> Table:
    """How a model was tuned; without rows where it was not."""
    if how is None:
        return Table([], [])
    text = (
        f"{how['windows']} windows of {how['text']['source']} (sha256 {how['text']['sha256'][:12]}), read "
        f"{how['times_read']:g} times"
    )
    rows = [
        ["steps", f"{how['steps']}, of {how['windows_a_step']} windows of {how['length']} tokens each"],
        ["text", text],
        ["measured on", str(how["measured_on"]["source"])],
        ["rate", f"{how['rate']:g} after {how['warm_up']} steps of warm-up, seed {how['seed']}"],
        ["weights", "all" if how["lora"] is None else f"LoRA of rank {how['lora']['r']}, merged"],
        ["precision", how["mixed_precision"] or "float32"],
    ]
    if how["loss"]:
        first, last = how["loss"][0], how["loss"][-1]
        loss = f"{first['loss']:.4f} at step {first['step']}, {last['loss']:.4f} at step {last['step']}"
        rows.append(["training loss", loss])
    return Table(["", ""], rows, "tuning")


def training(how: dict[str, Any]) -> Figure:
    """The loss of tuning, step by step."""
    steps, loss = [row["step"] for row in how["loss"]], {"tuning": [row["loss"] for row in how["loss"]]}
    return Figure("lines", "Loss while it was tuned", "step", "loss, nats a token", steps, lines=loss)


def document(
    command: str, data: dict[str, Any], summary: str, sentences: Sequence[str], tables: Sequence[Table], figures:
    dict[str, list[Figure]], terminal_tables: Sequence[Table],
) -> Document:  # fmt: skip
    """What a command did: one line, sentences, and a section for each table that has rows, with the figures of its
    title.
    """
    how = data.get("tuned")
    figures = {**figures, "tuning": [training(how)] if how and how["loss"] else []}
    sections = [
        Section(
            table.title[:1].upper() + table.title[1:],
            figures=figures.get(table.title, []),
            tables=[Table(table.head, table.rows)],
        )
        for table in tables
        if table.rows
    ]
    notes = [*data["notes"], *[f"not copied: {name}" for name in data["left_out"]]]
    return Document(
        f"{command} {data['model']}",
        summary,
        sentences=sentences,
        sections=[*sections, facts(data["provenance"])],
        notes=notes,
        ok=data["ok"],
        terminal_tables=[table for table in terminal_tables if table.rows],
        inline=sections,
    )
