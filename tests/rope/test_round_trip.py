"""Config -> spec -> engine's words -> spec: the same table, in every engine that is read and can express it (fault
S15).

Every model below, as it is and with every scaling: an engine either says it, and is read back as the same table, or is
in the
list of those that can't. So a refusal too many is seen as well as one too few.
"""

import json
import shlex
from dataclasses import replace

import pytest

from milepost.rope import ENGINES, RopeSpec, as_read_by, export, read
from milepost.rope.engines.parity import differences
from milepost.rope.engines.written import Refused
from milepost.scaling import (
    NTK,
    Dynamic,
    Hybrid,
    LargerBase,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    Proportional,
    Scaling,
    Staged,
    YaRN,
)

LONG = [1.0 + 0.5 * i for i in range(48)]
MODELS = {
    "llama 2": {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "max_position_embeddings": 4096,
    },
    "codellama": {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 16384, "rope_theta": 1000000},
    "vicuna 16k": {
        "model_type": "llama",
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "llama 3": {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 8192, "rope_theta": 500000.0},
    "llama 3.1": {
        "model_type": "llama",
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "llama 3.2": {
        "model_type": "llama",
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "mistral": {
        "model_type": "mistral",
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "num_hidden_layers": 32,
    },
    "mixtral": {"model_type": "mixtral", "head_dim": 128, "max_position_embeddings": 32768, "rope_theta": 1000000.0},
    "qwen 2.5": {
        "model_type": "qwen2",
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "num_hidden_layers": 28,
    },
    "qwen 2.5 yarn": {
        "model_type": "qwen2",
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rope_theta": 1000000.0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    },
    "qwen 3": {
        "model_type": "qwen3",
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000},
    },
    "qwen 3 moe": {
        "model_type": "qwen3_moe",
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "rope_theta": 10000000,
    },
    "gemma": {"model_type": "gemma", "head_dim": 256, "max_position_embeddings": 8192, "rope_theta": 10000.0},
    "gemma 2": {"model_type": "gemma2", "head_dim": 256, "max_position_embeddings": 8192, "num_hidden_layers": 26},
    "gemma 3": {
        "model_type": "gemma3_text",
        "head_dim": 256,
        "max_position_embeddings": 32768,
        "num_hidden_layers": 12,
        "rope_theta": 1000000,
        "rope_local_base_freq": 10000,
    },
    "phi 2": {"model_type": "phi", "head_dim": 80, "max_position_embeddings": 2048, "partial_rotary_factor": 0.4},
    "phi 3 mini": {"model_type": "phi3", "head_dim": 96, "max_position_embeddings": 4096},
    "pythia": {
        "model_type": "gpt_neox",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "max_position_embeddings": 2048,
        "rotary_pct": 0.25,
    },
    "pythia, all of the head": {
        "model_type": "gpt_neox",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "max_position_embeddings": 2048,
        "rotary_pct": 1.0,
    },
    "stablelm": {
        "model_type": "stablelm",
        "hidden_size": 2560,
        "num_attention_heads": 32,
        "max_position_embeddings": 4096,
        "rope_pct": 0.25,
    },
    "gpt-j": {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_positions": 2048, "rotary_dim": 64},
    "cohere": {"model_type": "cohere", "head_dim": 128, "max_position_embeddings": 8192, "rope_theta": 8000000},
    "cohere 2": {
        "model_type": "cohere2",
        "head_dim": 128,
        "max_position_embeddings": 8192,
        "num_hidden_layers": 8,
        "rope_theta": 50000,
    },
    "glm 4": {
        "model_type": "glm4",
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
    },
    "olmo 2": {"model_type": "olmo2", "head_dim": 128, "max_position_embeddings": 4096, "rope_theta": 500000},
    "smollm 3": {
        "model_type": "smollm3",
        "head_dim": 128,
        "max_position_embeddings": 65536,
        "num_hidden_layers": 8,
        "rope_theta": 5000000.0,
    },
    "starcoder 2": {
        "model_type": "starcoder2",
        "head_dim": 128,
        "max_position_embeddings": 16384,
        "rope_theta": 999999.4420358813,
    },
    "falcon": {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "max_position_embeddings": 2048},
    "granite": {"model_type": "granite", "head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 10000000.0},
    "nemotron": {
        "model_type": "nemotron",
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "partial_rotary_factor": 0.5,
    },
    "deepseek v2": {
        "model_type": "deepseek_v2",
        "qk_rope_head_dim": 64,
        "max_position_embeddings": 163840,
        "rope_theta": 10000,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "original_max_position_embeddings": 4096,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
        },
    },
    "gpt-oss": {
        "model_type": "gpt_oss",
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
    },
    "phi 3 128k": {
        "model_type": "phi3",
        "head_dim": 96,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": LONG},
    },
    "internlm 2": {
        "model_type": "internlm2",
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000,
        "rope_scaling": {"type": "dynamic", "factor": 2.0},
    },
    "proportional": {
        "model_type": "llama",
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rope_parameters": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
    },
}
READERS = [name for name, engine in ENGINES.items() if engine.reads and name != "onnxruntime-genai"]
"""The engines that read configs, but for one that has few scalings: test_onnxruntime_genai.py is about it."""
PAIRS = tuple(1.0 + 0.25 * i for i in range(64))
METHODS = ("base", "linear", "ntk", "ntk_by_parts", "yarn", "llama3")
OWN: dict[str, set[str]] = {
    "vicuna 16k": set(),
    "qwen 2.5 yarn": set(),
    "llama 3.1": {"llama.cpp"},
    "llama 3.2": {"llama.cpp"},
    "proportional": {"llama.cpp", "exllamav3"},
    "deepseek v2": {"llama.cpp", "exllamav3", "transformers-v4"},
    "gpt-oss": {"llama.cpp", "mlx-lm"},
    "phi 3 128k": {"llama.cpp", "mlx-lm", "vllm", "exllamav3"},
    "internlm 2": {"llama.cpp", "mlx-lm", "vllm", "sglang", "exllamav3"},
}
"""Models that come with a scaling, and the engines that can't say it."""
OTHERS: list[tuple[Scaling, set[str]]] = [
    (Hybrid((16, 48), (None, NTK(4.0), Linear(4.0))), {"llama.cpp", "exllamav3"}),
    (YaRN(4.0, 32768, preset="paper"), {"llama.cpp", "mlx-lm", "exllamav3"}),
    (YaRN(4.0, 32768, preset="gpt-oss"), {"llama.cpp", "mlx-lm"}),
    (YaRN(4.0, 32768, beta_fast=16.0, beta_slow=2.0), set()),
    (YaRN(4.0, 32768, mscale=2.0, mscale_all_dim=0.5), {"llama.cpp"}),
    (YaRN(4.0, 32768, attn_factor=0.9), {"llama.cpp"}),
    (NTKByParts(4.0, 32768, form="early"), {"llama.cpp", "exllamav3"}),
    (Llama3(4.0, 32768, 2.0, 9.0), {"llama.cpp"}),
    (LargerBase(7654321.0), set()),
    (Dynamic(32768, 2.0, length=131072), set()),
    (Dynamic(32768, 2.0, length=1024), set()),
    (Dynamic(32768, 2.0), {"llama.cpp", "mlx-lm", "vllm", "sglang", "exllamav3"}),
    (Staged(32768, 2.0), set(READERS)),
    (LongRoPE((1.0,) * 64, PAIRS, 32768, 4.0, length=131072), {"llama.cpp"}),
    (LongRoPE((1.0,) * 64, PAIRS, 32768, 4.0, length=32768), {"llama.cpp", "mlx-lm"}),
    (LongRoPE(PAIRS, PAIRS, 32768, 4.0, attention_factor=1.25), {"llama.cpp", "mlx-lm", "exllamav3"}),
    (LongRoPE(PAIRS, PAIRS, 32768, 1.0), {"llama.cpp", "exllamav3"}),
    (
        LongRoPE((1.0,) * 64, PAIRS, 32768, short_m=1.1, long_m=1.3),
        {"llama.cpp", "mlx-lm", "vllm", "transformers", "transformers-v4", "exllamav3"},
    ),
    (Proportional(0.5, 2.0), {"llama.cpp", "vllm", "sglang", "exllamav3"}),
]
"""Scalings of every kind for 131072 tokens of a model of 32768, and the engines that can't say them."""
M_OF_LENGTHS = r"temperature on logits: .* 1\.13333 \(exllamav3\)"
"""exllamav3 takes the m of longrope from the lengths: m^2 = 1 + ln 4 / ln 32768, whatever attention_factor says."""
NOT_IN_EXLLAMAV3: dict[type[Scaling], str] = {
    Hybrid: M_OF_LENGTHS,
    YaRN: rf"{M_OF_LENGTHS}|1\.58963 \(the spec\), 1 \(exllamav3\)",  # the paper's, as longrope; DeepSeek V2's softmax
    NTKByParts: M_OF_LENGTHS,
    Dynamic: "one base for texts of all lengths",
    Staged: "no engine has it",
    LongRoPE: f"one list of factors for texts of all lengths|{M_OF_LENGTHS}",
    Proportional: "in its Gemma 4 only",
}
"""Why exllamav3 can't say a scaling; what has no rope type is written as longrope."""
ONE_ROPE = {
    "llama.cpp": r"llama\.cpp is one rope for all layers, and sliding_attention differs from the rest; convert",
    "exllamav3": r"sliding_attention differs from the rest; no export with a rope for each kind of layer was run",
}
"""Engines for which one rope is written for all layers, and how they refuse Gemma 3, which has two."""


def back(spec: RopeSpec, engine: str) -> RopeSpec:
    """What the engine makes of what was written for it: of the whole config, and of the text that is pasted."""
    written = export(spec, engine)
    if engine == "llama.cpp":
        plain = tuple((kind, rope and replace(rope, scaling=None)) for kind, rope in spec.kinds)
        return as_read_by(engine, written.text, on=replace(spec, kinds=plain))
    if engine in ("vllm", "sglang"):
        words = shlex.split(written.text)
        overrides = json.loads(words[-1])
        assert int(words[words.index("--max-model-len" if engine == "vllm" else "--context-length") + 1]) == spec.served
        model = {
            name: value
            for name, value in written.config.items()
            if name not in ("rope_parameters", "max_position_embeddings")
        }
        return as_read_by(
            engine, {**model, "rope_parameters": {"rope_type": "default"}, **overrides}, served=spec.served
        )
    assert json.loads(written.text) == written.config
    own = {"head_dim": spec.main.head_dim} if spec.model == "falcon" else {}  # not to be set, in transformers' Falcon
    return as_read_by(engine, {**own, **written.config})


def same(spec: RopeSpec, engine: str, refused: set[str] | None = None) -> None:
    """Two ways round: the engine's reading is the spec, and transformers' words for that reading (where it has any) are
    it too."""
    again = back(spec, engine)
    assert differences(spec, again) == []
    if "transformers" not in (refused or ()):
        assert differences(spec, back(again, "transformers")) == []


@pytest.mark.parametrize("engine", READERS)
@pytest.mark.parametrize("model", [name for name in MODELS if name not in OWN])
def test_plain_models(model: str, engine: str) -> None:
    spec = read(MODELS[model])
    if model == "gemma 3" and engine in ONE_ROPE:
        with pytest.raises(Refused, match=ONE_ROPE[engine]):
            export(spec, engine)
        return
    same(spec, engine)


UNSCALED = {
    "mlx-lm": {
        "mixtral", "gemma", "gemma 2", "phi 2", "pythia", "pythia, all of the head", "stablelm", "gpt-j", "cohere", "glm 4",
        "starcoder 2", "phi 3 mini", "cohere 2",
    },
    "transformers": {"phi 3 mini"},
    "transformers-v4": {"phi 3 mini", "olmo 2", "nemotron"},
    "vllm": {"phi 3 mini"},
    "sglang": {"mixtral", "gemma", "gemma 2", "phi 2", "phi 3 mini", "stablelm", "gpt-j", "starcoder 2"},
}  # fmt: skip
"""Models whose class in an engine passes no scaling on, or stops at all but longrope, as measured."""


@pytest.mark.parametrize("engine", READERS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", [name for name in MODELS if name not in OWN])
def test_extended_models(model: str, method: str, engine: str) -> None:
    plain = read(MODELS[model])
    assert plain.trained is not None
    spec = plain.extended(4 * plain.trained, method)  # type: ignore[arg-type]
    if model == "gemma 3" and engine in ONE_ROPE:
        with pytest.raises(Refused, match=ONE_ROPE[engine]):
            export(spec, engine)
        return
    if engine == "llama.cpp" and (model == "gemma 2" or method in ("ntk_by_parts", "llama3")):
        slides = "no flag reaches the layers of gemma2 that slide"  # they keep the base and scale of the GGUF
        with pytest.raises(Refused, match=slides if model == "gemma 2" else "no flag says"):
            export(spec, engine)
        return
    scaled = method not in ("base", "ntk")
    dropped = scaled and model in UNSCALED.get(engine, ())
    no_base = ("mlx-lm", "sglang", "transformers", "transformers-v4")  # of GPT-J they read no base either
    dropped |= engine in no_base and model == "gpt-j"
    dropped |= engine == "mlx-lm" and model == "nemotron" and method in ("yarn", "llama3", "ntk_by_parts")
    if dropped:
        with pytest.raises(Refused, match=r"passes no scaling on|stops at rope type|does not read the base"):
            export(spec, engine)
        return
    lost = model == "gpt-j" or (scaled and model in UNSCALED["transformers"])
    same(spec, engine, {"transformers"} if lost else None)


@pytest.mark.parametrize("engine", READERS)
@pytest.mark.parametrize(("model", "refused"), OWN.items())
def test_models_with_a_scaling(model: str, refused: set[str], engine: str) -> None:
    spec = read(MODELS[model])
    if engine in refused:
        why = NOT_IN_EXLLAMAV3[type(spec.main.scaling)] if engine == "exllamav3" else None  # type: ignore[index]
        with pytest.raises(Refused, match=why):
            export(spec, engine)
        return
    same(spec, engine)


@pytest.mark.parametrize("engine", READERS)
@pytest.mark.parametrize(("scaling", "refused"), OTHERS)
def test_other_scalings(scaling: Scaling, refused: set[str], engine: str) -> None:
    plain = read(MODELS["qwen 2.5"])
    spec = replace(plain, kinds=(("all", replace(plain.main, scaling=scaling)),), served=131072)
    if engine in refused:
        with pytest.raises(Refused, match=NOT_IN_EXLLAMAV3[type(scaling)] if engine == "exllamav3" else None):
            export(spec, engine)
        return
    same(spec, engine, refused)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "mlx-lm"])
def test_a_list_of_factors_needs_halves(engine: str) -> None:
    plain = read(MODELS["cohere"])
    spec = replace(plain, kinds=(("all", replace(plain.main, scaling=Hybrid((8,), (None, Linear(4.0))))),))
    with pytest.raises(Refused, match=r"passes no scaling on in its cohere" if engine == "mlx-lm" else r"interleaved"):
        export(spec, engine)


@pytest.mark.parametrize("engine", READERS)
@pytest.mark.parametrize("m", [0.5, 0.97, 1.0, 1.1386294361119891, 1.3, 2.0])
def test_every_m_of_yarn(m: float, engine: str) -> None:
    plain = read(MODELS["qwen 2.5"])
    spec = replace(
        plain, kinds=(("all", replace(plain.main, scaling=YaRN(4.0, 32768, attention_factor=m))),), served=131072
    )
    if engine == "llama.cpp" and m != 1.1386294361119891:
        with pytest.raises(Refused, match=r"logits would be x 1\.2965 instead of x"):
            export(spec, engine)
        return
    again = back(spec, engine)
    assert again.main.spectrum().temperature == pytest.approx(m * m, rel=1e-12)
    same(spec, engine)


@pytest.mark.parametrize("engine", [name for name in READERS if name not in (*ONE_ROPE, "transformers-v4")])
def test_kinds_of_layers_survive(engine: str) -> None:
    spec = read(MODELS["gemma 3"]).extended(131072, "linear")
    again = back(spec, engine)
    assert again.layers == spec.layers and set(again.layers) == {"full_attention", "sliding_attention"}
    kinds = again.ropes()
    assert kinds["sliding_attention"].base == 10000 and kinds["sliding_attention"].scaling is None
    assert kinds["full_attention"].base == 1000000 and kinds["full_attention"].scaling == Linear(4.0)


def test_inside_a_model_of_several_modalities() -> None:
    """The override goes where the text model's keys are."""
    spec = read({"model_type": "gemma3", "text_config": MODELS["gemma 3"]})
    overrides = json.loads(shlex.split(export(spec, "vllm").text)[-1])
    assert list(overrides) == ["text_config"] and set(overrides["text_config"]) == {
        "rope_parameters",
        "max_position_embeddings",
    }
