"""Reading lab results: one folder, or several as one.

What a report relies on is checked here, and said in a sentence where it fails.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Results = dict[str, Any]
SCHEMA = 1
PARTS = {"runs": list, "comparisons": list, "missing": list, "failed": list, "provenance": dict}
PLAN = {"shape": dict, "lengths": list, "seeds": list, "steps": int, "rows": int}
TEXT = {"source": str, "sha256": str, "train_tokens": int, "test_files": int}


KINDS: dict[str, tuple[str, ...]] = {
    "a number": (
        *("loss", "low", "high", "difference", "perplexity", "bits_per_byte", "accuracy", "chance", "peak_mb"),
        *("train_tokens_per_s", "tokens_per_s"),
    ),
    "a number and not null": ("mean", "sink"),
    "a number up to 700": ("entropy",),
    "a whole number": (
        *("length", "start", "end", "head", "layer", "tokens", "targets", "stride", "parameters", "trained_length"),
        "train_tokens",
    ),
    "a text": ("encoding", "strategy", "data", "note", "spec", "folder", "against", "why", "from"),
    "a list of numbers": ("distance", "edges", "train_loss", "window_files"),
    "a list of rows": (
        *("attention", "heads", "loss_by_length", "second_by_length", "loss_by_position", "disjoint", "sliding"),
    ),
    "a mapping": ("tasks", "loss_by_window", "fixed_by_window"),
}
"""What the fields of runs and comparisons hold, at whatever depth; a number or a text may be null."""
HEAD = ("layer", "head", "entropy", "mean", "sink", "distance", "edges")
KIND_OF = {field: kind for kind, fields in KINDS.items() for field in fields}
LARGEST = 1e300


def load(folder: str | Path) -> Results:
    """The results of a run on text in a folder."""
    return check(read(folder), str(Path(folder) / "results.json"))


def read(folder: str | Path) -> Any:
    """What results.json of a folder holds, whatever it is."""
    file = Path(folder) / "results.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_number)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} holds no results.json: run `milepost lab --out {folder}` first") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{file} is no whole JSON ({error}); `milepost lab --out {folder} --resume` writes it again"
        ) from None
    except OSError as error:
        raise ValueError(f"{file} can't be read: {error.strerror or error}") from None
    except RecursionError:
        raise ValueError(f"{file} is nested too deeply to be a result of `milepost lab`") from None


def _no_number(word: str) -> Any:
    raise ValueError(f"results.json holds {word}, which is no number that a result can have")


def modality(data: Any) -> str:
    """What a run was about, as its plan says: "text" where it says nothing."""
    for field in ("provenance", "protocol", "plan"):
        data = data.get(field) if isinstance(data, dict) else None
    return str(data.get("modality", "text")) if isinstance(data, dict) else "text"


def load_all(folders: Sequence[str | Path]) -> dict[str, Results]:
    """The results of several folders by name; a folder given twice is refused."""
    paths = [Path(folder).resolve() for folder in folders]
    for folder, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise ValueError(f"{folder} is given twice")
    return {str(folder): load(folder) for folder in folders}


def check(results: Any, name: str) -> Results:
    """The same results, if a report on text can be drawn from them."""
    if (about := modality(results)) != "text":
        raise ValueError(
            f"{name} is of a lab run on another modality than text ({about}): `milepost report` draws it, and only "
            "runs on text are compared"
        )
    protocol = check_parts(results, name)
    has(protocol, {"plan": dict, "text": dict, "targets": int}, name, "provenance.protocol.")
    has(protocol["plan"], PLAN, name, "provenance.protocol.plan.")
    has(protocol["plan"]["shape"], {"length": int}, name, "provenance.protocol.plan.shape.")
    has(protocol["text"], TEXT, name, "provenance.protocol.text.")
    for field in ("lengths", "seeds"):
        if not all(_is_kind("a whole number", value) for value in protocol["plan"][field]):
            place = f"provenance.protocol.plan.{field}"
            raise ValueError(f"{name} is no whole result of `milepost lab`: {place} must be a list of whole numbers")
    if not protocol["plan"]["lengths"]:
        raise ValueError(f"{name} names no tested length (provenance.protocol.plan.lengths is empty)")
    for number, run in enumerate(results["runs"]):
        place = f"runs[{number}]."
        has(run, {"encoding": str, "strategy": str, "seed": int}, name, place)
        for field in ("loss_by_length", "second_by_length", "fixed", "disjoint", "sliding"):
            has_rows(run, field, ("length", "loss"), name, place)
        has_rows(run, "loss_by_position", ("start", "end", "loss"), name, place)
        for field in ("loss_by_window", "fixed_by_window"):
            _check_windows(run, field, name, place)
        has_rows(run, "attention", ("length", "heads"), name, place)
        for at, looks in enumerate(run.get("attention", [])):
            has_rows(looks, "heads", HEAD, name, f"{place}attention[{at}].")
    if "costs" in results:
        has(results["costs"], {"rows": dict, "about": str}, name, "costs.")
        for times in results["costs"]["rows"].values():
            if not isinstance(times, dict) or not all(_is_kind("a number", value) for value in times.values()):
                raise ValueError(f"{name} is no whole result of `milepost lab`: costs.rows wants times by encoding")
    for number, comparison in enumerate(results["comparisons"]):
        has(
            comparison,
            {"encoding": str, "strategy": str, "seed": int, "length": int, "difference": float},
            name,
            f"comparisons[{number}].",
        )
    return dict(results)


def check_parts(results: Any, name: str) -> dict[str, Any]:
    """That what runs of every modality have is there; the protocol."""
    schema = results.get("schema") if isinstance(results, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{name} has schema {schema!r}, and this milepost reads schema {SCHEMA}")
    has(results, PARTS, name, "")
    has(results["provenance"], {"protocol": dict}, name, "provenance.")
    for part in ("missing", "failed"):
        for number, trial in enumerate(results[part]):
            has(trial, {"encoding": str, "seed": int}, name, f"{part}[{number}].")
    for part in ("runs", "comparisons", "missing", "failed"):
        check_kinds(results[part], name, part)
    return dict(results["provenance"]["protocol"])


def has(row: Any, fields: Mapping[str, type], name: str, place: str) -> None:
    """That fields are there, each of its kind."""
    for field, kind in fields.items():
        value = row.get(field) if isinstance(row, dict) else None
        if not isinstance(value, (int, float) if kind is float else kind):
            problem = "is missing" if value is None else f"is {type(value).__name__} and not {kind.__name__}"
            raise ValueError(f"{name} is no whole result of `milepost lab`: {place}{field} {problem}")


def check_kinds(value: Any, name: str, place: str) -> None:
    """That every field that `KINDS` names holds what it says, at whatever depth."""
    if isinstance(value, list):
        for number, inner in enumerate(value):
            check_kinds(inner, name, f"{place}[{number}]")
    elif isinstance(value, dict):
        for field, inner in value.items():
            kind = KIND_OF.get(field)
            if kind is not None and not _is_kind(kind, inner):
                raise ValueError(
                    f"{name} is no whole result of `milepost lab`: {place}.{field} must be {kind}, got "
                    f"{type(inner).__name__} {str(inner)[:40]!r}"
                )
            check_kinds(inner, name, f"{place}.{field}")


def _is_kind(kind: str, value: Any) -> bool:
    if kind == "a mapping":
        return isinstance(value, dict)
    if kind.startswith("a list"):
        inside = "a number" if kind == "a list of numbers" else "a mapping"
        return isinstance(value, list) and all(_is_kind(inside, item) and item is not None for item in value)
    if kind == "a text" or (kind == "a number" and value is None):
        return value is None or isinstance(value, str)
    right = isinstance(value, int) or (kind != "a whole number" and isinstance(value, float))
    return right and not isinstance(value, bool) and abs(value) < (700 if kind.endswith("700") else LARGEST)


def has_rows(run: dict[str, Any], field: str, columns: tuple[str, ...], name: str, place: str) -> None:
    """That a field is a list of rows with these columns, or is not there."""
    rows = run.get(field, [])
    if not isinstance(rows, list) or any(
        not isinstance(row, dict) or any(column not in row for column in columns) for row in rows
    ):
        raise ValueError(
            f"{name} is no whole result of `milepost lab`: {place}{field} wants rows with {', '.join(columns)}"
        )


def _check_windows(run: dict[str, Any], field: str, name: str, place: str) -> None:
    """That losses of windows are lists of numbers, as long as the list of the windows' files."""
    files = run.get("window_files", [])
    for length, losses in (run.get(field) or {}).items():
        if not _is_kind("a list of numbers", losses) or len(losses) != len(files):
            raise ValueError(
                f"{name} is no whole result of `milepost lab`: {place}{field}[{length[:20]!r}] must be {len(files)} "
                f"numbers, one for each of window_files, got {str(losses)[:40]}"
            )


# -- several runs
# -------------------------------------------------------------------------------------------------------------


def joined(by_folder: dict[str, Results]) -> Results:
    """Several runs as one: of the same test tokens and the same lengths, or it would be no comparison.

    An encoding that two folders hold is told apart by the folder's name, in "from".
    """
    folders = list(by_folder)
    for folder in folders[1:]:
        _comparable(folders[0], by_folder[folders[0]], folder, by_folder[folder])
    if len(folders) == 1:
        return dict(by_folder[folders[0]])
    marks = dict(zip(folders, _marks(folders), strict=True))
    held = Counter(key for results in by_folder.values() for key in {_what(run) for run in _all(results)})
    whole: Results = dict(by_folder[folders[0]])
    for part in ("runs", "comparisons", "missing", "failed"):
        whole[part] = [
            {**row, "from": marks[folder]} if held[_what(row)] > 1 else dict(row)
            for folder, results in by_folder.items()
            for row in results[part]
        ]
    whole["joined"] = [
        {"from": marks[folder], "provenance": results["provenance"]} for folder, results in by_folder.items()
    ]
    return whole


def _all(results: Results) -> list[dict[str, Any]]:
    return [*results["runs"], *results["missing"], *results["failed"]]


def _what(row: dict[str, Any]) -> tuple[str, str]:
    """What two folders may both hold: an encoding, on text or on a task."""
    return row["encoding"], row.get("data", "text")


def _marks(folders: list[str]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    paths = [Path(folder).resolve().parts for folder in folders]
    depth = 1
    while len({path[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path[-depth:]).lstrip("/") for path in paths]


def _comparable(first: str, a: Results, other: str, b: Results) -> None:
    what = (
        "another text",
        "another tokenizer",
        "other lengths",
        "another trained length",
        "another number of test windows",
    )
    for words, mine, theirs in zip(what, _tested(a), _tested(b), strict=True):
        if mine != theirs:
            raise ValueError(f"{other} has {words} than {first} ({theirs} and {mine}): their losses can't be compared")


def _tested(results: Results) -> tuple[Any, ...]:
    """What decides which tokens are scored."""
    protocol = results["provenance"]["protocol"]
    plan, text = protocol["plan"], protocol["text"]
    return (
        f"sha256 {text['sha256'][:16]}",
        plan.get("tokenizer"),
        plan["lengths"],
        plan["shape"]["length"],
        plan.get("windows"),
    )


def differing(results: Results) -> list[str]:
    """Sentences on what differs between joined runs, beyond their encodings: it may be why their losses differ."""
    parts = results.get("joined", [])
    sentences = []
    for field in ("shape", "steps", "rows", "seeds", "tune", "told"):
        values = [part["provenance"]["protocol"]["plan"].get(field) for part in parts]
        if any(value != values[0] for value in values):
            held = "; ".join(f"{part['from']}: {_short(value)}" for part, value in zip(parts, values, strict=True))
            sentences.append(f"These runs differ in {field} ({held}).")
    return sentences


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
