"""list, show and check: the encodings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.shared import HeadDim, Heads, Json, Length, Width, aside, print_json, teaching

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
    import difflib

    from milepost.draw.terminal import table
    from milepost.encodings import NAMES, SPACE
    from milepost.encodings.catalogue import listed, page, pages, side_by_side
    from milepost.maps import NAMES as MAPS

    known = [*NAMES, *SPACE, *MAPS]
    for name in names or []:
        if name not in known:
            close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(f"unknown encoding {name!r}{hint}; known: {', '.join(known)}")
    chosen = [page(name) for name in names] if names else [*pages(), *map(page, MAPS)]
    if as_json:
        print_json([p.row() for p in chosen])
        return
    from milepost.draw.screen import Screen

    Screen().print(table(side_by_side(chosen) if names else listed(chosen)))


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
    from milepost.encodings import NAMES, SPACE
    from milepost.encodings.catalogue import page
    from milepost.maps import NAMES as MAPS

    name = type(enc).spec_name()
    return page(name) if name in (*NAMES, *SPACE, *MAPS) else None


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
    built = [_build(spec, heads=heads, head_dim=head_dim, width=width, length=length) for spec in specs]
    from milepost.testing import LAWS, Verdicts, check_encoding

    found: list[Verdicts] = []
    with Progress(console=aside(), transient=True) as progress:
        task = progress.add_task("laws", total=len(LAWS) * len(built))
        for enc in built:
            verdicts: list[Verdict] = []
            for law in LAWS:
                progress.update(task, description=f"{type(enc).spec_name()}: {law.__name__}")
                verdicts.extend(check_encoding(enc, [law]).verdicts)
                progress.advance(task)
            found.append(Verdicts(repr(enc), tuple(verdicts)))
    broken = [one.encoding for one in found if not one.ok]
    if as_json:
        print_json([{"encoding": one.encoding, "ok": one.ok, "laws": [v.row() for v in one.verdicts]} for one in found])
    else:
        console = Screen()
        for one in found:
            if len(found) < 4 or not one.ok:
                for part in one.document().terminal():
                    console.print(part)
            else:
                console.print(Text.assemble(("PASS ", "green"), one.in_a_line()))
    if broken:
        aside().print(f"{len(broken)} of {len(found)} broke a law: {', '.join(broken)}", soft_wrap=True)
        raise typer.Exit(1)
