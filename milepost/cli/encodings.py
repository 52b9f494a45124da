"""list, show and check: the encodings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.shared import HeadDim, Heads, Json, Length, Width, answer, aside, print_json, teaching

if TYPE_CHECKING:
    from milepost.encoding import Encoding
    from milepost.testing import Verdict

OVER_ROPE = (
    "self_extend(rope=rope, group=4, window=8)",
    "rerope(rope=rope, window=8)",
    "dual_chunk(rope=rope, chunk=24, local=4)",
    "streaming(rope=rope, window=8)",
)
"""Position maps over a RoPE, with windows that show in a short text."""
Specs = Annotated[
    list[str] | None,
    typer.Argument(
        help='Names or specs, such as `rope`, `"alibi(heads=12)"`, `"rope + alibi"`, or `package.module:Class`.'
    ),
]


def _build(spec: str, **sizes: int) -> Encoding:
    """The encoding of a spec; modules named by the user as module:Class are imported, the current folder included."""
    from milepost.lab.user_modules import import_named
    from milepost.spec import build

    import_named([spec])
    return build(spec, **sizes)


def _all_or(specs: list[str] | None, everything: bool) -> list[str]:
    from milepost.encodings import NAMES, SPACE

    if everything == bool(specs):
        raise ValueError("name at least one encoding, such as rope, or give --all (not both)")
    return [*NAMES, *SPACE, *OVER_ROPE] if everything else list(specs or [])


@teaching
def list_command(
    names: Annotated[list[str] | None, typer.Argument(help="Encodings to set side by side.")] = None,
    as_json: Json = False,
) -> None:
    """Every encoding: where it acts, its properties, parameters and reference.

    With names, these side by side.

    Example: `milepost list sinusoidal rope alibi`
    """
    from milepost.draw import Document
    from milepost.encodings.catalogue import KNOWN, listed, page, side_by_side

    chosen = [page(name) for name in names or KNOWN]
    shown = Document("", terminal_tables=[side_by_side(chosen) if names else listed(chosen)])
    answer([p.row() for p in chosen], lambda rows: shown, as_json)


@teaching
def show_command(
    encodings: Specs = None,
    out: Annotated[Path, typer.Option(help="File to write: .html, .png or .svg.")] = Path("encoding.html"),
    everything: Annotated[bool, typer.Option("--all", help="Every encoding, on one page.")] = False,
    heads: Heads = 8,
    head_dim: HeadDim = 64,
    width: Width = 64,
    length: Length = 128,
    as_json: Json = False,
) -> None:
    """What an encoding looks like: its code, similarity or bias by distance, wavelengths against length.

    Example: `milepost show "rope(base=500000.0)" --out rope.html`
    """
    from milepost.draw.picture import check_name
    from milepost.portrait import portrait, save

    check_name(out)
    pictures = []
    for spec in _all_or(encodings, everything):
        enc = _build(spec, heads=heads, head_dim=head_dim, width=width, length=length)
        pictures.append((portrait(enc, length), _page_of(enc)))
    written = save(pictures, out)
    aside().print(f"open {written}", soft_wrap=True)
    if as_json:
        print_json({"file": str(written), "pictures": [picture.to_json() for picture, _ in pictures]})


def _page_of(enc: Encoding) -> Any:
    from milepost.encodings.catalogue import KNOWN, page

    name = type(enc).spec_name()
    return page(name) if name in KNOWN else None


@teaching
def check_command(
    encodings: Specs = None,
    everything: Annotated[bool, typer.Option("--all", help="Every encoding.")] = False,
    heads: Heads = 4,
    head_dim: HeadDim = 16,
    width: Width = 32,
    length: Length = 64,
    as_json: Json = False,
) -> None:
    """Try every law on an encoding, yours too: PASS or FAIL with the law's sentence. Exit 1 on a failure.

    Example: `milepost check "rope(base=500000.0)"` or `milepost check my_package.mine:MyEncoding`
    """
    from rich.progress import Progress
    from rich.text import Text

    from milepost.draw.screen import Screen

    specs = _all_or(encodings, everything)
    from milepost.stack import different

    given = [_build(spec, heads=heads, head_dim=head_dim, width=width, length=length) for spec in specs]
    built = [part for enc in given for part in different(enc)]
    from milepost.testing import LAWS, Verdicts, check_encoding

    checked: list[Verdicts] = []
    with Progress(console=aside(), transient=True) as progress:
        task = progress.add_task("laws", total=len(LAWS) * len(built))
        for enc in built:
            verdicts: list[Verdict] = []
            for law in LAWS:
                progress.update(task, description=f"{type(enc).spec_name()}: {law.__name__}")
                verdicts.extend(check_encoding(enc, [law]).verdicts)
                progress.advance(task)
            checked.append(Verdicts(repr(enc), tuple(verdicts)))
    broken = [result.encoding for result in checked if not result.ok]
    if as_json:
        print_json(
            [
                {"encoding": result.encoding, "ok": result.ok, "laws": [v.row() for v in result.verdicts]}
                for result in checked
            ]
        )
    else:
        console = Screen()
        for result in checked:
            if len(checked) < 4 or not result.ok:
                for part in result.document().terminal():
                    console.print(part)
            else:
                console.print(Text.assemble(("PASS ", "green"), result.in_a_line()))
    if broken:
        aside().print(f"{len(broken)} of {len(checked)} broke a law: {', '.join(broken)}", soft_wrap=True)
        raise typer.Exit(1)
