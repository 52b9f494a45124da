"""The source of an extension: a local folder of safetensors and its config, read and never written. What can't be extended says so in a sentence.

GGUF               takes a scaling as flags of llama.cpp
a lab model        has no config.json that others read
learned tables     end at their last row
ALiBi, T5          have nothing that could be stretched
quantised, cut short, a pickle, code of its own: refused, as everywhere here
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoints.inspection.inspect import Inspection, inspect
from milepost.checkpoints.layout_conversion.convert_layout import INDEX, OTHER_WEIGHTS, parts_of
from milepost.checkpoints.model.hf_load import check_tensors, model_class
from milepost.rope.config.files import find, load
from milepost.rope.config.keys import ConfigError
from milepost.rope.engines.written import Refused

NEEDED = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".md")
"""How names of files end that a loader, or a reader, needs besides the weights; and LICENSE, NOTICE."""
WORDS = ("LICENSE", "LICENCE", "NOTICE", "USE_POLICY")
TOLD = "milepost.json"
"""The sidecar: what was done to a folder."""
FIXED = ("gptj", "codegen", "recurrent_gemma")
"""Model types for which transformers computes one table, and reads no scaling."""


@dataclass(frozen=True)
class Source:
    """A checkpoint: its files by what is done with them. ``digest`` is of its config.json, ``told`` its sidecar, if it has one that fits."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    digest: str
    weights: tuple[str, ...]
    others: tuple[str, ...]
    left_out: tuple[str, ...]
    told: Mapping[str, Any] | None
    notes: tuple[str, ...]


def open_source(model: str | Path, target: int) -> Source:
    """The checkpoint of a folder or a name on the Hub, if it can be extended to ``target`` tokens."""
    folder = _folder(str(model))
    raw = (folder / "config.json").read_bytes()
    config = load(folder / "config.json")
    _check_runs(config)
    check_tensors(folder)
    _check_turns(inspect(folder, target_length=target), target, config)
    digest = hashlib.sha256(raw).hexdigest()
    told, notes = _told(folder, digest)
    return Source(str(model), folder, config, digest, *files_of(folder), told, notes)


def _folder(model: str) -> Path:
    """The local folder of what a user named."""
    path = Path(model).expanduser()
    if path.suffix == ".gguf" or (path.is_dir() and not (path / "config.json").is_file() and any(path.glob("*.gguf"))):
        raise ConfigError(
            f"{path} is a GGUF file, which takes a scaling as flags: `milepost export {path} --to llama.cpp --rope-scaling yarn --target-length N` prints them"
        )
    if path.is_file():
        raise ConfigError(
            f"{path} is a file: extend writes a whole checkpoint; give its folder (config.json and *.safetensors)"
        )
    if not path.is_dir():
        return from_hub(model)
    if (path / "config.json").is_file():
        return path.resolve()
    if any(len(one.relative_to(path).parts) <= 4 for one in path.glob("**/model.json")):
        raise ConfigError(
            f"{path} is of the lab, whose models no other tool loads, so nothing is written: `milepost lab --strategies` serves them stretched"
        )
    raise ConfigError(
        f"{path} has no config.json: a checkpoint to extend is a folder with config.json and *.safetensors"
    )


def from_hub(name: str) -> Path:
    """The local folder of a checkpoint on the Hub, fetched if it is not here."""
    find(name)  # a sentence, where there is no such name
    from huggingface_hub import snapshot_download

    patterns = ["*.safetensors", *(f"*{end}" for end in NEEDED), *(f"{word}*" for word in WORDS)]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # the Hub's errors are many, and none is ours
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"the Hub did not give the files of {name}: {reason[:200]}") from None


def _check_runs(config: Mapping[str, Any]) -> None:
    """Refuse what is quantised, or asks for code of its own."""
    given = next(
        (part for part in parts_of(config) if part.get("quantization_config") or part.get("compression_config")), None
    )
    if given is not None:
        said = given.get("quantization_config") or given.get("compression_config")
        method = said.get("quant_method", "") if isinstance(said, Mapping) else ""
        raise ConfigError(
            f"the model is quantised (quantization_config{f': {method}' if method else ''}): extend the unquantised one, verify it, and quantise the result"
        )
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"extending a checkpoint needs the {error.name} package: pip install 'milepost[hf]'"
        ) from None
    model_class(config, transformers)


def _check_turns(found: Inspection, target: int, config: Mapping[str, Any]) -> None:
    """Refuse, with the reason, what has no rotation to be stretched."""
    schemes = {word for layer in found.layers for word in layer.scheme.split(" + ")}
    if found.family in FIXED:
        raise Refused(
            f"transformers computes one table for every {found.family} model, and reads no scaling from its config: it can't be extended by one"
        )
    if "rope" in schemes:
        return
    if found.tables:
        rows = min(table.usable for table in found.tables)
        raise Refused(
            f"{found.family} has a learned table of {rows} positions, and position {rows} has no row: "
            f"{target} tokens need new rows and training (`milepost migrate`), not a scaling"
        )
    if "alibi" in schemes:
        key = next(
            (
                f" ({name} = {target})"
                for name in ("max_seq_len", "max_position_embeddings", "seq_length")
                if name in config
            ),
            "",
        )
        raise Refused(
            f"{found.family} has ALiBi, which goes on in a straight line: there is no scaling, and nothing to set but the served length{key}"
        )
    for scheme, reach in (("t5", "bucket"), ("deberta", "row")):
        if scheme in schemes:
            far = next((layer.max_distance for layer in found.layers if layer.max_distance), None)
            raise Refused(
                f"{found.family} reads texts of any length: distances of about {far} and more share the last {reach}, and there is no scaling to be written"
            )
    why = found.warnings[0] if found.warnings else "its layers have no position of their own"
    raise Refused(f"{found.family} has no rotary positions that milepost could stretch: {why}")


def _told(folder: Path, digest: str) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The sidecar of a folder that was extended before, if its config.json is still the one that was written then."""
    if not (folder / TOLD).is_file():
        return None, ()
    told = load(folder / TOLD)
    if told.get("what") == "milepost migrate":  # trained as it is: there is nothing to undo
        return None, ()
    original = told.get("original")
    whole = (
        isinstance(original, Mapping)
        and isinstance(original.get("keys"), Mapping)
        and isinstance(original.get("absent"), list)
    )
    if not whole or type(told.get("to")) is not int or told.get("config_sha256") != digest:
        return None, (f"{TOLD} in {folder} is of another config.json than the one beside it, so it was not believed",)
    return told, ()


def files_of(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The names of the weights' files, of the others to be copied, and of those to be left out: other weights, pickles, code."""
    index = folder / INDEX
    weights = sorted(set(load(index)["weight_map"].values())) if index.is_file() else ["model.safetensors"]
    keep: list[str] = []
    leave: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder)
        name = inside.as_posix()
        if (
            name in ("config.json", TOLD, *weights)
            or inside.parts[0] == "milepost"
            or any(part.startswith(".") for part in inside.parts)
        ):
            continue
        index_of_others = name != INDEX and path.name.removesuffix(".index.json").endswith(OTHER_WEIGHTS)
        needed = (
            (path.suffix in NEEDED or path.name.upper().startswith(WORDS))
            and not index_of_others
            and not inside.parts[0].startswith("checkpoint-")
        )
        (keep if needed else leave).append(name)
    return tuple(weights), tuple(keep), tuple(leave)
