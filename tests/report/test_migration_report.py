"""The report of migrate: drawn from its data alone, its verdict as honest as the numbers, and opened in a real
browser.
"""

import copy

import pytest
from opened import OWNED, PHONE, Opened

from milepost.checkpoints.migration import report as migration
from milepost.draw import fill


def save(data, folder):
    """As `milepost migrate --out` does."""
    return fill(folder, "migration", data, migration.document(data))


def mean(value, low=None, high=None):
    return {"value": value, "low": low, "high": high, "tokens": 256}


CHECK = {
    "name": "positions off",
    "verdict": "PASS",
    "sentence": "the same logits",
    "measured": 0.1,
    "allowed": 1.0,
    "control": 9.0,
    "unit": "logit",
}
TEXT = {"source": "book.txt, part 1 of 2", "sha256": "ab" * 32}
ROW = {"windows": 8, "targets": 16}
DATA = {
    "schema": 1,
    "ok": True,
    "recovered": True,
    "model": "tiny",
    "out": "/out",
    "family": "gpt2",
    "architecture": "GPTNeoXForCausalLM",
    "to": "rope",
    "old": 32,
    "ended": True,
    "length": 32,
    "inside": {"before": mean(2.0, 1.9, 2.1), "swapped": mean(4.0, 3.9, 4.1), "recovered": mean(2.1, 2.0, 2.2)},
    "share": {"value": 0.95, "low": 0.92, "high": 0.97},
    "anneal": 5,
    "methods": [],
    "retrieval": None,
    "left_out": ["pytorch_model.bin"],
    "notes": ["a | note"],
    "by_position": [
        {
            "start": 0,
            "end": 32,
            "before": mean(2.0, 1.9, 2.1),
            "swapped": mean(4.0, 3.9, 4.1),
            "recovered": mean(2.1, 2.0, 2.2),
        },
        {"start": 32, "end": 64, "before": None, "swapped": mean(5.0, 4.9, 5.1), "recovered": mean(2.5, 2.4, 2.6)},
    ],
    "past": [
        {
            "served": "as it is",
            "factor": 1.0,
            "short": mean(2.0),
            "long": mean(2.5),
            "difference": mean(0.5, 0.25, 0.75),
            "works": False,
            **ROW,
        },
        {
            "served": "linear",
            "factor": 2.0,
            "short": mean(3.0),
            "long": mean(2.3),
            "difference": mean(0.3, -0.125, 0.5),
            "works": True,
            **ROW,
        },
        {
            "served": "ntk",
            "factor": 2.0,
            "short": mean(2.0),
            "long": mean(1.9),
            "difference": mean(-0.125, -0.25, -0.0625),
            "works": True,
            **ROW,
        },
    ],
    "proofs": [CHECK, CHECK | {"name": "positions on", "sentence": "those of the reference"}],
    "tuned": {
        "steps": 10,
        "length": 32,
        "rate": 1e-4,
        "seed": 0,
        "batch": 8,
        "decay": 2,
        "warm_up": 1,
        "windows": 40,
        "windows_a_step": 8,
        "times_read": 2.0,
        "lora": None,
        "mixed_precision": None,
        "loss": [{"step": 1, "loss": 3.5}, {"step": 10, "loss": 2.5}],
        "text": TEXT,
        "measured_on": TEXT,
    },
    "verification": {
        "model": "/out",
        "model_type": "gpt_neox",
        "ok": True,
        "failed": [],
        "checks": [CHECK],
        "notes": [],
    },
    "provenance": {
        "date": "2026-01-01T00:00:00+00:00",
        "python": "3.11",
        "machine": "x86_64",
        "system": "Linux",
        "versions": {},
        "protocol": {"to": "rope"},
    },
}


def changed(**more):
    return {**copy.deepcopy(DATA), **more}


def test_the_verdict_is_what_the_share_says():
    assert migration.verdict(DATA).startswith(
        "Recovered: replacing the positions took the loss inside the old 32 tokens from 2.0000 to 4.0000"
    )
    assert "2.1000, 95.0% of the loss gap (95% between 92.0% and 97.0%)" in migration.verdict(DATA)
    less = changed(recovered=False, share={"value": 0.5, "low": 0.4, "high": 0.6})
    assert migration.verdict(less).startswith("Not recovered: ") and "only, 50.0% of the loss gap" in migration.verdict(
        less
    )
    unsure = changed(recovered=None, share={"value": 0.95, "low": 0.5, "high": 2.0})
    assert migration.verdict(unsure).startswith(
        "Not clear whether it is recovered: replacing"
    ) and "95% between 50.0% and 200.0%" in migration.verdict(unsure)
    more = changed(share={"value": 1.25, "low": 1.1, "high": 1.4})
    assert "More than all of it was recovered: tuning on this text helped, too" in migration.verdict(more)
    assert migration.verdict(changed(share=None, recovered=None)).startswith("There was nothing to recover")
    assert migration.verdict(changed(share=None, recovered=None, tuned=None)).startswith("Not tuned: replacing")
    lost = changed(share=None, recovered=None)
    lost["inside"]["recovered"] = mean(None)
    assert migration.verdict(lost).startswith("Not recovered: inside the old 32 tokens the loss is no number")


def test_past_the_end_words_follow_the_signs():
    _, plain, linear, ntk, proved, _ = migration.sentences(DATA)
    assert plain.startswith(
        "At 64 tokens (the old model ends at 32) it does not work well: the same tokens lose 0.5000 nats more than at "
        "32 as it is"
    )
    assert "works with linear x2" in linear and "may be chance" in linear
    assert "works with ntk x2" in ntk and "0.1250 nats less" in ntk
    assert proved == "Proved by logits: the same logits; those of the reference."


def test_a_proof_that_is_blind_or_failed_is_told():
    blind = changed(proofs=[CHECK | {"verdict": "BLIND"}])
    assert "Nothing was proved of positions off" in " ".join(migration.sentences(blind))
    failed = changed(ok=False, proofs=[CHECK | {"verdict": "FAIL"}])
    assert (
        "FAIL: positions off." in migration.sentences(failed)
        and '<td class="FAIL">FAIL</td>' in migration.document(failed).html()
    )


def test_the_tables_have_every_stage_and_step():
    text = migration.document(DATA).markdown()
    assert "| 32 to 64 | table ends | 5.0000 (4.9000 to 5.1000) | 2.5000 (2.4000 to 2.6000) |" in text
    assert (
        "steps 1 to 8 at rate 0.0001; the old positions fade over the first 5 steps" in text
        and "steps 9 to 10: the rate falls to 0" in text
    )
    assert (
        "milepost extend /out --target-length 64 --method ntk" in text
        and "- a \\| note" in text
        and "- not copied: pytorch_model.bin" in text
    )
    assert "longer tables" not in text
    ended = changed(past=[], by_position=DATA["by_position"][:1])
    assert "Past 32 tokens nothing can be read: the table ends there." in migration.sentences(ended)
    assert len(list(migration.document(DATA).terminal())) > 5 and "<table>" in migration.document(DATA).fragment()


def test_longer_tables_are_compared():
    rows = [
        {
            "method": name,
            "kept": kept,
            "choosing": lost,
            "inside": mean(lost),
            "past": mean(None),
            "written": name == "tile",
        }
        for name, kept, lost in (("tile", 32, 2.5), ("interpolate", 1, None))
    ]
    rows[1]["inside"] = mean(3.0)
    text = migration.document(changed(to="longer-table", methods=rows)).markdown()
    assert (
        "| tile * | 32 | 2.5000 | no number | 2.5000 |" in text
        and "| interpolate | 1 | 3.0000 | no number | no number |" in text
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_in_a_browser(chromium, scheme, tmp_path):
    with Opened(
        chromium, save(changed(model=OWNED, notes=[OWNED], left_out=["x" * 200]), tmp_path), PHONE, scheme
    ) as seen:
        assert seen.page.title().startswith("migrate <img") and seen.count("table") == 7 and len(seen.drawn()) == 2
        seen.check()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["migration.json", "report.html", "report.md"]
