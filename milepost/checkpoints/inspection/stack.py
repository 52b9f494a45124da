"""The stack of an inspected model, as text that `milepost.build` reads: a pattern of layers, and what it leaves out."""

from __future__ import annotations

from milepost.checkpoints.inspection.parts import InspectedLayer, Positions
from milepost.checkpoints.inspection.rope import CHUNKED
from milepost.rope.spec import RopeSpec
from milepost.rope.stack import left_out, pattern_text, stack_text


def stack_of(positions: Positions, spec: RopeSpec | None) -> tuple[str, tuple[str, ...]]:
    """The text, "" where none says what this model does; and what the text leaves out, a sentence each."""
    layers = positions.layers
    if not layers or positions.tables:
        return "", ()
    if spec is None:
        texts = [_alone(layer) for layer in layers]
        written = [(text, layer.window) for text, layer in zip(texts, layers, strict=True) if text]
        return (pattern_text(written), ()) if len(written) == len(layers) else ("", ())
    windows = [None if layer.kind == CHUNKED else layer.window for layer in layers]
    if spec.layers and len(spec.layers) != len(layers):
        return "", ()
    notes = left_out(spec)
    if chunks := sorted({str(layer.window) for layer in layers if layer.kind == CHUNKED and layer.window}):
        notes.append(f"some layers see no further than a chunk of {', '.join(chunks)} tokens")
    if without := sum(layer.scheme == "no attention" for layer in layers):
        notes.append(f"{without} layers have no attention, and nope() stands for them")
    return stack_text(spec, windows=windows), tuple(notes)


def _alone(layer: InspectedLayer) -> str:
    """A layer without a rotation as text; "" where there is no such text."""
    if layer.text or layer.scheme == "none":
        return layer.text or "nope()"
    if layer.scheme != "alibi" or layer.slopes is None or layer.stack:
        return ""
    return f"alibi(heads={len(layer.slopes)}, slopes={tuple(layer.slopes)!r})"
