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


def as_in_the_file(path: Path, config: Mapping[str, Any]) -> Check:
    """Whether the file and the config that transformers makes of it mean the same angles."""
    made, why = read_spec(dict(config))
    if made is None:
        count, sentence = 1, f"the file has rotary positions, and what transformers made of it has none: {why}"
    else:
        in_file, in_config = (
            replace(spec, model="", kinds=tuple((n, r and replace(r, pairing="half")) for n, r in spec.kinds))
            for spec in (RopeSpec.from_config(path), made)
        )
        apart = differences(in_file, in_config)
        count, sentence = len(apart), "what transformers makes of the file means the same angles in every layer"
        if apart:
            sentence = f"transformers does not do what the file says: {apart[0].sentence('the file', 'transformers')}"
    return Check("file", "FAIL" if count else "PASS", sentence, float(count), 0.0, unit="differences")
