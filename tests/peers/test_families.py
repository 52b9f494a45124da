"""Every family against transformers' own code: a tiny model of each type runs, and every call of its rotary function is
watched.

What it turns, and how, must be what our reading of its config says: the frequencies, the factor on cos and sin, which
layers turn, which channels are a pair. Logits are compared, so that code may order channels as it likes.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from milepost.encodings.rope import RoPE
from milepost.rope import ConfigError, RopeSpec
from milepost.rope.config.families import FAMILIES, NOT_HELD, NOT_ROTARY, RUN
from milepost.rope.engines.parity import differences

transformers = importlib.import_module("transformers")
CONFIGS = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
transformers.logging.set_verbosity_error()

LENGTH, FIRST, CLOSE = 7, 300, 1e-6
NOT_THERE = {"exaone", "internlm", "internlm2", "yi", "kimi_k2"}
"""Model types whose code comes with the checkpoint."""
HERE = sorted(set(FAMILIES) - NOT_THERE - set(RUN))
SIZES = {
    "hidden_size": 64,
    "n_embd": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 6,
    "n_layer": 6,
    "num_attention_heads": 4,
    "n_head": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "kv_channels": 16,
    "vocab_size": 40,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_num_experts": 4,
    "moe_k": 2,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "rotary_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 4,
    "shared_expert_intermediate_size": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "num_shared_experts": 1,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 40,
    "laurel_rank": 8,
    "num_kv_shared_layers": 0,
    "ffn_hidden_size": 32,
    "expert_ffn_hidden_size": 16,
    "moe_topk": 2,
    "zero_expert_num": 0,
    "mamba_d_state": 8,
    "mamba_n_heads": 4,
    "mamba_d_ssm": 64,
    "mamba_headdim": 16,
    "num_kv_heads": 4,
    "lru_width": 64,
    "num_mem_blocks": 1,
    "intermediate_size_mlp": 32,
    "shared_intermediate_size": 16,
    "num_layers": 3,
    "first_k_dense_replace": 1,
    "cross_attention_layers": [],
    "max_window_layers": 2,
}
SECTIONS = {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]}}
OWN: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {
        "position_embedding_type": "rope",
        "layer_types": ["linear_attention", "full_attention"] * 3,
        "mamba_d_head": 32,
    },
    "zamba2": {"use_mem_rope": True, "layers_block_type": ["linear_attention", "hybrid"] * 3},
    "phi4_multimodal": {
        "vision_config": {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "crop_size": 28,
            "image_size": 28,
        },
        "audio_config": {
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_blocks": 1,
            "num_attention_heads": 2,
            "ext_pw_out_channel": 16,
            "nemo_conv_channels": 16,
        },
    },
    "bamba": {"attn_layer_indices": [1, 4], "mamba_d_head": 32},
    "lfm2": {"full_attn_idxs": [2, 5]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 3},
    **dict.fromkeys(
        ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text", "glm4v_text"), SECTIONS
    ),
    "qwen3_omni_moe_text": SECTIONS,
    "hunyuan_vl_text": {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 2, 2]}},
    "glm4v_moe_text": {
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}
    },
}
"""What a tiny model of a type needs besides, and layers of every kind."""
CLASSES = {
    "mllama_text_model": "MllamaTextModel",
    "qwen2_5_omni_text": "Qwen2_5OmniThinkerTextModel",
    "qwen3_omni_moe_text": "Qwen3OmniMoeThinkerTextModel",
}
"""Text models that AutoModel does not make."""


def tiny(model_type: str, **more: Any) -> Any:
    """A config of a few small layers."""
    made = CONFIGS[model_type]
    made = getattr(made, "sub_configs", {}).get("text_config", made)
    wanted = {**SIZES, **OWN.get(model_type, {}), **more}
    names = set(inspect.signature(made).parameters) | set(OWN.get(model_type, {})) | set(more)
    if "qk_rope_head_dim" in names:
        wanted |= {"num_key_value_heads": 4, "head_dim": 8}
    return made(**copy.deepcopy({name: value for name, value in wanted.items() if name in names}))


def build(model_type: str, config: Any) -> Any:
    """A model with random weights."""
    torch.manual_seed(0)
    if model_type in CLASSES:
        module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
        config._attn_implementation = "eager"
        return getattr(module, CLASSES[model_type])(config).eval()
    return transformers.AutoModel.from_config(config, attn_implementation="eager").eval()


class Watch:
    """What every layer gave to its rotary function, and got back."""

    def __init__(self) -> None:
        self.layer: int | None = None
        self.calls: dict[int | None, list[tuple[torch.Tensor, torch.Tensor]]] = defaultdict(list)

    def wrap(self, function: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            out = function(*args, **kwargs)
            for given, got in zip(args, out if isinstance(out, tuple) else (out,), strict=False):
                self.calls[self.layer].append((given.detach().clone(), got.detach().clone()))
            return out

        return watched


@contextmanager
def watched(model: Any) -> Iterator[Watch]:
    """Rotary functions of the model's module, and the numbers of layers that call them."""
    watch, module = Watch(), sys.modules[type(model).__module__]
    names = [
        n
        for n, f in vars(module).items()
        if inspect.isfunction(f)
        and n in ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb")
    ]
    kept = {name: getattr(module, name) for name in names}
    hooks = []
    for part in model.modules():
        number = getattr(part, "layer_idx", None)
        if isinstance(number, int):
            hooks.append(part.register_forward_pre_hook(lambda *_, number=number: setattr(watch, "layer", number)))
        elif "Indexer" in type(part).__name__:
            hooks.append(part.register_forward_pre_hook(lambda *_: setattr(watch, "layer", None)))
    try:
        for name, function in kept.items():
            setattr(module, name, watch.wrap(function))
        yield watch
    finally:
        for name, function in kept.items():
            setattr(module, name, function)
        for hook in hooks:
            hook.remove()


def rows(x: torch.Tensor) -> torch.Tensor:
    """The first head of the first row, as (length, channels), in float64."""
    return (x[0, 0] if x.shape[2] == LENGTH else x[0, :, 0]).double()


def run(model: Any) -> Watch:
    """The calls of a model that reads some tokens at positions from 300 on."""
    with watched(model) as watch, torch.no_grad():
        model(input_ids=torch.arange(3, 3 + LENGTH)[None], position_ids=torch.arange(FIRST, FIRST + LENGTH)[None])
    return watch


def tables(model: Any) -> dict[str, tuple[torch.Tensor, float]]:
    """The frequencies and the factor on cos and sin of a model's rotary modules, by kind of layer."""
    found = {}
    for part in model.modules():
        for name, table in part.named_buffers(recurse=False):
            if name.endswith("inv_freq") and "original" not in name:
                kind = name.removesuffix("inv_freq").rstrip("_")
                found[kind or "all"] = (
                    table.double(),
                    float(getattr(part, f"{kind}_attention_scaling" if kind else "attention_scaling", 1.0)),
                )
    return found


def plain(config: Any) -> dict[str, Any]:
    """A config as config.json has it."""
    return {key: value for key, value in config.to_dict().items() if key != "quantization_config"}


def logits(rope: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Our logits for what the rotary function was given: whole heads, or the part that turns."""
    size = q.shape[-1]
    assert size in (rope.head_dim, rope.rotary), "the code turns another part of the head"
    enc = RoPE(size, rope.base, rope.pairing, None if size == rope.rotary else rope.rotary, scaling=rope.scaling)
    pos = torch.arange(FIRST, FIRST + LENGTH)
    q, k = enc.query(q[None, None], pos), enc.key(k[None, None], pos)
    return q[0, 0] @ k[0, 0].T


@pytest.mark.parametrize("model_type", HERE)
def test_a_family_turns_what_its_own_code_turns(model_type: str) -> None:
    config = tiny(model_type)
    spec = RopeSpec.from_config(plain(config))
    model = build(model_type, config)

    # the same frequencies and the same factor, in float32
    theirs = tables(model)
    for kind, (table, factor) in theirs.items():
        rope = spec.main if kind == "all" else dict(spec.kinds)[kind]
        assert rope is not None
        ours = rope.spectrum(1)
        assert torch.allclose(ours.tensor(), table, rtol=CLOSE, atol=0)
        assert math.isclose(ours.temperature, factor**2, rel_tol=CLOSE)
    assert theirs or model_type in ("gptj", "codegen")  # which keep cos and sin

    # every layer turns, or does not, as the spec has it; and its logits are ours
    calls = run(model).calls
    if model_type == "longcat_flash":  # attends twice a layer
        calls = {n // 2: calls[n] for n in sorted(calls)}
    turning = [n for n in range(len(spec.layers)) if spec.layer(n) is not None]
    if not FAMILIES[model_type].note and set(calls) <= {
        None,
        -1,
    }:  # code that does not number its layers: calls in their order
        (every,) = calls.values()
        calls = {n: every[2 * i : 2 * i + 2] for i, n in enumerate(turning)}
        assert len(every) == 2 * len(turning)
    assert sorted(n for n in calls if n is not None) == turning
    for n in turning:
        rope = spec.layer(n)
        (q, q_turned), (k, k_turned) = calls[n][:2]
        want = rows(q_turned) @ rows(k_turned).T
        got = logits(rope, rows(q), rows(k))
        # an angle near 300 is off by 300 * 2^-24 in float32 (and w by as much again), a sum over channels by the norms
        size = rows(q).norm(dim=-1).max() * rows(k).norm(dim=-1).max() * spec.main.spectrum(1).temperature
        assert (want - got).abs().max() < 4 * (FIRST + LENGTH) * 2**-24 * size
        other = logits(rope_with(rope, "half" if rope.pairing == "interleaved" else "interleaved"), rows(q), rows(k))
        assert (want - other).abs().max() > 1e-3 * size  # the wrong pairing shows


def rope_with(rope: Any, pairing: str) -> Any:
    made = copy.copy(rope)
    object.__setattr__(made, "pairing", pairing)
    return made


@pytest.mark.parametrize("model_type", HERE)
def test_what_a_config_leaves_out_is_what_transformers_takes(model_type: str) -> None:
    """Without any word about rope, and with a share."""
    config = tiny(model_type)
    whole = plain(config)
    words = ("rope_parameters", "rope_theta", "rope_scaling", "partial_rotary_factor")
    bare = {key: value for key, value in whole.items() if key not in words}
    sections = OWN.get(model_type, {}).get("rope_parameters", {})
    full, left = RopeSpec.from_config(whole), RopeSpec.from_config(bare)
    assert [d for d in differences(full, left) if not (sections and d.what == "M-RoPE sections")] == []
    assert all(
        "not in the config" in source or "model type's rope_parameters" in source
        for key, source in left.sources.items()
        if key.endswith("base")
    )


SHARES = [
    n
    for n in HERE
    if not (FAMILIES[n].by_kind or FAMILIES[n].softmax or FAMILIES[n].rotary or "rope_parameters" in OWN.get(n, {}))
]
"""Families that can be asked for a share of the head: of kinds, of a part of its own and of sections there are tests
elsewhere.
"""


@pytest.mark.parametrize("model_type", SHARES)
def test_a_share_is_read_where_the_code_reads_it_and_refused_elsewhere(model_type: str) -> None:
    family = FAMILIES[model_type]
    config = plain(tiny(model_type))
    config["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25 if family.share == 0.5 else 0.5,
    }
    theirs = type(tiny(model_type))(
        **{key: value for key, value in config.items() if key not in ("model_type", "transformers_version")}
    )
    size = next(iter(tables(build(model_type, theirs)).values()))[0].numel() * 2
    if family.turns_part:
        assert RopeSpec.from_config(config).main.rotary == size < RopeSpec.from_config(config).main.head_dim
    else:
        with pytest.raises(
            ConfigError,
            match=r"partial_rotary_factor asks for \d+ of \d+ channels, and transformers' .* turns whole heads",
        ):
            RopeSpec.from_config(config)
        assert (
            RopeSpec.from_config(config, allow_unknown=True).main.rotary
            == size
            == RopeSpec.from_config(config, allow_unknown=True).main.head_dim
        )


MLA = sorted(name for name in HERE if FAMILIES[name].softmax)


@pytest.mark.parametrize("model_type", MLA)
def test_mscale_all_dim_acts_on_the_softmax_where_the_code_has_it(model_type: str) -> None:
    yarn = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
    }
    config = tiny(model_type, rope_parameters=yarn, max_position_embeddings=4096)
    attention = next(
        part
        for part in build(model_type, config).modules()
        if hasattr(part, "qk_head_dim") and hasattr(part, "scaling")
    )
    softmax = RopeSpec.from_config(plain(config)).main.softmax
    assert math.isclose(attention.scaling * attention.qk_head_dim**0.5, softmax, rel_tol=1e-9)
    assert softmax > 1


def test_every_family_is_held_to_its_code_or_comes_with_a_checkpoint() -> None:
    assert set(HERE) <= set(CONFIGS.keys())
    assert not NOT_THERE & set(CONFIGS.keys())
    assert len(HERE) >= 90


@pytest.mark.parametrize(
    "model_type",
    sorted((set(NOT_HELD) | {"jamba", "nemotron_h", "zamba", "kimi_linear", "bloom", "gpt2"}) & set(CONFIGS.keys())),
)
def test_what_is_not_held_is_refused(model_type: str) -> None:
    config = CONFIGS[model_type]().to_dict()
    with pytest.raises(ConfigError, match=r"no rotary positions|can't hold"):
        RopeSpec.from_config(config)
    assert model_type in NOT_HELD or model_type in NOT_ROTARY


@pytest.mark.parametrize(
    "name",
    sorted(
        set(HERE) - {"bamba", "granitemoehybrid", "zamba2", "gemma4_text", "gemma4_unified_text", "gptj", "codegen"}
    ),
)
def test_a_head_size_that_is_not_said_is_the_one_that_the_code_has(name):
    """For some families that is hidden_size / num_attention_heads, for others a number of the family's: 336 / 7 = 48
    tells them apart.
    """
    sizes = {"hidden_size": 336, "num_attention_heads": 7, "num_key_value_heads": 7}
    config = CONFIGS[name](**sizes)
    theirs = getattr(config, "qk_rope_head_dim", None) or getattr(config, "head_dim", None) or 336 // 7
    ours = RopeSpec.from_config(
        {"model_type": name, "max_position_embeddings": 4096, "num_hidden_layers": 12, **sizes}, allow_unknown=True
    )
    assert ours.main.head_dim == theirs, ours.sources["head_dim"]
