"""The figure of a migration: a GPT-2 of about 2 million parameters, trained here, moved to RoPE with a tenth of its
training tokens.

    python tools/migrate_figure.py --out runs/migrate-figure --docs     about 40 minutes on one core; goes on where it
                                                                        was killed
    python tools/migrate_figure.py --out runs/try --steps 40            a try

1 train      the lab's decoder with a learned table (4 layers, width 192, 128 tokens) on the standard library's text,
written as the GPT-2 that it is 2 migrate    to rope, on windows of twice the old length (or --length), with at most a
tenth of the tokens of 1; text for measuring that no model has seen 3 tell       the share of the loss gap recovered,
and the loss at twice the old length; the numbers go to docs/migration/

Whatever comes out is what is written: it is a measurement, not a demonstration.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoints import migrate
from milepost.checkpoints.migration.folder import byte_tokenizer
from milepost.checkpoints.migration.report import document
from milepost.checkpoints.migration.source import open_origin
from milepost.checkpoints.migration.targets import to_gpt2
from milepost.lab import checkpoint, corpus
from milepost.lab.model import Decoder, Shape
from milepost.lab.train import Recipe, from_text, train
from milepost.measure.results import write, write_json

SHAPE = Shape(256, 4, 192, 6, 128)
ROWS = 32
TENTH = 10
PIECE = 4096
"""Tokens of text that stay together."""
DOCS = Path(__file__).resolve().parent.parent / "docs" / "migration"


def main() -> None:
    """Train, migrate, tell."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument(
        "--steps", type=int, default=1800, help="steps of training; the migration gets a tenth of the tokens"
    )
    words.add_argument("--rate", type=float, default=1e-3, help="learning rate of the migration")
    words.add_argument("--length", type=int, default=2 * SHAPE.length, help="tokens of a window of the migration")
    words.add_argument(
        "--batch",
        type=int,
        default=16,
        help="windows of a step of the migration; with fewer there are more steps, of the same tokens in all",
    )
    words.add_argument("--anneal", action="store_true")
    words.add_argument("--to", default="rope")
    words.add_argument("--docs", action="store_true", help="write the numbers and report.md to docs/migration")
    given = words.parse_args()
    given.out = given.out.resolve()
    text = corpus.read(None, "bytes", longest=4 * SHAPE.length, trained=SHAPE.length)
    source = trained(given.out, text, given.steps)
    book = halves(given.out / "text.npy", text, given.steps)
    length = given.length
    steps = given.steps * ROWS * SHAPE.length // (TENTH * length * given.batch)
    name = f"{given.to}-{given.steps}-{length}-{given.batch}-{given.rate:g}{'-anneal' if given.anneal else ''}"
    done = migrate(
        source,
        to=given.to,
        text=book,
        steps=steps,
        length=length,
        rate=given.rate,
        batch=given.batch,
        anneal=given.anneal,
        out=given.out / name,
        resume=(given.out / f".{name}.tune").exists(),
        tell=print,
    )
    tokens = {"trained": given.steps * ROWS * SHAPE.length, "migration": steps * given.batch * length}
    print(
        json.dumps(
            {
                "tokens": tokens,
                "share": done.share,
                "inside": done.inside,
                "past": done.past,
                "recovered": done.recovered,
            },
            indent=1,
        )
    )
    if given.docs:
        told = json.loads(
            (Path(done.out) / "milepost" / "migration.json").read_text(encoding="utf-8").replace(f"{given.out}/", "")
        )
        told["provenance"]["protocol"]["tokens"] = tokens
        write_json(DOCS / "migration.json", told)  # without the names of folders on this machine
        write(DOCS / "report.md", document(told).markdown())


def trained(out: Path, text: corpus.Corpus, steps: int) -> Path:
    """The GPT-2, trained as a lab model; made once."""
    folder = out / f"gpt2-{steps}"
    if (folder / "model.safetensors").is_file():
        return folder
    model = Decoder(SHAPE, "learned").start(0)
    recipe = Recipe(steps, ROWS, SHAPE.length, rate=1 / 3, seed=0)
    print(f"training {model.count()} parameters for {steps} steps of {ROWS} x {SHAPE.length} tokens")
    out.mkdir(parents=True, exist_ok=True)
    train(model, from_text(text.train, recipe), recipe, state=out / f"state-{steps}.pt")
    origin = open_origin(checkpoint.save(model, out / f"lab-{steps}", steps=steps), "longer-table", "cpu")
    to_gpt2(origin.body(), origin.table()[0]).save_pretrained(folder)
    write(folder / "tokenizer.json", json.dumps(byte_tokenizer(), ensure_ascii=False))
    write(folder / "tokenizer_config.json", json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


def halves(path: Path, text: corpus.Corpus, steps: int) -> Path:
    """One row: training text, then as much that was never trained on.

    `migrate` tunes on the first half, and measures on the second.

    Both are pieces from all over their texts: the first files alone would be another text than the one that the model
    was trained on.
    """
    unseen = np.concatenate(text.test)
    size = (
        min(len(unseen), len(text.train), max(steps * ROWS * SHAPE.length // TENTH, 64 * SHAPE.length)) // PIECE * PIECE
    )
    np.save(path, np.concatenate([spread(text.train, size), spread(unseen, size)]).astype(np.int64))
    return path


def spread(row: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """``size`` tokens of a row, in pieces that are evenly spread over it."""
    starts = np.linspace(0, len(row) - PIECE, size // PIECE).astype(int)
    return np.concatenate([row[at : at + PIECE] for at in starts])


if __name__ == "__main__":
    main()
