"""Writes docs/engines.md, what engines do, from milepost/rope/engines/measured; `--check`: is it up to date?"""

# ruff: noqa: E402

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import itertools
import json
from functools import cache
from importlib import resources
from typing import Any

import torch

import milepost
from milepost.rope import ENGINES, ConfigError, as_read_by, read
from milepost.rope.engines import measured
from milepost.rope.engines.runtimes.diffusers import read_transformer

LONGEST = 240
ANGLES = 2e-5
"""How far cos and sin of angles up to 100 may be off, that came in float32 and are kept with six places."""
OUT = ROOT / "docs" / "engines.md"
HEAD = """# What engines do

Every engine below was run: its own model class was built on a CPU from {configs} small configs with the rotary keys of
real models, and vectors were turned with it. From what came out follow the frequency of every pair, m (the factor on
queries and keys), the pairing, and which layers turn. `make engines` does it again; this page is made from its files.

- 🟢 **same**: every layer turns as the config says, in the meaning that the model's own code gives it.
- 🔴 **other**: a layer turns otherwise.
- ⛔ **stops**: the engine ends with an error.
- ⚪ **–**: not measured: the engine has no class for the model, or the transformers that it stands on has none.

`milepost parity MODEL --engines all` says this of any config: "measured with" and the version, or "not measured, from
reading" where no model of its type was run.
"""
SPOKEN = """What milepost says of an engine is held against the same numbers by the tests. **Agrees**: `as_read_by`
gives the engine's table, or refuses what the engine stops at. **Named**: it does not; the defect is named below.
"""

COLOURS = {"same": "🟢", "other": "🔴", "stops": "⛔", "–": "⚪"}

EXPORTS = """## Exports, run by the engine

What `milepost export` prints for the configs of real models and of every family, as they are and for four times their
length with yarn, linear, llama3 and ntk, was given to the engine as printed. Refused: the engine can't say it, and
`export` says why.
"""


def word(engine: str, version: str, name: str) -> tuple[str, str]:
    """What an engine did with a config, in one word, and why."""
    held = measured.load(engine, version)
    case = held.cases.get(name, {"not_measured": "a config that is newer than the measurement"})
    if "not_measured" in case:
        return "–", case["not_measured"]
    if "stops" in case:
        told = " ".join(str(case["stops"]).split()).replace("1 validation error for ModelConfig Value error, ", "")
        try:
            as_read_by(engine, measured.configs()[name], version=version)
        except ConfigError as refusal:
            told = f"{told}; {refusal}"
        return "stops", told
    try:
        spec = read(measured.configs()[name])
    except ConfigError as refusal:
        return "other", f"milepost refuses this config: {refusal}"
    wrong = measured.apart(held, case, spec)
    if not wrong:
        return "same", ""
    notes: list[str] = []
    try:
        own = set(spec.notes)
        notes = [
            note for note in as_read_by(engine, measured.configs()[name], version=version).notes if note not in own
        ]
    except ConfigError as refusal:
        notes = [str(refusal)]
    known = [measured.defects().get(key, {}).get(name) for key in (engine, f"{engine}@{version}")]
    named = next(filter(None, known), None)
    return "other", "; ".join([*([named] if named else []), wrong[0], *notes[:1]])


def exported(engine: str, version: str, key: str) -> str:
    """What an engine did with an export, in one word."""
    held = measured.load(engine, version)
    case = held.exports[key]
    for part, answer in (("refused", "refused"), ("not_measured", "–"), ("stops", "stops")):
        if part in case:
            return answer
    name, method = key.split(" | ")
    spec = SPECS(name)
    spec = spec if method == "as it is" else spec.extended(4 * (spec.trained or 0), method)  # type: ignore[arg-type]
    return "other" if measured.apart_exported(held, case, spec) else "same"


SPECS = cache(lambda name: read(measured.configs()[name]))


def outcome(engine: str, version: str, name: str) -> tuple[str, str]:
    """How milepost's reading of a config compares with what the engine did: a word, and the reason."""
    held = measured.load(engine, version)
    case = held.cases[name]
    if "not_measured" in case:
        return "not measured", case["not_measured"]
    try:
        spec = as_read_by(engine, measured.configs()[name], version=version)
    except ConfigError as refusal:
        return ("both stop", case["stops"]) if "stops" in case else ("milepost refuses", str(refusal))
    if "stops" in case:
        return "engine stops", case["stops"]
    wrong = measured.apart(held, case, spec)
    return ("different", "; ".join(wrong)) if wrong else ("equal", "")


Run = tuple[str, str]
Words = dict[Run, dict[str, tuple[str, str]]]


def page() -> str:
    """The page."""
    every = [(engine, version) for engine in ENGINES for version in measured.versions(engine)]
    runs = [(engine, version) for engine, version in every if ENGINES[engine].reads]
    words = {(e, v): {name: word(e, v, name) for name in measured.configs()} for e, v in runs}
    return "\n".join([
        HEAD.format(configs=len(measured.configs())), *_counts(runs, words), *_exports(every), *_wrong(words),
        *_drift(words), *_stood_in(every), *_lengths(), *_rope_types(), *_logits(), *_pairs(), *_diffusion(),
        *_families(runs), *_every_config(runs, words),
    ]) + "\n"  # fmt: skip


def _counts(runs: list[Run], words: Words) -> list[str]:
    """What was measured, when, and how it came out."""
    lines = ["## What was measured", "",
             "| engine | measured on | 🟢 same | 🔴 other | ⛔ stops | ⚪ not measured | assumed |",
             "|---|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    for engine, version in runs:
        counts = Counter(w for w, _ in words[engine, version].values())
        held = measured.load(engine, version)
        assumed = sum("assumed" in case for case in held.cases.values())
        shown = [counts[w] for w in ("same", "other", "stops", "–")] + [assumed]
        lines.append(f"| {engine} {version} | {held.when} | {' | '.join(map(str, shown))} |")
    lines += ["", "Assumed: that its layers turn, for the engine's attention could not be called without kernels.", ""]
    silent = [name for name in ENGINES if not measured.versions(name)]
    lines += [f"Not measured, from reading their code: {', '.join(silent)}.", ""] if silent else []
    lines += [
        f"- {name} could not be run when it was last tried: {reason}" for name, reason in measured.not_run().items()
    ]
    lines += [SPOKEN, "| engine | agrees | named | not measured |", "|---|---:|---:|---:|"]
    for engine, version in runs:
        counts = Counter(outcome(engine, version, name)[0] for name in measured.load(engine, version).cases)
        agrees = counts["equal"] + counts["both stop"]
        named = counts["different"] + counts["engine stops"] + counts["milepost refuses"]
        lines.append(f"| {engine} {version} | {agrees} | {named} | {counts['not measured']} |")
    return [*lines, ""]


def _exports(every: list[Run]) -> list[str]:
    """What engines did with what export writes."""
    lines = [EXPORTS, "| engine | run | same | other | stops | not measured | refused |",
             "|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for engine, version in every:
        counts = Counter(exported(engine, version, key) for key in measured.load(engine, version).exports)
        ran = counts["same"] + counts["other"] + counts["stops"]
        shown = [ran, *(counts[w] for w in ("same", "other", "stops", "–", "refused"))]
        lines.append(f"| {engine} {version} | {' | '.join(map(str, shown))} |")
    return [*lines, ""]


def _cause(engine: str, version: str, outcome: str, reason: str) -> str:
    """The reason without what belongs to one config: names of models, numbers, the version."""
    first = reason.split("; ")
    told = first[1] if outcome == "other" and len(first) > 1 and " measured, " in first[0] else first[0]
    told = told.removeprefix(ENGINES[engine].at(version).named).removeprefix(ENGINES[engine].title).strip()
    if outcome == "stops":
        told = re.sub(
            r"\{('[^{}]*')\}", lambda keys: ", ".join(sorted(keys[1].split(", "))), told
        )  # sets have no order
        return re.sub(r"'[^']*/[^']*'|/tmp\S*", "...", told)[:120]
    told = re.sub(r" in its \w+|(?<=transformers) \d+\.[\d.]+", "", told).partition(": ")[0].partition(" (")[0]
    return re.sub(r"(?<![\w.-])[\d.]+(e[+-]\d+)?(?![\w])", "N", told)


def _wrong(words: Words) -> list[str]:
    """What goes wrong, by engine: each cause once, with the models that it meets."""
    lines = ["## What goes wrong, by engine", "",
             "Each line is one cause, with the number of configs that meet it by version, the types of these models, "
             "and one of them in full. N stands for a number of the config.", ""]  # fmt: skip
    for engine in dict.fromkeys(engine for engine, _ in words):
        causes: dict[tuple[str, str], dict[str, list[str]]] = {}
        example: dict[tuple[str, str], str] = {}
        for run in (run for run in words if run[0] == engine):
            for name, (answer, reason) in words[run].items():
                if answer in ("other", "stops"):
                    key = (answer, _cause(*run, answer, reason))
                    causes.setdefault(key, {}).setdefault(run[1], []).append(name)
                    example.setdefault(key, f"{name}: {reason}")
        lines += [
            f"### {ENGINES[engine].title}",
            "",
            "| | cause | configs | models | for example |",
            "|---|---|---|---|---|",
        ]
        for key, found in sorted(causes.items(), key=lambda item: -sum(map(len, item[1].values()))):
            counts = ", ".join(f"{len(names)} in {version}" for version, names in found.items())
            kinds = dict.fromkeys(_kind(name) for names in found.values() for name in names)
            lines.append(
                f"| {COLOURS[key[0]]} | {_cell(key[1])} | {counts} | {_list(list(kinds))} | {_cell(example[key])} |"
            )
        lines.append("")
    return lines


def _kind(name: str) -> str:
    """The model type of a config."""
    config = measured.configs()[name]
    inner: dict[str, Any] = next(
        (config[part] for part in ("text_config", "thinker_config") if isinstance(config.get(part), dict)), {}
    )
    return str(config.get("model_type") or inner.get("model_type") or name)


def _list(names: list[str], most: int = 12) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _drift(words: Words) -> list[str]:
    """What changed from version to version, alike configs together."""
    lines = ["## From version to version", "", "| engine | from | to | outcome | models | for example |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for engine in ENGINES:
        for newer, older in itertools.pairwise(v for e, v in words if e == engine):
            groups: dict[tuple[str, str], list[str]] = {}
            for name in measured.configs():
                a, b = words[engine, older][name], words[engine, newer][name]
                if a[0] != b[0] and "–" not in (a[0], b[0]):
                    why = _cause(engine, newer if b[1] else older, b[0] if b[1] else a[0], b[1] or a[1])
                    groups.setdefault((f"{COLOURS[a[0]]} {a[0]} to {COLOURS[b[0]]} {b[0]}", why), []).append(name)
            for (change, why), names in groups.items():
                kinds = list(dict.fromkeys(map(_kind, names)))
                shown = f"{len(names)} configs: {_list(kinds)}"
                lines.append(f"| {engine} | {older} | {newer} | {change} | {shown} | {names[0]}: {_cell(why)} |")
    return [*lines, ""]


def _stood_in(every: list[Run]) -> list[str]:
    stood = {engine: measured.load(engine, version).stood_in for engine, version in every}
    said = [f"- {engine}: {'; '.join(parts) or 'nothing'}" for engine, parts in stood.items()]
    return ["## What stood in for what", "", *said]


def _families(runs: list[Run]) -> list[str]:
    """Which families honour what, alike ones together."""
    lines = ["", "## Families that drop what the config says", "",
             "Flat is the spelling of transformers 4 (`rope_theta`, `rope_scaling`), nested that of 5.",
             "", "| engine | spelling | outcome | families |", "|---|---|---|---|"]  # fmt: skip
    for engine, version in runs:
        groups: dict[tuple[str, str], list[str]] = {}
        for family, outcomes in measured.load(engine, version).families.items():
            for spelling, said in outcomes.items():
                if said != "read":
                    groups.setdefault((spelling, said), []).append(family)
        lines += [f"| {engine} {version} | {spelling} | {_cell(said)} | {', '.join(families)} |"
                  for (spelling, said), families in sorted(groups.items())]  # fmt: skip
    return lines


def _every_config(runs: list[Run], words: Words) -> list[str]:
    """The long table."""
    lines = ["", "## Every config", "", f"| config | {' | '.join(f'{e} {v}' for e, v in runs)} | why |",
             f"|---|{':-:|' * len(runs)}---|"]  # fmt: skip
    for name in measured.configs():
        cells = [words[run][name] for run in runs]
        why = dict.fromkeys(
            f"{e}: {reason}" for (e, _), (w, reason) in zip(runs, cells, strict=True) if w in ("other", "stops")
        )
        lines.append(f"| {name} | {' | '.join(COLOURS[w] for w, _ in cells)} | {_cell('; '.join(list(why)[:2]))} |")
    return lines


def _logits() -> list[str]:
    """What llama.cpp did with a real model."""
    held = json.loads((resources.files(measured) / "llama.cpp-logits.json").read_text(encoding="utf-8"))
    lines = ["", "## llama.cpp with a real model", "",
             f"{held['model']}, 512 tokens: the largest difference of a log-probability from an oracle's that was "
             "given milepost's frequencies, and the mean effect of the flags. Commands that `export` printed were also "
             "started as a server: the largest difference of its five likeliest tokens.", "",
             "| build | flags | largest difference | effect | server | effect |",
             "|---|---|---:|---:|---:|---:|"]  # fmt: skip
    columns = ("largest", "effect", "server", "server_effect")
    for build, cases in held["builds"].items():
        for flags, case in cases.items():
            numbers = [f"{case[key]:.2g}" if key in case else "" for key in columns]
            lines.append(f"| {build} | `{flags or 'none'}` | {' | '.join(numbers)} |")
    return lines


def _pairs() -> list[str]:
    """What llama.cpp's own converter lost of checkpoints, as `milepost parity` says."""
    held = json.loads((resources.files(measured) / "llama.cpp-pairs.json").read_text(encoding="utf-8"))
    lines = ["", "## Files of llama.cpp's converter against their source", "",
             "`milepost parity FOLDER FILE.gguf` on small checkpoints and the files that the converter made of them. "
             "Each file was compared again with losses planted into it: the base, the factors, the rows of q in the "
             "source's order. All were named.", "", "| build | config | lost by the converter | planted and named |",
             "|---|---|---|---|"]  # fmt: skip
    for build, pairs in held.items():
        for name, said in pairs.items():
            planted = ", ".join(loss for loss in said if loss != "as it is")
            lines.append(f"| {build} | {name} | {_cell('; '.join(said['as it is']) or 'nothing')} | {planted} |")
    return lines


def _lengths() -> list[str]:
    """Which lengths vLLM takes."""
    held = json.loads((resources.files(measured) / "vllm-served.json").read_text(encoding="utf-8"))
    lines = ["", "## The lengths that vLLM takes", "",
             "Its own ModelConfig was made with values of `--max-model-len` around every limit. With yarn, from "
             "0.30.0 on, it takes no more than max_position_embeddings, so that a config which keeps the trained "
             "length there has to be overridden.",
             "", "| config | version | without the flag | longest taken | first refused |",
             "|---|---|---:|---:|---:|"]  # fmt: skip
    for name in next(iter(held.values())):
        for version, answers in held.items():
            answer = answers[name]
            shown = (answer["by default"], max(answer["taken"]), min(answer["refused"]))
            lines.append(f"| {name} | {version} | {' | '.join(map(str, shown))} |")
    return lines


def _rope_types() -> list[str]:
    """Rope types that vLLM alone has."""
    held = json.loads((resources.files(measured) / "vllm-rope-types.json").read_text(encoding="utf-8"))
    lines = ["", "## Rope types of vLLM's own", "",
             "Its own functions were called with these keys. Axes are those of M-RoPE that turn the pairs, frames 0, "
             "rows 1 and columns 2, from the fastest pair on.", "",
             "| rope type | version | keys | m | axes |", "|---|---|---|---:|---|"]  # fmt: skip
    for name in next(iter(held.values())):
        for version, types in held.items():
            found = types[name]
            said = found.get("stops") or f"{found['m']:.4f}"
            axes = "".join(map(str, found.get("axes", [])))
            lines.append(f"| {name} | {version} | `{json.dumps(found['given'])}` | {_cell(said)} | {axes} |")
    return lines


def _diffusion() -> list[str]:
    """What the diffusion transformers of diffusers turn by."""
    lines = ["", "## Diffusion transformers", "",
             "The transformers of diffusers were run on a small grid; the angles of all pairs came out of their "
             "queries before and after the rotation. `read_transformer` (milepost.rope.engines.runtimes.diffusers) "
             "reads their config.json and gives the places of their tokens.", "",
             "| model | version | encoding | outcome |", "|---|---|---|---|"]  # fmt: skip
    for version in measured.versions("diffusers"):
        held = json.loads((resources.files(measured) / f"diffusers-{version}.json").read_text(encoding="utf-8"))
        for name, model in held["models"].items():
            try:
                made, error = f"`{read_transformer(model['config']).encoding}`", angles_apart(model)
                outcome = "🟢 same" if error < ANGLES else f"🔴 other: cos and sin are off by {error:.2g}"
            except ConfigError as refusal:
                made, outcome = "none", f"refused: {refusal}"
            lines.append(f"| {name} | {version} | {made} | {_cell(outcome)} |")
    return lines


def angles_apart(model: dict[str, Any]) -> float:
    """The largest difference of cos and sin between the encoding that was read and what the model did."""
    made = read_transformer(model["config"])
    places = made.places(**{name: model[name] for name in ("frames", "rows", "columns", "text")})
    chosen = [places[t] for t in model["at"]]
    pos = torch.tensor([place or (0,) * made.axes for place in chosen], dtype=torch.float64).T[:, None]
    encoding = milepost.build(made.encoding)
    x = torch.zeros(1, 1, len(chosen), encoding.head_dim or 0, dtype=torch.float64)
    x[..., 0::2] = 1
    angle = torch.tensor(model["angles"][0], dtype=torch.float64)
    theirs = torch.stack([angle.cos(), angle.sin()], -1).flatten(1)
    return float((encoding.query(x, pos)[0, 0] - theirs).abs().max())


def _cell(text: str) -> str:
    """Text that fits into a cell of a table."""
    line = text.replace("|", "/").replace("\n", " ").replace("<", "&lt;")
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


if __name__ == "__main__":
    made = page()
    if "--check" in sys.argv:
        sys.exit(0 if OUT.read_text(encoding="utf-8") == made else "docs/engines.md is not what the measured files say")
    OUT.write_text(made, encoding="utf-8")
    print(f"{OUT.name}: {len(made) // 1000} kB")
