"""The words and tables of a lab report, against numbers worked out by hand from the made results."""

import math

import pytest

from milepost.lab.report import document, tables
from milepost.lab.report.answer import answer, notes


def rows_of(table):
    head, rows = table
    assert all(len(row) == len(head) for row in rows)
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


# -- the answer ---------------------------------------------------------------------------------------------------------------


def test_the_answer_is_two_sentences_that_name_the_best_the_worst_who_ends_and_what_helps(made):
    rise, fall = 0.03 / 2.405, 0.6 / 2.305
    assert answer(made()) == (
        f"At 8 times the trained 16 tokens, alibi holds best (its loss rises by {rise:.1%} against a text of 16) and rope worst ({fall:+.1%}); "
        "learned can't read so far, because its table ends. "
        "Of what can be done to rope without more training, yarn helps most there: 2.545 nats a token instead of 2.905."
    )


def test_the_answer_without_strategies_names_the_lowest_loss(made):
    said = answer(made(encodings=("nope", "alibi"), seeds=(0,)))
    assert said.endswith("The lowest loss there is alibi's: 2.430 nats a token.")
    assert "table" not in said


def test_the_answer_says_when_nothing_helps(made):
    said = answer(made(strategies=("linear",), seeds=(0,)))
    assert (
        "Nothing that was done to rope without more training helps it there: 3.050 nats a token at best, and 2.900 as it is."
        in said
    )


def test_what_was_tuned_is_not_called_without_training(made):
    results = made(seeds=(0,))
    for run in results["runs"]:
        if run["strategy"] == "yarn":
            run["tuned_steps"] = 10
    assert "Nothing that was done to rope" in answer(results)


def test_a_loss_that_falls_and_one_that_stays_are_said_so(made):
    results = made(encodings=("nope",), seeds=(0,))
    results["runs"][0]["loss_by_length"][-1]["loss"] = 2.34
    assert "the loss of nope falls by 10.0%" in answer(results)
    results["runs"][0]["loss_by_length"][-1]["loss"] = 2.6001
    assert "the loss of nope stays the same" in answer(results)


def test_the_answer_of_one_length_or_of_nothing(made):
    assert "Longer texts were not tested." in answer(made(lengths=(16,)))
    assert "rope has the lowest loss (2.305 nats a token) and nope the highest (2.605)" in answer(made(lengths=(16,)))
    assert answer(made(encodings=())) == "No trial has been finished yet."


def test_two_tables_that_end_are_named_together(made):
    results = made(encodings=("learned", "nope"), seeds=(0,))
    other = {**results["runs"][0], "encoding": "learned(length=16)"}
    results["runs"].append(other)
    assert "learned and learned(length=16) can't read so far, because their tables end" in answer(results)


def test_notes_warn_of_one_seed_and_of_lost_trials(made):
    results = made(
        seeds=(0,),
        failed=[{"encoding": "t5", "seed": 0, "data": "text", "why": "killed"}],
        missing=[{"encoding": "shaw", "seed": 0}],
    )
    said = notes(results)
    assert said[0].startswith(
        "Not as published: Encodings are equal at the trained length"
    )  # what is missed comes first
    others = [note for note in said if not note.startswith("Not as published")]
    assert others[0].startswith("Trials without numbers: 1 failed and 1 not run yet.") and others[1].startswith(
        "One seed"
    )
    assert not any(note.startswith("One seed") for note in notes(made()))


def test_a_text_that_is_read_several_times_is_said(made):
    results = made()
    plan, text = results["provenance"]["protocol"]["plan"], results["provenance"]["protocol"]["text"]
    text["train_tokens"] = plan["steps"] * plan["rows"] * plan["shape"]["length"] // 4
    assert any("each was read 4.0 times" in note for note in notes(results))
    text["train_tokens"] *= 4
    assert not any("each was read" in note for note in notes(results))


# -- tables -------------------------------------------------------------------------------------------------------------------


def test_losses_are_means_over_seeds_with_the_change_against_the_trained_length(made):
    found = rows_of(tables.length_table(made()))
    assert found["rope"] == {
        "encoding": "rope",
        "16 (1x)": "2.305",
        "32 (2x)": "2.505 (+8.7%)",
        "64 (4x)": "2.705 (+17.4%)",
        "128 (8x)": "2.905 (+26.0%)",
    }
    assert [found["learned"][column] for column in ("16 (1x)", "32 (2x)", "128 (8x)")] == [
        "2.505",
        "table ends",
        "table ends",
    ]


def test_lengths_below_the_trained_one_are_set_against_the_trained_one(made):
    results = made(encodings=("nope",), seeds=(0,), lengths=(16, 32), trained=16)
    results["provenance"]["protocol"]["plan"]["shape"]["length"] = 32
    found = rows_of(tables.length_table(results))["nope"]
    assert found["16 (0.5x)"] == "2.600 (-1.5%)" and found["32 (1x)"] == "2.640"


def test_each_seed_is_shown_singly_with_its_interval(made):
    _, rows = tables.seed_table(made())
    mine = [row for row in rows if row[0] == "alibi"]
    assert [row[1] for row in mine] == ["0", "1"]
    assert [row[2] for row in mine] == ["2.400 [2.350, 2.450]", "2.410 [2.360, 2.460]"]


def test_a_strategy_s_cost_stands_beside_its_gain_and_signs_are_right(made):
    head, rows = tables.strategy_table(made(seeds=(0,)))
    assert head == ["strategy", "seed", "cost at 16, set for 128", "gain at 32", "gain at 64", "gain at 128"]
    found = {row[0]: row for row in rows}
    assert found["rope, yarn"] == [
        "rope, yarn",
        "0",
        "+0.150",
        "+0.120 [+0.090, +0.140]",
        "+0.240 [+0.210, +0.260]",
        "+0.360 [+0.330, +0.380]",
    ]
    assert found["rope, linear"][2:4] == ["+0.800", "-0.050 [-0.080, -0.030]"]


def test_strategies_of_several_seeds_have_a_mean_and_each_seed(made):
    _, rows = tables.strategy_table(made())
    assert [row[1] for row in rows if row[0] == "rope, yarn"] == ["mean", "0", "1"]
    assert rows[0][2:4] == ["+0.800", "-0.050"]


def test_a_paired_comparison_of_the_fixed_setting_gives_the_cost_its_interval(made):
    results = made(seeds=(0,))
    about = {"encoding": "rope", "strategy": "yarn", "seed": 0, "length": 16, "fixed": True}
    results["comparisons"].append({**about, "difference": 0.15, "low": 0.1, "high": 0.25})
    found = {row[0]: row for row in tables.strategy_table(results)[1]}
    assert found["rope, yarn"][2] == "+0.150 [+0.100, +0.250]"
    assert found["rope, yarn"][3] == "+0.120 [+0.090, +0.140]"


def test_the_published_pattern_is_beside_ours(made):
    head, rows = tables.published_table(made(seeds=(0,)))
    assert head == ["encoding", "published 2x", "published 4.9x", "published 6.9x", "ours 2x", "ours 4x", "ours 8x"]
    found = {row[0]: row for row in rows}
    assert found["rope"] == ["rope", "1.06", "1.57", "1.77", *[f"{math.exp(0.2 * n):.2f}" for n in (1, 2, 3)]]
    assert found["t5"][4:] == ["not measured"] * 3


def test_tasks_stand_beside_chance(made):
    results = made(tasks={"recall": {"rope": 0.5, "alibi": 2.5}})
    _, rows = tables.task_table(results)
    assert rows == [
        ["recall", "chance", "", *["2.00"] * 4],
        ["recall", "alibi", "0", *["2.50 (10%)"] * 4],
        ["recall", "rope", "0", *["0.50 (90%)"] * 4],
    ]


def test_cost_has_speed_as_a_share_of_nope_s(made):
    found = rows_of(tables.cost_table(made(seeds=(0,))))
    assert (
        found["rope"]["of nope's"] == "0.90"
        and found["rope"]["tokens a second"] == "900"
        and found["nope"]["of nope's"] == "1.00"
    )


def test_units_and_the_three_protocols(made):
    found = rows_of(tables.unit_table(made(encodings=("alibi",), seeds=(0,))))
    assert found["alibi"]["16 (1x)"] == f"{math.exp(2.4):.2f} / {2.4 / 0.6931:.3f}"
    _, rows = tables.protocol_loss_table(made(encodings=("alibi",), seeds=(0,)))
    assert [row[2] for row in rows] == ["2.400", "2.500", "2.450"]


def test_attention_is_told_as_means_over_heads(made):
    _, rows = tables.attention_table(made(encodings=("nope",), seeds=(0,)))
    assert rows[-1] == ["nope", "0", "128", "20.0", f"{math.exp(2):.1f}", "10.0%"]


def test_trials_that_failed_are_missing_or_diverged_are_shown(made):
    results = made(
        failed=[{"encoding": "t5", "seed": 0, "data": "text", "why": "killed by signal 9"}],
        missing=[{"encoding": "shaw", "seed": 1, "data": "copy"}],
    )
    results["runs"].append(
        {"encoding": "integer", "strategy": "none", "seed": 2, "data": "text", "failed": "loss is NaN at step 7"}
    )
    _, rows = tables.lost_table(results)
    assert rows == [
        ["t5", "0", "text", "killed by signal 9"],
        ["integer", "2", "text", "loss is NaN at step 7"],
        ["shaw", "1", "copy", "not run yet"],
    ]
    assert [section.title for section in document(results).sections].count("Failed or missing") == 1
    assert "loss is NaN at step 7" in document(results).markdown()


def test_provenance_has_every_sentence_of_the_protocol_and_enough_to_do_it_again(made):
    results = made()
    results["provenance"]["protocol"]["sliding"] = "windows that advance by half"
    found = dict(tables.provenance_table(results["provenance"])[1])
    assert found["sliding"] == "windows that advance by half" and found["intervals"] == "95%, bootstrap over test files"
    assert "sha256 abababababababab" in found["text"] and "20 steps of 8 x 16 tokens; seeds 0, 1" in found["training"]
    assert "2026-01-01" in found["made"] and "milepost 0.1.0" in found["versions"] and "layers 2" in found["model"]


# -- Markdown -----------------------------------------------------------------------------------------------------------------


def test_every_markdown_table_has_rows_as_long_as_its_head(made):
    said = document(made(tasks={"recall": {"rope": 0.5}})).markdown()
    blocks = [block.splitlines() for block in said.split("\n\n") if block.startswith("|")]
    assert len(blocks) >= 9
    for lines in blocks:
        assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    "title", ["Loss by length", "Strategies", "Tasks", "Cost", "Beside what was published", "Protocol and provenance"]
)
def test_markdown_has_every_table(made, title):
    assert f"## {title}\n" in document(made(tasks={"recall": {"rope": 0.5}})).markdown()


def test_a_name_can_break_neither_a_markdown_table_nor_into_html(made):
    said = document(made(encodings=("nope", "a|b<img src=x>\nc"), seeds=(0,))).markdown()
    assert "| a\\|b&lt;img src=x> c |" in said and "<img" not in said
