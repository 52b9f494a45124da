"""Every encoding, one page each. To add one: write the page, and a line here.

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
    "xpos": "XPos",
    "logn": "LogN",
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
}
"""Every encoding: its name in specs (the file's), and its class."""
