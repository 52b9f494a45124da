"""lab, report and compare: train short, test long, and see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from milepost.cli.shared import Json, Workers, aside, keeping, print_json, read_length, read_seeds, split_list, teaching

if TYPE_CHECKING:
    from milepost.lab.plan import LabPlan
    from milepost.lab.trial import Trial

Modality = Literal["text", "image", "video", "eeg"]
TEXT = ("tasks", "text", "second_text", "tokenizer", "tune", "positions")
"""Options for text alone."""
UNUSED = {"text": ("images",), "image": TEXT, "video": (*TEXT, "images", "lengths", "train_length", "strategies")}
WORDS = {"image": "images have", "video": "made signals have", "text": "text has"}
WIDE = 120
"""Columns of a terminal from which intervals have room in a table."""


@teaching
def lab_command(
    out: Annotated[
        Path, typer.Option(help="Folder for models, results.json and the report; it must not hold another run.")
    ] = Path("runs/lab"),
    modality: Annotated[
        Modality, typer.Option(help="text; images; or made signals of three axes (video) or four (eeg).")
    ] = "text",
    profile: Annotated[
        Literal["tiny", "quick", "standard", "full"],
        typer.Option(help="One word for the sizes of model, data and training."),
    ] = "quick",
    encodings: Annotated[
        str, typer.Option(help="Names or specs, separated by commas; `package.module:Class` for your own.")
    ] = "",
    strategies: Annotated[
        str | None,
        typer.Option(
            help="At test time. RoPE on text: none, base, linear, ntk, dynamic, yarn, self-extend, rerope; "
            "images: none, linear."
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            help="To test: times the trained length (or size of an image), or numbers.  "
            "[default: 1x,2x,4x,8x; images: 0.5x to 2x]"
        ),
    ] = None,
    train_length: Annotated[
        str | None,
        typer.Option(
            "--train-length",
            help="Tokens (or pixels of an image's shorter side) to train on, in place of the profile's.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many seeds, or which, separated by commas.")] = "",
    tasks: Annotated[
        str | None,
        typer.Option(
            help="Tasks beside text: copy, previous, recall, index, counting, who, antecedent; "
            "reverse, sort, sum, parity, addition, chain (problems that grow); or all."
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="A file or folder to read, in place of the sources of Python's standard library.")
    ] = None,
    second_text: Annotated[
        str | None,
        typer.Option(
            "--second-text",
            help="A file or folder, perhaps of another language, that models are tested on too and trained on never.",
        ),
    ] = None,
    images: Annotated[
        str | None, typer.Option(help="A folder with a sub-folder for each class, in place of scikit-learn's digits.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Of text: bytes, or a tokenizer.json file.  [default: bytes]")
    ] = None,
    tune: Annotated[
        int | None, typer.Option(help="On text, also train each strategy for so many steps at the longest length.")
    ] = None,
    positions: Annotated[
        str | None,
        typer.Option(
            help="What texts are told in training: index; randomised, a sorted random subset of all positions up to "
            "the longest tested length; pose, two runs of neighbours with a gap.  [default: index]"
        ),
    ] = None,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="Processes on this machine, or Ray tasks.")] = "local",
    workers: Workers = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; its nodes need no shared folder.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    as_json: Json = False,
) -> None:
    """Train a small model for each encoding and seed at one length or size, test it at others, and write a report.

    Example: `milepost lab --profile quick --out runs/demo`,
    `milepost lab --encodings "rope(base=500.0),alibi" --lengths 1x,4x --out runs/mine`
    or `milepost lab --modality image --out runs/images`
    """
    from milepost.lab import report
    from milepost.lab.sweep import sweep
    from milepost.lab.train import is_main_process

    options = {
        "encodings": encodings, "strategies": strategies, "lengths": lengths, "train_length": train_length,
        "seeds": seeds, "tasks": tasks, "text": text, "second_text": second_text, "images": images,
        "tokenizer": tokenizer, "tune": tune, "positions": positions,
    }  # fmt: skip
    plan = make_plan(modality, profile, options)
    with keeping((out / "plan.json").exists, out):
        with _progress(len(plan.trials()), plan.steps) as tell:
            results = sweep(plan, out, resume=resume, engine=engine, workers=workers, address=address, tell=tell)
        if not is_main_process():  # of several processes under `accelerate launch`, the first one speaks
            return
        written = report.save(results, out)
    if as_json:
        print_json(results)
    else:
        _tell(results)
    aside().print(f"open {written[0]}", soft_wrap=True)
    failed = [(trial, trial["why"]) for trial in results["failed"]]
    failed += [(run, run["failed"]) for run in results["runs"] if run.get("failed")]
    for trial, reason in failed:
        name = f"{trial['encoding']}, seed {trial['seed']}, {trial['data']}"
        aside().print(f"failed: {name}: {reason}", soft_wrap=True)
    if failed:
        aside().print(f"{len(failed)} of {len(plan.trials())} trials failed; the report says why", soft_wrap=True)
        raise typer.Exit(1)


def make_plan(modality: str, profile: str, options: dict[str, Any]) -> LabPlan:
    """The plan of one modality; ``options`` holds all of them, None where one was left out.

    An option that the modality has no use for is refused, and not ignored.
    """
    kind = "video" if modality == "eeg" else modality
    for name in UNUSED[kind]:
        if options[name] is not None:
            raise ValueError(
                f"--modality {modality} has no use for --{name.replace('_', '-')}: {WORDS[kind]} nothing like it; "
                "leave it out"
            )
    encodings, seeds = split_list(options["encodings"]), read_seeds(options["seeds"])
    if kind == "video":
        from milepost.lab.space import signal_plan

        return signal_plan.make(modality, profile, encodings=encodings, seeds=seeds)
    length = read_length(options["train_length"], "--train-length")
    given: dict[str, Any] = {"encodings": encodings, "seeds": seeds}
    if options["strategies"] is not None:
        given["strategy_names"] = split_list(options["strategies"])
    if modality == "image":
        from milepost.lab.space import image_plan

        sizes = options["lengths"] or ""
        return image_plan.make(profile, sizes=sizes, train_size=length, folder=options["images"], **given)
    from milepost.lab import plan
    from milepost.lab.tasks import TASKS

    if options["lengths"] is not None:
        given["lengths"] = options["lengths"]
    tasks = (options["tasks"] or "").strip()
    return plan.make(
        profile,
        train_length=length,
        tasks=list(TASKS) if tasks == "all" else split_list(tasks),
        text=options["text"],
        second_text=options["second_text"],
        tokenizer=options["tokenizer"] or "bytes",
        tune=options["tune"] or 0,
        told=options["positions"] or "index",
        **given,
    )


def _tell(results: dict[str, Any]) -> None:
    """The tables of a run, its answer, and what to know before believing it."""
    from milepost.draw.screen import Screen
    from milepost.lab.report import document

    console = Screen()
    for part in document(results, wide=console.width >= WIDE).terminal():
        console.print(part)


@contextmanager
def _progress(trials: int, steps: int) -> Iterator[Any]:
    """Bars for the trials that run, and one for all; a line for each finished trial where there is no terminal."""
    words = aside()
    if not words.is_terminal:
        yield (
            lambda trial, news: (
                words.print(
                    f"{trial.encoding}, seed {trial.seed}, {trial.data}: trained, loss {news['loss']:.3f}",
                    soft_wrap=True,
                )
                if news.get("step") == news.get("of") and "step" in news
                else None
            )
        )
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[said]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=words) as progress:
        whole = progress.add_task("all", total=trials * steps, said="")
        bars: dict[str, Any] = {}
        done: dict[str, int] = {}

        def tell(trial: Trial, news: dict[str, Any]) -> None:
            if trial.key not in bars:
                bars[trial.key] = progress.add_task(
                    f"{trial.encoding[:32]} {trial.seed} {trial.data}", total=steps, said=""
                )
            bar = bars[trial.key]
            if "step" in news:
                progress.update(
                    bar, completed=news["step"], said=f"loss {news['loss']:.3f}, {news['tokens_per_s']:,.0f} tokens/s"
                )
                done[trial.key] = news["step"]
                progress.update(whole, completed=sum(done.values()))
                if news["step"] == news["of"]:
                    progress.update(bar, said=f"loss {news['loss']:.3f}, measuring")
            for word in ("trying", "measuring", "tuning"):
                if word in news:
                    progress.update(bar, said=f"{word} {news[word]}")

        yield tell


@teaching
def report_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `milepost lab` wrote.")],
    as_json: Json = False,
) -> None:
    """Write the report of a lab run again, from its results alone.

    Example: `milepost report runs/demo`
    """
    from milepost.lab import report

    written = report.save(report.load(folder), folder)
    if as_json:
        print_json([str(file) for file in written])
    aside().print(f"open {written[0]}", soft_wrap=True)


def compare_runs(folders: list[Path], out: Path | None, as_json: bool) -> None:
    """Several runs in one table and one report."""
    from milepost.lab import report
    from milepost.lab.report.read import joined, load_all
    from milepost.measure.folder import one_run

    both = joined(load_all(folders))
    if out is not None:
        with one_run(out):  # a lab run that has no results yet holds it too
            if (out / "results.json").exists():
                raise ValueError(
                    f"--out {out} holds a run of its own, whose report would be lost; choose another folder"
                )
            written = report.save(both, out)
        aside().print(f"open {written[0]}", soft_wrap=True)
    if as_json:
        print_json(both)
    else:
        _tell(both)
