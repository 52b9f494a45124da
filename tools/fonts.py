"""The fonts of pictures: parts of Noto Sans CJK SC with the letters of our English pages and the characters of our
Chinese ones.

    pip install fonttools
    python tools/fonts.py NotoSansCJK-Regular.ttc NotoSansCJK-Bold.ttc      # those of
    https://github.com/notofonts/noto-cjk

Run it again where words are added to milepost/explore/words/zh.json: a test says so.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTCollection

ROOT = Path(__file__).resolve().parent.parent
WORDS = ROOT / "milepost" / "explore" / "words" / "zh.json"
FONTS = ROOT / "milepost" / "draw" / "fonts"
MORE = "ΑΒΓΔΘΛΠΣΦΨΩαβγδεθκλμνπρστφψωℓ‐‑–—‘’“”•…′″←↑→↓↔↵⇥∂∆∈−∓∗√∞∥∫≈≠≡≤≥⊕⊗⋅␣█·×÷±°²³¹½、。，；：？！（）《》「」％"
"""Letters of formulas, arrows, and the punctuation of Chinese."""


def letters() -> set[str]:
    """Every letter that a picture of ours may have."""
    words = "".join(json.loads(WORDS.read_text(encoding="utf-8")).values())
    return (
        {chr(n) for n in (*range(0x20, 0x7F), *range(0xA0, 0x180))}
        | set(MORE)
        | {letter for letter in words if ord(letter) > 0x7F}
    )


def main() -> None:
    """Cut both weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path, nargs=2, help="the collections of the regular and of the bold weight")
    for path, weight in zip(parser.parse_args().collections, ("Regular", "Bold"), strict=True):
        font = next(font for font in TTCollection(path).fonts if font["name"].getDebugName(1) == "Noto Sans CJK SC")
        options = subset.Options(
            layout_features=["kern"], hinting=False, desubroutinize=True, name_IDs=[0, 1, 2, 3, 4, 5, 6, 13, 14]
        )
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=[ord(letter) for letter in letters()])
        cutter.subset(font)
        for name in font["name"].names:  # Chinese and Japanese names of the whole font are another font's
            if name.nameID in (1, 16):
                font["name"].setName("Noto Sans SC", name.nameID, name.platformID, name.platEncID, name.langID)
        out = FONTS / f"NotoSansSC-{weight}.otf"
        font.save(out)
        print(f"{out.relative_to(ROOT)}: {out.stat().st_size:,} bytes, {len(font.getGlyphOrder())} glyphs")


if __name__ == "__main__":
    main()
