"""The command line: a table from commands to functions. Commands that need torch import it; --help never does."""

from __future__ import annotations

from typing import Annotated

import typer

from milepost.cli import (
    bench,
    checkpoints,
    choose,
    claims,
    encodings,
    explore,
    lab,
    rewriting,
    ropes,
    served,
)

COMMANDS = {
    "list": encodings.list_command,
    "show": encodings.show_command,
    "check": encodings.check_command,
    "explore": explore.explore_command,
    "spec": ropes.spec_command,
    "parity": ropes.parity_command,
    "export": ropes.export_command,
    "convert-layout": rewriting.convert_layout_command,
    "inspect": checkpoints.inspect_command,
    "verify": checkpoints.verify_command,
    "diagnose": checkpoints.diagnose_command,
    "recommend": checkpoints.recommend_command,
    "extend": rewriting.extend_command,
    "migrate": rewriting.migrate_command,
    "resize": rewriting.resize_command,
    "lab": lab.lab_command,
    "report": lab.report_command,
    "compare": served.compare_command,
    "choose": choose.choose_command,
    "claims": claims.claims_command,
}
BENCH = {
    "rope": bench.bench_rope_command,
    "attention": bench.bench_attention_command,
    "decode": bench.bench_decode_command,
    "train": bench.bench_train_command,
    "evaluate": bench.bench_evaluate_command,
    "all": bench.bench_all_command,
}

app = typer.Typer(
    name="milepost",
    help="Where is this token, and does the model know?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
bench_app = typer.Typer(
    help="Speed and memory, side by side with peers in one run, as ratios.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
for name, command in COMMANDS.items():
    app.command(name)(command)
for name, command in BENCH.items():
    bench_app.command(name)(command)
app.add_typer(bench_app, name="bench")


def _print_version(asked: bool) -> None:
    if asked:
        from milepost import __version__

        typer.echo(f"milepost {__version__}")
        raise typer.Exit


_VERSION = typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)


@app.callback()
def before_any_command(version: Annotated[bool, _VERSION] = False) -> None:
    """Options that stand before the command's name."""


def main() -> None:
    """Run a command. Exit codes: 0 ok, 1 a check failed, 2 wrong usage or input."""
    app()
