"""ImagePlan: what a run on images does, as plain data. A model is trained at one size, and tested at others.

A size is height x width in pixels; on the grid of patches the trained one and all tested ones have the same shape.
`linear` is the one strategy: at another size the encoding gets positions squeezed or stretched onto the trained grid,
p -> (p + 1/2) trained / tested - 1/2 on each axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checks import check_known
from milepost.lab.plan import LabPlan, check_encodings, check_seeds
from milepost.lab.space import images
from milepost.lab.space.comparisons import comparisons
from milepost.lab.space.encoder import Encoder, EncoderShape
from milepost.lab.space.sizes import by, read_sizes, trained_size
from milepost.lab.trial import Run

STRATEGIES = ("none", "linear")


@dataclass(frozen=True)
class ImageProfile:
    """What a size word means for images: ``pixels`` is the shorter side of an image in training."""

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
    "tiny": ImageProfile(1, 16, 2, 8, 2, 20, 8, 1, ("nope", "learned", "axial(base=100.0)")),
    "quick": ImageProfile(2, 64, 4, 16, 2, 300, 64, 1, BASIC),
    "standard": ImageProfile(4, 64, 4, 16, 2, 1000, 64, 3, BASIC),
}


@dataclass(frozen=True, kw_only=True)
class ImagePlan(LabPlan):
    """A run on images."""

    shape: EncoderShape
    size: tuple[int, int]
    patch: int
    sizes: tuple[tuple[int, int], ...]
    strategies: tuple[str, ...] = STRATEGIES
    folder: str | None = None
    modality: str = "image"
    shape_class, reads = EncoderShape, "images"

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Images alone."""
        return (self.modality,)

    def grid(self, size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of patches."""
        return size[0] // self.patch, size[1] // self.patch

    def read(self) -> images.Images:
        """The images that models are trained and tested on."""
        return images.read(self.folder)

    def compare(self, runs: list[Run]) -> list[dict[str, Any]]:
        """Paired differences on the same images."""
        return comparisons(runs)

    def protocol(self, data: images.Images) -> dict[str, Any]:
        """How each number was made, in a sentence."""
        return {
            "plan": self.to_json(),
            "images": data.describe(),
            "intervals": "95%: Wilson's for a share of right answers, bootstrap over test images for differences",
            "accuracy": "share of test images whose likeliest class is theirs; every model sees the same images",
            "training": f"images of {by(self.size)} pixels in patches of {self.patch}, "
            "each view zoomed and shifted a little by chance",
            "sizes": "the same test images, resampled (bilinear, antialiased); "
            "learned 2-D tables are resized (bicubic), learned 1-D ones used as they are",
            "change": "accuracy less that at the trained size, image by image",
            "linear": "positions squeezed or stretched onto the trained grid at test time",
            "comparisons": "paired differences of accuracy on the same images; above 0 is a gain",
        }


def make(
    profile: str = "quick",
    *,
    encodings: Sequence[str] = (),
    strategy_names: Sequence[str] = STRATEGIES,
    sizes: str = "",
    train_size: int | None = None,
    seeds: Sequence[int] = (),
    folder: str | None = None,
) -> ImagePlan:
    """A plan from what a user asks for. Mistakes are found here, before any training."""
    check_known("profile", profile, PROFILES, " for images")
    word = PROFILES[profile]
    for name in strategy_names:
        check_known("strategy", name, STRATEGIES, " for images")
    folder = None if folder is None else str(Path(folder).resolve())  # trials may run elsewhere
    data = images.read(folder)
    size = trained_size(data.size, word.pixels if train_size is None else train_size, word.patch)
    sides, channels = (size[0] // word.patch, size[1] // word.patch), data.channels * word.patch**2
    shape = EncoderShape(sides, channels, len(data.classes), word.layers, word.width, word.heads)
    return ImagePlan(
        profile=profile,
        shape=shape,
        size=size,
        patch=word.patch,
        steps=word.steps,
        rows=word.rows,
        sizes=read_sizes(sizes, size, word.patch),
        seeds=check_seeds(seeds, word.seeds),
        encodings=check_encodings(encodings or word.encodings, lambda spec: Encoder(shape, spec)),
        strategies=tuple(dict.fromkeys(("none", *strategy_names))),
        folder=folder,
    )
