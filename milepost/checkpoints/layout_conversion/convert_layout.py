"""convert_layout: a checkpoint whose rotary pairs are (i, i + d/2) as one with (2i, 2i + 1), or back.

    done = convert_layout("llama", to="interleaved", out="llama-interleaved")
    done.proof.difference, done.proof.tolerance

The two are the same model: a permutation of the rows of q and k, which attention does not see. What has to move, and
what must not (V), is in `heads`; the logits of both, run on random tokens, are compared in `proof`.

Weights are copied file by file, and the rows put in order inside the copy, as bytes, one tensor at a time: dtypes,
metadata and the order of tensors stay, and there and back again is the same file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch

from milepost.checkpoints.files import (
    INDEX,
    ONE,
    OTHER_WEIGHTS,
    StoredTensor,
    check_links,
    check_not_quantised,
    copy_files,
    in_folder,
    parts_of,
    write_config,
)
from milepost.checkpoints.layout_conversion.heads import MODELS, HeadRows, find_head_rows, layers
from milepost.checkpoints.layout_conversion.proof import TOKENS, Proof, prove, read_config
from milepost.checkpoints.model.hf_load import check_installed
from milepost.draw import Document, Section, Table
from milepost.measure.folder import check_out, check_room, new_folder
from milepost.measure.results import provenance
from milepost.rope import RopeSpec
from milepost.rope.config.families import FAMILIES
from milepost.rope.config.files import load
from milepost.rope.config.keys import ConfigError, short
from milepost.rotation import Pairing

SAYS = ("rope_interleave", "rope_interleaved", "rotary_emb_interleaved")
"""The keys of a config that say how pairs are formed; the first is what we write."""


@dataclass(frozen=True)
class Conversion:
    """What was done: plain data. ``tensors`` are those whose rows moved; ``still`` the layers without rotation."""

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
        proof = (
            f"logits differ by {self.proof.difference:.3g}, {self.proof.tolerance:.3g} allowed; "
            f"without the conversion they would differ by {self.proof.unconverted:.3g}"
        )
        rows = [
            ["pairs", f"{self.source} to {self.target}"],
            ["tensors", str(self.count)],
            ["written", self.out],
            ["proof", proof],
        ]
        return Document(self.model, notes=self.notes, inline=[Section("", tables=[Table(["", ""], rows)])]).fragment()

    @property
    def count(self) -> int:
        """How many tensors changed."""
        return len(self.tensors)


def convert_layout(
    model: str | Path, to: Pairing, out: str | Path, *, tell: Callable[[str], None] = lambda text: None
) -> Conversion:
    """Write the checkpoint in folder ``model`` to folder ``out``, its pairs formed as ``to`` says; proved by logits.

    ``out`` gets the same files, with other rows in q and k, and ``rope_interleave`` in config.json. Raises ValueError
    for what can't be converted, `ProofError` where the logits differ; neither leaves anything behind. The folder
    ``model`` is only read.
    """
    if to not in get_args(Pairing):
        raise ValueError(f"pairs are formed as {' or '.join(map(repr, get_args(Pairing)))}, got {to!r}")
    check_installed("converting a checkpoint")
    folder = _folder(model)
    place = check_out(out, folder)
    config = load(folder / "config.json")
    _check_known(config)
    spec = RopeSpec.from_config(config)
    source = spec.main.pairing
    if source == to:
        raise ConfigError(
            f"{folder} has {to} pairs already ({spec.sources.get('pairing', 'from its config')}): "
            "there is nothing to convert"
        )
    text = read_config(folder).get_text_config()
    if text.model_type != _text(config)["model_type"]:
        raise ConfigError(
            f"transformers takes the text model to be of type {text.model_type!r}, "
            f"and the config says {_text(config)['model_type']!r}"
        )
    tensors, reason = in_folder(folder, complete=True)
    if not tensors:
        raise ConfigError(reason)
    orders = find_head_rows(text, spec, tensors)
    written = _config_for(config, spec, to)
    weights = sorted({tensor.file.name for tensor in tensors.values()})
    others, left_out = _others(folder, weights)
    check_room(place, sum(path.stat().st_size for path in folder.glob("*") if path.is_file()))
    with new_folder(place) as draft:
        for name in weights:
            tell(f"converting {name}")
            moved = {tensors[n]: order for n, order in orders.items() if tensors[n].file.name == name}
            _rewrite(folder / name, draft.files / name, moved, to)
        copy_files(folder, others, draft.files)
        write_config(draft.files / "config.json", written)
        tell("comparing logits")
        parameters = sum(tensor.count for tensor in tensors.values())
        proof = prove(folder, draft.files, spec, FAMILIES[text.model_type].pairing, to, parameters)
    for name in left_out:
        tell(f"left out: {name}")
    still = tuple(n for n, rope in enumerate(layers(text, spec)) if rope is None)
    protocol = provenance(
        what="convert_layout", to=to, dtype="float32", tokens=TOKENS, seed=0, threads=torch.get_num_threads()
    )
    return Conversion(
        model=str(folder),
        out=str(place),
        source=source,
        target=to,
        tensors=tuple(orders),
        layers=text.num_hidden_layers - len(still),
        still=still,
        proof=proof,
        left_out=left_out,
        notes=_notes(text.model_type, to, proof, left_out),
        provenance=protocol,
    )


# -- what comes in ---------------------------------------------------------------------------------------------------


def _folder(model: str | Path) -> Path:
    folder = Path(model).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(
            f"{model} is no folder: a checkpoint to convert is a local folder with config.json and {ONE} "
            f"(or {INDEX} and its files)"
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} has no config.json: without it, the heads of q and k are not known")
    check_links(folder)
    return folder


def _check_known(config: Mapping[str, Any]) -> None:
    """Refuse quantised models and unknown model types."""
    check_not_quantised(
        config,
        "rows of packed numbers and their scales can't be moved. Convert the unquantised model, and quantise the "
        "result",
    )
    if _text(config).get("model_type") not in MODELS:
        raise ConfigError(
            f"where a model of type {short(config.get('model_type'))} keeps q and k is not known; "
            f"convert_layout knows {', '.join(sorted(MODELS))}"
        )


def _text(config: Mapping[str, Any]) -> Any:
    """The part of a config that is about a model whose q and k can be found; the whole, where there is none."""
    return next((part for part in parts_of(config) if part.get("model_type") in tuple(MODELS)), config)


# -- what goes out ---------------------------------------------------------------------------------------------------


def _rewrite(source: Path, copy: Path, orders: Mapping[StoredTensor, HeadRows], to: Pairing) -> None:
    """Copy a file, and put the rows of some tensors in another order inside the copy."""
    shutil.copyfile(source, copy)
    with copy.open("r+b") as file:
        for tensor, rows in orders.items():
            order = rows.order(to)
            file.seek(tensor.start)
            raw = torch.frombuffer(bytearray(file.read(tensor.size)), dtype=torch.uint8).reshape(len(order), -1)
            file.seek(tensor.start)
            file.write(raw[order].numpy().tobytes())


def _config_for(config: Mapping[str, Any], spec: RopeSpec, to: Pairing) -> dict[str, Any]:
    """The config that says how pairs are formed now, and nothing else anew; read back, to be sure."""
    written: dict[str, Any] = json.loads(json.dumps(config))
    text = _text(written)
    for name in SAYS:
        if name == SAYS[0] or text.get(name) is not None:
            text[name] = to == "interleaved"
    expected = tuple((kind, None if rope is None else replace(rope, pairing=to)) for kind, rope in spec.kinds)
    kinds = RopeSpec.from_config(written).kinds
    if kinds != expected:
        raise ConfigError(f"this config can't say {to} pairs: with {SAYS[0]} it is read as {short(kinds)}")
    return written


def _others(folder: Path, weights: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The other files to copy, and those to leave out: weights in other forms. Hidden folders are passed over."""
    keep: list[str] = []
    leave: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder)
        if str(inside) in ("config.json", *weights) or any(part.startswith(".") for part in inside.parts[:-1]):
            continue
        other_weights = inside.name.removesuffix(".index.json").endswith(OTHER_WEIGHTS) and str(inside) != INDEX
        (leave if other_weights else keep).append(str(inside))
    return keep, tuple(leave)


def _notes(kind: str, to: Pairing, proof: Proof, left_out: tuple[str, ...]) -> tuple[str, ...]:
    """What its reader should know."""
    notes = []
    if to != FAMILIES[kind].pairing:
        notes.append(
            f"transformers forms the pairs of {kind} models as {FAMILIES[kind].pairing} whatever the config says, "
            "and would run these weights wrongly: they are for engines that can be told otherwise"
        )
    if proof.layers < proof.of:
        notes.append(
            f"the model is too large to be run whole: the proof ran its first {proof.layers} layers of {proof.of}"
        )
    if left_out:
        notes.append(f"{len(left_out)} files hold weights in other forms, were not converted, and not copied")
    return tuple(notes)
