"""The report of a diagnosis: made by hand, drawn in a real browser, the same numbers in Markdown; and whole or not
at all.
"""

import copy
import json

import pytest
from opened import DESK, OWNED, PHONE, Opened

from milepost.checkpoints.diagnosis import report
from milepost.checkpoints.diagnosis import report_figures as figures
from milepost.checkpoints.diagnosis import report_tables as tables
from milepost.draw import fill

LENGTHS = [64, 128, 256]


def save(data, folder):
    """As `milepost diagnose --out` does."""
    return fill(folder, "diagnosis", data, report.document(data))


def _heads(length):
    edges = [0, 1, *[2**n for n in range(1, length.bit_length())]]
    share = 1 / (len(edges) - 1)
    return [
        {
            "layer": layer,
            "head": head,
            "edges": edges,
            "distance": [share] * (len(edges) - 1),
            "mean": 9.0 + head,
            "entropy": 1.0 + layer,
            "sink": 0.25,
        }
        for layer in range(2)
        for head in range(3)
    ]


def made(**other):
    """A diagnosis whose numbers are known: a model trained on 64 that fails from 96 on."""
    places = [
        {
            "start": a,
            "end": a + 16,
            "loss": 2.0 if a < 96 else 4.5,
            "low": 1.9 if a < 96 else 4.4,
            "high": 2.1 if a < 96 else 4.6,
        }
        for a in range(0, 256, 16)
    ]
    by_length = [
        {
            "length": n,
            "loss": 2.0 + k,
            "low": 1.9 + k,
            "high": 2.1 + k,
            "tokens": 256,
            "perplexity": 7.39 * 2.718**k,
            "bits_per_byte": 1.0 + k,
            "change": float(k) if k else None,
            "change_low": k - 0.1 if k else None,
            "change_high": k + 0.1 if k else None,
        }
        for k, n in enumerate(LENGTHS)
    ]
    apart = [
        {key: row[key] for key in ("length", "loss", "low", "high", "tokens", "perplexity", "bits_per_byte")}
        for row in by_length
    ]
    cells = [
        {
            "length": n,
            "depth": d,
            "share": 1.0 if n == 64 else 0.25,
            "low": 0.1,
            "high": 0.9,
            "trials": 4,
            "margin": 2.5 if n == 64 else -1.5,
        }
        for n in LENGTHS
        for d in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    pairs = [
        {
            "pair": n,
            "trained_frequency": 10.0**-n,
            "frequency": 10.0**-n,
            "wavelength": 6.28 * 10**n,
            "turns": 10.0 * 10**-n,
            "target_turns": 40.0 * 10**-n,
            "resolution": 1.0,
            "unseen": n > 1,
        }
        for n in range(4)
    ]
    found = {
        "model": "runs/model",
        "family": "llama",
        "trained_length": 64,
        "effective_length": 96,
        "onset": 96,
        "verdict": [
            "It fails from about token 96 on.",
            "The loss rises from 2.00 to 4.50.",
            "More context hurts.",
            "A cache is well.",
        ],
        "failure": {"start": 96, "end": 112},
        "cause": {"name": "unseen angles", "sentence": "angles", "rule": "pairs turn farther"},
        "loss_by_position": [row | {"tokens": 128} for row in places],
        "loss_by_length": by_length,
        "disjoint": apart,
        "shifted": [
            {
                "first": n,
                "loss": 2.0,
                "difference": n * 1e-3,
                "low": n * 5e-4,
                "high": n * 2e-3,
                "largest": 0.1,
                "tokens": 64,
                "passage": 32,
            }
            for n in (0, 1, 32, 64, 224)
        ],
        "retrieval": {
            "kind": "words",
            "candidates": ["river", "apple"],
            "chance": 0.1,
            "trials": 4,
            "cells": cells,
            "lengths": [
                {"length": n, "share": 0.5, "low": 0.3, "high": 0.7, "trials": 20, "margin": 0.5} for n in LENGTHS
            ],
        },
        "attention": [{"length": n, "heads": _heads(n)} for n in (64, 256)],
        "pairs": [
            {
                "kind": "all",
                "trained": 64,
                "target": 256,
                "unseen_pairs": [2, 3],
                "critical_pair": 1,
                "pairs": pairs,
                "sentence": "2 of 4 pairs",
            }
        ],
        "drift": [
            {"length": n, "said": 8, "largest": 1e-6, "divergence": 1e-12, "allowed": 1e-5, "beyond": False}
            for n in LENGTHS
        ],
        "notes": ["the text has room for 6 of the 8 windows"],
        "protocol": {
            name: f"how {name} was done"
            for name in (
                "loss_by_position",
                "loss_by_length",
                "disjoint",
                "shifted",
                "retrieval",
                "attention",
                "drift",
                "onset",
                "intervals",
            )
        }
        | {
            "plan": {"lengths": LENGTHS, "windows": 8, "edges": [[0, 16]]},
            "text": {"source": "moby.txt", "tokens": 100},
        },
        "provenance": {"date": "2026-01-01", "versions": {"milepost": "0.1.0"}},
    }
    return {**found, **other}


TITLES = [
    "Loss by position",
    "Loss by length",
    "The same passage elsewhere",
    "Retrieval",
    "How far heads look",
    "Every head",
    "Rotary pairs",
    "Cached against uncached",
    "Protocol and provenance",
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_everything_is_drawn_in_both_schemes_at_any_width(chromium, tmp_path, width, scheme):
    with Opened(chromium, save(made(), tmp_path / "out"), width, scheme) as seen:
        seen.check()
        assert len(seen.drawn()) == 7 and all(seen.drawn())
        assert seen.ask("[...document.querySelectorAll('section h2')].map(one => one.textContent)") == TITLES
        first = seen.ask("document.querySelector('.answer').textContent")
        assert first == "It fails from about token 96 on. The loss rises from 2.00 to 4.50."
        words = seen.ask("document.querySelector('#part-0 .figure').textContent")
        assert "trained length, 64" in words and "fails from here, 96" in words
        assert seen.ink() == ("rgb(231, 231, 234)" if scheme == "dark" else "rgb(28, 28, 28)")
        for fold in seen.page.locator("summary").all():
            fold.click()
        seen.check()


def test_a_map_is_chosen_from_a_list_and_a_line_is_hidden_by_a_click(chromium, tmp_path):
    with Opened(chromium, save(made(), tmp_path / "out")) as seen:
        assert seen.visible("part-3") == ["share of right answers"] and seen.visible("part-4") == ["256 tokens"]
        seen.page.select_option("#part-3 select", "margin, nats")
        assert seen.visible("part-3") == ["margin, nats"]
        seen.page.select_option("#part-5 select", "share of the first token, 64 tokens")
        assert seen.visible("part-5") == ["share of the first token, 64 tokens"] and all(seen.drawn())
        seen.page.locator("#part-1 .chips button", has_text="windows without overlap").click()
        assert seen.visible("part-1") == ["the same last tokens"]
        seen.check()


def test_what_is_not_there_is_not_drawn_and_names_are_words_and_nothing_else(chromium, tmp_path):
    bare = made(
        model=OWNED,
        shifted=[],
        attention=[],
        pairs=[],
        drift=[],
        onset=None,
        cause=None,
        failure=None,
        notes=[OWNED],
        verdict=[OWNED, OWNED],
    )
    bare["retrieval"]["cells"] = bare["retrieval"]["lengths"] = []
    with Opened(chromium, save(bare, tmp_path / "out"), PHONE) as seen:
        seen.check()
        assert seen.ask("[...document.querySelectorAll('section h2')].map(one => one.textContent)") == [
            TITLES[0],
            TITLES[1],
            TITLES[-1],
        ]
        assert seen.page.title() == f"diagnose {OWNED} · milepost" and seen.count("img[src=x]") == 0
        assert "fails from here" not in seen.ask("document.querySelector('#part-0 .figure').textContent")
    assert (
        "trained length" in report.document(made()).fragment()
        and "fails from here" in report.document(made()).fragment()
        and "fails from here" not in report.document(bare).fragment()
    )
    assert "<img" not in report.document(bare).fragment() and "<img" not in report.document(bare).markdown()


def test_figures_hold_the_numbers_of_the_data():
    data = made()
    drawn, rows = figures.by_position(data), data["loss_by_position"]
    assert drawn.x == [a + 8 for a in range(0, 256, 16)] and drawn.lines["loss"] == [row["loss"] for row in rows]
    assert drawn.sides_of("loss") == [(row["low"], row["high"]) for row in rows]
    assert [(mark.at, mark.red) for mark in drawn.marks] == [(64, False), (96, True)]
    shares, margins = figures.retrieval(data)
    assert shares.z == [[1.0, 0.25, 0.25]] * 5 and margins.z == [[2.5, -1.5, -1.5]] * 5
    assert (margins.low, margins.high) == (-2.5, 2.5) and (shares.low, shares.high) == (0, 1)
    assert shares.alternatives[0].notes[0][0] == "100% of 4 right [10%, 90%], margin +2.50 nats"
    moved = figures.shifted(data)
    assert moved.lines["difference"] == [0, 1e-3, 32e-3, 64e-3, 224e-3]
    assert moved.sides_of("difference")[2] == pytest.approx((16e-3, 64e-3))
    turns = figures.pairs(data)
    (unseen,) = [name for name in turns.lines if "never seen" in name]
    assert turns.x_of(unseen) == [2, 3] and turns.lines[unseen] == pytest.approx([0.4, 0.04]) and turns.red == (unseen,)
    assert figures.heads(data)[0].z == [[1.0] * 3, [2.0] * 3]


def test_tables_hold_them_too():
    data = made()
    assert tables.length_table(data)[1][2] == [
        "256",
        "4.000",
        "[3.900, 4.100]",
        "54.59",
        "+2.000 [1.900, 2.100]",
        "4.000",
    ]
    assert tables.retrieval_table(data)[0] == ["depth", "64 tokens", "128 tokens", "256 tokens"]
    assert tables.retrieval_table(data)[1][0] == ["0%", "100% [10%, 90%]", "25% [10%, 90%]", "25% [10%, 90%]"]
    assert (
        tables.pair_table(data)[1][3] == ["3", "0.01", "0.04", "never seen"]
        and tables.drift_table(data)[1][0][-1] == "rounding"
    )
    assert len(tables.attention_table(data)[1]) == 12 and tables.layer_table(data)[1][1][:4] == [
        "1",
        "10.0",
        "2.00",
        "0.250",
    ]


def test_losses_that_are_no_numbers_are_words_in_tables_and_gaps_in_figures():
    data = made()
    data["loss_by_position"][-1] |= {"loss": None, "low": None, "high": None, "tokens": 0}
    data["loss_by_length"][-1] |= {
        "loss": None,
        "low": None,
        "high": None,
        "perplexity": None,
        "change": None,
        "change_low": None,
        "change_high": None,
    }
    data["shifted"][-1] |= {"loss": None, "difference": None, "low": None, "high": None, "largest": None}
    data["drift"][-1] |= {"largest": None, "divergence": None, "beyond": True}
    assert (
        tables.position_table(data)[1][-1][1]
        == "no number"
        == tables.length_table(data)[1][-1][1]
        == tables.shifted_table(data)[1][-1][1]
    )
    assert len(figures.by_position(data).lines["loss"]) == 15
    assert len(figures.shifted(data).lines["difference"]) == 4
    assert (
        tables.drift_table(data)[1][-1][-1] == "more than rounding"
        and report.document(data).html()
        and report.document(data).markdown()
    )


def test_the_verdict_is_first_in_markdown_and_the_rule_beside_the_cause():
    text = report.document(made()).markdown()
    assert text.startswith(
        f"# diagnose runs/model\n\n{report.QUESTION}\n\nIt fails from about token 96 on. The loss rises from 2.00 to "
        "4.50.\n"
    )
    assert (
        "- The rule behind the cause: pairs turn farther." in text
        and "- The text has room for 6 of the 8 windows." in text
    )
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == TITLES
    assert "| 256 | 4.000 | [3.900, 4.100] | 54.59 | +2.000 [1.900, 2.100] | 4.000 |" in text


def test_a_folder_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    assert save(made(), tmp_path / "a") == tmp_path / "a" / "report.html"
    assert json.loads((tmp_path / "a" / "diagnosis.json").read_text()) == made()
    bad = copy.deepcopy(made())
    bad["loss_by_position"][0]["loss"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        save(bad, tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
