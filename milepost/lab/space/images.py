"""Images: labelled pictures of one size, training images and test images apart.

By default scikit-learn's handwritten digits: 1797 real images of 8 x 8 pixels in ten classes, installed with the
package, nothing to download. Otherwise a folder with a sub-folder for each class. Which images are for testing is
decided by hashes of their pixels: it is the same everywhere, and two copies of an image are never on both sides.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
TESTED = 4
"""One image in so many is for testing."""
MOST = 1 << 31
"""Bytes of pixels that are held."""
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")


@dataclass(frozen=True)
class Images:
    """Pixels from 0 to 1 (N channels height width) and labels (N), to train on and to test on.

    ``digest`` names the very pixels.
    """

    train: Numbers
    train_labels: Numbers
    test: Numbers
    test_labels: Numbers
    classes: tuple[str, ...]
    digest: str
    source: str

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return int(self.train.shape[2]), int(self.train.shape[3])

    @property
    def channels(self) -> int:
        """1 where all images are grey, 3 otherwise."""
        return int(self.train.shape[1])

    def describe(self) -> dict[str, Any]:
        """What a result says about its images."""
        about = {
            "source": self.source,
            "sha256": self.digest,
            "classes": list(self.classes),
            "size": list(self.size),
            "channels": self.channels,
        }
        return {**about, "train_images": len(self.train), "test_images": len(self.test)}


def read(folder: str | Path | None = None) -> Images:
    """The images of a folder (by default scikit-learn's digits), split."""
    pixels, labels, classes, source = _digits() if folder is None else _folder(Path(folder))
    marks = [hashlib.sha256(image.tobytes()).hexdigest() for image in pixels]
    tested = _split(marks, labels, classes, source)
    digest = hashlib.sha256(
        "\n".join(f"{mark} {classes[label]}" for mark, label in zip(marks, labels, strict=True)).encode()
    ).hexdigest()
    bright = pixels.astype(np.float32) / 255
    return Images(bright[~tested], labels[~tested], bright[tested], labels[tested], classes, digest, source)


def _split(marks: list[str], labels: Numbers, classes: tuple[str, ...], source: str) -> Numbers:
    """Which images are for testing: of each class a quarter, those with the lowest hashes.

    Copies of an image are on one side, in whatever class they are.
    """
    side: dict[str, bool] = {}
    for number, name in enumerate(classes):
        mine = sorted({mark for mark, label in zip(marks, labels, strict=True) if label == number})
        if len(mine) < 2:
            raise ValueError(
                f"{source}: class {name} has {len(mine)} different images, and at least 2 are needed, "
                "one to train and one to test on"
            )
        for place, mark in enumerate(mine):
            side.setdefault(mark, place < max(1, len(mine) // TESTED))
    return np.array([side[mark] for mark in marks])


def _digits() -> tuple[Numbers, Numbers, tuple[str, ...], str]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError(
            "the digits come with scikit-learn: pip install 'milepost[images]', or give --images FOLDER"
        ) from None
    digits = load_digits()
    pixels = np.round(digits.images * 255 / 16).astype(np.uint8)[:, None]  # 0 .. 16 there
    return pixels, digits.target.astype(np.int64), tuple(map(str, range(10))), "scikit-learn's digits"


def _folder(folder: Path) -> tuple[Numbers, Numbers, tuple[str, ...], str]:
    """Pixels (N channels H W, bytes), labels, names of the classes, and what to call them."""
    try:
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}: --images is a folder with a sub-folder for each class")
        homes = sorted(home for home in folder.iterdir() if home.is_dir() and not home.name.startswith("."))
        files = [
            (label, file)
            for label, home in enumerate(homes)
            for file in sorted(home.rglob("*"))
            if file.is_file() and not file.name.startswith(".")
        ]
    except OSError as error:
        raise ValueError(f"can't read {error.filename or folder}: {error.strerror or error}") from None
    if len(homes) < 2:
        raise ValueError(
            f"{folder} has {len(homes)} sub-folders, and at least two are needed: "
            "one for each class, with its images in it"
        )
    images = [(label, file, _pixels(file)) for label, file in files]
    if not images:
        raise ValueError(f"the sub-folders of {folder} hold no images ({', '.join(ENDINGS)})")
    first, shape = images[0][1], images[0][2].shape[:2]
    for _, file, image in images:
        if image.shape[:2] != shape:
            sizes = [
                f"{path.relative_to(folder)} is {height} x {width}"
                for path, (height, width) in ((first, shape), (file, image.shape[:2]))
            ]
            raise ValueError(
                f"images must all have one size, height x width: {' and '.join(sizes)}; "
                "resize or crop them to one size first"
            )
    colours = max(image.shape[2] for *_, image in images)
    needed = len(images) * colours * shape[0] * shape[1] * 5  # bytes, then float32
    if needed > MOST:
        many = f"{len(images)} images of {shape[0]} x {shape[1]}, which take {needed / 2**30:.1f} GB"
        raise ValueError(
            f"{folder} has {many}, and at most {MOST / 2**30:.0f} GB are held: give fewer or smaller images"
        )
    pixels = np.stack([np.broadcast_to(image, (*shape, colours)) for *_, image in images]).transpose(0, 3, 1, 2)
    return (
        np.ascontiguousarray(pixels),
        np.array([label for label, *_ in images]),
        tuple(home.name for home in homes),
        folder.name,
    )


def _pixels(file: Path) -> Numbers:
    """An image file's bytes, height x width x 1 (grey) or 3."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ValueError("a folder of images is read with Pillow: pip install 'milepost[images]'") from None
    if file.suffix.lower() not in ENDINGS:
        raise ValueError(f"{file} is no image ({', '.join(ENDINGS)}): the folders of classes hold images alone")
    try:
        with Image.open(file) as opened:
            frames, mode = getattr(opened, "n_frames", 1), opened.mode
            image = ImageOps.exif_transpose(opened)
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(f"{file} can't be read as an image ({type(error).__name__}: {str(error)[:120]})") from None
    if frames > 1:
        raise ValueError(f"{file} holds {frames} frames, and an image is one: take its frames apart first")
    if mode.startswith(("I", "F")):
        raise ValueError(
            f"{file} has pixels of mode {mode}, and 8 bits a channel are read: save it as an ordinary grey or RGB image"
        )
    if image.has_transparency_data and np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
        raise ValueError(
            f"{file} is transparent in places, and what lies behind it is not known: save it without transparency"
        )
    grey = mode in ("1", "L", "LA")
    done = np.asarray(image.convert("L" if grey else "RGB"))
    return done[..., None] if grey else done
