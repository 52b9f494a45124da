"""Position maps: longer texts without training. Each takes a RoPE as it is and tells it other places, by the distance
of query and key.

Importing this module imports no page; `milepost.spec` and `milepost` import them when asked.
"""

from __future__ import annotations

NAMES: dict[str, str] = {
    "self_extend": "SelfExtend",
    "rerope": "ReRoPE",
    "dual_chunk": "DualChunk",
    "streaming": "Streaming",
}
"""Every map: its name in specs (the file's), and its class."""
