"""The question of an image lab, and its answer in two sentences. From results.json alone."""

from __future__ import annotations

from milepost.lab.report.answer import listed, unfinished
from milepost.lab.report.image_runs import by, ends, mean, measured, plain, sizes, trained
from milepost.lab.report.runs import Results, by_name

QUESTION = "Does a model still know where the patches of an image are, at another size than it was trained at?"


def answer(results: Results) -> str:
    """Who is right most often at the trained size, and who keeps that at others."""
    groups = by_name(measured(results))
    if not groups:
        return "No trial has been finished yet."
    return " ".join(part for part in (_there(results), _elsewhere(results)) if part)


def _there(results: Results) -> str:
    size = trained(results)
    accuracy = {
        label: value for label, runs in by_name(plain(results)).items() if (value := mean(runs, size)) is not None
    }
    if not accuracy:
        return f"The trained {by(size)} pixels were not tested."
    ordered = sorted(accuracy, key=lambda label: -accuracy[label])
    best, worst = ordered[0], ordered[-1]
    many = results["provenance"]["protocol"]["images"]["test_images"]
    first = f"At the trained {by(size)} pixels {best} is right most often ({accuracy[best]:.1%} of {many} test images)"
    return f"{first} and {worst} least ({accuracy[worst]:.1%})." if worst != best else f"{first}."


def _elsewhere(results: Results) -> str:
    """Who is right most often over all other sizes, and how far that is from the trained one."""
    others = [size for size in sizes(results) if size != trained(results)]
    if not others:
        return "Other sizes were not tested."
    means, ended = {}, []
    for label, runs in by_name(measured(results)).items():
        if any(ends(runs, size) for size in others):
            ended.append(label)
            continue
        accuracy, change = ([mean(runs, size, field) for size in others] for field in ("accuracy", "change"))
        if not any(value is None for value in (*accuracy, *change)):
            means[label] = [
                sum(value for value in values if value is not None) / len(others) for values in (accuracy, change)
            ]
    over = (
        f"{listed(ended)} can't be used at all of them, because "
        f"{'its table ends' if len(ended) == 1 else 'their tables end'}"
        if ended
        else ""
    )
    where = f"{len(others)} other sizes, {by(others[0])} to {by(others[-1])}" if len(others) > 1 else by(others[0])
    if not means:
        return f"Over {where}, nothing is known{'; ' + over if over else ''}."
    ordered = sorted(means, key=lambda label: -means[label][0])
    ways = zip((ordered[0], ordered[-1]), ("most", "least"), strict=True)
    sentences = [
        f"{label} is right {word} often ({means[label][0]:.1%}, {means[label][1] * 100:+.1f} points)"
        for label, word in ways
    ]
    return f"Over {where}, {' and '.join(sentences[: len(ordered)])}{'; ' + over if over else ''}."


def notes(results: Results) -> list[str]:
    """What a reader must know before believing the answer."""
    sentences = unfinished(results)
    if plain(results) and len({run["seed"] for run in plain(results)}) == 1:
        sentences.append("One seed: a second one may order encodings that are close the other way round.")
    if {"learned", "grid"} <= {run["encoding"] for run in plain(results)}:
        sentences.append(
            "learned and grid are one model at the trained size (the same table, started alike, read row by row); at "
            "other sizes grid's table is resized "
            "as the image it is, and learned's rows are used as they come."
        )
    return sentences
