"""inspect, verify, diagnose and recommend: commands that read a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from milepost.cli.served import (
    Certificate,
    KeyFrom,
    Resume,
    ServedModel,
    diagnose_address,
    is_url,
    recommend_addresses,
    served_how,
    verify_address,
)
from milepost.cli.shared import (
    AllowUnknown,
    AnyModel,
    Checkpoint,
    Device,
    Dtype,
    Json,
    Offline,
    ReportFolder,
    TargetLength,
    Tokenizer,
    TrainedLength,
    exit_unless,
    measuring,
    read_length,
    read_lengths,
    report_on,
    teaching,
    telling,
)


@teaching
def inspect_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A folder, config.json, a GGUF file, a lab run's folder, or a name on the Hub."
        ),
    ],
    target_length: TargetLength = None,
    weights: Annotated[bool, typer.Option("--weights", help="Also read the tensors that hold positions.")] = False,
    out: ReportFolder = None,
    allow_unknown: AllowUnknown = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Where position enters a checkpoint, layer by layer: scheme, base, scaling, slopes, buckets, tables, windows; and
    its lengths.

    From the config and the names of tensors alone, unless --weights is given. No code of the checkpoint is run, and no
    pickle opened.

    Example: `milepost inspect path/to/model --target-length 32k` or `milepost inspect model.gguf --weights --out
    inspected`
    """
    from milepost.checkpoints import inspect
    from milepost.checkpoints.inspection import report
    from milepost.measure.results import provenance

    target = read_length(target_length, "--target-length")

    def measure() -> dict[str, Any]:
        inspected = inspect(model, target_length=target, weights=weights, allow_unknown=allow_unknown)
        about = provenance(what="inspect", weights=weights, target_length=inspected.target)
        return inspected.to_json() | {"provenance": about}

    report_on(model, "inspection", measure, report.document, out, as_json)


@teaching
def verify_command(
    model: Checkpoint,
    against: Annotated[
        str | None, typer.Option(help="For an address: the weights that it should run, a folder or a GGUF file.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="For an address: what to read, as for diagnose.")] = None,
    length: Annotated[str, typer.Option(help="For an address: tokens of each text, such as 4k.")] = "2k",
    windows: Annotated[int, typer.Option(help="For an address: texts that are read.")] = 2,
    only: Annotated[
        str | None, typer.Option(help="For an address: rotation, truncation, repeats, or two of them with a comma.")
    ] = None,
    tokenizer: Tokenizer = None,
    served_model: ServedModel = None,
    key_from: KeyFrom = None,
    certificate: Certificate = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    out: ReportFolder = None,
    resume: Resume = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Does a model, loaded and run, do with positions what its config asks for? Exit 1 when a check fails.

    Live frequencies and temperature of every layer, precision, the same logits alone, cached, padded and packed, biases
    under each attention implementation, lengths, and all of it again after a save and a reload. Every check has a
    tolerance derived from rounding, and a control.

    Of a model behind a server: how many tokens of a text reach it, whether a text gets the same answer cached, in a
    batch and after longer ones; and, --against the weights, which rotation it really runs.

    Example: `milepost verify path/to/model --out verified` or `milepost verify http://127.0.0.1:8000 --against
    path/to/model --text book.txt --length 4k`
    """
    if is_url(model):
        how = served_how(tokenizer, served_model, key_from, certificate)
        verify_address(model, text, against, length, windows, how, out, resume, as_json, dtype, device, only)
        return
    if against is not None or text is not None or only is not None:
        raise ValueError(
            "--against, --text and --only are for the address of a server; a checkpoint is verified as it is"
        )
    from milepost.checkpoints import verify
    from milepost.checkpoints.verification import report

    def measure() -> dict[str, Any]:
        with telling() as tell:
            return verify(model, device=device, dtype=dtype, tell=tell).to_json()

    data = report_on(model, "verification", measure, report.document, out, as_json)
    exit_unless(data["ok"])


@teaching
def diagnose_command(
    model: AnyModel,
    text: Annotated[
        Path, typer.Option(help="What to read: a text file, a folder of text files, or a .npy file of token ids.")
    ],
    lengths: Annotated[str, typer.Option(help="Lengths to test, such as 1k,2k,4k; k is 1024.")],
    windows: Annotated[
        int,
        typer.Option(
            help="Windows of the longest length that are read, at least 2: more give closer intervals, and take longer."
        ),
    ] = 6,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    tokenizer: Tokenizer = None,
    served_model: ServedModel = None,
    key_from: KeyFrom = None,
    certificate: Certificate = None,
    trained_length: TrainedLength = None,
    out: ReportFolder = None,
    resume: Resume = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Where does a model break on a text, how sharply, and why? A verdict in words, from what was measured.

    Loss by position and by length with intervals, the same passage at other positions, retrieval by depth and length,
    where every head looks, rotary angles never seen, and cached against uncached logits.

    Of a model behind a server: loss by position and length, and retrieval. What that costs the server is said first.

    Example: `milepost diagnose path/to/model --text moby-dick.txt --lengths 1k,2k,4k --out diagnosed` or `milepost
    diagnose http://127.0.0.1:8000 --text book.txt --tokenizer path/to/model --lengths 1k,4k,16k`
    """
    if is_url(model):
        how = served_how(tokenizer, served_model, key_from, certificate)
        how |= {"trained_length": read_length(trained_length, "--trained-length")}
        diagnose_address(model, text, read_lengths(lengths), windows, how, out, resume, as_json)
        return
    from milepost.checkpoints import diagnose
    from milepost.checkpoints.diagnosis import report

    wanted = read_lengths(lengths)

    def measure() -> dict[str, Any]:
        with measuring() as tell:
            return diagnose(
                model, text, wanted, windows=windows, device=device, dtype=dtype, tokenizer=tokenizer, tell=tell
            ).to_json()

    report_on(model, "diagnosis", measure, report.document, out, as_json)


@teaching
def recommend_command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL|URL...",
            help="A folder with config.json and *.safetensors, a GGUF file, a lab model, or a name on the Hub; or the "
            "addresses of servers, one for each setting.",
        ),
    ],
    target_length: Annotated[str, typer.Option("--target-length", help="Tokens to serve, such as 8192 or 8k.")],
    text: Annotated[
        Path, typer.Option(help="What to measure on: a text file, a folder of text files, or a .npy file of token ids.")
    ],
    trained_length: TrainedLength = None,
    windows: Annotated[
        int | None,
        typer.Option(
            help="Windows of the target length to report on; by default enough to score 2048 tokens, from 8 to 64."
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            help="Start a server for each setting, and end it: a command with {flags} and {port}, where these go."
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="With --command: the engine whose flags are written.")] = "llama.cpp",
    device: Device = "cpu",
    dtype: Dtype = "float32",
    tokenizer: Tokenizer = None,
    served_model: ServedModel = None,
    key_from: KeyFrom = None,
    certificate: Certificate = None,
    out: ReportFolder = None,
    resume: Resume = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """What should be set for a longer text? Every scaling and training-free map, measured on yours.

    The factor or window of each is searched on one part of the text; gain, what short texts pay, and intervals are
    measured on the other. Ends with the config for transformers, vLLM, SGLang and llama.cpp. Exit 1 when nothing
    reaches the target.

    Of servers: the one setting of those that run, or that --command starts, that reads the target best.

    Example: `milepost recommend path/to/model --target-length 8k --text moby-dick.txt --out recommended` or `milepost
    recommend model.gguf --target-length 16k --text book.txt --command "llama-server -m model.gguf --port {port}
    {flags}"`
    """
    from milepost.checkpoints import recommend
    from milepost.checkpoints.recommendation import report

    target, trained = read_length(target_length, "--target-length"), read_length(trained_length, "--trained-length")
    assert target is not None
    if windows is not None and windows < 2:
        raise ValueError(f"--windows is at least 2, so that there is an interval; got {windows}")
    if command is not None or all(map(is_url, models)):
        how = served_how(tokenizer, served_model, key_from, certificate)
        recommend_addresses(models, command, engine, text, target, trained, windows or 6, how, out, resume, as_json)
        return
    if resume:
        raise ValueError("--resume is for the addresses of servers, and for --command")
    if len(models) != 1:
        raise ValueError(f"recommend takes one model, or the addresses of servers; got {', '.join(models)}")

    def measure() -> dict[str, Any]:
        with measuring() as tell:
            return recommend(
                models[0], target_length=target, text=text, trained_length=trained, windows=windows, device=device,
                dtype=dtype, tokenizer=tokenizer, tell=tell,
            ).to_json()  # fmt: skip

    data = report_on(models[0], "recommendation", measure, report.document, out, as_json)
    exit_unless(data["works"])
