"""Sizes: height x width in pixels, in whole patches. A tested size is the trained one times a number on both sides."""

from __future__ import annotations

USUAL = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Times the trained size: tested where nothing is asked for, as far as they give whole patches."""
LARGEST = 32
"""Patches on a side."""
Size = tuple[int, int]


def by(size: Size) -> str:
    """``16 x 24``: height by width."""
    return f"{size[0]} x {size[1]}"


def trained_size(source: Size, shorter: int, patch: int) -> Size:
    """Height and width to train at: the shorter side as given, the longer one in proportion, in pairs of patches."""
    most = LARGEST * patch
    if shorter < 2 * patch or shorter % patch or shorter > most:
        raise ValueError(
            f"images are cut into patches of {patch} pixels: the trained size is a multiple of {patch}, "
            f"from {2 * patch} to {most}; got {shorter}"
        )
    longer = (
        shorter
        if source[0] == source[1]
        else max(shorter, round(shorter * max(source) / min(source) / (2 * patch)) * 2 * patch)
    )
    if longer > most:
        raise ValueError(
            f"images of {by(source)} would be {longer} pixels long with a shorter side of {shorter}, "
            f"and at most {most} are read: crop them"
        )
    return (shorter, longer) if source[0] <= source[1] else (longer, shorter)


def read_sizes(text: str, trained: Size, patch: int) -> tuple[Size, ...]:
    """``0.5x,1x`` (of the trained size) or pixels of the shorter side, as growing sizes; the usual ones if empty."""
    if not text.strip():
        return tuple(size for times in USUAL if (size := _times(trained, times, patch)) is not None)
    sizes = []
    for word in text.lower().replace(" ", "").split(","):
        try:
            times = float(word[:-1]) if word.endswith("x") else int(word) / min(trained)
        except ValueError:
            raise ValueError(
                "sizes are times the trained size, or pixels of the shorter side, such as 0.5x,1x,2x or 8,16,32; "
                f"got {word!r}"
            ) from None
        size = _times(trained, times, patch)
        if size is None:
            cells = " x ".join(f"{side * times / patch:g}" for side in trained)
            whole = f"these must be whole, from 1 to {LARGEST} on a side"
            raise ValueError(
                f"size {word!r} of the trained {by(trained)} pixels would be {cells} patches of {patch} pixels, "
                f"and {whole}; choose another size"
            )
        sizes.append(size)
    return tuple(sorted(set(sizes)))


def _times(trained: Size, times: float, patch: int) -> Size | None:
    """So many times the trained size, or None where patches would not be whole."""
    cells = [side * times / patch for side in trained]
    if any(not 1 <= cell <= LARGEST or abs(cell - round(cell)) > 1e-9 for cell in cells):
        return None
    return round(cells[0]) * patch, round(cells[1]) * patch
