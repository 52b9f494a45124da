"""Every encoding, one page each. To add one: write the page, and a line here: in NAMES, or in SPACE where a position is
several numbers.

Importing this module imports no page; `milepost.spec` and `milepost` import them when asked.
"""

from __future__ import annotations

NAMES: dict[str, str] = {
    # none
    "nope": "NoPE",
    # added to the embedding
    "integer": "Integer",
    "binary": "Binary",
    "sinusoidal": "Sinusoidal",
    "learned": "Learned",
    # a transform of q and k
    "rope": "RoPE",
    "learned_spectrum": "LearnedSpectrum",
    "fope": "FoPE",
    "grape": "GRAPE",
    "rope_id": "RoPEID",
    "xpos": "XPos",
    "temperature": "Temperature",
    "ssmax": "SSMax",
    # a bias from positions
    "alibi": "ALiBi",
    "t5": "T5",
    "kerple": "KERPLE",
    "sandwich": "Sandwich",
    "fire": "FIRE",
    # dependent on content
    "shaw": "Shaw",
    "transformer_xl": "TransformerXL",
    "deberta": "DeBERTa",
    "cope": "CoPE",
    "dape": "DAPE",
    "stick_breaking": "StickBreaking",
    # numbers from the hidden state
    "fox": "FoX",
    "relative_logits": "RelativeLogits",
    "selective_rope": "SelectiveRoPE",
    "path": "PaTH",
    "grape_additive": "GRAPEAdditive",
    # a turn of values and output
    "vo_rope": "VORoPE",
    "pope": "PoPE",
}
"""Encodings of text, where a position is one number: the name in specs (the file's), and the class."""

SPACE: dict[str, str] = {
    # added to the embedding
    "grid": "Grid",
    "sinusoidal_nd": "SinusoidalND",
    # a transform of q and k
    "axial": "Axial",
    "mixed": "Mixed",
    "mrope": "MRoPE",
    # a bias from positions
    "swin": "Swin",
    "swin_v2": "SwinV2",
    "alibi_2d": "ALiBi2D",
}
"""Encodings of space, where a position has several axes (`milepost.positions` makes such positions)."""

RENAMED: dict[str, tuple[str, dict[str, str]]] = {"logn": ("temperature", {"form": "logn"})}
"""Names of old that specs may still use: what they are called now, and the arguments that make them so."""
