"""What commands share: options, where words go, and errors as sentences."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from milepost.draw import Document

Json = Annotated[
    bool, typer.Option("--json", help="Print JSON alone on standard output; words and progress go to standard error.")
]
Heads = Annotated[int, typer.Option(help="Number of heads, where the spec leaves it open.")]
HeadDim = Annotated[int, typer.Option("--head-dim", help="Head size, where the spec leaves it open.")]
Width = Annotated[int, typer.Option(help="Embedding width, where the spec leaves it open.")]
Length = Annotated[int, typer.Option(help="Length: of tables where the spec leaves it open, and of pictures.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16", "float64"], typer.Option(help="What the weights are loaded as.")
]
Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A folder with config.json and *.safetensors, a name on the Hub, or the address of a server.",
    ),
]
AnyModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A folder with config.json and *.safetensors, a GGUF file, a lab model, a name on the Hub, or the address "
        "of a server.",
    ),
]
Tokenizer = Annotated[str | None, typer.Option(help="tokenizer.json, a folder, or bytes, in place of the model's own.")]
TargetLength = Annotated[
    str | None, typer.Option("--target-length", "--ctx-size", help="Tokens to serve, such as 131072 or 128k.")
]
TrainedLength = Annotated[
    str | None, typer.Option("--trained-length", help="The trained length, where the model does not say it.")
]
AllowUnknown = Annotated[
    bool, typer.Option("--allow-unknown", help="Pass over keys that are unknown or contradictory, and say so.")
]
Profile = Annotated[str, typer.Option(help="The lab's size word: tiny, quick, standard or full.")]
Workers = Annotated[int | None, typer.Option(help="Trainings side by side; one for each core if left out.")]
ReportFolder = Annotated[
    Path | None,
    typer.Option(
        help="A folder to write: report.html, report.md and the data as JSON. It must not exist, or be empty."
    ),
]


def _stay_offline(asked: bool) -> bool:
    """The Hub's own word for it, which its library and transformers obey too."""
    if asked:
        os.environ["HF_HUB_OFFLINE"] = "1"
    return asked


Offline = Annotated[
    bool,
    typer.Option(
        "--offline", help="Never ask the Hub: a name is looked for in its cache alone.", callback=_stay_offline
    ),
]
NewFolder = Annotated[Path, typer.Option(help="The folder to write; it must not exist, or be empty.")]
Rounds = Annotated[int, typer.Option(help="Rounds; each contestant's best counts.")]


MOST_SEEDS = 1000
INTERRUPTED = 130
"""What shells expect of a program that Ctrl-C ended."""


def aside() -> Console:
    """Where words go: standard error, so that standard output holds results alone."""
    from milepost.draw.screen import Screen

    return Screen(stderr=True)


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Where a long job says what it is doing: one line that changes on a terminal, a line for each step elsewhere."""
    words = aside()
    if not words.is_terminal:
        yield lambda text: None if "round" in text else words.print(text, soft_wrap=True)
        return
    with words.status("warming up") as status:
        yield status.update


@contextmanager
def measuring() -> Iterator[Callable[[str, float], None]]:
    """Where a long job says what it measures and what share of it is done.

    A bar with the time that is left on a terminal, a line for each measure elsewhere.
    """
    words = aside()
    if not words.is_terminal:
        printed: set[str] = set()

        def once(what: str, share: float) -> None:
            if what not in printed:
                printed.add(what)
                words.print(what, soft_wrap=True)

        yield once
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=words, transient=True) as progress:
        bar = progress.add_task("loading", total=1.0)
        yield lambda what, share: progress.update(bar, description=what[:36], completed=share)


def say_error(error: BaseException) -> None:
    """The sentence of an error on standard error."""
    from milepost.draw.screen import visible

    sentence = "stopped" if isinstance(error, KeyboardInterrupt) else str(error)
    notes = getattr(error, "__notes__", [] if str(error) else ["to begin again, give the same command"])
    typer.echo(f"milepost: {visible('; '.join([sentence, *notes]))}", err=True)


def teaching(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose ValueErrors are printed as sentences, with exit code 2."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (ValueError, OSError) as error:
            say_error(error)
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stop:
            say_error(stop)
            raise typer.Exit(INTERRUPTED) from None

    return run


@contextmanager
def keeping(kept: Callable[[], object], where: Path, *failures: type[Exception]) -> Iterator[None]:
    """A command that Ctrl-C, the disk or one of ``failures`` ends says how to go on, if something is ``kept`` then."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, OSError, *failures)) and kept():
            error.add_note(f"what is done so far is kept in {where}: go on with --resume")
        raise


@contextmanager
def refusing(refusals: type[Exception], about: dict[str, Any] | None = None) -> Iterator[None]:
    """A refusal is printed as a sentence with exit code 1; and as JSON, with ``about``, where that is given."""
    try:
        yield
    except refusals as refusal:
        if about is not None:
            print_json(about | {"refused": str(refusal)})
        say_error(refusal)
        raise typer.Exit(1) from None


def show_written(done: Any, document: Callable[[Any], Any], as_json: bool) -> None:
    """The result of a command that wrote a folder, and where its report is; exit code 1 if a check failed."""
    aside().print(f"open {Path(done.out) / 'milepost' / 'report.html'}", soft_wrap=True)
    answer(done.to_json(), document, as_json)
    exit_unless(done.ok)


def report_on(
    model: str, name: str, measure: Callable[[], Any], document: Callable[[Any], Document], out: Path | None,
    as_json: bool,
) -> dict[str, Any]:  # fmt: skip
    """Measure a model, write the report where a folder was named for it, and show it; the data.

    The folder is reserved before anything is run; the data in it are ``name``.json.
    """
    if out is None:
        data = measure()
    else:
        from milepost.draw import fill
        from milepost.measure.folder import check_out, new_folder

        with new_folder(check_out(out, model)) as draft:
            data = measure()
            fill(draft.files, name, data, document(data))
        aside().print(f"open {out.expanduser() / 'report.html'}", soft_wrap=True)
    answer(data, document, as_json)
    return dict(data)


def exit_unless(passed: bool) -> None:
    """Exit code 1 where a check failed."""
    if not passed:
        raise typer.Exit(1)


def answer(data: Any, document: Callable[[Any], Any], as_json: bool) -> None:
    """A result on standard output: as JSON, or as the document that is built of it."""
    if as_json:
        print_json(data)
        return
    from milepost.draw.screen import Screen

    console = Screen()
    for part in document(data).terminal():
        console.print(part)


def print_json(data: Any) -> None:
    """Results as JSON."""
    typer.echo(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False))


def split_list(text: str) -> list[str]:
    """A list separated by commas, but for those inside brackets: specs hold commas too."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def read_seeds(text: str) -> list[int]:
    """How many seeds, or which."""
    words = split_list(text)
    if not all(word.isdigit() for word in words):
        raise ValueError(f"--seeds is how many, such as 3, or which, such as 0,7; got {text!r}")
    if len(words) == 1 and "," not in text:
        if not 1 <= len(words[0]) <= 6 or not 1 <= int(words[0]) <= MOST_SEEDS:
            raise ValueError(f"--seeds is from 1 to {MOST_SEEDS}, each of which trains every model again; got {text!r}")
        return list(range(int(words[0])))
    return [int(word) for word in words]


def read_lengths(text: str) -> list[int]:
    """``4k,16384`` as numbers; k is 1024."""
    lengths = []
    for word in text.lower().replace(" ", "").split(","):
        number = word.removesuffix("k")
        if not number.isdigit() or int(number) < 1:
            raise ValueError(f"lengths are numbers such as 4096 or 4k, separated by commas; got {word!r}")
        lengths.append(int(number) * (1024 if word.endswith("k") else 1))
    return lengths


def read_length(text: str | None, option: str) -> int | None:
    """``32k`` as a number."""
    if text is None:
        return None
    lengths = read_lengths(text)
    if len(lengths) != 1:
        raise ValueError(f"{option} is one length, such as 32768 or 32k, got {text!r}")
    return lengths[0]
