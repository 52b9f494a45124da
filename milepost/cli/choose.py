"""choose: which encoding, ranked by what was measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from milepost.cli.shared import Json, aside, print_json, read_length, teaching

if TYPE_CHECKING:
    from milepost.lab.choose import Wish

TRAINED, TIMES = 4096, 4
"""What is assumed where nobody says it: the trained length, and how many times that the target is."""


@teaching
def choose_command(
    trained_length: Annotated[
        str | None, typer.Option("--trained-length", help="Tokens that the model is trained on, such as 4096 or 4k.")
    ] = None,
    target_length: Annotated[
        str | None, typer.Option("--target-length", "--ctx-size", help="Tokens that it must read, such as 32k.")
    ] = None,
    modality: Annotated[Literal["text", "image", "audio"] | None, typer.Option(help="What it reads.")] = None,
    far_recall: Annotated[
        bool | None, typer.Option("--far-recall/--no-far-recall", help="Must it find things far back?")
    ] = None,
    absolute: Annotated[
        bool | None, typer.Option("--absolute/--no-absolute", help="Does the absolute place of a token matter?")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="What must run it: transformers, vllm, sglang or llama.cpp.")
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", help="A folder of `milepost lab` to judge by; may be given several times."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Which encoding for which lengths, ranked by what was measured, with the evidence and the cost of each.

    In a terminal it asks for what you leave out; elsewhere it assumes a value, and says which. It judges by the runs
    that you give, else by those that come with the package. What was not measured is called so: nothing is ranked by
    opinion.

    Example: `milepost choose --trained-length 4k --target-length 32k --far-recall` or
    `milepost choose --trained-length 4k --target-length 32k --engine vllm`
    """
    from milepost.lab.choose import choose, shipped

    results, source = _evidence(runs or [])
    ask = sys.stdin.isatty() and not as_json
    wish, assumed = _wish(trained_length, target_length, modality, far_recall, absolute, ask)
    wish = replace(wish, engine=engine)
    choice = choose(wish, results, shipped("bench"), source) | {"assumed": assumed}
    if as_json:
        print_json(choice)
        return
    _tell(choice)


def _evidence(folders: list[Path]) -> tuple[dict[str, Any], str]:
    """The results to judge by, and where they come from."""
    from milepost.lab.choose import shipped
    from milepost.lab.report.read import check, joined, load_all

    if folders:
        return joined(load_all(folders)), ", ".join(str(folder) for folder in folders)
    results = shipped("lab")
    if results is None:
        raise ValueError(
            "no lab measurements come with this milepost, and without any nothing can be ranked: "
            "run `milepost lab` and give its folder with --runs"
        )
    return check(results, "the lab results of the package"), "shipped with the package"


def _wish(
    trained_text: str | None,
    target_text: str | None,
    modality: str | None,
    far_recall: bool | None,
    absolute: bool | None,
    ask: bool,
) -> tuple[Wish, dict[str, Any]]:
    """What is wanted: said, asked for, or assumed. The second part is what was assumed."""
    from milepost.lab.choose import Wish

    assumed: dict[str, Any] = {}

    def rest(name: str, value: Any, question: str, default: Any) -> Any:
        if value is not None:
            return value
        if ask:
            return (
                typer.confirm(question, default=default, err=True)
                if isinstance(default, bool)
                else typer.prompt(question, default=str(default), err=True)
            )
        assumed[name] = default
        return default

    trained = _length(rest("trained", trained_text, "Tokens that the model is trained on", TRAINED), "--trained-length")
    target = _length(rest("target", target_text, "Tokens that it must read", TIMES * trained), "--target-length")
    kind = rest("modality", modality, "What does it read (text, image, audio)", "text")
    if kind not in ("text", "image", "audio"):
        raise ValueError(f"the modality is text, image or audio, got {kind!r}")
    far = rest("far_recall", far_recall, "Must it find things far back", False)
    place = rest("absolute", absolute, "Does the absolute place of a token matter", False)
    return Wish(trained, target, kind, far, place), assumed


def _length(given: Any, option: str) -> int:
    return read_length(str(given), option) or 0


def _tell(answer: dict[str, Any]) -> None:
    from milepost.draw.screen import Screen
    from milepost.lab.report import choice

    console, wish = Screen(), answer["wish"]
    wishes = {
        "trained": f"trained at {wish['trained']}",
        "target": f"to read {wish['target']} tokens",
        "modality": wish["modality"],
        "far_recall": f"far recall {'matters' if wish['far_recall'] else 'does not matter'}",
        "absolute": f"absolute place {'matters' if wish['absolute'] else 'does not matter'}",
    }  # fmt: skip
    console.print(
        "Wanted: "
        + ", ".join(text + (" (assumed)" if name in answer["assumed"] else "") for name, text in wishes.items())
        + ".",
    )
    for part in choice.document(answer).terminal():
        console.print(part)
    if answer["assumed"]:
        aside().print("what was assumed can be said with options: `milepost choose --help`", soft_wrap=True)
