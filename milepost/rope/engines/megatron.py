"""Megatron-LM: the flags that say a spec. Written only.

    --position-embedding-type rope | yarn | mrope
    --rotary-base                                    a whole number
    --rotary-percent                                 the share of channels that turn; yarn passes over it
    --rotary-interleaved                             neighbouring channels are pairs; not with yarn
    --rotary-seq-len-interpolation-factor            linear, by a whole number
    --use-rope-scaling --rope-scaling-factor         llama3, with 1 and 4 turns over 8192 tokens and no others
    --rotary-scaling-factor, --yarn-..., --mscale    yarn: m = g(mscale) / g(mscale_all_dim), g(k) = 0.1 k ln s + 1
    --no-rope-freq                                   layers that do not turn

So a base of 40889.94 (ntk, d = 128, s = 4) has no flag, nor have dynamic, longrope, proportional, or two ropes in one
model. What was measured is megatron-core's GPTModel with these settings. Whether a flag reaches it is up to the scripts
of Megatron-LM, which are not in the wheel: `REACHES` has the first tag whose pretrain_gpt.py passes it on (read, not
run).
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from milepost.rope.engines.engine import Engine
from milepost.rope.engines.written import Refused, Written
from milepost.rope.engines.yarn import deepseek_m, mscale_keys, truncates
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import NTK, Dynamic, LargerBase, Linear, Llama3, YaRN

LLAMA3 = (8192, 1.0, 4.0)
"""The trained length and the turns that --use-rope-scaling has."""

REACHES = {
    "--rotary-seq-len-interpolation-factor": ("core_v0.18.0", "before, it is passed over, silently"),
    "--rope-scaling-factor": ("core_v0.19.0", "before, the factor is 8, silently"),
    "--yarn-beta-fast": ("core_v0.19.0", "before, --position-embedding-type yarn stops it"),
}
"""Flags that older scripts do not pass on: the first tag that does, and what those before do."""


class Megatron(Engine):
    """Megatron-LM."""

    name, title, package = "megatron", "Megatron", "megatron-core"
    reads = False

    def _write(self, spec: RopeSpec) -> Written:
        """The flags that mean ``spec``."""
        rope = self.one_rope(spec)
        scaling = rope.scaling
        flags: dict[str, str] = {"--position-embedding-type": "rope", "--kv-channels": str(rope.head_dim)}
        if spec.served is not None:
            flags["--max-position-embeddings"] = str(spec.served)
        larger = isinstance(scaling, LargerBase | NTK) or (isinstance(scaling, Dynamic) and scaling.length is not None)
        flags["--rotary-base"] = _whole_base(rope, rope.spectrum().base if larger else rope.base)
        flags |= _shape(rope) | ({} if larger or scaling is None else _scaling(rope)) | _still(spec)
        words = [word for name, value in flags.items() for word in (name, *value.split())]
        notes = [
            f"pretrain_gpt.py passes {name} on since {tag}: {before}"
            for name, (tag, before) in REACHES.items()
            if name in flags and (name, flags[name]) != ("--rope-scaling-factor", "8.0")
        ]
        return self.proved(spec, Written(self.name, {}, shlex.join(words), tuple(notes)), lambda: _meaning(flags, spec))


def _whole_base(rope: LayerRope, base: float) -> str:
    if base == int(base):
        return str(int(base))
    near = round(base)
    slowest = abs((near / base) ** ((2 - rope.rotary) / rope.rotary) - 1)
    raise Refused(
        f"--rotary-base is a whole number, and this base is {base:.10g}: {near} would turn the slowest pair "
        f"{slowest:.1e} of its frequency off; if that will do, export larger_base(base={near})"
    )


def _shape(rope: LayerRope) -> dict[str, str]:
    flags = {}
    if rope.softmax != 1:
        raise Refused(
            f"multi-latent attention multiplies its softmax scale by {rope.softmax:.4f} from the model's own settings: "
            "set --multi-latent-attention, --rope-type yarn, --mscale and --mscale-all-dim as the model was trained"
        )
    if rope.rotary != rope.head_dim:
        flags["--rotary-percent"] = repr(rope.rotary / rope.head_dim)
    if rope.pairing == "interleaved":
        flags["--rotary-interleaved"] = ""
    if rope.sections is not None:
        if rope.scaling is not None or rope.sections_interleaved or len(rope.sections) != 3:
            raise Refused(
                "Megatron has M-RoPE with three sections one after the other, and without scaling; this has "
                f"{list(rope.sections)}, {rope.scaling!r}"
            )
        flags |= {"--position-embedding-type": "mrope", "--mrope-section": " ".join(str(n) for n in rope.sections)}
    return flags


def _scaling(rope: LayerRope) -> dict[str, str]:
    scaling = rope.scaling
    if isinstance(scaling, Linear):
        if scaling.factor != int(scaling.factor):
            raise Refused(
                f"--rotary-seq-len-interpolation-factor is a whole number, and the factor is {scaling.factor:g}; "
                "extend by a whole one"
            )
        return {"--rotary-seq-len-interpolation-factor": str(int(scaling.factor))}
    if isinstance(scaling, Llama3):
        if (scaling.trained, scaling.low_freq_factor, scaling.high_freq_factor) != LLAMA3:
            raise Refused(
                "--use-rope-scaling is llama3 with 1 and 4 turns over 8192 tokens, and this has "
                f"{scaling.low_freq_factor:g} and {scaling.high_freq_factor:g} turns over {scaling.trained}; "
                "no flag changes them"
            )
        return {"--use-rope-scaling": "", "--rope-scaling-factor": repr(scaling.factor)}
    if isinstance(scaling, YaRN):
        return _yarn(rope, scaling)
    if isinstance(scaling, Dynamic):
        fixed = replace(scaling, length=2 * scaling.trained)
        base = replace(rope, scaling=fixed).spectrum().base
        raise Refused(f"Megatron has no dynamic NTK; fix the length, {fixed!r}, which is the base {base:.10g}")
    raise Refused(f"Megatron has no flags for {type(scaling).__name__}: it has linear, llama3, yarn and a larger base")


def _yarn(rope: LayerRope, yarn: YaRN) -> dict[str, str]:
    if rope.pairing != "half" or rope.rotary != rope.head_dim:
        raise Refused(
            f"Megatron's yarn turns the whole head in halves; this has {rope.rotary} of {rope.head_dim} channels, "
            f"pairs {rope.pairing}"
        )
    if yarn.preset == "paper":
        raise Refused(f"Megatron's ramp is over pairs, and {yarn!r} has one over turns; use a yarn without preset")
    rounding = "--yarn-correction-range-round-to-int" if truncates(yarn) else "--no-yarn-correction-range-round-to-int"
    ms = {"mscale": 1.0, "mscale_all_dim": 0.0, **mscale_keys("Megatron", rope, yarn)}
    return {
        "--position-embedding-type": "yarn",
        "--rotary-scaling-factor": repr(yarn.factor),
        "--yarn-original-max-position-embeddings": str(yarn.trained),
        "--yarn-beta-fast": repr(yarn.beta_fast),
        "--yarn-beta-slow": repr(yarn.beta_slow),
        "--mscale": repr(ms["mscale"]),
        "--mscale-all-dim": repr(ms["mscale_all_dim"]),
        rounding: "",
    }


def _still(spec: RopeSpec) -> dict[str, str]:
    """Layers that do not turn: every n-th, or a list of 0 and 1."""
    still = {kind for kind, rope in spec.kinds if rope is None}
    pattern = [int(kind in still) for kind in spec.layers]
    if not any(pattern):
        return {}
    n = pattern.index(1) + 1
    every = len(pattern) % n == 0 and pattern == [int((i + 1) % n == 0) for i in range(len(pattern))]
    return {"--no-rope-freq": str(n) if every and n > 1 else str(pattern).replace(" ", "")}


def _meaning(flags: dict[str, str], spec: RopeSpec) -> RopeSpec:
    """What Megatron makes of the flags."""
    scaling: Any = None
    kind = flags["--position-embedding-type"]
    if "--rotary-seq-len-interpolation-factor" in flags:
        scaling = Linear(float(flags["--rotary-seq-len-interpolation-factor"]))
    if "--use-rope-scaling" in flags:
        scaling = Llama3(float(flags["--rope-scaling-factor"]), *LLAMA3)
    if kind == "yarn":
        over, under = float(flags["--mscale"]), float(flags["--mscale-all-dim"])
        fast, slow = float(flags["--yarn-beta-fast"]), float(flags["--yarn-beta-slow"])
        truncate = "--yarn-correction-range-round-to-int" in flags
        yarn = YaRN(
            float(flags["--rotary-scaling-factor"]),
            int(flags["--yarn-original-max-position-embeddings"]),
            fast,
            slow,
            truncate=truncate,
        )
        scaling = replace(yarn, attention_factor=deepseek_m(replace(yarn, mscale=over, mscale_all_dim=under)))
    head = int(flags["--kv-channels"])
    sections = tuple(int(n) for n in flags["--mrope-section"].split()) if kind == "mrope" else None
    pairing: Any = "interleaved" if "--rotary-interleaved" in flags else "half"
    rope = LayerRope(
        head,
        float(flags["--rotary-base"]),
        int(head * float(flags.get("--rotary-percent", "1"))),
        pairing,
        scaling,
        sections=sections,
    )
    return replace(spec, kinds=tuple((name, None if other is None else rope) for name, other in spec.kinds))
