"""The figure of a migration: a GPT-2 of about 2 million parameters, trained here, moved to RoPE with a tenth of its training tokens.

    python tools/migrate_figure.py --out runs/migrate-figure            an hour or two on two cores; goes on where it was killed
    python tools/migrate_figure.py --out runs/try --steps 40            a try

1 train      the lab's decoder with a learned table (4 layers, width 192, 128 tokens) on the standard library's text, written as the GPT-2 that it is
2 migrate    to rope, on windows of the old length (or --length), with at most a tenth of the tokens of 1; text for measuring that no model has seen
3 tell       the share of the loss gap recovered, and the loss at twice the old length; the report goes to docs/migration/

Whatever comes out is what is written: it is a measurement, not a demonstration.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

from milepost.checkpoints import migrate
from milepost.checkpoints.migrate_folder import byte_tokenizer
from milepost.checkpoints.migrate_source import open_origin
from milepost.checkpoints.migrate_targets import to_gpt2
from milepost.lab import corpus, saved
from milepost.lab.model import Decoder, Shape
from milepost.lab.train import Recipe, from_text, train
from milepost.results import write

SHAPE = Shape(256, 4, 192, 6, 128)
ROWS = 32
TENTH = 10
DOCS = Path(__file__).resolve().parent.parent / "docs" / "migration"


def main() -> None:
    """Train, migrate, tell."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--steps", type=int, default=6000, help="steps of training; the migration gets a tenth of the tokens")
    words.add_argument("--rate", type=float, default=1e-3, help="learning rate of the migration")
    words.add_argument("--length", type=int, default=None, help="tokens of a window of the migration; by default the old length")
    words.add_argument("--anneal", action="store_true")
    words.add_argument("--to", default="rope")
    words.add_argument("--docs", action="store_true", help="copy the report to docs/migration")
    given = words.parse_args()
    text = corpus.read(None, "bytes", longest=4 * SHAPE.length, trained=SHAPE.length)
    source = trained(given.out, text, given.steps)
    book = halves(given.out / "text.npy", text, given.steps)
    length = given.length or SHAPE.length
    steps = given.steps * SHAPE.length // (TENTH * length)
    name = f"{given.to}-{given.steps}-{length}-{given.rate:g}{'-anneal' if given.anneal else ''}"
    done = migrate(
        source, to=given.to, text=book, steps=steps, length=length, rate=given.rate, batch=ROWS, anneal=given.anneal, out=given.out / name,
        resume=(given.out / f".{name}.tune").exists(), tell=print,
    )  # fmt: skip
    tokens = {"trained": given.steps * ROWS * SHAPE.length, "migration": steps * ROWS * length}
    print(json.dumps({"tokens": tokens, "share": done.share, "inside": done.inside, "past": done.past, "recovered": done.recovered}, indent=1))
    if given.docs:
        DOCS.mkdir(parents=True, exist_ok=True)
        for path in (Path(done.out) / "milepost").iterdir():
            shutil.copyfile(path, DOCS / path.name)


def trained(out: Path, text: corpus.Corpus, steps: int) -> Path:
    """The GPT-2, trained as a lab model; made once."""
    folder = out / f"gpt2-{steps}"
    if (folder / "model.safetensors").is_file():
        return folder
    model = Decoder(SHAPE, "learned").start(0)
    recipe = Recipe(steps, ROWS, SHAPE.length, rate=1e-3, seed=0)
    print(f"training {model.count()} parameters for {steps} steps of {ROWS} x {SHAPE.length} tokens")
    out.mkdir(parents=True, exist_ok=True)
    train(model, from_text(text.train, recipe), recipe, state=out / f"state-{steps}.pt")
    origin = open_origin(saved.save(model, out / f"lab-{steps}", steps=steps), "longer-table", "cpu")
    to_gpt2(origin.body(), origin.table()[0]).save_pretrained(folder)
    write(folder / "tokenizer.json", json.dumps(byte_tokenizer(), ensure_ascii=False))
    write(folder / "tokenizer_config.json", json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


def halves(path: Path, text: corpus.Corpus, steps: int) -> Path:
    """One row: training text, then as much that was never trained on. `migrate` tunes on the first half, and measures on the second."""
    unseen = np.concatenate(text.test)
    wanted = max(steps * ROWS * SHAPE.length // TENTH, 64 * SHAPE.length)
    size = min(len(unseen), len(text.train), wanted)
    np.save(path, np.concatenate([text.train[:size], unseen[:size]]).astype(np.int64))
    return path


if __name__ == "__main__":
    main()
