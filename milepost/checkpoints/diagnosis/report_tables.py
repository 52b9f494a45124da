"""Tables of a diagnosis: a head and rows of words, from diagnosis.json alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milepost.draw import Cells

Row = dict[str, Any]


def _number(value: float | None, digits: int = 3) -> str:
    return "no number" if value is None else f"{value:.{digits}f}"


def _between(row: Row, digits: int = 3, low: str = "low", high: str = "high") -> str:
    return "" if row[low] is None else f"[{row[low]:.{digits}f}, {row[high]:.{digits}f}]"


def position_table(data: Row) -> Cells:
    """Loss of each bucket."""
    return ["tokens", "loss", "95% interval", "scored"], [
        [f"{r['start']}-{r['end'] - 1}", _number(r["loss"]), _between(r), str(r["tokens"])]
        for r in data["loss_by_position"]
    ]


def length_table(data: Row) -> Cells:
    """The same last tokens, and windows without overlap, at each length."""
    apart = {row["length"]: row for row in data["disjoint"]}
    rows = []
    for r in data["loss_by_length"]:
        change = (
            "" if r["change"] is None else f"{r['change']:+.3f} {_between(r, 3, 'change_low', 'change_high')}".strip()
        )
        perplexity = "no number" if r["perplexity"] is None else f"{r['perplexity']:.2f}"
        without = [_number(apart[r["length"]]["loss"])] if apart else []
        rows.append([str(r["length"]), _number(r["loss"]), _between(r), perplexity, change, *without])
    head = ["length", "loss", "95% interval", "perplexity", "change", *(["without overlap"] if apart else [])]
    return head, rows


def shifted_table(data: Row) -> Cells:
    """The same passage at other positions."""
    return ["from position", "loss", "difference", "95% interval", "largest of any token"], [
        [
            str(r["first"]),
            _number(r["loss"]),
            "no number" if r["difference"] is None else f"{r['difference']:+.2e}",
            "" if r["low"] is None else f"[{r['low']:+.1e}, {r['high']:+.1e}]",
            _power(r["largest"]),
        ]
        for r in data["shifted"]
    ]


def _power(value: float | None) -> str:
    return "no number" if value is None else f"{value:.1e}"


def retrieval_table(data: Row) -> Cells:
    """The share of right answers by depth (rows) and length (columns)."""
    retrieved = data["retrieval"]
    lengths = [row["length"] for row in retrieved["lengths"]]
    cells = {(cell["depth"], cell["length"]): cell for cell in retrieved["cells"]}
    depths = sorted({cell["depth"] for cell in retrieved["cells"]})
    rows = [
        [
            f"{d:.0%}",
            *[f"{cells[d, n]['share']:.0%} [{cells[d, n]['low']:.0%}, {cells[d, n]['high']:.0%}]" for n in lengths],
        ]
        for d in depths
    ]
    rows.append(["all", *[f"{r['share']:.0%} [{r['low']:.0%}, {r['high']:.0%}]" for r in retrieved["lengths"]]])
    rows.append(
        ["margin, nats", *["no number" if r["margin"] is None else f"{r['margin']:+.2f}" for r in retrieved["lengths"]]]
    )
    return ["depth", *[f"{n} tokens" for n in lengths]], rows


def attention_table(data: Row) -> Cells:
    """Every head at every length."""
    return ["tokens", "layer, head", "mean distance", "entropy", "first token"], [
        [
            str(row["length"]),
            f"{h['layer']}, {h['head']}",
            f"{h['mean']:.1f}",
            f"{h['entropy']:.2f}",
            f"{h['sink']:.1%}",
        ]
        for row in data["attention"]
        for h in row["heads"]
    ]


def layer_table(data: Row) -> Cells:
    """The mean over each layer's heads, at every length."""
    lengths = [row["length"] for row in data["attention"]]
    layers = sorted({h["layer"] for row in data["attention"] for h in row["heads"]})
    rows = []
    for layer in layers:
        cells = [str(layer)]
        for row in data["attention"]:
            mine = [h for h in row["heads"] if h["layer"] == layer]
            cells += [_mean(mine, "mean", 1), _mean(mine, "entropy", 2), _mean(mine, "sink", 3)]
        rows.append(cells)
    return ["layer", *[f"{word}, {n}" for n in lengths for word in ("mean distance", "entropy", "first token")]], rows


def _mean(heads: Sequence[Row], key: str, digits: int) -> str:
    return f"{sum(h[key] for h in heads) / len(heads):.{digits}f}" if heads else ""


def _kind(layers: Row) -> str:
    return "" if layers["kind"] == "all" else f" ({layers['kind']})"


def pair_table(data: Row) -> Cells:
    """Every rotary pair at the longest length."""
    return ["pair", "turns, trained", "turns, longest", "angles"], [
        [
            f"{pair['pair']}{_kind(layers)}",
            f"{pair['turns']:.4g}",
            f"{pair['target_turns']:.4g}",
            "never seen" if pair["unseen"] else "",
        ]
        for layers in data["pairs"]
        for pair in layers["pairs"]
    ]


def drift_table(data: Row) -> Cells:
    """Cached against uncached."""
    return ["tokens", "largest difference of logits", "allowed", "divergence, nats", ""], [
        [
            str(r["length"]),
            _power(r["largest"]),
            "not known" if r["allowed"] is None else _power(r["allowed"]),
            _power(r["divergence"]),
            "more than rounding" if r["beyond"] else "rounding",
        ]
        for r in data["drift"]
    ]


def protocol_table(data: Row) -> Cells:
    """What was done, so that it can be done again."""
    rows = [[name, _words(value)] for name, value in data["protocol"].items() if name != "plan"]
    rows += [[f"plan: {name}", _words(value)] for name, value in data["protocol"]["plan"].items() if name != "edges"]
    rows += [[name, _words(value)] for name, value in data["provenance"].items()]
    return ["", ""], rows


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(one)}" for name, one in value.items() if one is not None)
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return str(value)
