"""A ranked choice as words and a table. What was not measured says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milepost.draw import Cells, Document, Figure, Mark, Section, Table
from milepost.lab.report.tables import NONE, gap_cell

PASSES = ("forward", "training", "decode")
ASKED = {"text": "loss there", "recall": "far recall", "index": "absolute place"}


def evidence(answer: dict[str, Any]) -> str:
    """Where the numbers come from, in a sentence or two."""
    measured, far = answer["measured"], bool(answer.get("ranked_by_papers"))
    size = "" if measured["parameters"] is None else f"models of {measured['parameters']:,} parameters, "
    seeds = "one seed" if measured["seeds"] == 1 else f"{measured['seeds']} seeds"
    return (
        f"Measured ({answer['source']}): {size}trained at {measured['trained_length']} tokens, tested at "
        f"{measured['length']}, "
        f"which is {measured['times']:.3g} times; {seeds}. Ranked by {'what papers measured, then by ' * far}"
        f"{', '.join(ASKED[what] for what in answer['ranked_by'])}."
    )


def table(answer: dict[str, Any]) -> Cells:
    """A row for each choice, best first."""
    times = f"{answer['measured']['times']:.3g}x"
    asked = [
        task
        for task, wanted in (("recall", answer["wish"]["far_recall"]), ("index", answer["wish"]["absolute"]))
        if wanted
    ]
    head = ["choice", f"loss at {times}", "change", "behind first", *[ASKED[task] for task in asked]]
    named = answer["wish"].get("engine") is None
    head += ["published", *["engines"] * named, "cost"]
    rows = []
    for choice in answer["ranked"]:
        text = choice["text"]
        change = NONE if text is None or text["change"] is None else f"{text['change']:+.1%}"
        behind = "" if choice["place"] == 1 else gap_cell(choice["behind_first"])
        rows.append(
            [
                f"{choice['place']}. {choice['name']}",
                NONE if text is None else f"{text['loss']:.3f}",
                change,
                behind,
                *[_task(choice[task]) for task in asked],
                _published(choice["published"]),
                *[", ".join(choice["engines"]) or "none known"] * named,
                _cost(choice["cost"]),
            ]
        )
    return head, rows


def document(answer: dict[str, Any]) -> Document:
    """Where the numbers come from, the table, how far each choice is behind the first, and what to know before
    believing it.
    """
    ranking = Table(*table(answer))
    brief = [Section("", figures=behind_first(answer), tables=[ranking])]
    return Document(
        "", sentences=[evidence(answer)], notes=list(words(answer)), terminal_tables=[ranking], inline=brief
    )


def behind_first(answer: dict[str, Any]) -> list[Figure]:
    """How much more each choice loses than the first, with its interval; no picture where nothing can be compared."""
    behind = {
        f"{one['place']}. {one['name']}": one["behind_first"]
        for one in answer["ranked"] if one["behind_first"] and one["place"] > 1
    }  # fmt: skip
    lines = {"behind": [gap["nats"] for gap in behind.values()]}
    sides = {"behind": [(gap["low"], gap["high"]) for gap in behind.values()]}
    about: dict[str, Any] = {"lines": lines, "sides": sides, "y_names": tuple(behind), "marks": (Mark("x", 0.0, ""),)}
    return (
        [Figure("points", f"Behind {answer['ranked'][0]['name']}", "nats a token, on the same tokens", **about)]
        if behind
        else []
    )


def _cost(cost: dict[str, Any]) -> str:
    if any(cost[kind] is not None for kind in PASSES):
        return " / ".join(NONE if cost[kind] is None else f"{cost[kind]['ratio']:.2f}" for kind in PASSES)
    return NONE if cost["lab_speed"] is None else f"{NONE} (lab speed {cost['lab_speed']:.2f})"


def _published(sources: list[dict[str, Any]]) -> str:
    return ", ".join(f"x {source['rise']:.2f} at {source['times']:.2g}x" for source in sources) or NONE


def _task(score: dict[str, Any] | None) -> str:
    if score is None:
        return NONE
    return f"{score['accuracy']:.0%} right" + ("" if score["beats_chance"] else ", as chance")


def words(answer: dict[str, Any]) -> Iterator[str]:
    """What the columns mean, and what to know before believing them."""
    first = answer["ranked"][0]
    close = [
        choice["name"]
        for choice in answer["ranked"][1:]
        if choice["behind_first"] and choice["behind_first"]["low"] <= 0 <= choice["behind_first"]["high"]
    ]
    if close:
        yield (
            f"On text, {', '.join(close)} can't be told from {first['name']} by these tokens: the interval of the "
            "paired difference holds 0."
        )
    yield (
        "Loss in nats a token; change against the trained length; behind the first on the same tokens, with 95%. "
        "Cost: time over attention with no "
        "position, forward / training / decode (`milepost bench`). Lab speed: tokens a second in training over those "
        "of nope, roughly."
    )
    if references := sorted({source["reference"] for choice in answer["ranked"] for source in choice["published"]}):
        yield (
            "Published: perplexity over that at the trained length, at so many times it. Absolutes do not transfer, "
            f"and papers disagree; sources: {'; '.join(references)}."
        )
    yield from answer["notes"]
    for choice in answer["ranked"]:
        for remark in choice["remarks"]:
            yield f"{choice['name']}: {remark}."
    for choice in answer["not_ranked"]:
        yield f"Not ranked: {choice['name']} ({choice['why']})."
