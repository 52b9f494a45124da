"""torchtitan: the RoPE.Config that says a spec. Written only.

    ComplexRoPE   turns neighbouring channels (interleaved): no scaling, llama3, yarn
    CosSinRoPE    turns halves: no scaling, yarn

Both turn the whole head, and are pure rotations: m is no part of them. What a yarn does to the logits goes into the
model's softmax scale, times m^2 (1.2965 for s = 4); the note says the number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from milepost.rope.engines.engine import Engine
from milepost.rope.engines.written import Refused, Written
from milepost.rope.engines.yarn import truncates
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import NTK, LargerBase, Llama3, YaRN

LENGTH = {"0": "max_seq_len"}
"""The argument of RoPE.Config that says the length, by the first version that has it. Its main branch has
max_context_length since August 2026, and no release has that yet."""


class Torchtitan(Engine):
    """torchtitan."""

    name = title = package = "torchtitan"
    reads = False

    def _write(self, spec: RopeSpec) -> Written:
        """The call of RoPE.Config that means ``spec``."""
        rope = self.one_rope(spec)
        if rope.rotary != rope.head_dim or rope.sections is not None:
            part = f"{rope.rotary} of {rope.head_dim} channels"
            if rope.sections is not None:
                part = f"sections {list(rope.sections)}"
            raise Refused(f"torchtitan's RoPE turns the whole head by one position, and this has {part}")
        if spec.served is None:
            raise Refused(
                f"torchtitan's RoPE needs {self.since(LENGTH)}, and the spec does not say what is served: "
                "dataclasses.replace(spec, served=...)"
            )
        name = "ComplexRoPE" if rope.pairing == "interleaved" else "CosSinRoPE"
        keys = {"dim": rope.head_dim, self.since(LENGTH): spec.served, **_keys(self.settled(rope, spec))}
        notes = []
        scale = rope.temperature(spec.served)
        if rope.softmax != 1 and scale != rope.softmax:
            raise Refused(
                f"a rotation of torchtitan has no m, and here m^2 = {scale / rope.softmax:.6f} is for the channels "
                "that turn alone, not for the softmax"
            )
        if scale != 1:
            notes.append(f"the rotation is pure: multiply the model's softmax scale by {scale:.6f}")
        still = [kind for kind, other in spec.kinds if other is None]
        if still:
            notes.append(f"layers of kind {', '.join(still)} do not turn: they get no rope")
        text = f"{name}.Config({', '.join(f'{key}={value!r}' for key, value in keys.items())})"
        written = Written(self.name, {}, text, tuple(notes))
        return self.proved(spec, written, lambda: _meaning(name, keys, scale, spec))


def _keys(rope: LayerRope) -> dict[str, Any]:
    """theta, and the arguments of the scaling."""
    scaling = rope.scaling
    if scaling is None or isinstance(scaling, LargerBase | NTK):
        return {"theta": rope.spectrum().base}
    if isinstance(scaling, Llama3):
        if rope.pairing == "half":
            raise Refused(
                "torchtitan has llama scaling in ComplexRoPE only, which turns neighbouring channels, and this model's "
                "pairs are halves: permute the rows of q and k (torchtitan does, when it loads a Llama), and export "
                "with pairing='interleaved'"
            )
        return {
            "theta": rope.base,
            "scaling": "llama",
            "scaling_factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.trained,
        }
    if isinstance(scaling, YaRN) and scaling.preset != "paper":
        return {
            "theta": rope.base,
            "scaling": "yarn",
            "rope_factor": scaling.factor,
            "beta_fast": scaling.beta_fast,
            "beta_slow": scaling.beta_slow,
            "original_seq_len": scaling.trained,
            "truncate": truncates(scaling),
        }
    raise Refused(
        f"torchtitan has no {type(scaling).__name__}: it has llama3, yarn and a larger theta; extend with one of those"
    )


def _meaning(name: str, keys: dict[str, Any], scale: float, spec: RopeSpec) -> RopeSpec:
    """What torchtitan makes of the call, with its softmax scale multiplied."""
    scaling: Any = None
    if keys.get("scaling") == "llama":
        scaling = Llama3(
            keys["scaling_factor"],
            keys["original_max_position_embeddings"],
            keys["low_freq_factor"],
            keys["high_freq_factor"],
        )
    if keys.get("scaling") == "yarn":
        betas = keys["beta_fast"], keys["beta_slow"]
        scaling = YaRN(
            keys["rope_factor"], keys["original_seq_len"], *betas, truncate=keys["truncate"], attention_factor=1.0
        )
    rope = LayerRope(
        keys["dim"],
        keys["theta"],
        keys["dim"],
        "interleaved" if name == "ComplexRoPE" else "half",
        scaling,
        softmax=scale,
    )
    return replace(spec, kinds=tuple((kind, None if other is None else rope) for kind, other in spec.kinds))
