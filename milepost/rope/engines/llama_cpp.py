"""llama.cpp: what its flags make of a model, and the flags that say a spec.

    --rope-scaling none | linear | yarn     by default the model's own
    --rope-scale s                          times longer; --rope-freq-scale is its inverse: 0.25 is s = 4
    --rope-freq-base                        the base; by default the model's own
    --yarn-orig-ctx                         the trained length; by default the model's own
    --yarn-beta-fast, --yarn-beta-slow      32 and 1
    --yarn-ext-factor                       1 is yarn, 0 is linear
    -c                                      the length served

What is different here:

    yarn            m = 0.1 ln s + 1, always: --yarn-attn-factor is read, then overwritten. With s = 4, m = 1.1386. Bounds are
                    always truncated (gpt-oss needs them as they come)
    llama3, proportional, longrope          in the GGUF as tensors of factors, baked when it was converted; flags go on top
    longrope        the long factors for all texts if -c is above the trained length
    dynamic         not there
    sliding layers  that have a base of their own keep it, whatever the flags say

A context shift under yarn multiplies the cached keys by m again: use --no-context-shift.
"""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from milepost.rope.config.keys import ConfigError, short
from milepost.rope.engines.parity import CLOSE
from milepost.rope.engines.written import Refused, Written, proved
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.larger_base import LargerBase
from milepost.scaling.linear import Linear
from milepost.scaling.llama3 import Llama3
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.ntk import NTK
from milepost.scaling.proportional import Proportional
from milepost.scaling.ramp import pair_with
from milepost.scaling.staged import Staged
from milepost.scaling.yarn import YaRN, mscale

FLAGS = (
    "--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor",
    "--yarn-beta-slow", "--yarn-beta-fast", "--ctx-size", "--grp-attn-n", "--grp-attn-w",
)  # fmt: skip
SHORT = {"-c": "--ctx-size", "-gan": "--grp-attn-n", "-gaw": "--grp-attn-w"}
SCALE = (
    "--rope-scaling",
    "--rope-scale",
    "--rope-freq-scale",
    "--rope-freq-base",
    "--yarn-orig-ctx",
    "--yarn-ext-factor",
    "--yarn-beta-slow",
    "--yarn-beta-fast",
)
"""Flags that change the table."""


def read(flags: Sequence[str] | str, on: RopeSpec) -> RopeSpec:
    """What llama.cpp makes of a model, ``on``, with these flags. Flags that are not about positions are passed over."""
    given = _given(shlex.split(flags) if isinstance(flags, str) else list(flags))
    notes = list(on.notes)
    served = on.served if given.get("--ctx-size", 0) == 0 else int(given["--ctx-size"])
    if given.get("--grp-attn-n", 1) != 1:
        raise ConfigError(
            f"--grp-attn-n {given['--grp-attn-n']:g} is self-extend, which gives far keys other positions: it is no table of frequencies"
        )
    apart = {kind for kind, rope in on.ropes().items() if kind == "sliding_attention" and rope != on.main}
    kinds = tuple(
        (kind, rope if rope is None or kind in apart else _checked(_meaning(rope, given, on, served, notes)))
        for kind, rope in on.kinds
    )
    if apart and any(flag in given for flag in SCALE):
        notes.append("the flags are for layers of full attention: sliding layers keep the base and scale of the GGUF")
    trained = next((rope.trained for _, rope in kinds if rope is not None and rope.trained is not None), on.trained)
    return replace(on, kinds=kinds, trained=trained, served=served, notes=tuple(dict.fromkeys(notes)))


def _checked(rope: LayerRope) -> LayerRope:
    try:
        rope.spectrum(1)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return rope


def _given(words: list[str]) -> dict[str, Any]:
    """The flags about positions, with their values: numbers, and one word."""
    found: dict[str, Any] = {}
    at = 0
    while at < len(words):
        name, equals, value = words[at].partition("=")
        at += 1
        name = SHORT.get(name, name.replace("_", "-") if name.startswith("--") else name)
        if name not in FLAGS:
            if name.startswith(("--rope", "--yarn")):
                near = difflib.get_close_matches(name, FLAGS, 1)
                raise ConfigError(
                    f"llama.cpp has no flag {short(name)}"
                    + (f"; did you mean {near[0]}?" if near else f"; there are {', '.join(FLAGS)}")
                )
            continue
        if not equals:
            if at == len(words):
                raise ConfigError(f"{name} needs a value")
            value, at = words[at], at + 1
        read = value if name == "--rope-scaling" else _number(name, value)
        if name in found and found[name] != read:
            raise ConfigError(f"{name} is there twice, as {found[name]} and as {read}: keep one")
        found[name] = read
    _check(found)
    return found


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{name} must be a finite number, got {short(value)}")
    if name in ("--ctx-size", "--yarn-orig-ctx") and (number < 0 or number != int(number)):
        raise ConfigError(f"{name} is a number of tokens, got {short(value)}")
    return number


def _check(given: dict[str, Any]) -> None:
    method, scale, inverse = (
        given.get("--rope-scaling", "none"),
        given.get("--rope-scale"),
        given.get("--rope-freq-scale"),
    )
    if method not in ("none", "linear", "yarn"):
        raise ConfigError(f"--rope-scaling is none, linear or yarn, got {short(method)}")
    if inverse is not None and inverse <= 0:
        raise ConfigError(f"--rope-freq-scale must be above 0, got {inverse:g}")
    if inverse is not None and inverse > 1:
        hint = f"{inverse:g} times longer is --rope-scale {inverse:g}, or --rope-freq-scale {1 / inverse:g}"
        raise ConfigError(
            f"--rope-freq-scale {inverse:g} would shrink the context; it is the inverse of --rope-scale: {hint}"
        )
    if scale is not None and scale < 1:
        hint = f": did you mean --rope-scale {1 / scale:g}, or --rope-freq-scale {scale:g}?" if scale > 0 else ""
        raise ConfigError(f"--rope-scale {scale:g} would shrink the context{hint}")
    if scale is not None and inverse is not None and not math.isclose(scale * inverse, 1, rel_tol=1e-6):
        raise ConfigError(
            f"contradictory flags: --rope-scale {scale:g} and --rope-freq-scale {inverse:g}, which is --rope-scale {1 / inverse:g}; keep one"
        )
    if given.get("--rope-freq-base", 2) <= 1 and given["--rope-freq-base"] != 0:
        raise ConfigError(f"--rope-freq-base must be above 1, got {given['--rope-freq-base']:g}")


def _meaning(rope: LayerRope, given: dict[str, Any], on: RopeSpec, served: int | None, notes: list[str]) -> LayerRope:
    own = rope.scaling
    if isinstance(own, LongRoPE | Llama3 | Proportional):
        return _baked(rope, given, served, notes)
    if isinstance(own, LargerBase | NTK):  # a base, which the GGUF has
        rope, own = replace(rope, base=rope.spectrum().base, scaling=None), None
    if not (own is None or isinstance(own, Linear | YaRN)):
        raise ConfigError(
            f"llama.cpp has no {own!r}: a GGUF has linear, yarn, longrope, or a list of factors that was baked into it"
        )
    base = given.get("--rope-freq-base") or rope.base
    scale = 1 / given["--rope-freq-scale"] if "--rope-freq-scale" in given else given.get("--rope-scale")
    factor = float(scale if scale is not None else getattr(own, "factor", 1.0))
    if not math.isfinite(factor):
        raise ConfigError(f"--rope-freq-scale {given['--rope-freq-scale']:g} is no scale that a model can have")
    method = given.get("--rope-scaling") or (
        "yarn" if isinstance(own, YaRN) else "linear"
    )  # linear where the GGUF is silent
    mixed = given.get("--yarn-ext-factor", -1.0)
    mixed = (1.0 if method == "yarn" else 0.0) if mixed < 0 else mixed
    if mixed not in (0.0, 1.0):
        raise ConfigError(
            f"--yarn-ext-factor {mixed:g} mixes yarn and linear, which is not one of our scalings; 1 is yarn, 0 is linear"
        )
    if method == "none":
        if scale is not None and scale != 1:
            notes.append(f"--rope-scaling none: --rope-scale {scale:g} has no effect")
        return replace(rope, base=base, scaling=None)
    if mixed == 0.0:
        m = given.get("--yarn-attn-factor", 1.0)
        if m > 0 and m != 1:
            raise ConfigError(
                f"--yarn-attn-factor {m:g} without yarn multiplies cos and sin by {m:g}, which is not one of our scalings; leave it out"
            )
        return replace(rope, base=base, scaling=None if factor == 1 else Linear(factor))
    rope = replace(rope, base=base, scaling=None)
    return replace(rope, scaling=_yarn(_checked(rope), own, factor, given, on, notes))


def _yarn(rope: LayerRope, own: Any, factor: float, given: dict[str, Any], on: RopeSpec, notes: list[str]) -> YaRN:
    known = own if isinstance(own, YaRN) else None
    trained = int(given.get("--yarn-orig-ctx", 0)) or (known.trained if known else on.trained)
    if trained is None:
        raise ConfigError("yarn needs the trained length, which the model does not say: add --yarn-orig-ctx")
    betas = {name: given.get("--yarn-" + name.replace("_", "-"), -1.0) for name in ("beta_fast", "beta_slow")}
    betas = {name: value if value > 0 else float(getattr(known or YaRN, name)) for name, value in betas.items()}
    try:
        made = YaRN(factor, trained, **betas)
        if known is not None and rope.softmax != 1:  # DeepSeek: in the GGUF as yarn_log_multiplier
            made = replace(made, mscale=known.mscale, mscale_all_dim=known.mscale_all_dim)
        made(rope.plain())
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if known is not None and not math.isclose(known.m / mscale(known.factor), made.m / mscale(factor), rel_tol=5e-5):
        notes.append(f"llama.cpp has no key for m = {known.m:.4f}: m = {made.m:.4f}, logits x {made.m**2:.4f}")
    if given.get("--yarn-attn-factor", 1.0) not in (1.0, -1.0):
        notes.append(
            f"--yarn-attn-factor {given['--yarn-attn-factor']:g} has no effect with yarn, which overwrites it: m = {made.m:.4f}, logits x {made.m**2:.4f}"
        )
    if known is not None and (known.truncate is False or known.preset != "transformers"):
        low, high = (pair_with(turns, rope.plain(), trained) for turns in (made.beta_fast, made.beta_slow))
        notes.append(
            f"the bounds of yarn are always truncated: {low:.4f} and {high:.4f} become {math.floor(low)} and {math.ceil(high)}"
        )
    return made


def _baked(rope: LayerRope, given: dict[str, Any], served: int | None, notes: list[str]) -> LayerRope:
    """A rope whose factors are in the GGUF as a tensor."""
    name = type(rope.scaling).__name__
    on_top = [f"{flag} {value}" for flag, value in given.items() if flag in SCALE]
    neutral = {
        "--rope-scaling": ("none", "linear"),
        "--rope-scale": (1.0,),
        "--rope-freq-scale": (1.0,),
        "--rope-freq-base": (0.0, rope.base),
    }
    if any(flag in given and given[flag] not in neutral.get(flag, ()) for flag in SCALE):
        raise ConfigError(
            f"{', '.join(on_top)}: the factors of {name} are baked into the GGUF and stay, so that llama.cpp would scale twice; leave the flags out"
        )
    if isinstance(rope.scaling, LongRoPE) and rope.scaling.length_dependent:
        if served is None:
            raise ConfigError("llama.cpp chooses the factors of longrope by -c, which is not known: add -c")
        long = served > rope.scaling.trained
        notes.append(
            f"the {'long' if long else 'short'} factors are for texts of all lengths: -c {served}, and {rope.scaling.trained} tokens were trained"
        )
        return replace(rope, scaling=rope.scaling.at(served))
    return rope


def write(spec: RopeSpec) -> Written:
    """`llama-server` with the flags that say ``spec``, for a GGUF of the model before any scaling; refused where none do."""
    main = spec.main
    others = [kind for kind, rope in spec.ropes().items() if rope != main]
    if others:
        told = f"{', '.join(others)} {'differs' if len(others) == 1 else 'differ'} from the rest"
        raise Refused(
            f"llama.cpp's flags are for all layers, and {told}; convert the model with its config.json, and run it without rope flags"
        )
    flags, notes = _flags(main, spec), []
    served = [] if spec.served is None else ["-c", str(spec.served)]
    text = shlex.join(["llama-server", "-m", "MODEL.gguf", *served, *flags])
    if isinstance(main.scaling, YaRN):
        notes.append(
            f"add --no-context-shift: a shift would multiply the cached keys by m = {main.scaling.m:.4f} again, each time"
        )
    before = tuple((kind, None if rope is None else replace(rope, scaling=None)) for kind, rope in spec.kinds)
    written = Written("llama.cpp", {}, text, tuple(notes))
    return proved(spec, written, read(text, replace(spec, kinds=before, notes=())))


def _flags(rope: LayerRope, spec: RopeSpec) -> list[str]:
    scaling = rope.scaling
    baked = "are baked into the GGUF when it is converted; convert the model with this scaling in its config.json, and run it without rope flags"
    if isinstance(scaling, Staged):
        raise Refused(
            f"{scaling!r} is milepost's own: no engine has it, and it is not the published dynamic NTK; export another method"
        )
    if isinstance(scaling, Llama3):
        raise Refused(f"no flag says {scaling!r}: its {rope.rotary // 2} factors (rope_freqs) {baked}")
    if isinstance(scaling, Proportional):
        raise Refused(f"no flag says {scaling!r}: its {rope.rotary // 2} factors (rope_freqs) {baked}")
    if isinstance(scaling, LongRoPE):
        raise Refused(
            f"no flag says longrope: its lists of {len(scaling.long)} factors {baked} (-c above {scaling.trained} takes the long ones)"
        )
    if isinstance(scaling, Dynamic) and scaling.length is None:
        far = spec.served if spec.served is not None and spec.served > scaling.trained else 2 * scaling.trained
        fixed = replace(scaling, length=far)
        raise Refused(
            f"llama.cpp has no dynamic NTK; fix the length, {fixed!r}, which is the base {replace(rope, scaling=fixed).spectrum().base:.10g}"
        )
    if isinstance(scaling, YaRN):
        return _yarn_flags(rope, scaling)
    if isinstance(scaling, Linear):
        return [
            "--rope-scaling",
            "linear",
            "--rope-scale",
            _shown(scaling.factor),
            "--rope-freq-base",
            _shown(rope.base),
        ]
    if scaling is None or isinstance(scaling, LargerBase | NTK | Dynamic):
        return ["--rope-scaling", "none", "--rope-freq-base", _shown(rope.spectrum().base)]
    raise Refused(f"no flag says {scaling!r}: llama.cpp has linear, yarn and a larger base; export another method")


def _yarn_flags(rope: LayerRope, yarn: YaRN) -> list[str]:
    default = mscale(yarn.factor)
    if rope.softmax != 1:
        raise Refused(
            f"no flag multiplies the softmax scale by {rope.softmax:.4f} (mscale_all_dim): it is in the GGUF, by conversion; run it without rope flags"
        )
    if not math.isclose(yarn.m, default, rel_tol=CLOSE / 4):
        raise Refused(
            f"llama.cpp's yarn has m = 0.1 ln({yarn.factor:g}) + 1 = {default:.4f} whatever --yarn-attn-factor says, and this one has {yarn.m:.4f}: "
            f"logits would be x {default**2:.4f} instead of x {yarn.m**2:.4f}; use another engine, or a yarn with the default m"
        )
    if yarn.preset == "paper":
        raise Refused(f"llama.cpp's ramp is over pairs, and {yarn!r} has one over turns; use a yarn without preset")
    if yarn.truncate is False or (yarn.preset == "gpt-oss" and yarn.truncate is None):
        low, high = (pair_with(turns, rope.plain(), yarn.trained) for turns in (yarn.beta_fast, yarn.beta_slow))
        raise Refused(
            f"llama.cpp always truncates the bounds of yarn: {low:.4f} and {high:.4f} would become {math.floor(low)} and {math.ceil(high)}; "
            "use another engine, or truncate=True"
        )
    flags = ["--rope-scaling", "yarn", "--rope-scale", _shown(yarn.factor), "--yarn-orig-ctx", str(yarn.trained)]
    for name in ("beta_fast", "beta_slow"):
        if getattr(yarn, name) != getattr(YaRN, name):
            flags += ["--yarn-" + name.replace("_", "-"), _shown(getattr(yarn, name))]
    return [*flags, "--rope-freq-base", _shown(rope.base)]


def _shown(value: float) -> str:
    """A number as one writes it."""
    return str(int(value)) if value == int(value) else repr(float(value))
