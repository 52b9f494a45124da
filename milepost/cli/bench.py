"""bench: speed and memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from milepost.cli.shared import (
    Device,
    HeadDim,
    Heads,
    Json,
    Length,
    Profile,
    Rounds,
    answer,
    aside,
    keeping,
    print_json,
    read_lengths,
    split_list,
    teaching,
    telling,
)


@teaching
def bench_rope_command(
    rounds: Rounds = 7,
    heads: Heads = 32,
    length: Length = 4096,
    head_dim: HeadDim = 128,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """The time to rotate q and k, against transformers, x-transformers, rotary-embedding-torch, and a plain copy.

    Example: `milepost bench rope --json`
    """
    from milepost.bench.report import rope_document
    from milepost.bench.rope import bench_rope

    _run(bench_rope, rope_document, as_json, heads, length, head_dim, rounds=rounds, device=device)


@teaching
def bench_attention_command(
    lengths: Annotated[str, typer.Option(help="Lengths, such as 4096,16384 or 4k,16k.")] = "4k,16k",
    schemes: Annotated[str, typer.Option(help="Schemes, separated by commas; all if left out.")] = "",
    passes: Annotated[
        str, typer.Option("--pass", help="forward, training, or both separated by a comma.")
    ] = "forward,training",
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
    from milepost.bench.contestants import USUAL
    from milepost.bench.report import attention_document

    chosen, kinds = split_list(schemes) or list(USUAL), split_list(passes)
    if not set(kinds) <= {"forward", "training"}:
        raise ValueError(f"--pass is forward, training, or forward,training; got {passes!r}")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    _run(
        bench_attention,
        attention_document,
        as_json,
        read_lengths(lengths),
        chosen,
        passes=kinds,
        heads=heads,
        head_dim=head_dim,
        rounds=rounds,
        ours_only=ours_only,
        device=device,
    )


@teaching
def bench_decode_command(
    length: Length = 16384,
    tokens: Annotated[int, typer.Option(help="Tokens to decode in a round.")] = 48,
    staged: Annotated[
        bool, typer.Option("--staged/--no-staged", help="Also a long decode across two stages of staged dynamic NTK.")
    ] = True,
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
    from milepost.bench.report import attention_document

    sizes = {"tokens": tokens, "staged": staged, "rounds": rounds, "heads": heads, "head_dim": head_dim}
    _run(bench_decode, attention_document, as_json, length, **sizes, device=device)


@teaching
def bench_all_command(
    out: Annotated[Path, typer.Option(help="Folder for bench.json, bench.md and the figures.")] = Path("docs/bench"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the parts that bench.json holds, and do those that are missing.")
    ] = False,
    again: Annotated[list[str] | None, typer.Option("--again", help="With --resume: do this part again.")] = None,
    as_json: Json = False,
) -> None:
    """Every benchmark at its full size, written as data, a Markdown table and a figure.

    Example: `milepost bench all --out docs/bench` or `milepost bench all --resume --again decode-16384`
    """
    import json

    from milepost.bench.everything import bench_everything
    from milepost.bench.report import save
    from milepost.measure.folder import one_run

    known: dict[str, Any] = {}
    files: list[Path] = []
    with one_run(out), keeping(lambda: known or files, out), telling() as tell:
        out.mkdir(parents=True, exist_ok=True)  # before the long run, not after it
        if resume and (out / "bench.json").exists():
            try:
                known = json.loads((out / "bench.json").read_text(encoding="utf-8"))
            except json.JSONDecodeError as error:
                raise ValueError(f"{out / 'bench.json'} can't be read ({error}); run without --resume") from None
        for result in bench_everything(known, again or (), tell=tell):  # a killed run keeps the parts that it finished
            files = save(result, out)
    for file in files:
        aside().print(f"wrote {file}", soft_wrap=True)
    if as_json:
        print_json(result)


@teaching
def bench_train_command(
    profile: Profile = "standard",
    rounds: Rounds = 7,
    as_json: Json = False,
) -> None:
    """Training throughput of the lab with alibi, rope, t5 and kerple, over no position and over a plain loop.

    Example: `milepost bench train --profile quick --json`
    """
    from milepost.bench.lab_model import bench_train
    from milepost.bench.report import lab_document

    shown = partial(
        lab_document, encoding="encoding", tokens_per_s="tokens a second", ratio="of nope's",
        over_plain="over a plain float32 loop",
    )  # fmt: skip
    _run(bench_train, shown, as_json, profile, rounds=rounds)


@teaching
def bench_evaluate_command(
    profile: Profile = "standard",
    rounds: Rounds = 5,
    as_json: Json = False,
) -> None:
    """Loss at every amount of context: one long pass against sliding windows run once for each length.

    Example: `milepost bench evaluate --profile quick --json`
    """
    from milepost.bench.lab_model import bench_evaluate
    from milepost.bench.report import lab_document

    shown = partial(lab_document, way="way", seconds="seconds", ratio="time / one long pass")
    _run(bench_evaluate, shown, as_json, profile, rounds=rounds)


def _run(
    bench: Callable[..., dict[str, Any]], document: Callable[..., Any], as_json: bool, *sizes: Any, **options: Any
) -> None:
    """Run a benchmark, saying what it does, and show its rows."""
    with telling() as tell:
        result = bench(*sizes, **options, tell=tell)
    answer(result["rows"], lambda rows: document(result), as_json)
