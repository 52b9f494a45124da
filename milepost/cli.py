"""The command line: a table from commands to functions. Torch is imported by the commands that need it, never by --help."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from milepost.encoding import Encoding
    from milepost.testing import Verdict

app = typer.Typer(
    name="milepost",
    help="Where is this token, and does the model know?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
bench_app = typer.Typer(help="Speed and memory, side by side with peers in one run, as ratios.", no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(bench_app, name="bench")

Json = Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output; words and progress go to standard error.")]
Heads = Annotated[int, typer.Option(help="Number of heads, where the spec leaves it open.")]
HeadDim = Annotated[int, typer.Option("--head-dim", help="Head size, where the spec leaves it open.")]
Width = Annotated[int, typer.Option(help="Embedding width, where the spec leaves it open.")]
Length = Annotated[int, typer.Option(help="Length: of tables where the spec leaves it open, and of pictures.")]
Specs = Annotated[list[str] | None, typer.Argument(help='Names or specs, such as `rope`, `"alibi(heads=12)"`, `"rope + alibi"`, or `package.module:Class`.')]


def main() -> None:
    """Run a command. Exit codes: 0 ok, 1 a check failed, 2 wrong usage or input."""
    app()


def _words() -> Console:
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """Where a long job says what it is doing: one line that changes on a terminal, a line for each step elsewhere."""
    words = _words()
    if not words.is_terminal:
        yield lambda text: None if "round" in text else words.print(text, soft_wrap=True)
        return
    with words.status("warming up") as status:
        yield status.update


def _teaching(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose ValueErrors are printed as sentences, with exit code 2."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (ValueError, OSError) as error:
            typer.echo(f"milepost: {error}", err=True)
            raise typer.Exit(2) from None

    return run


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False))


def _build(spec: str, **sizes: int) -> Encoding:
    """The encoding of a spec; modules named by the user as module:Class are imported, the current folder included."""
    import importlib

    from milepost.spec import build

    for module, cls in re.findall(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)", spec):
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            importlib.import_module(module)
        except Exception as error:  # a stranger's module may do anything
            why = f"{type(error).__name__}: {error}"
            raise ValueError(f"can't import {module!r} for {module}:{cls} ({why}); give the module as python would import it from here") from None
    return build(spec, **sizes)


def _all_or(specs: list[str] | None, everything: bool) -> list[str]:
    from milepost.encodings import NAMES

    if everything == bool(specs):
        raise ValueError("name at least one encoding, such as rope, or give --all (not both)")
    return list(NAMES) if everything else list(specs or [])


@app.command("list")
@_teaching
def list_command(names: Annotated[list[str] | None, typer.Argument(help="Encodings to set side by side.")] = None, as_json: Json = False) -> None:
    """Every encoding: where it acts, its properties, parameters and reference.

    With names, these side by side.

    Example: `milepost list sinusoidal rope alibi`
    """
    import difflib

    from milepost.catalogue import page, pages
    from milepost.encodings import NAMES

    for name in names or []:
        if name not in NAMES:
            close = difflib.get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
            raise ValueError(f"unknown encoding {name!r}{f' (did you mean {close[0]!r}?)' if close else ''}; known: {', '.join(NAMES)}")
    chosen = [page(name) for name in names] if names else list(pages())
    if as_json:
        _print_json([p.row() for p in chosen])
        return
    from rich.console import Console

    from milepost.report import tables

    Console().print(tables.side_by_side(chosen) if names else tables.catalogue(chosen))


@app.command("show")
@_teaching
def show_command(
    encodings: Specs = None,
    out: Annotated[Path, typer.Option(help="File to write: .html, or .png / .svg where a Chrome or Chromium is installed.")] = Path("encoding.html"),
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
    from milepost.catalogue import page
    from milepost.encodings import NAMES
    from milepost.portrait import portrait
    from milepost.report.portrait import FORMATS, save

    if out.suffix not in FORMATS:
        raise ValueError(f"--out {out}: the ending says what to draw, and must be one of {', '.join(FORMATS)}")
    pictures = []
    for spec in _all_or(encodings, everything):
        enc = _build(spec, heads=heads, head_dim=head_dim, width=width, length=length)
        pictures.append((portrait(enc, length), page(spec) if spec in NAMES else _page_of(enc)))
    written = save(pictures, out)
    _words().print(f"open {written}", soft_wrap=True)
    if as_json:
        _print_json({"file": str(written), "pictures": [picture.to_json() for picture, _ in pictures]})


def _page_of(enc: Encoding) -> Any:
    from milepost.catalogue import page
    from milepost.encodings import NAMES

    name = type(enc).spec_name()
    return page(name) if name in NAMES else None


@app.command("check")
@_teaching
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
    from rich.console import Console
    from rich.progress import Progress

    from milepost.report import tables

    specs = _all_or(encodings, everything)
    built = [_build(spec, heads=heads, head_dim=head_dim, width=width, length=length) for spec in specs]
    from milepost.testing import LAWS, check_encoding

    found = []
    with Progress(console=_words(), transient=True) as progress:
        task = progress.add_task("laws", total=len(LAWS) * len(built))
        for enc in built:
            verdicts: list[Verdict] = []
            for law in LAWS:
                progress.update(task, description=f"{type(enc).spec_name()}: {law.__name__}")
                verdicts.extend(check_encoding(enc, [law]).verdicts)
                progress.advance(task)
            found.append((repr(enc), verdicts))
    broken = [name for name, verdicts in found if any(v.passed is False for v in verdicts)]
    if as_json:
        _print_json([{"encoding": name, "ok": name not in broken, "laws": [v.row() for v in verdicts]} for name, verdicts in found])
    else:
        console = Console()
        for name, verdicts in found:
            console.print(tables.laws(name, verdicts) if len(found) < 4 or name in broken else tables.laws_in_a_line(name, verdicts))
    if broken:
        _words().print(f"{len(broken)} of {len(found)} broke a law: {', '.join(broken)}", soft_wrap=True)
        raise typer.Exit(1)


@bench_app.command("rope")
@_teaching
def bench_rope_command(
    rounds: Annotated[int, typer.Option(help="Rounds; each contestant's best counts.")] = 7,
    heads: Heads = 32,
    length: Length = 4096,
    head_dim: HeadDim = 128,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Json = False,
) -> None:
    """The time to rotate q and k, against transformers, x-transformers, rotary-embedding-torch, and a plain copy.

    Example: `milepost bench rope --json`
    """
    from rich.console import Console

    from milepost.bench.rope import bench_rope
    from milepost.report import tables

    with _telling() as tell:
        result = bench_rope(heads, length, head_dim, rounds=rounds, device=device, tell=tell)
    if as_json:
        _print_json(result["rows"])
        return
    Console().print(tables.rope_bench(result))


Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Rounds = Annotated[int, typer.Option(help="Rounds; each contestant's best counts.")]


@bench_app.command("attention")
@_teaching
def bench_attention_command(
    lengths: Annotated[str, typer.Option(help="Lengths, such as 4096,16384 or 4k,16k.")] = "4k,16k",
    schemes: Annotated[str, typer.Option(help="Schemes, separated by commas; all if left out.")] = "",
    passes: Annotated[str, typer.Option("--pass", help="forward, training, or both separated by a comma.")] = "forward,training",
    ours_only: Annotated[bool, typer.Option("--ours-only", help="Leave the peers out.")] = False,
    rounds: Rounds = 5,
    heads: Heads = 8,
    head_dim: HeadDim = 64,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """What a position costs: time and memory of every scheme, as ratios to attention with no position.

    Example: `milepost bench attention --lengths 4k --pass forward --json`
    """
    from milepost.bench.attention import bench_attention
    from milepost.bench.contestants import SCHEMES

    chosen = [s.strip() for s in schemes.split(",") if s.strip()] or list(SCHEMES[1:])
    kinds = [p.strip() for p in passes.split(",") if p.strip()]
    if not set(kinds) <= {"forward", "training"}:
        raise ValueError(f"--pass is forward, training, or forward,training; got {passes!r}")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    with _telling() as tell:
        result = bench_attention(
            _lengths(lengths), chosen, passes=kinds, heads=heads, head_dim=head_dim, rounds=rounds, ours_only=ours_only, device=device, tell=tell
        )
    _show_bench(result, as_json)


@bench_app.command("decode")
@_teaching
def bench_decode_command(
    length: Length = 16384,
    tokens: Annotated[int, typer.Option(help="Tokens to decode in a round.")] = 48,
    staged: Annotated[bool, typer.Option("--staged/--no-staged", help="Also a long decode across two stages of staged dynamic NTK.")] = True,
    rounds: Rounds = 5,
    heads: Heads = 8,
    head_dim: HeadDim = 64,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """One token at a time over a cache, as ratios to the same with no position.

    Example: `milepost bench decode --length 4096 --json`
    """
    from milepost.bench.decode import bench_decode

    with _telling() as tell:
        result = bench_decode(length, tokens=tokens, staged=staged, rounds=rounds, heads=heads, head_dim=head_dim, device=device, tell=tell)
    _show_bench(result, as_json)


@bench_app.command("all")
@_teaching
def bench_all_command(
    out: Annotated[Path, typer.Option(help="Folder for bench.json, bench.md and the figures.")] = Path("docs/bench"),
    as_json: Json = False,
) -> None:
    """Every benchmark at its full size, written as data, a Markdown table and a figure.

    Example: `milepost bench all --out docs/bench`
    """
    from milepost.bench.everything import bench_everything
    from milepost.report.bench import save

    out.mkdir(parents=True, exist_ok=True)  # before the long run, not after it
    with _telling() as tell:
        for result in bench_everything(tell=tell):  # a killed run keeps the parts that it finished
            files = save(result, out)
    for file in files:
        _words().print(f"wrote {file}", soft_wrap=True)
    if as_json:
        _print_json(result)


def _lengths(text: str) -> list[int]:
    """``4k,16384`` as numbers; k is 1024."""
    found = []
    for word in text.lower().replace(" ", "").split(","):
        number = word.removesuffix("k")
        if not number.isdigit() or int(number) < 1:
            raise ValueError(f"lengths are numbers such as 4096 or 4k, separated by commas; got {word!r}")
        found.append(int(number) * (1024 if word.endswith("k") else 1))
    return found


def _show_bench(result: dict[str, Any], as_json: bool) -> None:
    from rich.console import Console

    from milepost.report import tables

    if as_json:
        _print_json(result["rows"])
    else:
        Console().print(tables.attention_bench(result))


if __name__ == "__main__":
    main()
