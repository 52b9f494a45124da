"""ImagePlan: what a run on images is to do, as plain data. A model is trained at one size, and tested at others.

A size is height x width in pixels; on the grid of patches the trained one and all tested ones have the same shape. `linear` is the one strategy: at
another size the encoding is told places squeezed or stretched onto the trained grid, p -> (p + 1/2) trained / tested - 1/2 on each axis.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from milepost.lab.kinds import Tell, Trial
from milepost.lab.plan import SCHEMA
from milepost.lab.space import images
from milepost.lab.space.compared import comparisons
from milepost.lab.space.encoder import Encoder, Shape
from milepost.lab.space.sizes import by, read_sizes, trained_size
from milepost.lab.strangers import import_named
from milepost.spec import nearest

STRATEGIES = ("none", "linear")


@dataclass(frozen=True)
class Profile:
    """What a size word means: ``pixels`` is the shorter side of an image in training."""

    layers: int
    width: int
    heads: int
    pixels: int
    patch: int
    steps: int
    rows: int
    seeds: int
    encodings: tuple[str, ...]


BASIC = ("nope", "learned", "grid", "sinusoidal_nd", "axial(base=100.0)", "mixed", "alibi_2d")
PROFILES = {
    "tiny": Profile(1, 16, 2, 8, 2, 20, 8, 1, ("nope", "learned", "axial(base=100.0)")),
    "quick": Profile(2, 64, 4, 16, 2, 300, 64, 1, BASIC),
    "standard": Profile(4, 64, 4, 16, 2, 1000, 64, 3, BASIC),
}


@dataclass(frozen=True)
class ImagePlan:
    """Everything that decides the numbers of a run. ``threads`` of a trial and ``digest`` of the images are set as it begins."""

    profile: str
    shape: Shape
    size: tuple[int, int]
    patch: int
    steps: int
    rows: int
    sizes: tuple[tuple[int, int], ...]
    seeds: tuple[int, ...]
    encodings: tuple[str, ...]
    strategies: tuple[str, ...] = STRATEGIES
    folder: str | None = None
    threads: int = 1
    digest: str = ""
    modality: str = "image"
    schema: int = field(default=SCHEMA)
    reads: ClassVar[str] = "images"

    def trials(self) -> list[Trial]:
        """Every model to train."""
        return [Trial(enc, seed, self.modality) for seed in self.seeds for enc in self.encodings]

    def trial(self, key: str) -> Trial:
        """The trial of a key."""
        return next(trial for trial in self.trials() if trial.key == key)

    def grid(self, size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of patches."""
        return size[0] // self.patch, size[1] // self.patch

    def read(self) -> images.Images:
        """The images that models are trained and tested on."""
        return images.read(self.folder)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @staticmethod
    def from_json(data: dict[str, Any]) -> ImagePlan:
        """The plan of `to_json`."""
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        shape = Shape(**{**data["shape"], "sides": tuple(data["shape"]["sides"])})
        return ImagePlan(**{**data, **lists, "shape": shape, "sizes": tuple((h, w) for h, w in data["sizes"])})

    def weights(self) -> int:
        """About how many numbers a model has."""
        cells = self.shape.sides[0] * self.shape.sides[1]
        return (
            12 * self.shape.layers * self.shape.width**2
            + (self.shape.channels + self.shape.classes + cells) * self.shape.width
        )

    def run(self, trial: Trial, folder: Path, tell: Tell) -> dict[str, Any]:
        """Train and measure one model."""
        from milepost.lab.space.trial import run

        return run(self, trial, folder, tell)

    def compare(self, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Runs set against each other, on the same images."""
        return comparisons(runs)

    def protocol(self, data: images.Images) -> dict[str, Any]:
        """How each number was made, in a sentence."""
        return {
            "plan": self.to_json(),
            "images": data.describe(),
            "intervals": "95%: Wilson's for a share of right answers, bootstrap over test images for differences",
            "accuracy": "share of test images whose likeliest class is theirs; every model sees the same images",
            "training": f"images of {by(self.size)} pixels in patches of {self.patch}, each view zoomed and shifted a little by chance",
            "sizes": "the same test images, resampled (bilinear, antialiased); learned 2-D tables are resized (bicubic), learned 1-D ones used as they are",
            "change": "accuracy less that at the trained size, image by image",
            "linear": "places squeezed or stretched onto the trained grid at test time",
            "comparisons": "paired differences of accuracy on the same images; above 0 is a gain",
        }


def make(
    profile: str = "quick", *, encodings: Sequence[str] = (), strategy_names: Sequence[str] = STRATEGIES, sizes: str = "", train_size: int | None = None,
    seeds: Sequence[int] = (), folder: str | None = None,
) -> ImagePlan:  # fmt: skip
    """A plan from what a user asks for; all that can be wrong is found here, before any training."""
    if profile not in PROFILES:
        raise ValueError(
            f"unknown profile {profile!r} for images{nearest(profile, PROFILES)}; there are {', '.join(PROFILES)}"
        )
    word = PROFILES[profile]
    for name in strategy_names:
        if name not in STRATEGIES:
            raise ValueError(
                f"unknown strategy {name!r} for images{nearest(name, STRATEGIES)}; there are {', '.join(STRATEGIES)}"
            )
    folder = None if folder is None else str(Path(folder).resolve())  # trials may run elsewhere
    data = images.read(folder)
    size = trained_size(data.size, word.pixels if train_size is None else train_size, word.patch)
    shape = Shape(
        (size[0] // word.patch, size[1] // word.patch),
        data.channels * word.patch**2,
        len(data.classes),
        word.layers,
        word.width,
        word.heads,
    )
    chosen = tuple(dict.fromkeys(encodings or word.encodings))
    import_named(chosen)
    for spec in chosen:
        Encoder(shape, spec)  # unknown names, wrong arguments: said now
    numbers = tuple(seeds) or tuple(range(word.seeds))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ValueError(f"seeds are different whole numbers, at least 0, got {list(numbers)}")
    tested = read_sizes(sizes, size, word.patch)
    named = tuple(dict.fromkeys(("none", *strategy_names)))
    return ImagePlan(profile, shape, size, word.patch, word.steps, word.rows, tested, numbers, chosen, named, folder)
