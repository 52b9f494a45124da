"""Writes docs/engines.md, what engines do, from milepost/rope/engines/measured; `--check`: is it up to date?"""

# ruff: noqa: E402

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import itertools
import json
from functools import cache
from importlib import resources

from milepost.rope import ENGINES, ConfigError, as_read_by, read
from milepost.rope.engines import measured
from milepost.rope.engines.runtimes.diffusers import read_transformer

LONGEST = 240
OUT = ROOT / "docs" / "engines.md"
HEAD = """# What engines do

Each row is a small model with the rotary keys of a real one. It was given to the engine itself: its own model class was
built on a CPU, and vectors were turned with it. From what came out follow the frequency of every pair, m (the factor on
queries and keys), the pairing, and which layers turn. `make engines` does all of this again; this page is made
from its files.

- 🟢 **same**: every layer turns as the config says, in the meaning that the model's own code gives it.
- 🔴 **other**: a layer turns otherwise. The reason is that of the newest version.
- 🔴 **stops**: the engine ends with an error.
- ⚪ **–**: not measured: the engine has no class for the model, or could not build it without other files.

`milepost parity MODEL --engines all` says this of any config, with the version that was measured.
"""


COLOURS = {"same": "🟢", "other": "🔴", "stops": "🔴", "–": "⚪"}

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
        return "stops", str(case["stops"]).splitlines()[0]
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


def page() -> str:
    """The page."""
    every = [(engine, version) for engine in ENGINES for version in measured.versions(engine)]
    runs = [(engine, version) for engine, version in every if ENGINES[engine].reads]
    lines = [HEAD, "## Counts", "",
             "Assumed: that its layers turn, for the engine's attention could not be called without kernels. The runs "
             "of vLLM 0.30.0 and 0.29.0 did not note it.", "",
             "| engine | same | other | stops | not measured | assumed |",
             "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    words = {(e, v): {name: word(e, v, name) for name in measured.configs()} for e, v in runs}
    for engine, version in runs:
        counts = Counter(w for w, _ in words[engine, version].values())
        assumed = sum("assumed" in case for case in measured.load(engine, version).cases.values())
        shown = [counts[w] for w in ("same", "other", "stops", "–")] + [assumed]
        lines.append(f"| {engine} {version} | {' | '.join(map(str, shown))} |")
    lines += ["", EXPORTS, "| engine | run | same | other | stops | not measured | refused |",
              "|---|---:|---:|---:|---:|---:|---:|"]  # fmt: skip
    for engine, version in every:
        counts = Counter(exported(engine, version, key) for key in measured.load(engine, version).exports)
        if counts:
            ran = counts["same"] + counts["other"] + counts["stops"]
            shown = [ran, *(counts[w] for w in ("same", "other", "stops", "–", "refused"))]
            lines.append(f"| {engine} {version} | {' | '.join(map(str, shown))} |")
    silent = [name for name in ENGINES if not measured.versions(name)]
    if silent:
        lines += ["", f"Not measured, from reading their code: {', '.join(silent)}."]
    lines += [f"- {name} was not measured: {reason}" for name, reason in measured.not_run().items()]
    lines += ["", "## What stood in for what", ""]
    stood = {e: measured.load(e, v).stood_in for e, v in every}
    lines += [f"- {engine}: {'; '.join(parts) or 'nothing'}" for engine, parts in stood.items()]
    lines += ["", "## Families that drop what the config says", "",
              "Flat is the spelling of transformers 4 (`rope_theta`, `rope_scaling`), nested that of 5.",
              "", "| engine | family | spelling | outcome |", "|---|---|---|---|"]  # fmt: skip
    for engine, version in runs:
        for family, outcomes in measured.load(engine, version).families.items():
            for spelling, outcome in outcomes.items():
                if outcome != "read":
                    lines.append(f"| {engine} {version} | {family} | {spelling} | {_cell(outcome)} |")
    lines += [*_logits(), *_pairs(), *_lengths(), *_diffusion()]
    lines += ["", "## From version to version", ""]
    for engine in ENGINES:
        known = measured.versions(engine)
        for newer, older in itertools.pairwise(known):
            for name in measured.configs():
                a, b = words[engine, older][name], words[engine, newer][name]
                if a[0] != b[0] and "–" not in (a[0], b[0]):
                    lines.append(f"- {engine} {older} to {newer}, {name}: {a[0]} to {b[0]}: {_cell(b[1] or a[1])}")
    lines += ["", "## Every config", "", f"| config | {' | '.join(f'{e} {v}' for e, v in runs)} | why |",
              f"|---|{'---|' * len(runs)}---|"]  # fmt: skip
    for name in measured.configs():
        cells = [words[run][name] for run in runs]
        why = dict.fromkeys(
            f"{e}: {reason}" for (e, _), (w, reason) in zip(runs, cells, strict=True) if w in ("other", "stops")
        )
        lines.append(
            f"| {name} | {' | '.join(f'{COLOURS[w]} {w}' for w, _ in cells)} | {_cell('; '.join(list(why)[:2]))} |"
        )
    return "\n".join(lines) + "\n"


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
                made, outcome = f"`{read_transformer(model['config']).encoding}`", "🟢 same"
            except ConfigError as refusal:
                made, outcome = "none", f"refused: {refusal}"
            lines.append(f"| {name} | {version} | {made} | {_cell(outcome)} |")
    return lines


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
