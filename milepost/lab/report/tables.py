"""What a lab run says, as tables of words. From results.json alone."""

from __future__ import annotations

import math
from typing import Any

from milepost.draw import Cells
from milepost.lab.report.evidence.learning import gain_of_doubling
from milepost.lab.report.evidence.patterns import FAIL, PASS, UNKNOWN, patterns
from milepost.lab.report.evidence.published import SHOWN, TABLE, TRAINED
from milepost.lab.report.runs import (
    Results,
    Run,
    base,
    by_name,
    cost,
    ends,
    gains,
    helped,
    lengths,
    lost,
    mean_loss,
    mean_of,
    name,
    paired,
    plain,
    row_at,
    texts,
    trained,
    whose,
)  # fmt: skip
from milepost.lab.report.seeds import as_shown, merged_run

NONE = "not measured"
RUNNING = ("train", "read", "decode")


def overview_table(results: Results) -> Cells:
    """One row for each encoding: its loss, how far it is behind the best, what is left of it beyond, what it costs."""
    groups, short, best = _ordered(results)
    far = [n for n in lengths(results) if n in (2 * trained(results), lengths(results)[-1]) and n > short]
    costs = results.get("costs", {}).get("rows", {})
    rows = []
    for label, runs in groups.items():
        losses = [(n, mean_loss(runs, n)) for n in far]
        gap = None if label == best else paired(groups[best], runs, short)
        rows.append([
            label,
            _with_interval(_over_seeds(runs, short)),
            str(len(runs)),
            "best" if label == best else gap_cell(gap),
            *[_loss(loss, ends(runs, n), mean_loss(runs, short)) for n, loss in losses],
            *[NONE if runs[0].get(key) is None else f"{runs[0][key]:,}" for key in ("encoding_parameters",)],
            *[_ratio(costs.get(runs[0]["encoding"], {}).get(what)) for what in RUNNING],
        ])  # fmt: skip
    head = ["encoding", f"loss at {short}", "seeds", f"behind {best}", *[f"at {n} ({n / short:g}x)" for n in far]]
    return [*head, "its parameters", "training", f"reading {lengths(results)[-1]}", "a token"], rows


def _ordered(results: Results) -> tuple[dict[str, list[Run]], int, str]:
    """The runs with nothing done to them by name, those with the lowest loss at the trained length first; that length,
    and the name of the first.
    """
    short, groups = base(results), by_name(plain(results))
    known = {label: loss for label, runs in groups.items() if (loss := mean_loss(runs, short)) is not None}
    names = sorted(known, key=lambda label: known[label])
    return {label: groups[label] for label in names}, short, names[0] if names else ""


def _over_seeds(runs: list[Run], length: int) -> dict[str, Any]:
    """The mean over seeds at a length, with the ends of all their intervals."""
    return next(row for row in merged_run(runs)["loss_by_length"] if row["length"] == length)


def _ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def length_table(results: Results, field: str = "loss_by_length") -> Cells:
    """Loss at each length, mean over seeds, and how much more that is than at the trained one."""
    short = base(results)
    rows = []
    for label, runs in by_name(run for run in texts(results) if run.get(field)).items():
        first = mean_loss(runs, short, field)
        losses = [(n, mean_loss(runs, n, field)) for n in lengths(results)]
        rows.append([label, *[_loss(loss, ends(runs, n), first if n != short else None) for n, loss in losses]])
    return ["encoding", *_times(results)], rows


def paired_table(results: Results) -> Cells:
    """How far each encoding is behind the one that is best at the trained length, on the very same tokens."""
    groups, _, best = _ordered(results)
    rows = []
    for label, runs in groups.items():
        gaps = [None if label == best else paired(groups[best], runs, n) for n in lengths(results)]
        rows.append([label, *["best at 1x" if label == best else gap_cell(gap) for gap in gaps]])
    return [f"behind {best}" if best else "encoding", *_times(results)], rows


def seed_table(results: Results) -> Cells:
    """The same, each seed alone with its interval; of many runs, those with nothing done to them."""
    rows = []
    for run in texts(results) if as_shown(results) is results else plain(results):
        cells = [row_at(run, n) for n in lengths(results)]
        rows.append([name(run), str(run["seed"]), *[NONE if row is None else _with_interval(row) for row in cells]])
    return ["encoding", "seed", *_times(results)], rows


def unit_table(results: Results) -> Cells:
    """The same losses as perplexity and as bits per byte; of many runs, those with nothing done to them."""
    rows = []
    for label, runs in by_name(texts(results) if as_shown(results) is results else plain(results)).items():
        cells = []
        size = results["provenance"]["protocol"]["text"].get("bytes_per_token")
        for n in lengths(results):
            measured = [row_at(run, n) for run in runs]
            loss = mean_loss(runs, n)
            bits = mean_of(row.get("bits_per_byte") for row in measured if row is not None)
            if bits is None and loss is not None and size:
                bits = loss / math.log(2) / size
            cells.append(
                "table ends"
                if ends(runs, n)
                else NONE
                if loss is None
                else f"{_exp(loss)} / {'?' if bits is None else f'{bits:.3f}'}"
            )
        rows.append([label, *cells])
    return ["encoding", *_times(results)], rows


def protocol_loss_table(results: Results) -> Cells:
    """Three ways to measure side by side: the same last tokens, windows without overlap, windows that slide."""
    ways = {
        "loss_by_length": "same last tokens",
        "disjoint": "windows without overlap",
        "sliding": "sliding by half a window",
    }
    rows = []
    for label, runs in by_name(plain(results)).items():
        for field, way in ways.items():
            if any(run.get(field) for run in runs):
                rows.append([label, way, *[_loss(mean_loss(runs, n, field), ends(runs, n)) for n in lengths(results)]])
    return ["encoding", "protocol", *_times(results)], rows


def strategy_table(results: Results, *, intervals: bool = True) -> Cells:
    """Each strategy's gain beyond the trained length, beside what a short text pays when it is set for the longest."""
    far = [n for n in lengths(results) if n > trained(results)]
    results = as_shown(results)
    rows = []
    for label, runs in by_name(helped(results)).items():
        if len(runs) > 1:
            costs = mean_of(None if found is None else found["cost"] for found in (cost(run, results) for run in runs))
            means = [mean_of(gains(run, results).get(n, {}).get("gain") for run in runs) for n in far]
            rows.append([label, "mean", *[NONE if v is None else f"{v:+.3f}" for v in (costs, *means)]])
        for run in runs:
            found = [cost(run, results), *[gains(run, results).get(n) for n in far]]
            rows.append(
                [
                    label,
                    str(run["seed"]),
                    *[NONE if one is None else _with_interval(one, sign="+", shown=intervals) for one in found],
                ]
            )
    return [
        "strategy",
        "seed",
        f"cost at {base(results)}, set for {lengths(results)[-1]}",
        *[f"gain at {n}" for n in far],
    ], rows


def attention_table(results: Results) -> Cells:
    """How far heads look, as means over the heads of each run; of many runs, of the first seed."""
    rows = []
    for run in as_shown(results)["runs"]:
        for looks in run.get("attention") or []:
            heads = looks["heads"]
            far, keys, sink = (mean_of(h[field] for h in heads) or 0.0 for field in ("mean", "entropy", "sink"))
            rows.append(
                [
                    name(run),
                    str(run["seed"]),
                    str(looks["length"]),
                    f"{far:.1f}",
                    f"{math.exp(keys):.1f}",
                    f"{sink:.1%}",
                ]
            )
    return ["encoding", "seed", "tokens", "mean distance, tokens", "keys looked at", "share of the first token"], rows


def task_table(results: Results) -> Cells:
    """Loss of the answers and the share of right ones, task by task, beside chance."""
    by_task: dict[str, list[Run]] = {}
    for run in results["runs"]:
        for task in run.get("tasks") or {}:
            by_task.setdefault(task, []).append(run)
    rows = []
    for task, runs in sorted(by_task.items()):
        known = {row["length"]: row["chance"] for run in runs for row in run["tasks"][task]}
        rows.append([task, "chance", "", *[f"{known[n]:.2f}" if n in known else NONE for n in lengths(results)]])
        for run in sorted(runs, key=lambda run: (name(run), run["seed"])):
            scored = {row["length"]: row for row in run["tasks"][task]}
            cells = [NONE if n not in scored else _score(scored[n]) for n in lengths(results)]
            rows.append([task, name(run), str(run["seed"]), *cells])
    return ["task", "encoding", "seed", *_times(results)], rows


def cost_table(results: Results) -> Cells:
    """Parameters inside and outside of the encoding, how much each model read, speed and memory of each training."""
    base_speed = {
        (run["seed"], run.get("run")): run.get("train_tokens_per_s")
        for run in plain(results)
        if run["encoding"] == "nope"
    }
    rows = []
    for run in plain(as_shown(results)):
        speed, of = run.get("train_tokens_per_s"), base_speed.get((run["seed"], run.get("run")))
        whole, own, tokens = (run.get(key) for key in ("parameters", "encoding_parameters", "train_tokens"))
        gain = gain_of_doubling(run.get("train_loss") or [])
        rows.append([
            whose(run), str(run["seed"]),
            NONE if whole is None else f"{whole - (own or 0):,}",
            NONE if own is None else f"{own:,}",
            f"{tokens / whole:.1f}" if tokens and whole else NONE,
            f"{run.get('rate', 1.0):g}",
            NONE if gain is None else f"{gain:.3f}",
            f"{speed:,.0f}" if speed else NONE,
            f"{speed / of:.2f}" if speed and of else NONE,
            f"{run['peak_mb']:,.0f}" if run.get("peak_mb") else NONE,
        ])  # fmt: skip
    head = [
        "encoding",
        "seed",
        "parameters",
        "of the encoding",
        "tokens a parameter",
        "rate",
        "doubling would take away, nats",
    ]
    return [*head, "tokens a second", "of nope's", "peak memory, MB"], rows


def pattern_table(results: Results) -> Cells:
    """What papers found, and whether these models show it; what they miss comes first."""
    order = (FAIL, PASS, UNKNOWN)
    known = sorted(patterns(results), key=lambda pattern: order.index(pattern.status))
    rows = [[pattern.status, pattern.statement, pattern.shown, pattern.reference] for pattern in known]
    return ["", "published", "here", "where"], rows


def published_table(results: Results) -> Cells:
    """ALiBi's table 2 beside ours: perplexity over perplexity at the trained length, windows without overlap."""
    short, far = base(results), [n for n in lengths(results) if n != base(results)]
    head = [
        "encoding",
        *[f"published {n / TRAINED:.2g}x" for n in SHOWN],
        *[f"ours {n / trained(results):g}x" for n in far],
    ]
    rows = []
    for encoding, column in TABLE.items():
        known = [f"{column[n] / column[TRAINED]:.2f}" for n in SHOWN]
        mine = by_name(run for run in plain(results) if run["encoding"] == encoding) or {encoding: []}
        for label, runs in mine.items():
            first = mean_loss(runs, short, "disjoint")
            losses = [mean_loss(runs, n, "disjoint") for n in far]
            rows.append([label, *known, *[NONE if v is None or first is None else _exp(v - first) for v in losses]])
    return head, rows


def lost_table(results: Results) -> Cells:
    """Trials that failed or are missing, seeds with the same reason together."""
    seeds: dict[tuple[str, str, str], list[str]] = {}
    for trial, why in lost(results):
        seeds.setdefault((whose(trial), str(trial.get("data", "text")), why), []).append(str(trial["seed"]))
    rows = [[name, ", ".join(several), data, why] for (name, data, why), several in seeds.items()]
    return ["encoding", "seed", "data", "what happened"], rows


def provenance_table(about: dict[str, Any]) -> Cells:
    """What was done, with what, on what."""
    plan, text = about["protocol"]["plan"], about["protocol"]["text"]
    rows = [
        [
            "text",
            f"{text['source']}: {text['train_tokens']:,} tokens to train, {text['test_files']} test files; sha256 "
            f"{text['sha256'][:16]}",
        ],
        ["tokens", str(plan.get("tokenizer", ""))],
        ["model", ", ".join(f"{key} {value}" for key, value in plan["shape"].items())],
        [
            "training",
            f"{plan['steps']} steps of {plan['rows']} x {plan['shape']['length']} tokens; seeds "
            f"{', '.join(map(str, plan['seeds']))}",
        ],
        [
            "order",
            "every encoding reads the same batches in the same order, and starts from the same weights outside the "
            "encoding",
        ],
        [
            "scored",
            f"the last {about['protocol']['targets']} tokens of {plan.get('windows', '?')} test windows; means over "
            "tokens",
        ],
        *made(about),
    ]
    return ["", ""], rows


def made(about: dict[str, Any]) -> list[list[str]]:
    """What the protocol says in words, and on which machine and with which versions it was done."""
    versions = ", ".join(f"{name} {version}" for name, version in about.get("versions", {}).items())
    return [
        *[[key.replace("_", " "), value] for key, value in about["protocol"].items() if isinstance(value, str)],
        [
            "made",
            f"{about.get('date', '?')}, {about.get('cores', '?')} cores, {about.get('system', '?')} "
            f"{about.get('machine', '')}",
        ],
        ["versions", f"Python {about.get('python', '?')}, {versions}"],
    ]


# -- cells
# --------------------------------------------------------------------------------------------------------------------


def _times(results: Results) -> list[str]:
    return [f"{n} ({n / trained(results):g}x)" for n in lengths(results)]


def _loss(value: float | None, ended: bool, first: float | None = None) -> str:
    if value is None:
        return "table ends" if ended else NONE
    return f"{value:.3f}" + (f" ({value / first - 1:+.1%})" if first else "")


def _with_interval(row: dict[str, Any], sign: str = "", shown: bool = True) -> str:
    value = next(row[field] for field in ("loss", "gain", "cost") if field in row)
    if value is None:
        return str(row.get("note", "table ends"))
    low, high = row.get("low"), row.get("high")
    return f"{value:{sign}.3f}" + (
        "" if low is None or high is None or not shown else f" [{low:{sign}.3f}, {high:{sign}.3f}]"
    )


def gap_cell(gap: dict[str, float] | None) -> str:
    """A difference in nats, with half of its interval."""
    return NONE if gap is None else f"{gap['nats']:+.3f} ± {gap['high'] - gap['nats']:.3f}"


def _score(row: dict[str, Any]) -> str:
    return str(row.get("note", "table ends")) if row["loss"] is None else f"{row['loss']:.2f} ({row['accuracy']:.0%})"


def _exp(loss: float) -> str:
    return f"{math.exp(loss):,.2f}" if loss < 20 else f"e^{loss:.0f}"
