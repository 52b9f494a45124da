"""The hooks of an encoding, by name, as `encoding` has them. Here, so that the catalogue reads them without torch."""

from __future__ import annotations

HOOKS = (
    "embed",
    "query",
    "key",
    "bias",
    "rescore",
    "output",
    "spread",
    "features",
    "gate",
    "weigh",
    "relate",
    "value",
    "restore",
)
