"""A GGUF file says its positions in its own words, and transformers makes a config of them: do both mean the same
angles?

Often not: transformers 5.22 passes over the scaling of a file, and says nothing. (The order of channels differs on
purpose: pairs are neighbours for llama.cpp in some families, and transformers puts them back.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from milepost.checkpoints.model.probe import Check, read_spec
from milepost.rope.engines.parity import differences
from milepost.rope.spec import RopeSpec


def as_in_the_file(path: Path, held: Mapping[str, Any]) -> Check:
    """Whether both mean the same angles."""
    says = RopeSpec.from_config(path)
    made, why = read_spec(dict(held))
    if made is None:
        return Check(
            "file",
            "FAIL",
            f"the file has rotary positions, and what transformers made of it has none: {why}",
            1.0,
            0.0,
            unit="differences",
        )
    ropes = [
        replace(spec, model="", kinds=tuple((n, r and replace(r, pairing="half")) for n, r in spec.kinds))
        for spec in (says, made)
    ]
    apart = differences(*ropes)
    if apart:
        said = apart[0].sentence("the file", "transformers")
        return Check(
            "file",
            "FAIL",
            f"transformers does not do what the file says: {said}",
            float(len(apart)),
            0.0,
            unit="differences",
        )
    return Check(
        "file",
        "PASS",
        "what transformers makes of the file means the same angles in every layer",
        0.0,
        0.0,
        unit="differences",
    )
