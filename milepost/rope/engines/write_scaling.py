"""Writing a rope as the dictionary in which transformers, and those who follow it, have a scaling.

    yarn(factor=4.0, trained=32768)  ->  {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

Some scalings have no rope type and are another one in disguise: a larger base, llama3 with other bounds. What is none
of these is written as longrope, whose lists hold a factor for each pair.
"""

from __future__ import annotations

import math
from typing import Any

from milepost.rope.config.families import FAMILIES, Family
from milepost.rope.config.read_scaling import ORIGINAL
from milepost.rope.engines.written import Refused
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import NTK, Dynamic, LargerBase, Linear, Llama3, LongRoPE, NTKByParts, Proportional, YaRN


def write_scaling(rope: LayerRope, spec: RopeSpec) -> tuple[dict[str, Any], list[str]]:
    """The dictionary of a rope, and what to know about it."""
    scaling = rope.scaling
    notes: list[str] = []
    dictionary: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.base}
    if (
        rope.rotary != rope.head_dim or FAMILIES.get(spec.model, Family()).share != 1
    ):  # some families turn a part unless told
        dictionary["partial_rotary_factor"] = _share(rope)
    if rope.sections is not None:
        dictionary["mrope_section"] = list(rope.sections)
        if rope.sections_interleaved:
            dictionary["mrope_interleaved"] = True
    if scaling is None:
        return dictionary, notes
    if isinstance(scaling, LargerBase | NTK):
        dictionary["rope_theta"] = scaling(rope.plain()).base
        notes.append(
            f"{scaling!r} is a larger base: rope_theta = {dictionary['rope_theta']:.10g} instead of {rope.base:.10g}"
        )
    elif isinstance(scaling, Linear):
        dictionary |= {"rope_type": "linear", "factor": scaling.factor}
    elif isinstance(scaling, Dynamic) and scaling.length is None:
        dictionary |= {"rope_type": "dynamic", "factor": scaling.factor}
    elif isinstance(scaling, YaRN) and scaling.preset != "paper" and scaling.attn_factor is None:
        dictionary |= {"rope_type": "yarn", "factor": scaling.factor, ORIGINAL: scaling.trained}
        for name in ("beta_fast", "beta_slow"):
            if getattr(scaling, name) != getattr(YaRN, name):
                dictionary[name] = getattr(scaling, name)
        truncate = scaling.preset == "transformers" if scaling.truncate is None else scaling.truncate
        if not truncate:
            dictionary["truncate"] = False
        dictionary |= {
            n: getattr(scaling, n)
            for n in ("attention_factor", "mscale", "mscale_all_dim")
            if getattr(scaling, n) is not None
        }
    elif isinstance(scaling, Llama3 | NTKByParts) and getattr(scaling, "form", "paper") == "paper":
        low, high = (
            (scaling.low_freq_factor, scaling.high_freq_factor)
            if isinstance(scaling, Llama3)
            else (scaling.slow, scaling.fast)
        )
        dictionary |= {
            "rope_type": "llama3",
            "factor": scaling.factor,
            ORIGINAL: scaling.trained,
            "low_freq_factor": low,
            "high_freq_factor": high,
        }
        if isinstance(scaling, NTKByParts):
            notes.append(f"{scaling!r} is what llama3 does with {low:g} and {high:g} turns: written as that")
    elif (
        isinstance(scaling, LongRoPE) and scaling.length is None and scaling.short_m is None and scaling.long_m is None
    ):
        dictionary |= {
            "rope_type": "longrope",
            ORIGINAL: scaling.trained,
            "short_factor": list(scaling.short),
            "long_factor": list(scaling.long),
            "factor": scaling.factor,
        }
        if scaling.attention_factor is not None:
            dictionary["attention_factor"] = scaling.attention_factor
    elif isinstance(scaling, Proportional):
        dictionary |= {"rope_type": "proportional", "partial_rotary_factor": scaling.share, "factor": scaling.factor}
    else:
        dictionary |= _by_pairs(rope, spec)
        notes.append(
            f"no rope type says {scaling!r}: written as longrope, with {rope.rotary // 2} factors that give its "
            "frequencies and its temperature"
        )
    return dictionary, notes


def _by_pairs(rope: LayerRope, spec: RopeSpec) -> dict[str, Any]:
    """Any fixed spectrum: a factor for each pair, the same in both lists; the temperature as an attention factor."""
    if rope.scaling is not None and rope.scaling.length_dependent:
        raise Refused(f"{rope.scaling!r} depends on the length in a way that no rope type has")
    plain, scaled = rope.plain(), rope.spectrum()
    if not all(scaled.frequencies):
        raise Refused(f"{rope.scaling!r} has pairs that stand still, and no rope type but proportional has those")
    factors = [a / b for a, b in zip(plain.frequencies, scaled.frequencies, strict=True)]
    trained = rope.trained or spec.trained or spec.served
    if trained is None:
        raise Refused(
            f"{rope.scaling!r} would be written as longrope, which needs the trained length, and the spec has none"
        )
    return {
        "rope_type": "longrope",
        ORIGINAL: trained,
        "short_factor": factors,
        "long_factor": factors,
        "attention_factor": math.sqrt(scaled.temperature),
    }


def _share(rope: LayerRope) -> float:
    """A partial_rotary_factor from which every reader gets this rotary size back."""
    share = rope.rotary / rope.head_dim
    return share if int(rope.head_dim * share) == rope.rotary else math.nextafter(share, 1.0)
