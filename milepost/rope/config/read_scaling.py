"""Reading the dictionary in which transformers, and those who follow it, say a scaling.

    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768, ...}  ->  yarn(factor=4.0, trained=32768)

Every key that a type has is in `KEYS`; another one is an error, because engines pass over what they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from milepost.rope.config.keys import ConfigError, Found, Keys, agreed, short
from milepost.scaling import Scaling
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.linear import Linear
from milepost.scaling.llama3 import Llama3
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.ntk import NTK
from milepost.scaling.proportional import Proportional
from milepost.scaling.yarn import YaRN

COMMON = {
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved", "finetuned",
    "llama_4_scaling_beta", "max_position_embeddings",
}  # fmt: skip
ORIGINAL = "original_max_position_embeddings"
KEYS: dict[str, set[str]] = {
    "default": set(),
    "linear": {"factor"},
    "dynamic": {"factor", "alpha", "max_trained_positions"},
    "ntk": {"factor", "mixed_b"},
    "yarn": {
        "factor",
        ORIGINAL,
        "beta_fast",
        "beta_slow",
        "truncate",
        "attention_factor",
        "attn_factor",
        "mscale",
        "mscale_all_dim",
    },
    "llama3": {"factor", ORIGINAL, "low_freq_factor", "high_freq_factor"},
    "longrope": {"factor", ORIGINAL, "short_factor", "long_factor", "attention_factor", "short_mscale", "long_mscale"},
    "proportional": {"factor"},
}
ALIASES = {"su": "longrope", "mrope": "default", "deepseek_yarn": "yarn"}
"""Older names of rope types."""
PASSED_OVER = {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}
"""Keys that Hunyuan's configs have beside alpha, and no code reads."""


@dataclass
class Read:
    """A dictionary, read: the scaling, the trained length it starts from, and what there is to say about it."""

    rope_type: str
    scaling: Scaling | None
    trained: int | None
    notes: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)


def rope_type_of(keys: Keys) -> str:
    """The name of the scaling in a dictionary."""
    said = [found for found in (keys.text("rope_type"), keys.text("type")) if found is not None]
    if (
        len({ALIASES.get(found.value, found.value) for found in said}) > 1
    ):  # "default" and "mrope" are one, as transformers saves Qwen2-VL
        agreed(*said)
    found = said[0] if said else None
    name = "default" if found is None else ALIASES.get(found.value, found.value)
    if name not in KEYS:
        raise ConfigError(
            f"{found.key if found else 'rope_type'} = {short(name)} is no rope type; there are {', '.join(KEYS)}"
        )
    return name


def read_scaling(
    keys: Keys,
    *,
    pairs: int,
    served: int | None,
    original: Found[int] | None = None,
    allow_unknown: bool = False,
    alpha: bool = False,
) -> Read:
    """The scaling that a dictionary says, for so many ``pairs``; ``original`` is the trained length where it stands outside.

    With ``alpha``, a dynamic one that has the key alpha is a fixed base (Hunyuan's).
    """
    name = rope_type_of(keys)
    done = Read(name, None, None)
    fixed = alpha and name == "dynamic" and keys.has("alpha")
    _check_names(keys, name, served, allow_unknown, done, PASSED_OVER if fixed else set())
    _check_outside(name, served, original, allow_unknown, done)
    try:
        reader = _read_alpha if fixed else _READERS[name]
        reader(keys, done, pairs=pairs, served=served, original=original, allow_unknown=allow_unknown)
    except ConfigError:
        raise
    except ValueError as error:  # what the scaling itself refuses
        raise ConfigError(f"{keys.where}: {error}") from None
    if done.scaling is not None:
        done.sources["scaling"] = keys.where
    return done


def _check_outside(name: str, served: int | None, original: Found[int] | None, allow_unknown: bool, done: Read) -> None:
    """A trained length beside the dictionary, where the type starts from another one."""
    if name != "dynamic" or original is None or original.value == served or not original.key.endswith(ORIGINAL):
        return
    said = f"{original.key} = {original.value} has no meaning for rope type {name}, which starts from max_position_embeddings = {served}"
    if not allow_unknown:
        raise ConfigError(said + "; remove it, or read with --allow-unknown")
    done.notes.append(said + " (passed over: --allow-unknown)")


def _check_names(keys: Keys, name: str, served: int | None, allow_unknown: bool, done: Read, more: set[str]) -> None:
    unknown = [key for key in keys.config if key not in COMMON | KEYS[name] | more and keys.config[key] is not None]
    for key in unknown:
        value = keys.config[key]
        if key == ORIGINAL and name in ("dynamic", "linear", "default", "ntk"):
            if value == served:
                done.notes.append(
                    f"{keys.path(key)} = {short(value)} has no meaning for {name}; it equals max_position_embeddings, which has, so nothing changes"
                )
                continue
            said = f"{keys.path(key)} = {short(value)} has no meaning for rope type {name}, which starts from max_position_embeddings = {served}"
        else:
            others = ", ".join(sorted(KEYS[name])) or "no keys of its own"
            said = f"unknown key {keys.path(short(key)[1:-1])} = {short(value)} for rope type {name}; it has {others}"
        if not allow_unknown:
            raise ConfigError(said + "; remove it, or read with --allow-unknown")
        done.notes.append(said + " (passed over: --allow-unknown)")


def _needed(keys: Keys, name: str, found: Any) -> Any:
    if found is None:
        raise ConfigError(
            f"rope type {name} needs {keys.path('factor') if name != 'longrope' else keys.where}, which is not there"
        )
    return found.value


def _factor(keys: Keys, name: str) -> float | None:
    found = keys.number("factor", above=0)
    if found is not None and found.value < 1:
        raise ConfigError(
            f"{found.key} = {found.value:g} would shrink the context; a factor above 1 means longer: did you mean {1 / found.value:g}?"
        )
    return None if found is None else found.value


def _original(keys: Keys, original: Any, served: int | None, done: Read) -> int:
    """The trained length: in the dictionary, beside it, or (as transformers has it) the served length."""
    found = agreed(keys.whole(ORIGINAL), original)
    if found is not None:
        done.sources["trained"] = found.key
        return int(found.value)
    if served is None:
        raise ConfigError(
            f"{keys.where} has no {ORIGINAL}, and the config has no max_position_embeddings to take instead"
        )
    done.sources["trained"] = f"max_position_embeddings (there is no {ORIGINAL})"
    done.notes.append(f"{keys.where} has no {ORIGINAL}: transformers takes max_position_embeddings = {served}")
    return served


def _read_linear(keys: Keys, done: Read, *, served: int | None, **_: Any) -> None:
    factor = _factor(keys, "linear")
    done.scaling = Linear(_needed(keys, "linear", keys.number("factor")) if factor is None else factor)
    done.trained = served
    if served is not None:
        done.notes.append(f"linear has no key for the trained length: taken as max_position_embeddings = {served}")


def _read_ntk(keys: Keys, done: Read, *, served: int | None, **_: Any) -> None:
    if keys.has("mixed_b"):
        raise ConfigError(
            f"{keys.path('mixed_b')} = {short(keys.config['mixed_b'])}: vLLM's mixed NTK is not one of our scalings"
        )
    factor = _factor(keys, "ntk")
    done.scaling = NTK(_needed(keys, "ntk", keys.number("factor")) if factor is None else factor)
    done.trained = served
    done.notes.append(
        "rope type ntk is not one of transformers'; read as base * factor^(d/(d-2)) (vLLM's ntk is another: see the vllm dialect)"
    )


def _read_alpha(keys: Keys, done: Read, *, served: int | None, **_: Any) -> None:
    """Hunyuan's: called dynamic, with a fixed base. The other keys of its configs do nothing."""
    alpha = keys.number("alpha", least=1)
    done.scaling, done.trained = NTK(_needed(keys, "dynamic", alpha)), served
    done.notes.append(
        f"{keys.path('alpha')} makes a fixed base, theta * alpha^(d/(d-2)); of the other keys nothing is read"
    )


def _read_dynamic(keys: Keys, done: Read, *, served: int | None, original: Any, allow_unknown: bool, **_: Any) -> None:
    if keys.has("alpha"):
        raise ConfigError(
            f"{keys.path('alpha')} = {short(keys.config['alpha'])} is a fixed base, theta * alpha^(d/(d-2)): write that as rope_theta, or as rope type ntk"
        )
    factor = _factor(keys, "dynamic")
    if factor is None:
        raise ConfigError(f"rope type dynamic needs {keys.path('factor')}, which is not there")
    found = keys.whole("max_trained_positions")
    trained = found.value if found is not None else served
    if trained is None:
        raise ConfigError("rope type dynamic starts from max_position_embeddings, which is not there")
    if found is not None and served is not None and found.value != served:
        done.notes.append(
            f"{found.key} = {found.value} is vLLM's key; transformers passes over it, and starts from max_position_embeddings = {served}"
        )
        trained = served
    done.scaling, done.trained = Dynamic(trained, factor), trained


def _read_yarn(keys: Keys, done: Read, *, served: int | None, original: Any, allow_unknown: bool, **_: Any) -> None:
    trained = _original(keys, original, served, done)
    factor = _factor(keys, "yarn")
    if factor is None:
        if served is None or served < trained:
            raise ConfigError(
                f"rope type yarn needs {keys.path('factor')}, which is not there, and max_position_embeddings = {served} gives none over {trained}"
            )
        factor = served / trained
        done.notes.append(
            f"{keys.path('factor')} is not there: max_position_embeddings / {ORIGINAL} = {served} / {trained} = {factor:g}"
        )
    elif served is not None and served > 1.001 * factor * trained:
        said = f"contradictory: {keys.path('factor')} = {factor:g} times {ORIGINAL} = {trained} is less than max_position_embeddings = {served}"
        if not allow_unknown:
            raise ConfigError(
                said + f"; set factor to {served / trained:g}, or max_position_embeddings to {factor * trained:g}"
            )
        done.notes.append(said + " (the explicit factor is used)")
    elif served is not None and abs(served - factor * trained) > 0.001 * served:
        done.notes.append(
            f"{keys.path('factor')} = {factor:g} makes {factor * trained:g} tokens of {trained}; max_position_embeddings = {served} is fewer"
        )
    both = [keys.number(n) for n in ("attention_factor", "attn_factor")]
    if both[0] is not None and both[1] is not None:
        raise ConfigError(
            f"contradictory keys: {both[0].key} = {both[0].value:g} is the factor itself (transformers), "
            f"{both[1].key} = {both[1].value:g} multiplies the default one (vLLM): keep one"
        )
    if both[1] is not None:
        done.notes.append(f"{both[1].key} = {both[1].value:g} is vLLM's and SGLang's key; transformers passes over it")
    scales = {name: keys.number(name, least=0) for name in ("mscale", "mscale_all_dim")}
    fast, slow = keys.number("beta_fast", above=0), keys.number("beta_slow", above=0)
    truncate = keys.flag("truncate")
    done.scaling = YaRN(
        factor,
        trained,
        beta_fast=32.0 if fast is None else fast.value,
        beta_slow=1.0 if slow is None else slow.value,
        truncate=None if truncate is None or truncate.value else False,
        attention_factor=None if both[0] is None else both[0].value,
        mscale=None if scales["mscale"] is None else scales["mscale"].value,
        mscale_all_dim=None if scales["mscale_all_dim"] is None else scales["mscale_all_dim"].value,
        attn_factor=None if both[1] is None else both[1].value,
    )
    done.trained = trained


def _read_llama3(keys: Keys, done: Read, *, served: int | None, original: Any, **_: Any) -> None:
    trained = _original(keys, original, served, done)
    factor = _factor(keys, "llama3")
    low, high = keys.number("low_freq_factor", above=0), keys.number("high_freq_factor", above=0)
    missing = [
        name
        for name, found in (("factor", factor), ("low_freq_factor", low), ("high_freq_factor", high))
        if found is None
    ]
    if factor is None or low is None or high is None:
        raise ConfigError(f"rope type llama3 needs {keys.path(missing[0])}, which is not there")
    done.scaling, done.trained = Llama3(factor, trained, low.value, high.value), trained


def _read_longrope(keys: Keys, done: Read, *, pairs: int, served: int | None, original: Any, **_: Any) -> None:
    trained = _original(keys, original, served, done)
    lists = {}
    for name in ("short_factor", "long_factor"):
        found = keys.numbers(name)
        if found is None:
            raise ConfigError(f"rope type longrope needs {keys.path(name)}, which is not there")
        if len(found.value) != pairs:
            raise ConfigError(
                f"{found.key} has {len(found.value)} numbers, and there are {pairs} pairs to turn: it needs one for each"
            )
        lists[name] = found.value
    factor = _factor(keys, "longrope")
    if factor is None:
        factor = max(1.0, served / trained) if served is not None else 1.0
        done.sources["factor"] = f"max_position_embeddings / {ORIGINAL}"
    one, short_m, long_m = (keys.number(name, above=0) for name in ("attention_factor", "short_mscale", "long_mscale"))
    if one is not None and (short_m is not None or long_m is not None):
        raise ConfigError(
            f"contradictory keys: {one.key} = {one.value:g} is for both lists, short_mscale and long_mscale for one each: keep one"
        )
    if short_m is not None or long_m is not None:
        done.notes.append(
            "short_mscale and long_mscale are vLLM's keys (and Phi-3.5-MoE's own code's); transformers' longrope passes over them"
        )
    done.scaling = LongRoPE(
        lists["short_factor"],
        lists["long_factor"],
        trained,
        factor,
        attention_factor=None if one is None else one.value,
        short_m=None if short_m is None else short_m.value,
        long_m=None if long_m is None else long_m.value,
    )
    done.trained = trained


def _read_proportional(keys: Keys, done: Read, *, served: int | None, **_: Any) -> None:
    share = keys.number("partial_rotary_factor", above=0)
    done.scaling, done.trained = (
        Proportional(1.0 if share is None else share.value, _factor(keys, "proportional") or 1.0),
        served,
    )


def _read_default(keys: Keys, done: Read, *, served: int | None, original: Found[int] | None, **_: Any) -> None:
    done.trained = served if original is None else original.value
    if original is not None:
        done.sources["trained"] = original.key


_READERS: dict[str, Any] = {
    "default": _read_default,
    "linear": _read_linear,
    "ntk": _read_ntk,
    "dynamic": _read_dynamic,
    "yarn": _read_yarn,
    "llama3": _read_llama3,
    "longrope": _read_longrope,
    "proportional": _read_proportional,
}
