"""m of YaRN, what cos and sin are multiplied by: how engines compute it, and the keys that set it.

    g(k) = 0.1 k ln(factor) + 1
    transformers   attention_factor, or g(mscale) / g(mscale_all_dim), or g(1)
    DeepSeek       attn_factor * g(mscale) / g(mscale_all_dim), by default g(1) / g(0); engines that follow its code

Logits are multiplied by m^2.
"""

from __future__ import annotations

import math
from dataclasses import replace

from milepost.rope.engines.written import Refused
from milepost.rope.spec import LayerRope
from milepost.scaling import YaRN, mscale
from milepost.scaling.ramp import pair_with

SCALES = ("mscale", "mscale_all_dim")


def deepseek_m(yarn: YaRN) -> float:
    """m as DeepSeek's own code has it."""
    over = mscale(yarn.factor, 1.0 if yarn.mscale is None else yarn.mscale)
    return (yarn.attn_factor or 1.0) * over / mscale(yarn.factor, yarn.mscale_all_dim or 0.0)


def with_m(rope: LayerRope, yarn: YaRN, m: float) -> LayerRope:
    """The rope with this yarn and this m.

    The keys that only one engine reads are gone; mscale stays where the softmax needs it.
    """
    clean = replace(yarn, attention_factor=None, attn_factor=None)
    if rope.softmax == 1:
        clean = replace(clean, mscale=None, mscale_all_dim=None)
    return replace(
        rope, scaling=clean if math.isclose(clean.m, m, rel_tol=1e-12) else replace(clean, attention_factor=m)
    )


def compare_m(name: str, m: float, theirs: float) -> str:
    """An engine's m beside that of transformers."""
    return f"{name}m = {m:.4f}, logits x {m * m:.4f} (transformers: m = {theirs:.4f}, logits x {theirs * theirs:.4f})"


def notes_on_m(yarn: YaRN, m: float, unread: tuple[str, ...]) -> list[str]:
    """Notes on the keys that set m: those that an engine does not read, and attn_factor."""
    theirs = replace(yarn, attn_factor=None).m
    if math.isclose(theirs, m, rel_tol=5e-5):  # configs round m
        return []
    if any(getattr(yarn, name) is not None for name in unread):
        return [f"{_named(yarn, unread)} not read: {compare_m('', m, theirs)}"]
    if yarn.attn_factor is not None:
        return [f"attn_factor = {yarn.attn_factor:g} multiplies the default: {compare_m('', m, theirs)}"]
    return [f"{_named(yarn, SCALES)} read otherwise: {compare_m('', m, theirs)}"]


def _named(yarn: YaRN, names: tuple[str, ...]) -> str:
    keys = [f"{name} = {getattr(yarn, name):g}" for name in names if getattr(yarn, name) is not None]
    return f"{' and '.join(keys)} {'is' if len(keys) == 1 else 'are'}"


def mscale_keys(engine: str, rope: LayerRope, yarn: YaRN) -> dict[str, float]:
    """mscale and mscale_all_dim that give m = g(mscale) / g(mscale_all_dim); none where g(1) / g(0) does."""
    if rope.softmax != 1:  # DeepSeek, whose softmax needs them as they are
        made = deepseek_m(replace(yarn, attn_factor=None))
        if not math.isclose(made, yarn.m, rel_tol=1e-9):
            raise Refused(
                f"{engine} takes m from mscale and mscale_all_dim, which set the softmax too: m = {made:.4f}, "
                f"and this yarn has {yarn.m:.4f}"
            )
        return own_scales(yarn)
    step, m = mscale(yarn.factor) - 1, yarn.m
    if math.isclose(m, 1 + step, rel_tol=1e-12):
        return {}
    if step == 0:
        raise Refused(f"{engine} has m = 1 for a factor of 1, and this yarn has m = {m:.4f}; use a factor above 1")
    return {"mscale": (m - 1) / step} if m >= 1 else {"mscale": 0.0, "mscale_all_dim": (1 / m - 1) / step}


def own_scales(yarn: YaRN) -> dict[str, float]:
    """The yarn's own mscale and mscale_all_dim, where it has them."""
    return {name: getattr(yarn, name) for name in SCALES if getattr(yarn, name) is not None}


def truncates(yarn: YaRN) -> bool:
    """Whether the bounds of the ramp are whole numbers."""
    return yarn.preset == "transformers" if yarn.truncate is None else yarn.truncate


def truncation(rope: LayerRope, yarn: YaRN, verb: str = "become") -> str:
    """What whole numbers would make of the bounds of the ramp."""
    low, high = (pair_with(turns, rope.plain(), yarn.trained) for turns in (yarn.beta_fast, yarn.beta_slow))
    return f"{low:.4f} and {high:.4f} {verb} {math.floor(low)} and {math.ceil(high)}"


def refuse_bounds(engine: str, rope: LayerRope, yarn: YaRN) -> None:
    """Refuse a yarn whose bounds are no whole numbers, for engines that always truncate."""
    if not truncates(yarn) and yarn.preset != "paper":
        raise Refused(
            f"{engine} always truncates the bounds of yarn: {truncation(rope, yarn, 'would become')}; "
            "use another engine, or truncate=True"
        )
