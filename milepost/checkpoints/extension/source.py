"""The source of an extension: a local folder of safetensors and its config, read and never written.

What can't be extended is refused in a sentence:

GGUF               takes a scaling as flags of llama.cpp
a lab model        has no config.json that others read
learned tables     end at their last row
ALiBi, T5          have nothing that could be stretched
quantised, cut short, a pickle, code of its own: refused, as everywhere here
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from milepost.checkpoints.extension.config import undone
from milepost.checkpoints.files import SIDECAR, SourceFiles, check_not_quantised, from_hub, read_source
from milepost.checkpoints.inspection.inspect import Inspection, inspect
from milepost.checkpoints.model.hf_load import check_installed, check_tensors, model_class
from milepost.rope import ConfigError, RopeSpec
from milepost.rope.config.files import load
from milepost.rope.engines.written import Refused

FIXED = ("gptj", "codegen", "recurrent_gemma")
"""Model types for which transformers computes one table, and reads no scaling."""


@dataclass(frozen=True)
class Start:
    """Where an extension to ``target`` tokens starts from: the lengths that the source was trained for, and serves.

    ``config`` is its config before any extension, and ``plain`` what that means; ``before`` is what its config means
    now.
    """

    source: SourceFiles
    target: int
    config: Mapping[str, Any]
    plain: RopeSpec
    before: RopeSpec
    trained: int
    served: int


def open_source(model: str | Path, target: int) -> Start:
    """The checkpoint of a folder or a name on the Hub, if it can be extended to ``target`` tokens."""
    folder = _folder(str(model))
    config = load(folder / "config.json")
    check_not_quantised(config, "extend the unquantised one, verify it, and quantise the result")
    check_installed("extending a checkpoint")
    model_class(config)
    check_tensors(folder)
    inspection = inspect(folder, target_length=target)
    _check_turns(inspection, target, config)
    source = read_source(model, folder, config)
    sidecar, notes = _sidecar(folder, source.digest)
    assert inspection.spec is not None
    return _start(replace(source, sidecar=sidecar, notes=notes), inspection.spec, target)


def _start(source: SourceFiles, before: RopeSpec, target: int) -> Start:
    """What the source's config means, now and before any extension; an error where it serves the target already."""
    config = undone(source.config, source.sidecar)
    plain = before if source.sidecar is None else RopeSpec.from_config(config)
    trained = plain.trained
    if trained is None:
        raise ConfigError(
            f"{source.name} does not say its trained length: add max_position_embeddings to a copy of its config.json"
        )
    served = int(source.sidecar["to"]) if source.sidecar else _served(before)
    if target <= served:
        known = f"trained for {trained}" + (f", scaled to {served}" if served > trained else "")
        raise ConfigError(
            f"{source.name} serves {served} tokens already ({known}): a target length of {target} is not above that; "
            "give a longer one"
        )
    return Start(source, target, config, plain, replace(before, trained=trained), trained, served)


def _served(spec: RopeSpec) -> int:
    """What a config promises: max_position_embeddings, or, where that is the trained length, what its scaling adds."""
    trained, served = spec.trained or 1, spec.served or spec.trained or 1
    return served if served > trained else max(served, spec.scaled or trained)


def _folder(model: str) -> Path:
    """The local folder of what a user named."""
    path = Path(model).expanduser()
    if path.suffix == ".gguf" or (path.is_dir() and not (path / "config.json").is_file() and any(path.glob("*.gguf"))):
        raise ConfigError(
            f"{path} is a GGUF file, which takes a scaling as flags: `milepost export {path} --to llama.cpp "
            "--rope-scaling yarn --target-length N` prints them"
        )
    if path.is_file():
        raise ConfigError(
            f"{path} is a file: extend writes a whole checkpoint; give its folder (config.json and *.safetensors)"
        )
    if not path.is_dir():
        return from_hub(model)
    if (path / "config.json").is_file():
        return path.resolve()
    if any(len(file.relative_to(path).parts) <= 4 for file in path.glob("**/model.json")):
        raise ConfigError(
            f"{path} is of the lab, whose models no other tool loads, so nothing is written: "
            "`milepost lab --strategies` serves them stretched"
        )
    raise ConfigError(
        f"{path} has no config.json: a checkpoint to extend is a folder with config.json and *.safetensors"
    )


def _check_turns(inspection: Inspection, target: int, config: Mapping[str, Any]) -> None:
    """Refuse, with the reason, what has no rotation to be stretched."""
    schemes = {word for layer in inspection.layers for word in layer.scheme.split(" + ")}
    if inspection.family in FIXED:
        raise Refused(
            f"transformers computes one table for every {inspection.family} model, and reads no scaling from its "
            "config: it can't be extended by one"
        )
    if "rope" in schemes:
        return
    if inspection.tables:
        rows = min(table.usable for table in inspection.tables)
        raise Refused(
            f"{inspection.family} has a learned table of {rows} positions, and position {rows} has no row: "
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
            f"{inspection.family} has ALiBi, which goes on in a straight line: there is no scaling, and nothing to set "
            f"but the served length{key}"
        )
    for scheme, reach in (("t5", "bucket"), ("deberta", "row")):
        if scheme in schemes:
            far = next((layer.max_distance for layer in inspection.layers if layer.max_distance), None)
            raise Refused(
                f"{inspection.family} reads texts of any length: distances of about {far} and more share the last "
                f"{reach}, and there is no scaling to be written"
            )
    why = inspection.warnings[0] if inspection.warnings else "its layers have no position of their own"
    raise Refused(f"{inspection.family} has no rotary positions that milepost could stretch: {why}")


def _sidecar(folder: Path, digest: str) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """The sidecar of a folder that was extended before, if its config.json is still the one that was written then."""
    if not (folder / SIDECAR).is_file():
        return None, ()
    sidecar = load(folder / SIDECAR)
    if sidecar.get("what") == "milepost migrate":  # trained as it is: there is nothing to undo
        return None, ()
    original = sidecar.get("original")
    whole = (
        isinstance(original, Mapping)
        and isinstance(original.get("keys"), Mapping)
        and isinstance(original.get("absent"), list)
    )
    if not whole or type(sidecar.get("to")) is not int or sidecar.get("config_sha256") != digest:
        return None, (
            f"{SIDECAR} in {folder} is of another config.json than the one beside it, so it was not believed",
        )
    return sidecar, ()
