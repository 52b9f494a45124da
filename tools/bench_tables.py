"""Fill the tables of README.md, README.zh.md and docs/cost.md from docs/bench/bench.json; `make bench` runs it.

A table stands between `<!-- bench NAME -->` and `<!-- /bench -->`. One whose numbers are not all measured is left as it
is, and named. docs/bench/machines.json keeps our ratios of every machine on which the benchmark ran, by processor,
threads and version: the table of ranges is made of those.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BENCH, MACHINES, SHIPPED = (
    ROOT / name for name in ("docs/bench/bench.json", "docs/bench/machines.json", "milepost/measured/bench.json")
)
PAGES = ("README.md", "README.zh.md", "docs/cost.md")
COLUMNS = (("forward", 4096), ("forward", 16384), ("training", 4096), ("decode", 16384))
PLAIN = ("rope", "alibi", "t5", "kerple", "sandwich")
CONTENT = ("shaw", "transformer_xl", "deberta", "fire", "cope")


class MissingError(Exception):
    """A number that was not measured."""


class Numbers:
    """What bench.json and machines.json say."""

    def __init__(self, result: dict[str, Any], machines: list[dict[str, Any]]):
        self.rows, self.lab, self.rotation, self.machines = (
            result["rows"],
            result.get("lab", []),
            result["rope"],
            machines,
        )

    def cell(self, scheme: str, kind: str, length: int, what: str = "ratio", by: str = "milepost") -> float:
        """One number of one implementation."""
        for row in self.rows:
            about = (row["scheme"], row["pass"], row["length"], row["implementation"])
            if about == (scheme, kind, length, by) and row[what] is not None:
                return float(row[what])
        raise MissingError(f"{what}, {scheme} by {by}, {kind} at {length}")

    def readme(self, head: list[str]) -> list[list[str]]:
        """The most used schemes, and one of each kind of content."""
        schemes = ["rope", "alibi", "t5"]
        for scheme in ("shaw", "cope"):
            try:
                [self.cell(scheme, *column) for column in COLUMNS]
                schemes.append(scheme)
            except MissingError:
                continue
        return [head, *([f"`{s}`", *(f"{self.cell(s, *column):.2f}" for column in COLUMNS)] for s in schemes)]

    def forward(self) -> list[list[str]]:
        """Ours and the plainly written, with their memory."""
        lines = [["4096 tokens, forward", "engine", "plainly written", "extra memory, engine", "plainly"]]
        for scheme in (*PLAIN, *CONTENT):
            by, word = ("transformers eager", " (transformers, eager)") if scheme == "rope" else ("materialised", "")
            ours, plain = self.cell(scheme, "forward", 4096), self.cell(scheme, "forward", 4096, by=by)
            more = [self.cell(scheme, "forward", 4096, "peak_mb", b) for b in ("milepost", by)]
            lines.append([f"`{scheme}`", f"{ours:.2f}", f"{plain:.2f}{word}", *(f"{mb:.0f} MB" for mb in more)])
        return lines

    def content(self) -> list[list[str]]:
        """The schemes that meet content, in every pass."""
        lines = [["8 heads x 64, float32", *(f"{kind}, {n}" for kind, n in COLUMNS), "extra memory, forward, 16384"]]
        for s in CONTENT:
            much = self.cell(s, "forward", 16384, "peak_mb")
            lines.append([f"`{s}`", *(f"{self.cell(s, *column):.2f}" for column in COLUMNS), f"{much:.0f} MB"])
        return lines

    def maps(self) -> list[list[str]]:
        """Position maps, a token over a cache."""
        names = list(dict.fromkeys(r["scheme"] for r in self.rows if "(rope=rope" in r["scheme"]))
        if len(names) < 3:
            raise MissingError("the maps")
        lines = ([f"`{s.split('(')[0]}`", *(f"{self.cell(s, 'decode', n):.2f}" for n in (4096, 16384))] for s in names)
        return [["a token over", "4096", "16384"], *lines]

    def rotations(self) -> list[list[str]]:
        """Rotating q and k, against peers."""
        lines = [["32 heads x 4096 x 128", "time / a plain copy"]]
        for row in sorted(self.rotation, key=lambda row: float(row["ratio"])):
            if row["implementation"] != "clone":
                word = ", compiled" if row["mode"] == "compiled" else ""
                lines.append([f"{row['implementation']}{word}", f"{row['ratio']:.2f}"])
        return lines

    def lab_rates(self) -> list[list[str]]:
        """The lab's model, training."""
        if not self.lab:
            raise MissingError("the lab's model")
        rates = ([f"`{r['encoding']}`", f"{r['tokens_per_s']:,.0f}", f"{r['ratio']:.2f}"] for r in self.lab)
        return [["standard shape", "tokens a second", "of `nope`'s"], *rates]

    def ranges(self) -> list[list[str]]:
        """The least and the most over all machines of which a ratio is known."""
        lines = [["over machines", *(f"{kind}, {n}" for kind, n in COLUMNS)]]
        for scheme in (*PLAIN, *CONTENT):
            cells = []
            for kind, n in COLUMNS:
                known = [m["ratios"][key] for m in self.machines if (key := f"{scheme} {kind} {n}") in m["ratios"]]
                low, high = (f"{f(known):.2f}" if known else "" for f in (min, max))
                cells.append(low if low == high else f"{low} to {high}")
            lines.append([f"`{scheme}`", *cells])
        return lines


def remembered(result: dict[str, Any], machines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The machines with the one of this result, in place of what was known of it."""
    about = result["provenance"]
    own = {
        "processor": about.get("processor", f"{about['cores']} cores ({about['machine']})"),
        "threads": about["protocol"].get("threads", about["cores"]),
        "milepost": about["versions"]["milepost"],
    }
    ratios = {
        f"{row['scheme']} {row['pass']} {row['length']}": round(row["ratio"], 3)
        for row in result["rows"]
        if row["implementation"] == "milepost" and row["ratio"] is not None
    }
    others = [m for m in machines if any(m.get(name) != word for name, word in own.items())]
    return [*others, {**own, "date": about["date"], "ratios": ratios}]


def tables(numbers: Numbers) -> dict[str, Callable[[], list[list[str]]]]:
    """Every table by its name."""
    columns = [f"{kind}, {length}" for kind, length in COLUMNS]
    chinese = ["时间 / 无位置", "前向 4096", "前向 16384", "训练 4096", "解码 16384"]
    return {
        "readme": lambda: numbers.readme(["time / no position", *columns]),
        "readme-zh": lambda: numbers.readme(chinese),
        "forward": numbers.forward, "content": numbers.content, "maps": numbers.maps,
        "rotations": numbers.rotations, "lab": numbers.lab_rates, "ranges": numbers.ranges,
    }  # fmt: skip


def filled(text: str, numbers: Numbers, say: Callable[[str], None] = lambda text: None) -> str:
    """A page with its tables as they are measured."""
    every = tables(numbers)

    def table(found: re.Match[str]) -> str:
        try:
            head, *lines = every[found[1]]()
        except MissingError as missing:
            say(f"{found[1]}: left as it is, since there is no number of {missing}")
            return found[0]
        rule = "|---|" + "---:|" * (len(head) - 1)
        top, *rows = (f"| {' | '.join(line)} |" for line in (head, *lines))
        return "\n".join([f"<!-- bench {found[1]} -->", top, rule, *rows, "<!-- /bench -->"])

    return re.sub(r"<!-- bench ([\w-]+) -->\n.*?<!-- /bench -->", table, text, flags=re.S)


def main() -> None:
    """Fill all pages, keep what was measured on this machine, and ship bench.json with the package."""
    result = json.loads(BENCH.read_text(encoding="utf-8"))
    known = json.loads(MACHINES.read_text(encoding="utf-8")) if MACHINES.exists() else []
    machines = remembered(result, known)
    MACHINES.write_text(json.dumps(machines, indent=1) + "\n", encoding="utf-8")
    SHIPPED.write_bytes(BENCH.read_bytes())
    numbers = Numbers(result, machines)
    for name in PAGES:
        page = ROOT / name
        page.write_text(
            filled(page.read_text(encoding="utf-8"), numbers, lambda t: print(t, file=sys.stderr)), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
