"""onnxruntime-genai: what its builder reads, and what can be said in its words; the measured file has the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milepost.rope import ConfigError, as_read_by, export, read
from milepost.rope.engines.parity import differences
from milepost.rope.engines.written import Refused
from milepost.rope.spec import RopeSpec
from milepost.scaling import NTK, LargerBase, Linear, Llama3, Scaling, YaRN

NAME = "onnxruntime-genai"
SIZES = {"head_dim": 128, "hidden_size": 256, "num_attention_heads": 2, "max_position_embeddings": 16384}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 10000.0}
BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}


def spec(model: str, scaling: Scaling | None) -> RopeSpec:
    plain = read({"model_type": model, **SIZES, "rope_theta": 500000.0})
    return replace(plain, kinds=(("all", replace(plain.main, scaling=scaling)),), trained=4096)


@pytest.mark.parametrize(
    ("model", "scaling"),
    [
        ("llama", None),
        ("llama", Llama3(4.0, 4096)),
        ("llama", NTK(4.0)),
        ("qwen2", Linear(4.0)),
        ("mistral", LargerBase(7654321.0)),
        ("qwen2", YaRN(4.0, 4096, truncate=False)),
        ("mistral", YaRN(4.0, 4096, truncate=False, attention_factor=0.8)),
        ("qwen3", YaRN(4.0, 4096, truncate=False, beta_fast=16.0, beta_slow=2.0)),
    ],
)
def test_what_it_can_say_comes_back(model: str, scaling: Scaling | None) -> None:
    asked = spec(model, scaling)
    written = export(asked, NAME)
    assert written.version == "0.18.0"
    assert differences(asked, as_read_by(NAME, dict(written.config))) == []


@pytest.mark.parametrize(
    ("model", "scaling", "why"),
    [
        ("llama", Linear(4.0), r"reads no scaling but llama3 in its llama: linear\(factor=4.0\) is dropped, silently"),
        ("llama", YaRN(4.0, 4096, truncate=False), "reads no scaling but llama3 in its llama"),
        ("qwen2", YaRN(4.0, 4096), "frequency of pair"),  # with bounds that are truncated, which it never does
        ("mistral", Llama3(4.0, 4096), "stops at rope type llama3 in its mistral"),
        ("smollm3", None, "stops at rope type default in its smollm3"),
    ],
)
def test_what_it_can_not_say_is_refused(model: str, scaling: Scaling | None, why: str) -> None:
    with pytest.raises(Refused, match=why):
        export(spec(model, scaling), NAME)


def test_what_it_makes_of_yarn() -> None:
    """Without betas it stops; attention_factor is not read; mscale alone is m itself."""
    config = {"model_type": "qwen2", **SIZES}
    with pytest.raises(ConfigError, match="write beta_fast = 32, beta_slow = 1"):
        as_read_by(NAME, {**config, "rope_parameters": YARN})
    for keys, m in (({}, 1.1386294), ({"attention_factor": 1.0}, 1.1386294), ({"mscale": 0.7}, 0.7)):
        made = as_read_by(NAME, {**config, "rope_parameters": {**YARN, **BETAS, **keys}})
        assert made.main.temperature() ** 0.5 == pytest.approx(m, rel=1e-6)
        assert isinstance(made.main.scaling, YaRN) and made.main.scaling.truncate is False
    llama = as_read_by(NAME, {"model_type": "llama", **SIZES, "rope_parameters": {**YARN, **BETAS}})
    assert llama.main.scaling is None and "dropped, silently" in llama.notes[0]
