"""Results of a lab run made by hand, for tests of what is done with them: every number follows from the two tables
here. The seed, and the browser.
"""

import copy
import shutil

import pytest
import torch

START = {"nope": 2.6, "learned": 2.5, "sinusoidal": 2.9, "alibi": 2.4, "rope": 2.3}
"""Loss at the trained length; 2.7 for others."""
RISE = {"nope": 0.04, "alibi": 0.01, "rope": 0.2, "rope linear": 0.25, "rope yarn": 0.08, "sinusoidal": 0.4}
"""How much more for each doubling of the length; 0.1 for others."""
FIXED = {"linear": 0.8, "yarn": 0.15}
"""What a short text pays for a strategy that is set for the longest."""
FILES = [0, 0, 1, 1, 2, 2, 3, 3]
HARD = [-0.3, -0.1, 0.1, 0.3]
CHANCE = 2.0
LONGEST = ("test_readme.py", "test_handbook.py", "test_site.py")
"""Files with tests of minutes: begun first, so that no worker is left alone with one at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if "chromium" in item.fixturenames:
            item.add_marker("slow")
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Before any fixture: a layer that a test starts at random is the same one, whichever worker runs the test and
    after whatever.
    """
    torch.manual_seed(0)


def loss(encoding, strategy, length, seed, trained=16):
    """The loss that the tables give; seeds are 0.01 apart."""
    doublings = (length // trained).bit_length() - 1
    name = encoding if strategy == "none" else f"{encoding} {strategy}"
    return START.get(encoding, 2.7) + RISE.get(name, 0.1) * doublings + 0.01 * seed


def _row(length, value, around=0.05):
    if value is None:
        return {"length": length, "loss": None, "note": "table ends"}
    return {
        "length": length,
        "loss": value,
        "low": value - around,
        "high": value + around,
        "perplexity": 2.718281828**value,
        "bits_per_byte": value / 0.6931,
    }


def _run(encoding, strategy, seed, lengths, trained):
    ends = encoding == "learned"
    values = {n: None if ends and n > trained else loss(encoding, strategy, n, seed, trained) for n in lengths}
    far = trained if ends else lengths[-1]
    known = {str(n): [v + HARD[file] for file in FILES] for n, v in values.items() if v is not None}
    run = {
        "encoding": encoding,
        "strategy": strategy,
        "seed": seed,
        "data": "text",
        "trained_length": trained,
        "parameters": 29_000,
        "peak_mb": 500.0,
        "train_tokens_per_s": 1000.0 if encoding == "nope" else 900.0,
        "loss_by_length": [_row(n, v) for n, v in values.items()],
        "loss_by_position": [
            {"start": a, "end": a + 8, "loss": 3.0 + a / 100, "low": 2.9 + a / 100, "high": 3.1 + a / 100}
            for a in range(0, far, 8)
        ],
        "loss_by_window": known,
        "window_files": FILES,
    }
    if strategy != "none":
        return run | {
            "fixed": [
                _row(n, loss(encoding, "none", trained, seed, trained) + FIXED.get(strategy, 0.3)) for n in lengths
            ]
        }
    edges = [0, 1, 2, 4, 8, 16, 32, 64, 128]
    heads = [
        {
            "layer": layer,
            "head": head,
            "edges": edges,
            "distance": [0.05, 0.05, 0.1, 0.1, 0.1, 0.2, 0.3, 0.1],
            "mean": 20.0,
            "entropy": 2.0,
            "sink": 0.1,
        }
        for layer in range(2)
        for head in range(2)
    ]
    return run | {
        "attention": [{"length": n, "heads": copy.deepcopy(heads)} for n in sorted({trained, far})],
        "disjoint": [_row(n, None if v is None else v + 0.1) for n, v in values.items()],
        "sliding": [_row(n, None if v is None else v + 0.05) for n, v in values.items()],
    }


def make(
    encodings=("nope", "learned", "alibi", "rope"),
    strategies=("linear", "yarn"),
    seeds=(0, 1),
    lengths=(16, 32, 64, 128),
    trained=16,
    tasks=None,
    **other,
):
    """A whole results.json. ``tasks``: task -> encoding -> loss at every length."""
    runs = [
        _run(encoding, strategy, seed, list(lengths), trained)
        for seed in seeds
        for encoding in encodings
        for strategy in (("none", *strategies) if encoding == "rope" else ("none",))
    ]
    compared = []
    for run in runs:
        if run["strategy"] != "none":
            for n in lengths:
                gap = loss("rope", run["strategy"], n, run["seed"], trained) - loss(
                    "rope", "none", n, run["seed"], trained
                )
                about = {
                    "encoding": "rope",
                    "strategy": run["strategy"],
                    "seed": run["seed"],
                    "against": "rope, none",
                    "length": n,
                }
                compared.append({**about, "difference": gap, "low": gap - 0.02, "high": gap + 0.03})
    for task, losses in (tasks or {}).items():
        for encoding, value in losses.items():
            scored = [{**_row(n, value), "chance": CHANCE, "accuracy": 0.9 if value < CHANCE else 0.1} for n in lengths]
            runs.append({"encoding": encoding, "strategy": "none", "seed": 0, "data": task, "tasks": {task: scored}})
    plan = {
        "profile": "tiny",
        "shape": {"vocabulary": 256, "layers": 2, "width": 32, "heads": 2, "length": trained},
        "steps": 20,
        "rows": 8,
        "lengths": list(lengths),
        "windows": 8,
        "seeds": list(seeds),
        "encodings": list(encodings),
        "strategies": ["none", *strategies],
        "tune": 0,
        "tasks": list(tasks or {}),
        "text": None,
        "tokenizer": "bytes",
        "schema": 1,
    }
    text = {
        "source": "made by hand",
        "sha256": "ab" * 32,
        "train_tokens": 1000,
        "test_tokens": 100,
        "test_files": 4,
        "vocabulary": 256,
    }
    protocol = {"plan": plan, "text": text, "targets": 8, "intervals": "95%, bootstrap over test files"}
    about = {
        "date": "2026-01-01T00:00:00+00:00",
        "python": "3.11",
        "machine": "x86_64",
        "system": "Linux",
        "cores": 2,
        "versions": {"milepost": "0.1.0"},
    }
    return {
        "schema": 1,
        "runs": runs,
        "comparisons": compared,
        "missing": [],
        "failed": [],
        "provenance": {**about, "protocol": protocol},
        **other,
    }


@pytest.fixture(scope="session")
def made():
    """`make`: results to draw from."""
    return make


@pytest.fixture(scope="session")
def chromium():
    """The browser that pages are opened in: an installed Chromium or Chrome, else playwright's own."""
    from playwright.sync_api import Error, sync_playwright

    found = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    with sync_playwright() as started:
        try:
            browser = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except Error:
            pytest.fail("these tests open pages in a browser, and found none: `make browser` installs one")
        yield browser
        browser.close()
