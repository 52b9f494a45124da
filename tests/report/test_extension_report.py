"""The report of extend: drawn from its data alone, in words that follow the numbers' signs, and opened in a real browser."""

import copy

import pytest
from opened import OWNED, PHONE, Opened

from milepost.checkpoints.extension import report as extension
from milepost.draw import fill


def save(data, folder):
    """As `milepost extend --out` does."""
    return fill(folder, "extension", data, extension.document(data))


CHECK = {
    "name": "frequencies",
    "verdict": "PASS",
    "sentence": "as the config asks",
    "measured": 0.1,
    "allowed": 1.0,
    "control": 9.0,
    "unit": "of rounding",
}
TEXT = {"source": "book.txt, part 1 of 2", "sha256": "ab" * 32}
DATA = {
    "schema": 1,
    "ok": True,
    "model": "tiny",
    "out": "/out",
    "method": "yarn",
    "factor": 4.0,
    "trained": 64,
    "served": 64,
    "target": 256,
    "weights": "tuned",
    "scaling": {
        "before": {"all": "base 10000, no scaling"},
        "after": {"all": "base 10000, yarn(factor=4.0, trained=64)"},
    },
    "unseen": {"before": {"all": [3, 4, 5]}, "after": {"all": []}},
    "changed": {"max_position_embeddings": [64, 256], "rope_scaling": [None, {"factor": 4.0}]},
    "left_out": ["pytorch_model.bin"],
    "recommendation": None,
    "notes": ["a | note"],
    "losses": [
        {
            "length": 64,
            "windows": 8,
            "targets": 32,
            "before": {"value": 2.0, "low": 1.9, "high": 2.1, "tokens": 256},
            "after": {"value": 2.25, "low": 2.1, "high": 2.4, "tokens": 256},
            "difference": {"value": 0.25, "low": -0.05, "high": 0.5, "tokens": 256},
        },
        {
            "length": 256,
            "windows": 8,
            "targets": 32,
            "before": {"value": 3.0, "low": 2.9, "high": 3.1, "tokens": 256},
            "after": {"value": 1.5, "low": 1.4, "high": 1.6, "tokens": 256},
            "difference": {"value": -1.5, "low": -1.6, "high": -1.25, "tokens": 256},
        },
    ],
    "tuned": {
        "steps": 10,
        "length": 256,
        "rate": 2e-5,
        "seed": 0,
        "warm_up": 1,
        "windows": 40,
        "windows_a_step": 1,
        "times_read": 0.25,
        "lora": None,
        "mixed_precision": None,
        "loss": [{"step": 1, "loss": 3.5}, {"step": 10, "loss": 2.5}],
        "text": TEXT,
        "measured_on": TEXT | {"source": "part 2"},
    },
    "verification": {"model": "/out", "model_type": "llama", "ok": True, "failed": [], "checks": [CHECK], "notes": []},
    "provenance": {
        "date": "2026-01-01T00:00:00+00:00",
        "python": "3.11",
        "machine": "x86_64",
        "system": "Linux",
        "versions": {"torch": "2"},
        "protocol": {"dtype": "float32"},
    },
}


def changed(**more):
    return {**copy.deepcopy(DATA), **more}


def test_sentences_follow_the_signs_and_say_what_may_be_chance():
    short, long, verdict = extension.sentences(DATA)
    assert (
        short
        == "With 64 tokens of context it loses 0.2500 nats a token more than before, which may be chance: 95% between -0.0500 and +0.5000."
    )
    assert (
        long
        == "With 256 tokens of context it loses 1.5000 nats a token less than before, 95% between -1.6000 and -1.2500."
    )
    assert verdict == "PASS /out: 1 checks passed, 0 failed."


def test_one_window_has_no_interval_and_an_overflow_no_number():
    row = copy.deepcopy(DATA["losses"][0])
    row["difference"] |= {"low": None, "high": None}
    row["after"] |= {"value": None, "low": None, "high": None}
    data = changed(losses=[row])
    assert "not known how sure" in extension.sentences(data)[0] and "no number" in extension.document(data).markdown()
    row["difference"]["value"] = None
    assert (
        extension.sentences(changed(losses=[row]))[0]
        == "With 64 tokens of context the loss is no number: the model overflows there."
    )


def test_markdown_has_every_part_and_keeps_its_columns():
    text = extension.document(DATA).markdown()
    assert (
        "| 256 | 3.0000 (2.9000 to 3.1000) | 1.5000 (1.4000 to 1.6000) | -1.5000 (-1.6000 to -1.2500) | 8 x 32 |"
        in text
    )
    assert (
        "| rope_scaling | not there | {'factor': 4.0} |" in text
        and "| pairs that meet unseen angles at 256 | 3 | 0 |" in text
    )
    assert "| weights | all |" in text and "- a \\| note" in text and "- not copied: pytorch_model.bin" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(line.replace("\\|", "").count("|") >= 3 for line in rows)


def test_what_was_not_done_has_no_table():
    data = changed(losses=[], tuned=None)
    titles = [section.title for section in extension.document(data).sections]
    assert titles == ["Positions", "Changes of config.json", "Verify", "Protocol and provenance"]
    assert "tuning" not in extension.document(data).html() and len(list(extension.document(data).terminal())) > 3


def test_a_failed_check_stands_out():
    failed = changed(ok=False)
    failed["verification"] |= {"ok": False, "checks": [CHECK | {"verdict": "FAIL"}], "failed": ["frequencies"]}
    assert '<td class="FAIL">FAIL</td>' in extension.document(failed).html() and extension.sentences(failed)[
        -1
    ].startswith("FAIL /out: 0 checks passed, 1 failed")


def test_it_is_saved_as_data_and_two_pages(tmp_path):
    assert save(DATA, tmp_path / "milepost").name == "report.html"
    assert sorted(p.name for p in (tmp_path / "milepost").iterdir()) == ["extension.json", "report.html", "report.md"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(chromium, scheme, tmp_path):
    with Opened(
        chromium, save(changed(model=OWNED, notes=[OWNED], left_out=["x" * 200]), tmp_path), PHONE, scheme
    ) as seen:
        assert seen.page.title().startswith("extend <img") and seen.count("table") == 6 and seen.drawn() == [4, 1]
        paper = seen.ask("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 22, 26)")
        seen.check()


def test_without_text_there_is_nothing_to_draw(chromium, tmp_path):
    with Opened(chromium, save(changed(losses=[], tuned=None), tmp_path), figures=False) as seen:
        assert seen.drawn() == [] and seen.count("table") == 4
        seen.check()
