"""Figures of an image lab. From results.json alone."""

from __future__ import annotations

from typing import Any

from milepost.draw import Alternative, Figure, Mark
from milepost.lab.report.figures import curves
from milepost.lab.report.image_runs import by, mean, measured, plain, sizes, trained
from milepost.lab.report.runs import Results, Run, by_name, name

VIEWS = ("the encoding alone", "attention of the trained model")


def by_size(results: Results) -> Figure:
    """Accuracy against size: a line for each run and seed, with bands."""
    short = min(range(2), key=lambda axis: trained(results)[axis])
    known = sizes(results)
    square = all(height == width for height, width in known)
    x_title = "height and width, pixels" if square else "height x width, pixels"
    marks = (Mark("x", trained(results)[short], f"trained size, {by(trained(results))}"),)
    about: dict[str, Any] = {
        "x": [size[short] for size in known],
        "x_names": tuple(str(size[0]) if square else by(size) for size in known),
    }
    figure = Figure("lines", "Share of test images told right", x_title, "accuracy", marks=marks, percent=True, **about)
    rows_of, x_of = (lambda run: run["accuracy_by_size"]), (lambda row: row["size"][short])
    return curves(figure, results, measured(results), rows_of, x_of, "accuracy")


def mean_by_size(results: Results) -> Figure:
    """Accuracy against the size of the image, mean over seeds: for a notebook."""
    lines = {label: [mean(runs, size) for size in sizes(results)] for label, runs in by_name(measured(results)).items()}
    places, names = [float(n) for n in range(len(sizes(results)))], tuple(map(by, sizes(results)))
    title = f"Right answers, trained at {by(trained(results))}"
    return Figure("lines", title, "pixels", "share", places, lines=lines, x_names=names)


def maps(results: Results) -> list[Figure]:
    """Two views of each encoding (of the first seed): what the chosen patch is to every other.

    The page lets the patch be chosen.
    """
    by_encoding: dict[str, Run] = {}
    for run in plain(results):
        if run.get("similarity"):
            by_encoding.setdefault(run["encoding"], run)
    return [_map(run, view) for run in by_encoding.values() for view in range(len(VIEWS))]


def _map(run: Run, view: int) -> Figure:
    similarity = run["similarity"]
    rows, columns = similarity["grid"]
    shown = (similarity["maps"][0], similarity["maps"][-1])[view]
    patches = [(row, column) for row, column in similarity["patches"]]
    alternatives = [
        Alternative(
            f"row {row}, column {column}",
            [values[r * columns : (r + 1) * columns] for r in range(rows)],
            cell=(row, column),
        )
        for (row, column), values in zip(patches, shown["values"], strict=True)
    ]
    first = min(
        range(len(patches)), key=lambda n: (patches[n][0] - rows // 2) ** 2 + (patches[n][1] - columns // 2) ** 2
    )
    alternatives.insert(0, alternatives.pop(first))  # what is drawn first is the patch in the middle
    return Figure(
        "heat",
        f"{name(run)}: {shown['what']}",
        "column",
        "row",
        list(range(columns)),
        list(range(rows)),
        alternatives[0].z,
        cell=alternatives[0].cell,
        alternatives=tuple(alternatives),
        view=VIEWS[view],
        square=True,
    )
