"""May a cache of this model be shifted or cut? Servers do both when a text outgrows its window.

Cutting drops the oldest keys; shifting also renumbers the rest, and turns keys by the difference. What a key holds of
its position decides:

    nothing (NoPE, ALiBi, T5)               both are exact
    a rotation by fixed frequencies         both; shifting turns keys by minus the distance, those of an indexer too
    frequencies that depend on the length   neither: keys of another length are stale
    a position added to the embedding       neither: it is in keys and values, through every layer
    a state instead of keys                 neither: what was read can't be taken out
"""

from __future__ import annotations

from milepost.checkpoints.inspection.parts import EMBEDDING, Positions
from milepost.rope import RopeSpec


def shifting(positions: Positions, spec: RopeSpec | None) -> str:
    """The answer in a sentence; empty where nothing is known of the layers."""
    schemes = {layer.scheme for layer in positions.layers}
    if not schemes or "unknown" in schemes:
        return ""
    if EMBEDDING in positions.where:
        return "no: a position was added to the embedding, and is in every key and value"
    if "no attention" in schemes:
        count = sum(layer.scheme == "no attention" for layer in positions.layers)
        return f"no: {count} layers keep a state of all that was read, from which nothing can be taken out"
    ropes = [] if spec is None else list(spec.ropes().values())
    if any(rope.scaling is not None and rope.scaling.length_dependent for rope in ropes):
        return "no: frequencies depend on the text's length, and keys of another length are stale"
    if not ropes:
        return "cut and shifted: keys hold no position" if "rope" not in schemes else ""
    also = [
        *(["the indexer's keys"] if any(rope.indexer is not None for rope in ropes) else []),
        *(["values"] if any(rope.values for rope in ropes) else []),
    ]
    turned = f"keys{''.join(f' and {word}' for word in also)}"
    still = "; layers without rotation need nothing" if "none" in schemes else ""
    return f"cut; and shifted, if {turned} are turned back by the distance{still}"
