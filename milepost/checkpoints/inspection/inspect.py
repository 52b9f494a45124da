"""inspect: where position enters a checkpoint, layer by layer, and what its lengths are.

    found = inspect("path/to/model", target_length=32768)    # a folder, config.json, GGUF, lab model, name on the Hub
    found.layers[0].base, found.trained, found.warnings
    inspect("path/to/model", weights=True).weights           # also what the tensors say

Without weights: from the config and the headers of tensors alone; neither torch nor transformers is imported. Rotary
models are read by `RopeSpec`, the others by `families`. A model type that no list knows is measured on a small random
model of its class, where transformers has one. No code of a checkpoint is run, and no pickle is opened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from milepost.checkpoints.files import ONE, StoredTensor, in_folder, in_gguf, in_safetensors
from milepost.checkpoints.inspection import lab, report, rope
from milepost.checkpoints.inspection.families import LAYERS, MOST_LAYERS, READERS, no_layer_turns
from milepost.checkpoints.inspection.gguf import as_config
from milepost.checkpoints.inspection.parts import InspectedLayer, LearnedTable, Length, Positions
from milepost.checkpoints.inspection.shifting import shifting
from milepost.checkpoints.inspection.stack import stack_of
from milepost.checkpoints.inspection.weights import WeightFindings, read_weights
from milepost.checkpoints.result import CommandResult
from milepost.rope import RopeSpec
from milepost.rope.analysis import Analysis, analyse
from milepost.rope.config import files, gguf, gguf_archs, gguf_header, params_json
from milepost.rope.config.config_json import TEXT, text_model
from milepost.rope.config.families import FAMILIES, NOT_HELD, NOT_ROTARY
from milepost.rope.config.keys import ConfigError, ConfigKeys, short

ABOUT_POSITIONS = (
    *("position", "rope", "rotary", "alibi", "relative", "window", "seq_len", "seq_length", "n_ctx", "max_len"),
    *("image_size", "patch_size", "context_length"),
)
"""A key of an unknown family's config with one of these in its name is shown."""
HOLD_POSITIONS = ("position", "wpe.", "pos_emb", "relative_att", "rel_emb", "rotary", "inv_freq", "alibi", "attn_rel_b")
"""The same for names of tensors."""


@dataclass(frozen=True)
class Inspection(CommandResult):
    """What a checkpoint does about positions.

    ``known`` is whether milepost knows the family; if not, ``found`` is what could be read. ``where`` are the points at
    which position enters, ``tables`` what is added to the embedding, ``analysis`` what each kind of rotary layer does
    at ``target`` tokens (or at the length that is served), ``at_target`` the same in words for every scheme,
    ``weights`` what the tensors say (None: they were not read), ``cache`` whether one may be shifted or cut,
    ``text`` the stack as `milepost.build` reads it ("": no text says it), ``not_in_text`` what that leaves out.
    ``spec`` and ``config`` are for those who load it.
    """

    model: str
    family: str
    known: bool
    form: str
    where: tuple[str, ...]
    layers: tuple[InspectedLayer, ...]
    tables: tuple[LearnedTable, ...]
    trained: Length
    scaled: Length
    served: Length
    target: int | None
    analysis: tuple[Analysis, ...] = ()
    at_target: tuple[str, ...] = ()
    weights: WeightFindings | None = None
    cache: str = ""
    text: str = ""
    not_in_text: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    found: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    spec: RopeSpec | None = field(default=None, repr=False)
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **{name: getattr(self, name) for name in ("model", "family", "known", "form", "target")},
            **{name: asdict(getattr(self, name)) for name in ("trained", "scaled", "served")},
            "where": list(self.where),
            "layers": [asdict(layer) for layer in self.layers],
            "tables": [asdict(table) for table in self.tables],
            "analysis": [kind.to_json() for kind in self.analysis],
            "at_target": list(self.at_target),
            "cache": self.cache,
            "text": self.text,
            "not_in_text": list(self.not_in_text),
            "weights": None if self.weights is None else self.weights.to_json(),
            "sources": dict(self.sources),
            "found": dict(self.found),
            "warnings": list(self.warnings),
        }

    document = staticmethod(report.document)


def inspect(
    model: str | Path, *, target_length: int | None = None, weights: bool = False, allow_unknown: bool = False
) -> Inspection:
    """Read a checkpoint's positions.

    ``weights`` reads the tensors that hold them; ``allow_unknown`` passes over keys that contradict others. Raises
    `ConfigError`, a ValueError, in one sentence, where a file is missing or damaged. Nothing is written.
    """
    if target_length is not None and (type(target_length) is not int or target_length < 1):
        raise ValueError(f"target_length is a number of tokens, at least 1, got {target_length!r}")
    opened = _open(str(model))
    if weights and not opened.tensors:
        raise ConfigError(f"--weights reads tensors, and there are none: {opened.missing}")
    read = _read(opened, target_length, allow_unknown)
    positions, findings = read.positions, None
    if weights:
        findings, positions = read_weights(positions, opened.tensors, read.spec)
    analysis, sentences, beyond = _at(positions, read.spec, target_length)
    text, not_in_text = stack_of(positions, read.spec)
    warnings = [*opened.warnings(), *positions.notes, *(() if findings is None else findings.notes), *beyond]
    return Inspection(
        model=str(model),
        family=read.family,
        known=read.known,
        form=opened.form,
        where=positions.where,
        layers=positions.layers,
        tables=positions.tables,
        trained=positions.trained,
        scaled=positions.scaled,
        served=positions.served,
        target=target_length,
        analysis=tuple(analysis),
        at_target=tuple(sentences),
        weights=findings,
        cache=shifting(positions, read.spec),
        text=text,
        not_in_text=not_in_text,
        sources=positions.sources,
        found=read.found,
        warnings=tuple(dict.fromkeys(filter(None, warnings))),
        spec=read.spec,
        config=opened.config,
    )


# -- what MODEL is ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Opened:
    """A config with the tensors beside it; ``missing`` is why there are none."""

    form: str
    file: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor] = field(default_factory=dict)
    missing: str = ""

    def warnings(self) -> list[str]:
        """What every reader of this checkpoint should know first."""
        warnings = []
        if code := self.config.get("auto_map"):
            warnings.append(
                f"the config asks for code of its own (auto_map: {short(code)}), which is not run: "
                "what follows is read from the config alone"
            )
        if quantised := self.config.get("quantization_config") or self.config.get("compression_config"):
            method = quantised.get("quant_method", "") if isinstance(quantised, Mapping) else ""
            warnings.append(
                f"the weights are quantised ({method or 'quantization_config'}): packed tensors are not decoded"
            )
        for key, part in self.config.items():
            if isinstance(part, Mapping) and key.endswith("_config") and "model_type" in part and key not in TEXT:
                warnings.append(
                    f"{key} ({short(part['model_type'])}) is another model inside of this one; "
                    "its positions are not inspected"
                )
        if self.missing.startswith("the weights are in"):
            warnings.append(self.missing)
        return warnings


def _open(model: str) -> _Opened:
    try:
        path = Path(model).expanduser()
        there, folder = path.exists(), path.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{short(model)} can't be a path: {error}") from None
    if folder and not any((path / name).is_file() for name in files.NAMES):
        if (path / "model.json").is_file():
            return _open_lab(path)
        inside = sorted(file.parent for file in path.glob("**/model.json") if len(file.relative_to(path).parts) <= 4)
        if inside:
            raise ConfigError(f"{path} holds {len(inside)} lab models: name one of their folders, such as {inside[0]}")
    if there and path.name == "model.json":
        return _open_lab(path.parent)
    file = files.find(model)
    if file.suffix == ".gguf":
        return _Opened("gguf", file, gguf_header.metadata(file), in_gguf(file))
    if file.suffix == ".safetensors":
        raise ConfigError(f"{file} holds weights, and what they mean is in config.json: name the folder of both")
    config = files.load(file)
    if not there:
        missing = f"{model} is a name on the Hub, of which only the config is fetched; download it, and name its folder"
        return _Opened("hub", file, config, missing=missing)
    if not folder:
        return _Opened("config", file, config, missing=f"{model} is a config alone; name its folder")
    try:
        tensors, missing = in_folder(path)
    except ConfigError as error:
        raise ConfigError(f"{error}; name config.json itself to read the config alone") from None
    return _Opened("folder", file, config, tensors, missing)


def _open_lab(folder: Path) -> _Opened:
    weights, about = folder / ONE, folder / "model.json"
    tensors = in_safetensors(weights) if weights.is_file() else {}
    return _Opened("lab", about, files.load(about), tensors, f"{weights} is not there")


# -- what it says ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    family: str
    known: bool
    positions: Positions
    spec: RopeSpec | None = None
    found: Mapping[str, str] = field(default_factory=dict)


def _read(opened: _Opened, target: int | None, allow_unknown: bool) -> _Read:
    if opened.form == "lab":
        try:
            return _Read("lab", True, *lab.positions(opened.config, opened.tensors, target))
        except ConfigError:
            raise
        except (TypeError, ValueError) as error:  # an argument of a spec that is no number
            raise ConfigError(f"{opened.file} is not that of a lab model: {error}") from None
    if opened.form == "gguf":
        return _read_gguf(opened, target, allow_unknown)
    if params_json.is_one(opened.config):
        spec = params_json.read(opened.config, allow_unknown=allow_unknown)
        return _rotary(spec, ConfigKeys(opened.config), target, spec.model, True)
    keys, name = text_model(ConfigKeys(opened.config))
    turns = (name == "falcon" and not keys.config.get("alibi")) or (name == "smollm3" and not no_layer_turns(keys))
    if name in READERS and not turns:
        return _Read(name, True, READERS[name](keys, opened.tensors))
    family = FAMILIES.get(name)
    known = family is not None and (not family.needs or keys.has(family.needs))
    measured = None if known or name in NOT_ROTARY else _measured(opened, keys, name)
    if isinstance(measured, _Read):
        return measured
    try:
        spec = RopeSpec.from_config(opened.config, allow_unknown=allow_unknown)
    except ConfigError as error:
        if name in FAMILIES and FAMILIES[name].only is None:
            raise
        return _unknown(opened, keys, name, str(error), measured)
    read = _rotary(spec, keys, target, name, name in FAMILIES)
    return replace(read, positions=replace(read.positions, notes=(*read.positions.notes, *filter(None, [measured]))))


def _measured(opened: _Opened, keys: ConfigKeys, name: str) -> _Read | str:
    """A family that no list knows, measured on a small random model of its class; or the sentence why not."""
    from milepost.checkpoints.families import CannotBuild, find_measured  # torch and transformers, for such types only

    if opened.config.get("auto_map"):
        return f"model type {name!r} was not measured: the config asks for code of its own, which is never run"
    config = {**keys.config, "model_type": name}
    try:
        measured = find_measured(config)
    except CannotBuild as error:
        return f"model type {name!r} was not measured: {error}"
    from milepost.checkpoints.families.answer import as_positions, as_spec

    spec, more = None, []
    try:
        spec = as_spec(measured, config)
    except ConfigError as error:
        more.append(str(error))
    positions = as_positions(measured, config, spec)
    notes = (*positions.notes, *more)
    return _Read(name, True, replace(positions, notes=notes, sources={"layers": measured.sentence}), spec)


def _read_gguf(opened: _Opened, target: int | None, allow_unknown: bool) -> _Read:
    arch = str(opened.config.get("general.architecture"))
    other = as_config(opened.config)
    if other is not None:
        name, config, words = other
        return _Read(arch, True, words(READERS[name](ConfigKeys(config), opened.tensors)))
    own = {key.removeprefix(f"{arch}."): value for key, value in opened.config.items() if key.startswith(f"{arch}.")}
    try:
        spec = gguf.read(opened.config, allow_unknown=allow_unknown)
    except ConfigError as error:
        if not str(error).startswith("this model has no rotary positions"):
            raise
        return _unknown(opened, ConfigKeys(own, arch), arch, str(error))
    known = not any("is not known for architecture" in note for note in spec.notes)
    return _rotary(spec, ConfigKeys(own, arch), target, arch, known)


def _rotary(spec: RopeSpec, keys: ConfigKeys, target: int | None, name: str, known: bool) -> _Read:
    return _Read(name, known, rope.positions(spec, keys, target or spec.served or spec.trained), spec)


def _unknown(opened: _Opened, keys: ConfigKeys, name: str, why: str, unmeasured: str | None = None) -> _Read:
    """A family that nobody here knows: what its config and its tensors have that is about positions."""
    hints = {
        key: short(value)
        for key, value in keys.config.items()
        if value is not None and any(word in key.lower() for word in ABOUT_POSITIONS)
    }
    named: dict[str, list[StoredTensor]] = {}
    for tensor in opened.tensors.values():
        if any(word in tensor.name.lower() for word in HOLD_POSITIONS):
            named.setdefault(re.sub(r"\.\d+\.", ".N.", tensor.name), []).append(tensor)
    hints |= {f"tensor {key}": f"{len(some)} of shape {list(some[0].shape)}" for key, some in list(named.items())[:20]}
    counts = (keys.config.get(key) for key in (*LAYERS, "block_count"))
    count = next((n for n in counts if type(n) is int and 0 < n <= MOST_LAYERS), 0)
    if not hints and not count:
        raise ConfigError(
            f"{opened.file} says nothing about positions, nor how many layers there are: is it the config of a model?"
        )
    if name in NOT_HELD or name in NOT_ROTARY or name in gguf_archs.NOT_ROTARY:
        note = f"{why}; inspect reads no more than that of this family"
    elif name:
        note = f"model type {name!r} is not one that milepost knows: {why}"
    else:
        note = f"the config has no model_type, so its family is not known: {why}"
    layers = tuple(InspectedLayer(n, "unknown") for n in range(count))
    notes = (note,) if unmeasured is None else (note, unmeasured)
    return _Read(name or "unknown", False, Positions((), layers, notes=notes), None, hints)


# -- at a length -----------------------------------------------------------------------------------------------------


def _at(positions: Positions, spec: RopeSpec | None, target: int | None) -> tuple[list[Analysis], list[str], list[str]]:
    """What each scheme does at ``target`` tokens: pair by pair where it turns; in words; those that are warnings."""
    analysis, sentences, warned = _angles(spec, target)
    if target is None:
        return analysis, sentences, warned
    trained = positions.trained.tokens
    for table in positions.tables:
        if table.grid is not None:
            sentences.append(
                f"the table is of {table.grid[0]} x {table.grid[1]} patches: more tokens are a larger image, "
                "for which it is resampled"
            )
        elif target > table.usable:
            warned.append(
                f"positions {table.usable} to {target - 1} have no row in the table: "
                f"texts of {target} tokens can't be read"
            )
        elif trained is not None and target > trained:
            warned.append(f"positions {trained} to {target - 1} have rows in the table that were never trained")
        else:
            sentences.append(f"{target} tokens are within the table's {table.usable}")
    schemes = {word: layer for layer in positions.layers for word in layer.scheme.split(" + ")}
    if "alibi" in schemes:
        past = f"; distances past {trained - 1} were not met in training" if trained and target > trained else ""
        sentences.append(f"ALiBi goes on in a straight line to {target} tokens{past}")
    for scheme, word in (("t5", "bucket"), ("deberta", "row")):
        reach = schemes[scheme].max_distance if scheme in schemes else None
        if reach is not None and target > reach:
            sentences.append(
                f"distances of about {reach} and more, up to {target - 1}, share the last {word} of {scheme}"
            )
    if "relative_logits" in schemes:
        reach = max(layer.max_distance or 0 for layer in positions.layers)
        sentences.append(f"keys {reach} tokens back and farther, up to {target - 1}, get no relative logit")
    return analysis, sentences + [word for word in warned if word not in sentences], warned


def _angles(spec: RopeSpec | None, target: int | None) -> tuple[list[Analysis], list[str], list[str]]:
    if spec is None:
        return [], [], []
    try:
        analysis = analyse(spec, target)
    except ValueError as error:
        return [], [], [f"angles can't be compared with training: {error}"]
    return analysis, [kind.sentence for kind in analysis], [kind.sentence for kind in analysis if kind.unseen_pairs]
