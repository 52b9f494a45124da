"""Views: one page each. A view is a module with

    ENCODINGS           the names that it can show; the first is where it begins
    CONTROLS            what a reader may set besides the encoding
    SIZES               sizes that its encodings must have, where it has a model of its own
    show(enc, asked, words)   plain data: figures, a sentence, and whose formulas they are

Numbers come from the package; a view chooses and names them.
"""

from __future__ import annotations

from milepost.explore.views import attention, buckets, clocks, code, distance, permute, plane, scalings, slopes

VIEWS = {
    "code": code,
    "distance": distance,
    "clocks": clocks,
    "slopes": slopes,
    "buckets": buckets,
    "scalings": scalings,
    "plane": plane,
    "attention": attention,
    "permute": permute,
}
"""In the order of the page."""
