"""inspect: where position enters a checkpoint, layer by layer, and what its lengths are.

    found = inspect("path/to/model", target_length=32768)        # a folder, config.json, GGUF, a lab model, a name on the Hub
    found.layers[0].base, found.trained, found.warnings
    inspect("path/to/model", weights=True).told                  # also what the tensors say

Without weights: from the config and the names of tensors alone; neither torch nor transformers is imported. Rotary models are read by
`RopeSpec`, the others by `families`. No code of a checkpoint is run, and no pickle is opened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from milepost.checkpoints.files.tensors import StoredTensor, in_folder, in_gguf, in_safetensors
from milepost.checkpoints.inspection import lab as inspect_lab
from milepost.checkpoints.inspection import rope as inspect_rope
from milepost.checkpoints.inspection.families import LAYERS, READERS, no_layer_turns
from milepost.checkpoints.inspection.gguf import as_config
from milepost.checkpoints.inspection.parts import Layer, Length, Positions, Table
from milepost.checkpoints.inspection.weights import Told, told
from milepost.rope import RopeSpec
from milepost.rope.analysis import Analysis, analyse
from milepost.rope.config import files, gguf, gguf_archs, gguf_header, params_json
from milepost.rope.config.config_json import TEXT, text_model
from milepost.rope.config.families import FAMILIES, NOT_HELD, NOT_ROTARY
from milepost.rope.config.keys import ConfigError, Keys, short

__all__ = ["Inspection", "Layer", "Length", "Table", "inspect"]

ABOUT_POSITIONS = (
    "position",
    "rope",
    "rotary",
    "alibi",
    "relative",
    "window",
    "seq_len",
    "seq_length",
    "n_ctx",
    "max_len",
    "image_size",
    "patch_size",
    "context_length",
)
"""A key of an unknown family's config with one of these in its name is shown."""
HOLD_POSITIONS = ("position", "wpe.", "pos_emb", "relative_att", "rel_emb", "rotary", "inv_freq", "alibi", "attn_rel_b")
"""The same for names of tensors."""


@dataclass(frozen=True)
class Inspection:
    """What a checkpoint does about positions. ``known`` is whether milepost knows the family; if not, ``found`` is what could be read.

    ``where`` are the points at which position enters, ``tables`` what is added to the embedding, ``analysis`` what each kind of rotary
    layer does at ``target`` tokens (or at the length that is served), ``at_target`` the same in words for every scheme, ``told`` what the
    tensors say (None: not asked for).
    """

    model: str
    family: str
    known: bool
    form: str
    where: tuple[str, ...]
    layers: tuple[Layer, ...]
    tables: tuple[Table, ...]
    trained: Length
    scaled: Length
    served: Length
    target: int | None
    analysis: tuple[Analysis, ...] = ()
    at_target: tuple[str, ...] = ()
    told: Told | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    found: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        plain = {name: getattr(self, name) for name in ("model", "family", "known", "form", "target")}
        lengths = {name: asdict(getattr(self, name)) for name in ("trained", "scaled", "served")}
        return {
            **plain,
            **lengths,
            "where": list(self.where),
            "layers": [asdict(layer) for layer in self.layers],
            "tables": [asdict(table) for table in self.tables],
            "analysis": [one.to_json() | {"sentence": one.sentence} for one in self.analysis],
            "at_target": list(self.at_target),
            "weights": None if self.told is None else self.told.to_json(),
            "sources": dict(self.sources),
            "found": dict(self.found),
            "warnings": list(self.warnings),
        }

    def _repr_html_(self) -> str:
        from milepost.report.inspection import fragment

        return fragment(self.to_json())


def inspect(
    model: str | Path, *, target_length: int | None = None, weights: bool = False, allow_unknown: bool = False
) -> Inspection:
    """Read a checkpoint's positions. ``weights`` reads the tensors that hold them; ``allow_unknown`` passes over keys that contradict others.

    Raises `ConfigError`, a ValueError, in one sentence, where a file is missing or damaged. Nothing is written.
    """
    if target_length is not None and (
        isinstance(target_length, bool) or not isinstance(target_length, int) or target_length < 1
    ):
        raise ValueError(f"target_length is a number of tokens, at least 1, got {target_length!r}")
    source = _open(str(model))
    if weights and not source.tensors:
        raise ConfigError(f"--weights reads tensors, and there are none: {source.word}")
    read = _read(source, target_length, allow_unknown)
    found, answers = read.positions, None
    if weights:
        answers, found = told(found, source.tensors, read.spec)
    analysis, sentences, beyond = _at(found, read.spec, target_length)
    warnings = [*source.warnings(), *found.notes, *(() if answers is None else answers.notes), *beyond]
    return Inspection(
        str(model), read.family, read.known, source.form, found.where, found.layers, found.tables, found.trained, found.scaled, found.served,
        target_length, tuple(analysis), tuple(sentences), answers, found.sources, read.found, tuple(dict.fromkeys(filter(None, warnings))),
    )  # fmt: skip


# -- what MODEL is -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """A config with the tensors beside it; ``word`` is why there are none."""

    form: str
    file: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor] = field(default_factory=dict)
    word: str = ""

    def warnings(self) -> list[str]:
        """What every reader of this checkpoint should know first."""
        said = []
        code = self.config.get("auto_map")
        if code:
            said.append(
                f"the config asks for code of its own (auto_map: {short(code)}), which is not run: what follows is read from the config alone"
            )
        quantised = self.config.get("quantization_config") or self.config.get("compression_config")
        if quantised:
            method = quantised.get("quant_method", "") if isinstance(quantised, Mapping) else ""
            said.append(
                f"the weights are quantised ({method or 'quantization_config'}): packed tensors are not decoded"
            )
        parts = [
            key
            for key, value in self.config.items()
            if isinstance(value, Mapping) and key.endswith("_config") and "model_type" in value
        ]
        for part in (key for key in parts if key not in TEXT):
            said.append(
                f"{part} ({short(self.config[part]['model_type'])}) is another model inside of this one; its positions are not inspected"
            )
        if self.word.startswith("the weights are in"):
            said.append(self.word)
        return said


def _open(model: str) -> _Source:
    try:
        path = Path(model).expanduser()
        there, folder = path.exists(), path.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{short(model)} can't be a path: {error}") from None
    if folder and not any((path / name).is_file() for name in files.NAMES):
        if (path / "model.json").is_file():
            return _lab(path)
        inside = sorted(one.parent for one in path.glob("**/model.json") if len(one.relative_to(path).parts) <= 4)
        if inside:
            raise ConfigError(f"{path} holds {len(inside)} lab models: name one of their folders, such as {inside[0]}")
    if there and path.name == "model.json":
        return _lab(path.parent)
    file = files.find(model)
    if file.suffix == ".gguf":
        meta = gguf_header.metadata(file)
        return _Source("gguf", file, meta, in_gguf(file))
    if file.suffix == ".safetensors":
        raise ConfigError(f"{file} holds weights, and what they mean is in config.json: name the folder of both")
    config = files.load(file)
    if not there:
        return _Source(
            "hub",
            file,
            config,
            word=f"{model} is a name on the Hub, of which only the config is fetched; download it, and name its folder",
        )
    if not folder:
        return _Source("config", file, config, word=f"{model} is a config alone; name its folder")
    tensors, word = in_folder(path)
    return _Source("folder", file, config, tensors, word)


def _lab(folder: Path) -> _Source:
    weights = folder / "model.safetensors"
    tensors = in_safetensors(weights) if weights.is_file() else {}
    return _Source("lab", folder / "model.json", files.load(folder / "model.json"), tensors, f"{weights} is not there")


# -- what it says ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    family: str
    known: bool
    positions: Positions
    spec: RopeSpec | None = None
    found: Mapping[str, str] = field(default_factory=dict)


def _read(source: _Source, target: int | None, allow_unknown: bool) -> _Read:
    if source.form == "lab":
        try:
            found, spec = inspect_lab.positions(source.config, source.tensors, target)
        except (TypeError, ValueError) as error:  # an argument of a spec that is no number
            raise (
                error if isinstance(error, ConfigError) else ConfigError(f"{source.file} is of no lab model: {error}")
            ) from None
        return _Read("lab", True, found, spec)
    if source.form == "gguf":
        return _read_gguf(source, target, allow_unknown)
    if params_json.is_one(source.config):
        spec = params_json.read(source.config, allow_unknown=allow_unknown)
        return _rotary(spec, Keys(source.config), target, spec.model, True)
    keys, name = text_model(Keys(source.config))
    if (
        name in READERS
        and not (name == "falcon" and not keys.config.get("alibi"))
        and not (name == "smollm3" and not no_layer_turns(keys))
    ):
        return _Read(name, True, READERS[name](keys, source.tensors))
    try:
        return _rotary(
            RopeSpec.from_config(source.config, allow_unknown=allow_unknown), keys, target, name, name in FAMILIES
        )
    except ConfigError as error:
        if name in FAMILIES and FAMILIES[name].only is None:
            raise
        return _unknown(source, keys, name, str(error))


def _read_gguf(source: _Source, target: int | None, allow_unknown: bool) -> _Read:
    arch = source.config.get("general.architecture")
    other = as_config(source.config)
    if other is not None:
        name, config, words = other
        found = READERS[name](Keys(config), source.tensors)
        return _Read(str(arch), True, words(found))
    keys = Keys(
        {key.removeprefix(f"{arch}."): value for key, value in source.config.items() if key.startswith(f"{arch}.")},
        str(arch),
    )
    try:
        spec = gguf.read(source.config, allow_unknown=allow_unknown)
    except ConfigError as error:
        if not str(error).startswith("this model has no rotary positions"):
            raise
        return _unknown(source, keys, str(arch), str(error))
    return _rotary(
        spec, keys, target, str(arch), not any("is not known for architecture" in note for note in spec.notes)
    )


def _rotary(spec: RopeSpec, keys: Keys, target: int | None, name: str, known: bool) -> _Read:
    return _Read(name, known, inspect_rope.positions(spec, keys, target or spec.served or spec.trained), spec)


def _unknown(source: _Source, keys: Keys, name: str, why: str) -> _Read:
    """A family that nobody here knows: what its config and its tensors have that is about positions."""
    found = {
        key: short(value)
        for key, value in keys.config.items()
        if value is not None and any(word in key.lower() for word in ABOUT_POSITIONS)
    }
    named: dict[str, list[StoredTensor]] = {}
    for held in source.tensors.values():
        if any(word in held.name.lower() for word in HOLD_POSITIONS):
            named.setdefault(re.sub(r"\.\d+\.", ".N.", held.name), []).append(held)
    found |= {
        f"tensor {name}": f"{len(some)} of shape {list(some[0].shape)}" for name, some in list(named.items())[:20]
    }
    count = next(
        (n for n in (keys.config.get(key) for key in (*LAYERS, "block_count")) if type(n) is int and 0 < n <= 10000), 0
    )
    if not found and not count:
        raise ConfigError(
            f"{source.file} says nothing about positions, nor how many layers there are: is it the config of a model?"
        )
    who = (
        f"model type {name!r} is not one that milepost knows: {why}"
        if name
        else f"the config has no model_type, so its family is not known: {why}"
    )
    if name in NOT_HELD or name in NOT_ROTARY or name in gguf_archs.NOT_ROTARY:
        who = f"{why}; inspect reads no more than that of this family"
    return _Read(
        name or "unknown",
        False,
        Positions((), tuple(Layer(n, "unknown") for n in range(count)), notes=(who,)),
        None,
        found,
    )


# -- at a length -------------------------------------------------------------------------------------------------------------------


def _at(found: Positions, spec: RopeSpec | None, target: int | None) -> tuple[list[Analysis], list[str], list[str]]:
    """What each scheme does at ``target`` tokens: pair by pair where it turns; in words; and those words that are warnings."""
    analysis, said, warned = _angles(spec, target)
    if target is None:
        return analysis, said, warned
    trained = found.trained.tokens
    for table in found.tables:
        if table.grid is not None:
            said.append(
                f"the table is of {table.grid[0]} x {table.grid[1]} patches: more tokens are a larger image, for which it is resampled"
            )
        elif target > table.usable:
            warned.append(
                f"positions {table.usable} to {target - 1} have no row in the table: texts of {target} tokens can't be read"
            )
        elif trained is not None and target > trained:
            warned.append(f"positions {trained} to {target - 1} have rows in the table that were never trained")
        else:
            said.append(f"{target} tokens are within the table's {table.usable}")
    schemes = {word: layer for layer in found.layers for word in layer.scheme.split(" + ")}
    if "alibi" in schemes:
        past = (
            "" if trained is None or target <= trained else f"; distances past {trained - 1} were not met in training"
        )
        said.append(f"ALiBi goes on in a straight line to {target} tokens{past}")
    for scheme, word in (("t5", "bucket"), ("deberta", "row")):
        reach = schemes[scheme].max_distance if scheme in schemes else None
        if reach is not None and target > reach:
            said.append(f"distances of about {reach} and more, up to {target - 1}, share the last {word} of {scheme}")
    return analysis, said + [word for word in warned if word not in said], warned


def _angles(spec: RopeSpec | None, target: int | None) -> tuple[list[Analysis], list[str], list[str]]:
    if spec is None:
        return [], [], []
    try:
        analysis = analyse(spec, target)
    except ValueError as error:
        return [], [], [f"angles can't be compared with training: {error}"]
    return analysis, [one.sentence for one in analysis], [one.sentence for one in analysis if one.unseen_pairs]
