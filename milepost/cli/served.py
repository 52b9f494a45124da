"""What commands do with a model that is named by the address of its server, and `compare`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli import lab
from milepost.cli.shared import (
    Json,
    ReportFolder,
    Tokenizer,
    exit_unless,
    keeping,
    measuring,
    read_length,
    report_on,
    teaching,
)

if TYPE_CHECKING:
    from milepost.draw import Document

ServedModel = Annotated[
    str | None, typer.Option("--served-model", help="For an address: the name that the model is served under.")
]
KeyFrom = Annotated[
    str | None,
    typer.Option("--key-from", help="For an address: the environment variable that holds the key [MILEPOST_KEY]."),
]
Certificate = Annotated[
    Path | None, typer.Option(help="For an address: a file of certificates to trust, for a server that signs its own.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="For an address: go on with what a run into the same --out had measured.")
]


def is_url(name: str) -> bool:
    """Whether a model is named by the address of a server."""
    return name.lower().startswith(("http://", "https://"))


def served_how(
    tokenizer: str | None, model: str | None, key: str | None, certificate: Path | None
) -> dict[str, Any]:  # fmt: skip
    """How a server is reached, as `connect` takes it."""
    trusted = None if certificate is None else str(certificate)
    return {"tokenizer": tokenizer, "model": model, "key": key, "certificate": trusted}


def own_tokenizer(how: dict[str, Any], model: str | None, text: Path) -> dict[str, Any]:
    """``how`` with a model's own tokenizer, where none was named and its files have one."""
    from milepost.checkpoints.model.tokenizers import has_tokenizer

    path = None if model is None else Path(model).expanduser()
    if how["tokenizer"] is not None or path is None:
        return how
    gguf = path.suffix == ".gguf" and path.is_file() and text.suffix != ".npy"
    return {**how, "tokenizer": str(path)} if gguf or (path.is_dir() and has_tokenizer(path)) else how


def needed(value: Any, option: str, what: str) -> Any:
    """An option that addresses need, and others do not."""
    if value is None:
        raise ValueError(f"a model behind a server is measured on a text: give {option} ({what})")
    return value


@contextmanager
def journal(out: Path | None, resume: bool) -> Iterator[Path | None]:
    """Where what was read through a server is kept until a report is written: a file beside its folder."""
    if out is None:
        if resume:
            raise ValueError("--resume goes on with what was measured for --out: name that folder")
        yield None
        return
    from milepost.measure.folder import one_run
    from milepost.served.servers.client import ServerError

    path = out.expanduser().with_name(out.name + ".readings.jsonl")
    if path.exists() and not resume:
        with one_run(out):  # refused otherwise, where the run has not ended
            raise ValueError(f"{path} holds what an ended run measured: give --resume to go on with it, or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with keeping(path.exists, path, ServerError):
        yield path
    path.unlink(missing_ok=True)


def report_served(
    name: str, out: Path | None, model: str, resume: bool, as_json: bool, measure: Callable[[Path | None, Any], Any],
    document: Callable[[Any], Document],
) -> dict[str, Any]:  # fmt: skip
    """`report_on` a model behind a server; what is read is kept until the report is written."""

    def measure_told(kept: Path | None) -> dict[str, Any]:
        with measuring() as tell:
            return dict(measure(kept, tell).to_json())

    with journal(out, resume) as kept:
        return report_on(model, name, lambda: measure_told(kept), document, out, as_json)


@teaching
def compare_command(
    models: Annotated[
        list[str],
        typer.Argument(metavar="DIR...|URL URL", help="Folders that `milepost lab` wrote; or a server and "
                       "another, or a folder or GGUF file that is run here."),
    ],
    text: Annotated[Path | None, typer.Option(help="For addresses: what to read, as for diagnose.")] = None,
    length: Annotated[str, typer.Option(help="For addresses: tokens of each text, such as 4k.")] = "2k",
    windows: Annotated[int, typer.Option(help="For addresses: texts that are read, at least 2.")] = 6,
    threshold: Annotated[
        float | None,
        typer.Option(help="For addresses: nats a token beyond which losses part; by default 2% of the first one's."),
    ] = None,
    tokenizer: Tokenizer = None,
    served_model: ServedModel = None,
    key_from: KeyFrom = None,
    certificate: Certificate = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a report.")] = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Several lab runs on text in one table; or two served models on the same tokens: where do their losses part?

    Runs can be compared when they scored the same tokens: the same text, lengths and trained length. An encoding that
    several of them hold is named with its folder. Of two servers, versions or flags, every stretch of a text is
    compared, with intervals: exit 1 where one lies beyond the threshold, for the gate of an upgrade.

    Example: `milepost compare runs/demo runs/mine --out runs/both` or `milepost compare http://127.0.0.1:8000
    http://127.0.0.1:8001 --text book.txt --tokenizer path/to/model --length 4k`
    """
    if not any(map(is_url, models)):
        lab.compare_runs([Path(name) for name in models], out, as_json)
        return
    if len(models) != 2 or not is_url(models[0]):
        raise ValueError("compare takes the address of a server first, and then one other: an address, folder or file")
    from milepost.checkpoints.model.load import load
    from milepost.served import connect, report
    from milepost.served.comparison import compare

    words, tokens = needed(text, "--text", "what to read"), read_length(length, "--length")
    assert tokens is not None
    if windows < 2:
        raise ValueError(f"--windows is at least 2, so that there is an interval; got {windows}")
    how = served_how(tokenizer, served_model, key_from, certificate)

    def measure(kept: Path | None, tell: Any) -> Any:
        other = None if is_url(models[1]) else models[1]
        first = connect(models[0], journal=kept, **own_tokenizer(how, other, words))
        second: Any = (
            connect(models[1], journal=kept, setting="the second", **how)
            if is_url(models[1])
            else load(models[1], tokenizer=tokenizer)
        )
        return compare(first, second, words, tokens, windows=windows, threshold=threshold, tell=tell)

    data = report_served("comparison", out, models[0], resume, as_json, measure, report.comparison)
    exit_unless(data["ok"])


def verify_address(
    url: str, text: Path | None, against: str | None, length: str, windows: int, how: dict[str, Any], out: ReportFolder,
    resume: bool, as_json: bool, dtype: str, device: str, only: str | None,
) -> None:  # fmt: skip
    """`verify` for an address."""
    from milepost.served import connect, report
    from milepost.served.verification.plan import PARTS
    from milepost.served.verification.verify import verify_served
    from milepost.served.verification.weights import load_weights

    words, tokens = needed(text, "--text", "what to read"), read_length(length, "--length")
    assert tokens is not None
    parts = PARTS if only is None else tuple(part.strip() for part in only.split(","))

    def measure(kept: Path | None, tell: Any) -> Any:
        subject = connect(url, journal=kept, **own_tokenizer(how, against, words))
        tell("loading", 0.0)
        weights, note = (
            (None, None)
            if against is None
            else load_weights(against, device=device, dtype=dtype, tokenizer=how["tokenizer"])
        )
        return verify_served(
            subject, words, tokens, against=weights, windows=windows, only=parts, notes=[note] if note else [],
            tell=tell,
        )  # fmt: skip

    data = report_served("verification", out, url, resume, as_json, measure, report.verification)
    exit_unless(data["ok"])


def diagnose_address(
    url: str, text: Path, lengths: list[int], windows: int, how: dict[str, Any], out: ReportFolder, resume: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """`diagnose` for an address."""
    from milepost.checkpoints.diagnosis import report
    from milepost.checkpoints.diagnosis.diagnose import diagnose
    from milepost.served import connect

    def measure(kept: Path | None, tell: Any) -> Any:
        return diagnose(connect(url, journal=kept, **how), text, lengths, windows=windows, tell=tell)

    report_served("diagnosis", out, url, resume, as_json, measure, report.document)


def recommend_addresses(
    models: list[str], command: str | None, engine: str, text: Path, target: int, trained: int | None, windows: int,
    how: dict[str, Any], out: ReportFolder, resume: bool, as_json: bool,
) -> None:  # fmt: skip
    """`recommend` for addresses, or for a command that starts a server for each setting."""
    from milepost.rope import read
    from milepost.served import report
    from milepost.served.recommendation import recommend_served, running, started

    spec, notes = None, list[str]()
    if command is not None:
        if len(models) != 1:
            raise ValueError("with --command, MODEL is the one folder or GGUF file whose settings are tried")
        spec = read(models[0])
        trained = trained or spec.trained
    short = needed(trained, "--trained-length", "the length at which short texts are measured")

    def measure(kept: Path | None, tell: Any) -> Any:
        if command is None or spec is None:
            settings = running(models, journal=kept, **how)
        else:
            own = own_tokenizer(how, models[0], text)
            settings, refused = started(command, spec, target, engine, journal=kept, **own)
            notes.extend(refused)
        return recommend_served(settings, text, target, short, windows=windows, notes=notes, tell=tell)

    data = report_served("recommendation", out, models[0], resume, as_json, measure, report.recommendation)
    exit_unless(data["works"])
