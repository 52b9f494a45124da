"""convert_layout: a checkpoint whose rotary pairs are (i, i + d/2) as one with (2i, 2i + 1), or back.

    done = convert_layout("llama", to="interleaved", out="llama-interleaved")
    done.proof.difference, done.proof.tolerance

The two are the same model: a permutation of the rows of q and k, which attention does not see. What has to move, and what must not
(V), is in `convert_layout_heads`; the logits of both, run on random tokens, are compared in `convert_layout_proof`.

Weights are copied file by file, and the rows put in order inside the copy, as bytes, one tensor at a time: dtypes, metadata and the
order of tensors stay, and there and back again is the same file. All is done in a folder beside OUT (.OUT.*.tmp), renamed when it
is proved: a run that is killed leaves that folder at most, and never half of an OUT.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch

from milepost.checkpoints.layout_conversion.heads import MODELS, Held, Turn, layers, plan
from milepost.checkpoints.layout_conversion.proof import TOKENS, Proof, prove, text_config
from milepost.measure.results import provenance
from milepost.rope.config.families import FAMILIES
from milepost.rope.config.files import load
from milepost.rope.config.keys import ConfigError, short
from milepost.rope.engines import transformers as dialect
from milepost.rope.spec import RopeSpec
from milepost.rotation import Pairing

SAYS = ("rope_interleave", "rope_interleaved", "rotary_emb_interleaved")
"""The keys of a config that say how pairs are formed; the first is what we write."""
ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
OTHER_WEIGHTS = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".gguf",
    ".onnx",
    ".onnx_data",
    ".h5",
    ".msgpack",
    ".ot",
    ".npz",
)
"""Weights in other forms, which are not converted, and so not copied."""


@dataclass(frozen=True)
class Conversion:
    """What was done: plain data. ``tensors`` are those whose rows moved; ``still`` the layers without rotation, left alone."""

    model: str
    out: str
    source: Pairing
    target: Pairing
    tensors: tuple[str, ...]
    layers: int
    still: tuple[int, ...]
    proof: Proof
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    def _repr_html_(self) -> str:
        from milepost.report.fragment import table

        proof = f"logits differ by {self.proof.difference:.3g}, {self.proof.tolerance:.3g} allowed; not converted they would by {self.proof.unconverted:.3g}"
        rows = [
            ["pairs", f"{self.source} to {self.target}"],
            ["tensors", str(self.count)],
            ["written", self.out],
            ["proof", proof],
        ]
        return table(self.model, ["", ""], rows, self.notes)

    @property
    def count(self) -> int:
        """How many tensors changed."""
        return len(self.tensors)


def convert_layout(
    model: str | Path, to: Pairing, out: str | Path, *, tell: Callable[[str], None] = lambda text: None
) -> Conversion:
    """Write the checkpoint in folder ``model`` to folder ``out``, its pairs formed as ``to`` says, and prove it by logits.

    ``out`` gets the same files, with other rows in q and k, and ``rope_interleave`` in config.json. Raises ValueError for what can't
    be converted, `ProofError` where the logits differ; neither leaves anything behind. The folder ``model`` is only read.
    """
    if to not in get_args(Pairing):
        raise ValueError(f"pairs are formed as {' or '.join(map(repr, get_args(Pairing)))}, got {to!r}")
    _check_installed()
    folder, target = _folders(model, out)
    config = load(folder / "config.json")
    _check_known(config)
    spec = dialect.read(config)
    source = spec.main.pairing
    if source == to:
        raise ConfigError(
            f"{folder} has {to} pairs already ({spec.sources.get('pairing', 'from its config')}): there is nothing to convert"
        )
    text = text_config(folder)
    if text.model_type != _text(config)["model_type"]:
        raise ConfigError(
            f"transformers takes the text model to be of type {text.model_type!r}, and the config says {_text(config)['model_type']!r}"
        )
    tensors = _tensors(folder)
    turns = plan(text, spec, tensors)
    written = _config_for(config, spec, to)
    others, left_out = _others(folder, {held.file for held in tensors.values()})
    _check_room(folder, target)
    work = _beside(target)
    try:
        work.mkdir()
        for name in sorted({held.file for held in tensors.values()}):
            tell(f"converting {name}")
            _rewrite(
                folder / name,
                work / name,
                {n: (tensors[n], turn) for n, turn in turns.items() if tensors[n].file == name},
                to,
            )
        for relative in others:
            (work / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / relative, work / relative)
        (work / "config.json").write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        tell("comparing logits")
        proof = prove(
            folder, work, spec, FAMILIES[text.model_type].pairing, to, sum(_numel(held) for held in tensors.values())
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rmdir()  # empty: see _folders
        os.replace(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for name in left_out:
        tell(f"left out: {name}")
    still = tuple(n for n, rope in enumerate(layers(text, spec)) if rope is None)
    protocol = provenance(
        what="convert_layout", to=to, dtype="float32", tokens=TOKENS, seed=0, threads=torch.get_num_threads()
    )
    notes = _notes(text.model_type, to, proof, left_out)
    return Conversion(
        str(folder),
        str(target),
        source,
        to,
        tuple(turns),
        text.num_hidden_layers - len(still),
        still,
        proof,
        left_out,
        tuple(notes),
        protocol,
    )


# -- what comes in ---------------------------------------------------------------------------------------------------


def _check_installed() -> None:
    try:
        import safetensors  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"converting a checkpoint needs the {error.name} package: pip install milepost[hf]") from None


def _folders(model: str | Path, out: str | Path) -> tuple[Path, Path]:
    """Both folders, resolved: MODEL is one with a config.json, OUT is not there or empty, and neither is inside of the other."""
    folder, target = (Path(path).expanduser().resolve() for path in (model, out))
    if not folder.is_dir():
        raise ConfigError(
            f"{model} is no folder: a checkpoint to convert is a local folder with config.json and {ONE} (or {INDEX} and its files)"
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} has no config.json: without it, the heads of q and k are not known")
    if target == folder or folder in target.parents:
        raise ConfigError(
            f"OUT ({target}) is the source folder, or inside of it: the source is never written to; name another folder"
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"OUT ({target}) is there already, and not an empty folder: name another, or remove it")
    return folder, target


def _check_known(config: Mapping[str, Any]) -> None:
    """Refuse quantised models and unknown model types."""
    for part in parts_of(config):
        given = part.get("quantization_config") or part.get("compression_config")
        if given:
            method = given.get("quant_method", "") if isinstance(given, Mapping) else ""
            raise ConfigError(
                f"the model is quantised (quantization_config{f': {method}' if method else ''}): rows of packed numbers and their scales can't be moved. "
                "Convert the unquantised model, and quantise the result"
            )
    if _text(config).get("model_type") not in MODELS:
        raise ConfigError(
            f"where a model of type {short(config.get('model_type'))} keeps q and k is not known; convert_layout knows {', '.join(sorted(MODELS))}"
        )


def parts_of(config: Mapping[str, Any]) -> list[Any]:
    """A config, and those inside of it: a model of several modalities has one for each."""
    return [config, *(value for value in config.values() if isinstance(value, Mapping) and "model_type" in value)]


def _text(config: Mapping[str, Any]) -> Any:
    """The part of a config that is about a model whose q and k can be found; the whole, where there is none."""
    return next((part for part in parts_of(config) if part.get("model_type") in tuple(MODELS)), config)


def _tensors(folder: Path) -> dict[str, Held]:
    """Every tensor of the checkpoint, in its files' order."""
    index, one = folder / INDEX, folder / ONE
    if index.is_file() and one.is_file():
        raise ConfigError(f"{folder} has {ONE} and {INDEX}: which of them holds the model? keep one")
    if not index.is_file():
        if not one.is_file():
            there = sorted(path.name for path in folder.iterdir() if path.suffix in OTHER_WEIGHTS)
            raise ConfigError(
                f"{folder} has neither {ONE} nor {INDEX}"
                + (f"; it has {short(there)}, which can't be converted" if there else "")
            )
        return _header(one)
    listed = load(index).get("weight_map")
    if (
        not isinstance(listed, Mapping)
        or not listed
        or not all(isinstance(file, str) and file == Path(file).name for file in listed.values())
    ):
        raise ConfigError(f"{index} must have a weight_map from names of tensors to names of files beside it")
    found: dict[str, Held] = {}
    for name in sorted(set(listed.values())):
        if not (folder / name).is_file():
            raise ConfigError(
                f"{folder / name} is missing: {INDEX} puts {sum(file == name for file in listed.values())} tensors there"
            )
        found.update(_header(folder / name))
    wrong = [
        name
        for name in {**listed, **found}
        if name not in listed or name not in found or found[name].file != listed[name]
    ]
    if wrong:
        raise ConfigError(f"{INDEX} and the files don't agree about {len(wrong)} tensors: {short(wrong)}")
    return found


def _header(file: Path) -> dict[str, Held]:
    """What a safetensors file holds, and where: 8 bytes of length, a JSON object, the numbers."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt"):  # checks that the header is sound, and the file whole
            pass
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{file} is not a whole safetensors file: {error}") from None
    with file.open("rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
    places = {
        name: (8 + length + given["data_offsets"][0], 8 + length + given["data_offsets"][1])
        for name, given in header.items()
        if name != "__metadata__"
    }
    order = sorted(places, key=places.__getitem__)
    return {
        n: Held(file.name, header[n]["dtype"], tuple(header[n]["shape"]), places[n][0], places[n][1] - places[n][0])
        for n in order
    }


def _numel(held: Held) -> int:
    return int(torch.Size(held.shape).numel())


# -- what goes out ---------------------------------------------------------------------------------------------------


def _rewrite(source: Path, copy: Path, turns: Mapping[str, tuple[Held, Turn]], to: Pairing) -> None:
    """Copy a file, and put the rows of some tensors in another order inside the copy."""
    shutil.copyfile(source, copy)
    with copy.open("r+b") as f:
        for held, turn in turns.values():
            order = turn.order(to)
            f.seek(held.start)
            rows = torch.frombuffer(bytearray(f.read(held.size)), dtype=torch.uint8).reshape(len(order), -1)
            f.seek(held.start)
            f.write(rows[order].numpy().tobytes())


def _config_for(config: Mapping[str, Any], spec: RopeSpec, to: Pairing) -> dict[str, Any]:
    """The config that says how pairs are formed now, and nothing else anew; read back, to be sure."""
    written: dict[str, Any] = json.loads(json.dumps(config))
    text = _text(written)
    for name in SAYS:
        if name == SAYS[0] or text.get(name) is not None:
            text[name] = to == "interleaved"
    expected = tuple((kind, None if rope is None else replace(rope, pairing=to)) for kind, rope in spec.kinds)
    if dialect.read(written).kinds != expected:
        raise ConfigError(
            f"this config can't say {to} pairs: with {SAYS[0]} it is read as {short(dialect.read(written).kinds)}"
        )
    return written


def _others(folder: Path, weights: set[str]) -> tuple[list[Path], tuple[str, ...]]:
    """The other files to copy, and those to leave out: weights in other forms, and hidden folders."""
    keep: list[Path] = []
    leave: list[Path] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        relative = path.relative_to(folder)
        if str(relative) in ("config.json", *weights) or any(part.startswith(".") for part in relative.parts[:-1]):
            continue
        name = relative.name.removesuffix(".index.json")
        (leave if name.endswith(OTHER_WEIGHTS) and str(relative) != INDEX else keep).append(relative)
    return keep, tuple(map(str, leave))


def _beside(target: Path) -> Path:
    """A new name in the nearest folder above OUT that is there: on the same disk, and nothing to tidy but itself."""
    above = next(path for path in target.parents if path.is_dir())
    return above / f".{target.name}.{uuid.uuid4().hex[:8]}.tmp"


def _check_room(folder: Path, target: Path) -> None:
    needed = sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
    free = shutil.disk_usage(_beside(target).parent).free
    if needed > free:
        raise ConfigError(f"{target} needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free there")


def _notes(kind: str, to: Pairing, proof: Proof, left_out: tuple[str, ...]) -> list[str]:
    """What its reader should know."""
    notes = []
    if to != FAMILIES[kind].pairing:
        notes.append(
            f"transformers forms the pairs of {kind} models as {FAMILIES[kind].pairing} whatever the config says, and would run these weights wrongly: "
            "they are for engines that can be told otherwise"
        )
    if proof.layers < proof.of:
        notes.append(
            f"the model is too large to be run whole: the proof ran its first {proof.layers} layers of {proof.of}"
        )
    if left_out:
        notes.append(f"{len(left_out)} files hold weights in other forms, were not converted, and not copied")
    return notes
