"""Engine: what engines that read config.json have in common.

Reading: `transformers.parse` says what a config holds, and each engine's page says what that engine makes of it, rope by rope.
Writing: each engine's page says a rope as a dictionary; this page puts the dictionaries into a config, and has it read back.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from milepost.rope.config.keys import ConfigError
from milepost.rope.config.read_scaling import ORIGINAL
from milepost.rope.engines.transformers import TEXT, parse, shape
from milepost.rope.engines.write_scaling import write_scaling
from milepost.rope.engines.written import Refused, Written, proved
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.larger_base import LargerBase
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.staged import Staged
from milepost.scaling.yarn import YaRN, mscale

Meaning = Callable[[LayerRope, Mapping[str, Any], RopeSpec, int | None], tuple[LayerRope, list[str]]]
"""What an engine makes of a rope: from the rope and its dictionary, the whole config as it was said, and the length served; with notes."""
Words = Callable[[LayerRope, RopeSpec, list[str]], dict[str, Any]]
"""A rope as an engine's dictionary; notes are added to the list."""
SCALINGS = ("rope_parameters", "rope_scaling")


def as_read(config: Mapping[str, Any], meaning: Meaning, *, served: int | None, allow_unknown: bool) -> RopeSpec:
    """The spec that an engine makes of a config, which it serves for ``served`` tokens (by default what the config says)."""
    said = parse(config, allow_unknown=allow_unknown)
    limit = said.served if served is None else served
    notes = [
        note for note in said.notes if "vLLM" not in note and "transformers takes" not in note
    ]  # those compare with transformers
    kinds: list[tuple[str, LayerRope | None]] = []
    for kind, rope in said.kinds:
        if rope is None:
            kinds.append((kind, None))
            continue
        try:
            made, more = meaning(rope, dictionary(config, kind), said, limit)
            made.spectrum(limit or 1)
        except ConfigError:
            raise
        except ValueError as error:  # what a scaling itself refuses
            raise ConfigError(str(error)) from None
        kinds.append((kind, made))
        notes += more
    return replace(said, kinds=tuple(kinds), served=limit, notes=tuple(dict.fromkeys(notes)))


def dictionary(config: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The dictionary that says the scaling of a kind of layer, as it stands in the config; empty if there is none."""
    for _ in range(3):
        given: Mapping[str, Any] | None = next(
            (config[name] for name in SCALINGS if isinstance(config.get(name), Mapping)), None
        )
        if given is not None:
            inner = given.get(kind)
            return inner if isinstance(inner, Mapping) else given
        text = next((config[name] for name in TEXT if isinstance(config.get(name), Mapping)), None)
        if text is None:
            break
        config = text
    return {}


def each_dictionary(
    config: Mapping[str, Any], change: Callable[[Mapping[str, Any]], Mapping[str, Any]], deep: int = 3
) -> dict[str, Any]:
    """The config with every dictionary that says a scaling changed."""
    out = dict(config)
    for name, value in config.items():
        if name in SCALINGS and isinstance(value, Mapping):
            nested = bool(value) and all(inner is None or isinstance(inner, Mapping) for inner in value.values())
            out[name] = (
                {kind: None if inner is None else change(inner) for kind, inner in value.items()}
                if nested
                else change(value)
            )
        elif name in TEXT and isinstance(value, Mapping) and deep:
            out[name] = each_dictionary(value, change, deep - 1)
    return out


def deepseek_m(yarn: YaRN) -> float:
    """attn_factor * g(mscale) / g(mscale_all_dim), by default g(1) / g(0): DeepSeek's own code, and engines that follow it."""
    over = mscale(yarn.factor, 1.0 if yarn.mscale is None else yarn.mscale)
    return (yarn.attn_factor or 1.0) * over / mscale(yarn.factor, yarn.mscale_all_dim or 0.0)


def with_m(rope: LayerRope, yarn: YaRN, m: float) -> LayerRope:
    """The rope with this yarn and this m. The keys that only this engine reads are gone; mscale stays where the softmax needs it."""
    clean = replace(yarn, attention_factor=None, attn_factor=None)
    if rope.softmax == 1:
        clean = replace(clean, mscale=None, mscale_all_dim=None)
    return replace(
        rope, scaling=clean if math.isclose(clean.m, m, rel_tol=1e-12) else replace(clean, attention_factor=m)
    )


def about_m(said: YaRN, m: float, unread: tuple[str, ...]) -> list[str]:
    """Notes on the keys that set m: those that an engine does not read, and attn_factor."""
    theirs = replace(said, attn_factor=None).m
    if math.isclose(theirs, m, rel_tol=5e-5):  # configs round m
        return []
    means = f"m = {m:.4f}, logits x {m * m:.4f} (transformers: m = {theirs:.4f}, logits x {theirs * theirs:.4f})"
    names = [f"{name} = {getattr(said, name):g}" for name in unread if getattr(said, name) is not None]
    if names:
        return [f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not read: {means}"]
    if said.attn_factor is not None:
        return [f"attn_factor = {said.attn_factor:g} multiplies the default: {means}"]
    own = [
        f"{name} = {getattr(said, name):g}" for name in ("mscale", "mscale_all_dim") if getattr(said, name) is not None
    ]
    return [f"{' and '.join(own)} {'is' if len(own) == 1 else 'are'} read otherwise: {means}"]


def settled(engine: str, rope: LayerRope, spec: RopeSpec) -> LayerRope:
    """A rope for engines with one table for texts of all lengths: dynamic NTK of one length is a larger base; by the text's length, refused."""
    scaling = rope.scaling
    if scaling is None or isinstance(scaling, Staged):  # which `write_scaling` refuses
        return rope
    if scaling.length_dependent:
        trained = rope.trained or spec.trained or 1
        far = spec.served if spec.served is not None and spec.served > trained else 2 * trained
        if isinstance(scaling, Dynamic):
            a, b = (rope.spectrum(n).base for n in (trained, far))
            raise Refused(
                f"{engine} has one base for texts of all lengths, and {scaling!r} has {a:.10g} up to {trained} tokens and {b:.10g} at {far}; "
                f"fix the length: {replace(scaling, length=far)!r}"
            )
        if isinstance(scaling, LongRoPE):
            raise Refused(
                f"{engine} has one list of factors for texts of all lengths, and this longrope has the short one up to {trained} tokens and the long one "
                f"beyond; fix the length: length={far} for the long factors, length={trained} for the short ones"
            )
        raise Refused(
            f"{engine} has one table for texts of all lengths, and {scaling!r} depends on the length; fix it with .at({far})"
        )
    if isinstance(scaling, Dynamic):
        base = rope.spectrum().base
        return replace(rope, scaling=None if base == rope.base else LargerBase(base))
    return rope


def yarn_words(rope: LayerRope, yarn: YaRN, spec: RopeSpec, keys: Mapping[str, float]) -> dict[str, Any]:
    """The dictionary of a yarn whose m is said by the engine's own ``keys``."""
    plain = replace(yarn, attention_factor=None, attn_factor=None, mscale=None, mscale_all_dim=None)
    return {**write_scaling(replace(rope, scaling=plain), spec)[0], **keys}


def longrope_words(rope: LayerRope, longrope: LongRoPE, spec: RopeSpec) -> dict[str, Any]:
    """The dictionary of both lists, without what says m."""
    plain = write_scaling(replace(rope, scaling=None), spec)[0]
    return {
        **plain,
        "rope_type": "longrope",
        ORIGINAL: longrope.trained,
        "short_factor": list(longrope.short),
        "long_factor": list(longrope.long),
    }


def other_words(rope: LayerRope, spec: RopeSpec, notes: list[str]) -> tuple[dict[str, Any], float]:
    """The dictionary of any other scaling, and m, which is not 1 only for a longrope: a factor for each pair, without what says m."""
    said, more = write_scaling(rope, spec)
    notes += more
    if said["rope_type"] != "longrope":
        return said, 1.0
    return {name: value for name, value in said.items() if name not in ("attention_factor", "factor")}, math.sqrt(
        rope.spectrum().temperature
    )


def write_config(spec: RopeSpec, words: Words) -> tuple[dict[str, Any], list[str]]:
    """The keys of config.json, with rope_parameters for all layers or for each kind of layer; and notes."""
    notes: list[str] = []
    kinds = {kind: None if rope is None else words(rope, spec, notes) for kind, rope in spec.kinds}
    first = next(iter(kinds.values()))
    config = {**shape(spec), "rope_parameters": first if all(said == first for said in kinds.values()) else kinds}
    return config, notes


def command(start: list[str], length: str, overrides: str, spec: RopeSpec, config: Mapping[str, Any]) -> str:
    """A command line, quoted for a shell: the length that is served, and the keys that override the model's own config."""
    keys = {name: config[name] for name in ("rope_parameters", "max_position_embeddings") if name in config}
    inside = next((name for name in TEXT for source in spec.sources.values() if source.startswith(name + ".")), None)
    served = [] if spec.served is None else [length, str(spec.served)]
    return shlex.join([*start, *served, overrides, json.dumps(keys if inside is None else {inside: keys})])


def checked(spec: RopeSpec, written: Written, read: Callable[[], RopeSpec]) -> Written:
    """``written``, proved by reading it back; what the engine would stop at is refused."""
    try:
        back = read()
    except ConfigError as error:
        raise Refused(f"{written.engine} can't say this: {error}") from None
    return proved(spec, written, back)
