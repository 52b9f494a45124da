"""spec, parity and export: the rotary positions of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from milepost.cli.shared import (
    AllowUnknown,
    Json,
    Offline,
    TargetLength,
    TrainedLength,
    answer,
    aside,
    exit_unless,
    print_json,
    read_length,
    refusing,
    teaching,
)

if TYPE_CHECKING:
    from milepost.rope import Config, RopeSpec

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL_OR_JSON",
        help="A folder, config.json, params.json, a GGUF file, a name on the Hub, or JSON itself.",
    ),
]
Method = Annotated[
    Literal["base", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3"] | None,
    typer.Option(
        "--rope-scaling",
        help="Extend the model by this method to the target length first. It replaces a scaling that is there.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Also draw it: a file that ends in .html, .png or .svg."),
]


@teaching
def spec_command(
    model: Model,
    target_length: TargetLength = None,
    trained_length: TrainedLength = None,
    method: Method = None,
    engine: Annotated[
        str | None, typer.Option(help="As this engine reads the config, instead of transformers.")
    ] = None,
    out: Out = None,
    allow_unknown: AllowUnknown = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """What a config means by its rotary positions, and what that does at a length.

    Where each value comes from, the turns of every pair, which pairs meet angles that training never showed, and the
    temperature.

    Example: `milepost spec path/to/model --target-length 32k` or
    `milepost spec config.json --rope-scaling yarn --target-length 128k --out spec.html`
    """
    from milepost.draw.picture import check_name
    from milepost.rope import report
    from milepost.rope.analysis import analyse

    if out is not None:
        check_name(out)
    target = read_length(target_length, "--target-length")
    spec = _extended(_read(model, engine, allow_unknown, trained_length), method, target)
    result = {"spec": spec.to_json(), "analysis": [layer.to_json() for layer in analyse(spec, target)]}
    _show(result, report.save, report.document, out, as_json)


@teaching
def parity_command(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A model, config or JSON; ENGINE:PATH for the reading of another engine than transformers.",
        ),
    ],
    b: Annotated[str | None, typer.Argument(metavar="B", help="The other one.")] = None,
    engines: Annotated[
        str | None,
        typer.Option(
            help="Engines that read A, in place of B: two, such as transformers,vllm@0.29; or all, against the config."
        ),
    ] = None,
    out: Out = None,
    allow_unknown: AllowUnknown = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Do two configs, or two engines that read one config, turn every pair alike? Exit 1 when they differ.

    A folder and a GGUF file that was made of it are compared in everything about positions, with the rows of q and k,
    and what the conversion lost is said.

    Example: `milepost parity config.json --engines transformers,vllm` or
    `milepost parity llama/config.json vllm:other/config.json` or `milepost parity path/to/model model.gguf`
    """
    from milepost.draw.picture import check_name
    from milepost.rope import as_read_by, report
    from milepost.rope.engines.parity import differences

    if (b is None) == (engines is None):
        raise ValueError("give B, or --engines X,Y to compare two engines' readings of A (not both)")
    if engines == "all":
        if out is not None:
            raise ValueError("--engines all prints a line for each engine; a page (--out) is for two")
        _compare_all(_open(a, allow_unknown), a, as_json)
        return
    readers = [] if engines is None else [name.strip() for name in engines.split(",")]
    if engines is not None and len(readers) != 2:
        raise ValueError(f"--engines names two engines, such as transformers,vllm; got {engines!r}")
    names = [f"{engine}:{a}" for engine in readers] or [a, b or ""]
    if out is not None:
        check_name(out)
    more: dict[str, Any] = {}
    if readers:
        config = _open(a, allow_unknown)  # read from its file once, for both engines
        first, second = (as_read_by(engine, config) for engine in readers)
        apart = differences(first, second)
    elif b is not None and b.endswith(".gguf") and not a.endswith(".gguf") and _is_source(a):
        from milepost.checkpoints import compare_gguf

        parity = compare_gguf(_open(a, allow_unknown), _open(b, allow_unknown))
        first, second, apart = parity.source, parity.file, list(parity.differences)
        more = {"lost": list(parity.lost), "notes": list(parity.notes)}
    else:
        first, second = (_read(name, None, allow_unknown, None) for name in names)
        apart = differences(first, second)
    result = more | {
        "same": not apart,
        "a": {"name": names[0], "spec": first.to_json()},
        "b": {"name": names[1], "spec": second.to_json()},
        "differences": [
            asdict(d) | {"relative": d.relative if d.relative < float("inf") else None, "sentence": d.sentence(*names)}
            for d in apart
        ],
    }
    _show(result, report.save_parity, report.parity_document, out, as_json)
    exit_unless(not apart)


def _is_source(name: str) -> bool:
    """Whether a user named a folder, or the config in it, and no engine."""
    return not name.lstrip().startswith("{") and Path(name).exists()


def _compare_all(config: Config, name: str, as_json: bool) -> None:
    """Every engine that reads configs, in every version that was measured. Exit 1 if one differs from the config."""
    from milepost.rope import ENGINES, ConfigError, read
    from milepost.rope.engines.config_engine import rope_type
    from milepost.rope.engines.parity import differences

    if "_class_name" in config.data:
        _diffusion(config, name, as_json)
        return
    own = read(config)
    kinds = (own.model, config.data.get("model_type"))
    types = tuple(kind for kind in kinds if isinstance(kind, str) and kind) or (None,)
    named = {str(rope_type(given)) for given in config.parsed.dictionaries.values() if given}
    rows: list[dict[str, Any]] = []
    for engine in ENGINES.values():
        if not engine.reads:
            continue
        for version in engine.versions or (None,):
            reader = engine.at(version)
            row: dict[str, Any] = {
                "engine": engine.name,
                "version": reader.version,
                "evidence": reader.evidence(*types, named=named),
            }
            try:
                wrong = differences(own, reader.read(config))
                row |= {"same": not wrong, "differences": [d.sentence("the config", engine.name) for d in wrong]}
            except ConfigError as refusal:
                row |= {"same": False, "differences": [], "stops": str(refusal)}
            rows.append(row)
    if as_json:
        print_json({"name": name, "engines": rows})
    else:
        for row in rows:
            verdict = "same" if row["same"] else row.get("stops") or row["differences"][0]
            typer.echo(f"{row['engine']} {row['version'] or ''}".strip() + f": {verdict} ({row['evidence']})")
    exit_unless(all(row["same"] for row in rows))


def _diffusion(config: Config, name: str, as_json: bool) -> None:
    """What the one engine of diffusion transformers makes of a config that no other reads."""
    from milepost.rope.engines import measured
    from milepost.rope.engines.runtimes.diffusers import read_transformer

    made = read_transformer(config.data)
    version = measured.versions("diffusers")[0]
    evidence = f"measured with diffusers {version}; the other engines have models of text"
    row = {"engine": "diffusers", "version": version, "evidence": evidence, "same": True, "encoding": made.encoding}
    if as_json:
        print_json({"name": name, "engines": [row]})
    else:
        typer.echo(f"diffusers {version}: {made.encoding} ({evidence})")


@teaching
def export_command(
    model: Model,
    to: Annotated[
        str,
        typer.Option(
            help="transformers, transformers-v4, vllm, sglang, llama.cpp, mlx-lm, megatron, torchtitan, exllamav3 or "
            "onnxruntime-genai; "
            "in a version where that was measured: vllm@0.29."
        ),
    ],
    target_length: TargetLength = None,
    trained_length: TrainedLength = None,
    method: Method = None,
    allow_unknown: AllowUnknown = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """A model's rotary positions in the keys of an engine, ready to paste; exit 1 with the reason where it has none.

    What is printed has been read back as that engine reads it, and gives the same table.

    Example: `milepost export path/to/model --to vllm --rope-scaling yarn --target-length 128k`
    """
    from milepost.rope import export, find_engine
    from milepost.rope.engines.written import Refused

    spec = _extended(
        _read(model, None, allow_unknown, trained_length), method, read_length(target_length, "--target-length")
    )
    with refusing(Refused, {"engine": to} if as_json else None):
        written = export(spec, to)
    if written.version:
        aside().print(f"for {find_engine(to).named}, as measured", soft_wrap=True)
    for note in written.notes:
        aside().print(f"note: {note}", soft_wrap=True)
    if as_json:
        data = {"engine": to, "version": written.version, "text": written.text, "config": dict(written.config)}
        print_json(data | {"notes": list(written.notes)})
    else:
        typer.echo(written.text)


def _show(
    data: Any, save: Callable[[Any, Path], Path], shown: Callable[[Any], Any], out: Path | None, as_json: bool
) -> None:
    """A result on standard output, and drawn where a file was named for it."""
    if out is not None:
        aside().print(f"open {save(data, out)}", soft_wrap=True)
    answer(data, shown, as_json)


def _read(model: str, engine: str | None, allow_unknown: bool, trained: str | None) -> RopeSpec:
    """The spec of what a user named: ENGINE:PATH, a path, a name on the Hub, or JSON."""
    from milepost.rope import ENGINES, as_read_by

    prefix, _, rest = model.partition(":")
    if engine is None and rest and prefix.partition("@")[0] in ENGINES:
        engine, model = prefix, rest
    config = _open(model, allow_unknown)
    spec = _own(config) if engine is None else as_read_by(engine, config)
    length = read_length(trained, "--trained-length")
    if length is None:
        return spec
    return replace(spec, trained=length, sources={**spec.sources, "trained": "--trained-length"})


def _own(config: Config) -> RopeSpec:
    """A config as its own program means it; a model type that no list knows is measured, where that is possible."""
    from milepost.rope import read
    from milepost.rope.config.config_json import text_model
    from milepost.rope.config.families import FAMILIES, NOT_ROTARY
    from milepost.rope.config.keys import ConfigKeys

    keys, name = text_model(ConfigKeys(config.data)) if config.format == "config.json" else (None, "")
    family = FAMILIES.get(name)
    known = family is not None and (keys is None or not family.needs or keys.has(family.needs))
    if keys is None or not name or known or name in NOT_ROTARY or config.data.get("auto_map"):
        return read(config)
    from milepost.checkpoints.families import CannotBuild, find_measured

    asked = {**keys.config, "model_type": name}
    try:
        measured = find_measured(asked)
    except CannotBuild as error:
        spec = read(config)
        return replace(spec, notes=(*spec.notes, f"model type {name!r} was not measured: {error}"))
    from milepost.checkpoints.families.answer import as_spec

    return as_spec(measured, asked)


def _open(model: str, allow_unknown: bool) -> Config:
    """The config of a path, a name on the Hub, or JSON itself."""
    from milepost.rope import open_config
    from milepost.rope.config.files import parse

    inline = model.lstrip().startswith("{")
    return open_config(parse(model, "the JSON given") if inline else model, allow_unknown=allow_unknown)


def _extended(spec: RopeSpec, method: Any, target: int | None) -> RopeSpec:
    if method is None:
        return spec
    if target is None:
        raise ValueError(
            "--rope-scaling extends the model to a length: say it with --target-length, such as --target-length 128k"
        )
    return spec.extended(target, method)
