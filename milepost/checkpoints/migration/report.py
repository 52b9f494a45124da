"""What `milepost migrate` did, from its data alone.

The verdict first: how much of the loss was recovered, or that it was not. Then loss by position, past the old end,
the steps, and the proofs.
"""

from __future__ import annotations

from typing import Any

from milepost.checkpoints import report as common
from milepost.checkpoints.report import interval
from milepost.checkpoints.verification.report import summary as verified
from milepost.draw import Document, Figure, Mark, Style, Table

Row = dict[str, Any]
STAGES = {"before": "before", "swapped": "after the swap", "recovered": "after recovery"}
POSITIONS = "loss by position, nats a token, with 95% intervals"
PAST = "the same last tokens with more context"
COLOURS = {"before": 1, "swapped": 3, "recovered": 0}


def document(data: Row) -> Document:
    """Losses by position and past the old end, longer tables, steps, proofs, checks and tuning."""
    brief = [_positions(data), _past(data), _retrieval(data), _methods(data), _steps(data)]
    proofs = [
        common.checks("proofs", data["proofs"]),
        common.checks("verify", data["verification"]["checks"]),
        common.tuned(data["tuned"]),
    ]
    return common.document(
        "migrate", data, summary(data), sentences(data), [*brief, *proofs], {POSITIONS: [by_position(data)]}, brief
    )


def summary(data: Row) -> str:
    """One line: what was done."""
    new = {"rope": "RoPE", "alibi": "ALiBi", "nope": "no positions"}.get(
        data["to"], f"a table of {data['length']} rows"
    )
    return (
        f"{data['model']} ({data['family']}, {data['old']} tokens) with {new}, as {data['architecture']}; written to "
        f"{data['out']}"
    )


def verdict(data: Row) -> str:
    """Whether the loss was recovered."""
    inside, share = data["inside"], data["share"]
    before, swapped = inside["before"]["value"], inside["swapped"]["value"]
    if before is None or swapped is None or (data["tuned"] is not None and inside["recovered"]["value"] is None):
        return f"Not recovered: inside the old {data['old']} tokens the loss is no number, the model overflows there."
    cost = (
        f"replacing the positions took the loss inside the old {data['old']} tokens from {before:.4f} to {swapped:.4f}"
    )
    if data["tuned"] is None:
        return f"Not tuned: {cost}."
    after = inside["recovered"]["value"]
    if share is None:
        return (
            f"There was nothing to recover: {cost}, which is no loss that could be told from chance; after tuning it "
            f"is {after:.4f}."
        )
    known = f"{share['value']:.1%} of the loss gap (95% between {share['low']:.1%} and {share['high']:.1%})"
    more = (
        " More than all of it was recovered: tuning on this text helped, too, and the source was not tuned."
        if share["value"] > 1
        else ""
    )
    if data["recovered"] is None:
        return (
            f"Not clear whether it is recovered: {cost}, and tuning brought it to {after:.4f}, {known}; measure it on "
            f"more text.{more}"
        )
    if data["recovered"]:
        return f"Recovered: {cost}, and tuning brought it to {after:.4f}, {known}.{more}"
    return (
        f"Not recovered: {cost}, and tuning brought it to {after:.4f} only, {known}; give it more steps, more text, "
        "or a higher rate."
    )


def sentences(data: Row) -> list[str]:
    """The verdict, what happens past the old end, and whether all was proved."""
    return [
        verdict(data),
        *_past_words(data),
        *_retrieval_words(data),
        _proved(data),
        verified(data["verification"]) + ".",
    ]


def _past_words(data: Row) -> list[str]:
    far = data["by_position"][-1]["end"]
    if not data["past"]:
        return [f"Past {data['old']} tokens nothing can be read: the table ends there."] if far <= data["old"] else []
    ended = f" (the old model ends at {data['old']})" if data["ended"] else ""
    sentences = []
    for row in data["past"]:
        name = "" if row["served"] == "as it is" else f" with {row['served']} x{row['factor']:g}"
        gap = row["difference"]
        if gap["value"] is None:
            sentences.append(f"At {far} tokens{name} the loss is no number: the model overflows there.")
            continue
        works = "works" if row["works"] else "does not work well"
        word = "more" if gap["value"] > 0 else "less"
        cost = f"the same tokens lose {abs(gap['value']):.4f} nats {word} than at {data['old']} as it is"
        sentences.append(f"At {far} tokens{ended} it {works}{name}: {cost}, {common.sure(gap)}.")
    return sentences


def _retrieval_words(data: Row) -> list[str]:
    """DroPE's question: is a needle still found when positions are dropped, and after recalibration?"""
    asked = data["retrieval"]
    if not asked:
        return []
    first = next(row for row in asked.values() if row)
    sentences = []
    for length in [row["length"] for row in first["lengths"]]:
        shares = [
            f"{100 * row['share']:.0f}% {STAGES[name]}"
            for name, stage in asked.items()
            for row in (stage["lengths"] if stage else ())
            if row["length"] == length
        ]
        sentences.append(f"at {length} tokens {', '.join(shares)}")
    return [
        f"Retrieval (DroPE: rotations dropped, then recalibrated), {100 * first['chance']:.0f}% by chance: "
        f"{'; '.join(sentences)}."
    ]


def _retrieval(data: Row) -> Table:
    """Retrieval by stage and length."""
    if not data["retrieval"]:
        return Table([], [])
    rows = [
        [
            STAGES[name],
            str(row["length"]),
            f"{row['share']:.3f}",
            f"{row['low']:.3f} to {row['high']:.3f}",
            str(row["trials"]),
        ]
        for name, stage in data["retrieval"].items()
        for row in (stage["lengths"] if stage else ())
    ]
    return Table(["", "tokens", "found", "95% interval", "trials"], rows, "retrieval of a needle, before and after")


def _proved(data: Row) -> str:
    failed = [proof["name"] for proof in data["proofs"] if proof["verdict"] == "FAIL"]
    blind = [proof["name"] for proof in data["proofs"] if proof["verdict"] == "BLIND"]
    if failed:
        return f"FAIL: {', '.join(failed)}."
    if blind:
        return (
            f"Nothing was proved of {', '.join(blind)}: positions change the logits of this model no more than "
            "rounding does."
        )
    return (
        "Proved by logits: "
        + "; ".join(proof["sentence"] for proof in data["proofs"] if proof["verdict"] == "PASS")
        + "."
    )


def _stages(data: Row) -> list[str]:
    return [name for name in STAGES if name in data["inside"]]


def _positions(data: Row) -> Table:
    names = _stages(data)
    rows = [[f"0 to {data['old']}, all", *[interval(data["inside"][name]) for name in names]]]
    rows += [
        [
            f"{row['start']} to {row['end']}",
            *["table ends" if row[name] is None else interval(row[name]) for name in names],
        ]
        for row in data["by_position"]
    ]
    return Table(["tokens", *[STAGES[name] for name in names]], rows, POSITIONS)


def _past(data: Row) -> Table:
    far = data["by_position"][-1]["end"]
    rows = [
        [
            row["served"], interval(row["short"]), interval(row["long"]), interval(row["difference"], sign=True),
            f"{row['windows']} x {row['targets']}",
        ]
        for row in data["past"]
    ]  # fmt: skip
    head = ["served", f"{data['old']} tokens", f"{far} tokens", f"longer - {data['old']} as it is", "windows x tokens"]
    return Table(head, rows, PAST)


def _methods(data: Row) -> Table:
    rows = [
        [
            row["method"] + (" *" if row["written"] else ""),
            str(row["kept"]),
            interval(row["inside"]),
            interval(row["past"]),
            "no number" if row["choosing"] is None else f"{row['choosing']:.4f}",
        ]
        for row in data["methods"]
    ]
    head = [
        "made longer by",
        "first rows kept",
        f"loss inside {data['old']}",
        f"past {data['old']}",
        "loss it was chosen by",
    ]
    return Table(head, rows, "longer tables, before tuning (* is written)")


def _steps(data: Row) -> Table:
    tuned = data["tuned"]
    rows = [["1 replace", f"written as {data['architecture']}, proved by logits with positions off and on"]]
    if tuned is not None:
        fade = f"; the old positions fade over the first {data['anneal']} steps" if data["anneal"] else ""
        rows.append(["2 recover", f"steps 1 to {tuned['steps'] - tuned['decay']} at rate {tuned['rate']:g}{fade}"])
        if tuned["decay"]:
            rows.append(
                ["3 fine-tune", f"steps {tuned['steps'] - tuned['decay'] + 1} to {tuned['steps']}: the rate falls to 0"]
            )
    far = data["by_position"][-1]["end"]
    if data["to"] == "rope" and data["past"] and far > data["length"]:
        rows.append(
            [
                "4 serve longer",
                f"milepost extend {data['out']} --target-length {far} --method {_best(data)} --out LONGER",
            ]
        )
    return Table(["", ""], rows, "steps")


def _best(data: Row) -> str:
    """The scaling that lost least at the longer length."""
    known = [row for row in data["past"] if row["served"] != "as it is" and row["long"]["value"] is not None]
    return str(min(known, key=lambda row: row["long"]["value"])["served"]) if known else "ntk"


def by_position(data: Row) -> Figure:
    """Loss at each stretch of positions, at every stage, with the old end."""
    rows = data["by_position"]
    by_stage = {
        STAGES[stage]: [row.get(stage) or {"value": None, "low": None, "high": None} for row in rows]
        for stage in _stages(data)
    }
    return Figure(
        "lines",
        "Loss by position",
        "place in the text, tokens",
        "loss, nats a token",
        [(row["start"] + row["end"]) / 2 for row in rows],
        lines={name: [mean["value"] for mean in means] for name, means in by_stage.items()},
        sides={name: [(mean["low"], mean["high"]) for mean in means] for name, means in by_stage.items()},
        styles={STAGES[stage]: Style(colour=COLOURS[stage], mark="circle") for stage in _stages(data)},
        marks=(Mark("x", data["old"], "old end" if data["ended"] else "trained length"),),
    )
