"""The results in docs/claims: every claim is there, its verdict follows from its numbers by the rule as it stands, and
enough of them are decided."""

import json
import re
from pathlib import Path

import pytest

from milepost.claims import report
from milepost.claims.rule import Number, sentence, verdict
from milepost.claims.table import CLAIMS

DOCS = Path(__file__).parents[2] / "docs" / "claims"
ENOUGH = 35


@pytest.fixture(scope="module")
def shipped():
    return json.loads((DOCS / "claims.json").read_text(encoding="utf-8"))


def test_every_verdict_follows_from_the_numbers_by_the_rule_of_today(shipped):
    known = CLAIMS
    assert [row["id"] for row in shipped["rows"]] == list(known)
    for row in shipped["rows"]:
        rule = known[row["id"]].rule
        numbers = {name: Number(**one) for name, one in row["numbers"].items()}
        assert (row["verdict"], row["rule"]) == (verdict(rule, numbers), sentence(rule)), row["id"]
        assert [clause["says"] for clause in row["clauses"]] == [clause.says(numbers) for clause in rule], row["id"]
        assert (row["statement"], row["statement_zh"]) == (known[row["id"]].statement, known[row["id"]].chinese)


def test_enough_are_decided_and_all_that_are_exact(shipped):
    decided = {row["id"] for row in shipped["rows"] if row["verdict"] != "not decided here"}
    assert len(decided) >= ENOUGH
    assert {claim.id for claim in CLAIMS.values() if claim.kind == "exact" or claim.exact_decides} <= decided


def test_the_run_says_what_it_did_not_train(shipped):
    parts = [
        row["id"] for row in shipped["rows"] if "was not run: " in row["evidence"] or "not trained" in row["evidence"]
    ]
    assert parts == shipped["provenance"]["protocol"]["open"]
    assert not any("checkpoint part was not run" in row["evidence"] for row in shipped["rows"])
    assert not any("could not be trained" in row["evidence"] for row in shipped["rows"])


def test_no_share_of_answers_or_heads_passes_the_whole(shipped):
    clauses = [
        clause
        for row in shipped["rows"]
        for clause in row["clauses"]
        if re.match(r"the share of (right|near|far|trained heads)", clause["words"])
    ]
    assert len(clauses) > 15
    for clause in clauses:
        least = -1.0 if "ahead" in clause["words"] or "costs more" in clause["words"] else 0.0
        assert clause["measured"] is None or least <= clause["measured"]["low"] <= clause["measured"]["high"] <= 1.0, (
            clause["words"]
        )


def test_what_was_not_decided_says_why(shipped):
    for row in shipped["rows"]:
        if row["verdict"] == "not decided here":
            unclear = [clause for clause in row["clauses"] if clause["measured"] and clause["says"] is not True]
            assert unclear or row["id"] in shipped["provenance"]["protocol"]["open"], row["id"]


def test_the_models_are_younger_than_the_rules(shipped):
    assert shipped["provenance"]["versions"]["milepost"] != "0.1.0"
    read = {row["id"] for row in shipped["rows"] if "which come with the package" in row["evidence"]}
    assert {"rope-breaks", "alibi-flat", "choose"} <= read
    assert not any("not younger than this rule" in row["evidence"] for row in shipped["rows"])
    assert not any(need.sweep == "again" for name in read for need in CLAIMS[name].needs)


def test_the_page_is_drawn_from_the_results(shipped):
    assert (DOCS / "claims.html").read_text(encoding="utf-8") == report.document(shipped).html()


def test_no_place_of_a_machine_is_in_it():
    text = (DOCS / "claims.json").read_text(encoding="utf-8")
    assert not any(word in text for word in ("/tmp", "/home", "/root", "/work"))
