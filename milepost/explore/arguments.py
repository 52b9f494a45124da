"""Arguments: the sliders and lists of an encoding, read from its signature.

A control's name is a path into the spec: ``0.base`` is the base of the first term, ``0.scaling.factor`` the factor of
its scaling. What has no slider (lists, and what may be None) is typed into the spec.
"""

from __future__ import annotations

import inspect
import typing
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

from milepost.encoding import Encoding, Sum, parts_of
from milepost.explore.view import Control
from milepost.scaling import Scaling

RANGES: dict[str, tuple[float, float, float, bool]] = {
    "heads": (1, 32, 1, False),
    "head_dim": (4, 256, 4, False),
    "width": (4, 256, 4, False),
    "length": (2, 8192, 1, True),
    "size": (4, 256, 4, False),
    "buckets": (4, 256, 2, False),
    "max_distance": (8, 4096, 1, True),
    "clip": (1, 64, 1, False),
    "positions": (2, 256, 1, False),
    "hidden": (1, 512, 1, True),
    "span": (4, 1024, 1, True),
    "extent": (1, 1024, 1, True),
    "rank": (1, 128, 1, True),
    "start": (-8, 8, 0.5, False),
    "alpha": (0, 1, 0.05, False),
    "axes": (2, 3, 1, False),
    "offset": (0, 8, 1, False),
    "prefix": (0, 8, 1, False),
    "bare": (0, 8, 1, False),
    "group": (1, 64, 1, True),
    "window": (1, 256, 1, True),
    "chunk": (2, 256, 1, True),
    "local": (1, 128, 1, True),
    "sinks": (0, 16, 1, False),
    "base": (10, 1e7, 1, True),
    "scale_base": (16, 8192, 1, True),
    "threshold": (8, 4096, 1, True),
    "c": (0.001, 10, 0.001, True),
    "rate": (0.01, 10, 0.01, True),
    "turns": (0.25, 16, 0.25, True),
    "gain": (0.0, 2, 0.01, False),
    "factor": (1, 64, 0.5, True),
    "trained": (16, 131072, 1, True),
    "beta_fast": (1, 64, 1, False),
    "beta_slow": (0.1, 8, 0.1, False),
    "low_freq_factor": (0.1, 8, 0.1, False),
    "high_freq_factor": (1, 16, 0.5, False),
    "fast": (1, 64, 1, False),
    "slow": (0.1, 8, 0.1, False),
}
"""Of sliders: lowest, highest, step, whether logarithmic."""
SCALINGS = {
    "none": "None",
    "linear": "linear(factor=4.0)",
    "ntk": "ntk(factor=4.0)",
    "ntk_by_parts": "ntk_by_parts(factor=4.0, trained=2048)",
    "yarn": "yarn(factor=4.0, trained=2048)",
    "llama3": "llama3(factor=4.0, trained=2048)",
    "dynamic": "dynamic(trained=2048)",
}
TYPED = {
    "rotary",
    "floor",
    "slopes",
    "future",
    "start",
    "key_heads",
    "planes",
    "sides",
    "split",
    "sections",
    "rope",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "attn_factor",
    "truncate",
}
"""What has no slider: lists, and what may be None. They are typed into the spec."""


def controls(enc: Encoding) -> list[Control]:
    """The sliders and lists of an encoding, term by term, with their present values."""
    made: list[Control] = []
    for at, part in enumerate(parts_of(enc)):
        term = f"{type(part).spec_name()}." if isinstance(enc, Sum) else ""
        for owner, inside in ((part, ""), (getattr(part, "scaling", None), "scaling.")):
            if owner is part or isinstance(owner, Scaling):
                for name, annotation in _annotated(type(owner)):
                    control = _control(f"{at}.{inside}{name}", name, annotation, getattr(owner, name))
                    made += [replace(control, label=f"{term}{inside}{name}")] if control is not None else []
    return made


def _control(path: str, name: str, annotation: Any, value: Any) -> Control | None:
    if name == "scaling":
        word = "none" if value is None else repr(value).partition("(")[0]
        return Control(path, "choice", word, options=tuple(dict.fromkeys((*SCALINGS, word))))
    literals = [kind for kind in (annotation, *get_args(annotation)) if get_origin(kind) is Literal]
    words = [word for literal in literals for word in get_args(literal)]
    if words and (value is None or value in words):
        none = ["None"] if type(None) in get_args(annotation) else []
        return Control(path, "choice", str(value), options=(*none, *map(str, words)))
    if annotation is bool:
        return Control(path, "choice", str(value), options=("False", "True"))
    if name in TYPED or name not in RANGES or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    low, high, step, log = RANGES[name]
    whole = annotation is int or int in get_args(annotation)
    return Control(path, "number", value, min(low, value), max(high, value), step, log, whole)


def _annotated(cls: type) -> list[tuple[str, Any]]:
    """Names of constructor arguments with their types."""
    hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    given = inspect.signature(cls).parameters.items()
    return [(name, hints[name]) for name, p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
