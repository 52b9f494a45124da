"""The small trained models that `milepost explore` shows the attention of, made again.

    python tools/explore_models.py              train and write milepost/measured/explore/NAME/

The lab's own model, text and training: the sources of Python's standard library, read as bytes, 64 tokens at a time, as
in the quick profile; with a third of its width, so that three models weigh less than 300 kB in half precision, and ten
times its steps. model.json says how each was made. Some three minutes on one core.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

from milepost.lab import checkpoint, corpus
from milepost.lab.model import Decoder, Shape
from milepost.lab.train import Recipe, from_text, train
from milepost.measure.results import provenance

FOLDER = Path(__file__).resolve().parent.parent / "milepost" / "measured" / "explore"
ENCODINGS = ("sinusoidal", "alibi", "rope")
SHAPE = Shape(vocabulary=256, layers=2, width=32, heads=4, length=64)
RECIPE = Recipe(steps=3000, rows=32, length=64)
LAST = 100
"""Steps whose mean loss is recorded."""


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    text = corpus.read(longest=SHAPE.length, trained=SHAPE.length)
    for encoding in ENCODINGS:
        model = Decoder(SHAPE, encoding).start(RECIPE.seed)
        losses = train(model, from_text(text.train, RECIPE), RECIPE)["losses"]
        about = {"loss_first": losses[0], "loss_last": sum(losses[-LAST:]) / LAST, "steps_averaged": LAST}
        said = provenance(
            what="tools/explore_models.py",
            recipe=asdict(RECIPE),
            text=text.describe(),
            parameters=model.count(),
            stored="float16",
        )
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save(model.half(), folder, **about, provenance=said)
            (FOLDER / encoding).mkdir(parents=True, exist_ok=True)
            for name in ("model.safetensors", "model.json"):
                shutil.copyfile(Path(folder) / name, FOLDER / encoding / name)
        print(
            f"{encoding}: loss {about['loss_first']:.3f} at first, {about['loss_last']:.3f} over the last {LAST} steps"
        )


if __name__ == "__main__":
    main()
