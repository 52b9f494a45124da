"""Megatron on the CPU: the flags that milepost printed go into megatron-core's own GPTModel, which is run on a text.

Each layer's rotation is what its attention calls: `apply_rotary_pos_emb` with the model's own embedding. The calls are
noted and passed on, and nothing else is changed.

Stand-ins: torch.cuda.current_device (the CPU); the GPU's random numbers, for dropout; the parser of flags, which is in
Megatron-LM's scripts and not in the wheel: a flag goes to the argument of GPTModel or TransformerConfig that has its
name, those of yarn as `_apply_yarn_config_from_args` of the scripts has it since June 2026.
"""

# ruff: noqa: E402

from __future__ import annotations

import shlex
import tempfile
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

torch.cuda.current_device = lambda: torch.device("cpu")

from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer import attention as attention_module
from probe import Layer, run, softmax_over

APPLY = attention_module.apply_rotary_pos_emb
NOTED: list[tuple[Any, ...]] = []
HEADS = 2
FLOATS = {"rotary_scaling_factor": "yarn_rotary_scaling_factor", "yarn_beta_fast": "yarn_beta_fast",
          "yarn_beta_slow": "yarn_beta_slow", "mscale": "yarn_mscale",
          "mscale_all_dim": "yarn_mscale_all_dim"}  # fmt: skip


def _noting(t: torch.Tensor, freqs: torch.Tensor, config: Any, **options: Any) -> torch.Tensor:
    NOTED.append((config, options))
    return APPLY(t, freqs, config, **options)


attention_module.apply_rotary_pos_emb = _noting


def flags_of(text: str) -> dict[str, list[str]]:
    """The flags of a command line, by their names in Python."""
    flags: dict[str, list[str]] = {}
    for word in shlex.split(text):
        if word.startswith("--"):
            flags[word[2:].replace("-", "_")] = []
        else:
            flags[list(flags)[-1]].append(word)
    return flags


def measure(case: dict[str, Any]) -> list[Layer]:
    flags = flags_of(case["text"])
    head, kind = int(flags.pop("kv_channels")[0]), flags.pop("position_embedding_type")[0]
    still = flags.pop("no_rope_freq", None)
    length = int(flags.pop("max_position_embeddings", ["4096"])[0])
    config = TransformerConfig(
        num_layers=case["depth"], hidden_size=HEADS * head, num_attention_heads=HEADS, kv_channels=head,
        use_cpu_initialization=True, rotary_interleaved=flags.pop("rotary_interleaved", None) is not None,
        no_rope_freq=None if still is None else eval(still[0], {}), attention_dropout=0.0, hidden_dropout=0.0,
        mrope_section=[int(n) for n in flags.pop("mrope_section")] if kind == "mrope" else None,
    )  # fmt: skip
    if kind == "yarn":
        for flag, name in FLOATS.items():
            setattr(config, name, float(flags.pop(flag)[0]))
        config.yarn_original_max_position_embeddings = int(flags.pop("yarn_original_max_position_embeddings")[0])
        whole = flags.pop("yarn_correction_range_round_to_int", None) is not None
        config.yarn_correction_range_round_to_int = whole
        flags.pop("no_yarn_correction_range_round_to_int", None)
    options: dict[str, Any] = {"rotary_base": int(flags.pop("rotary_base")[0])}
    if "rotary_percent" in flags:
        options["rotary_percent"] = float(flags.pop("rotary_percent")[0])
    if "rotary_seq_len_interpolation_factor" in flags:
        options["seq_len_interpolation_factor"] = int(flags.pop("rotary_seq_len_interpolation_factor")[0])
    if "use_rope_scaling" in flags:
        flags.pop("use_rope_scaling")
        options |= {"rope_scaling": True, "rope_scaling_factor": float(flags.pop("rope_scaling_factor")[0])}
    if flags:
        raise ValueError(f"no argument of GPTModel has the name of --{next(iter(flags)).replace('_', '-')}")
    model = GPTModel(config, get_gpt_layer_local_spec(), 64, length, position_embedding_type=kind, **options)
    return _layers(model, config, kind, head)


def _layers(model: Any, config: Any, kind: str, head: int) -> list[Layer]:
    """The layers, from which of them called the rotation while the model was run."""
    calls: list[int] = []
    for layer in model.decoder.layers:
        layer.register_forward_hook(lambda *_: calls.append(len(NOTED)))
    NOTED.clear()
    tokens = torch.tensor([[3, 4, 5]])
    positions = torch.arange(3)[None]
    where = positions.expand(3, 1, 3) if kind == "mrope" else positions
    with torch.no_grad():
        model(tokens, where, torch.ones(1, 1, 3, 3, dtype=torch.bool).triu(1))
    layers, before = [], 0
    for layer, after in zip(model.decoder.layers, calls, strict=True):
        scale = layer.self_attention.core_attention.softmax_scale
        softmax = softmax_over(float(scale), head)
        options = NOTED[before][1] if after > before else None
        layers.append(Layer(None) if options is None else Layer(_turn(model, config, kind, options), head, softmax))
        before = after
    return layers


def _turn(model: Any, config: Any, kind: str, options: dict[str, Any]) -> Any:
    options = {name: value for name, value in options.items() if name == "mscale"}

    def turn(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
        rows = torch.tensor(np.ascontiguousarray(x))[None, None]  # tokens, batch, heads, channels
        with torch.no_grad():
            if kind == "mrope":
                freqs = model.rotary_pos_emb(torch.full((3, 1, 1), position), model.mrope_section)
            else:
                freqs = model.rotary_pos_emb(1, position)
            freqs = freqs[0] if isinstance(freqs, tuple) else freqs
            return APPLY(rows, freqs, config, **options)[0, 0].numpy()

    return turn


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{tempfile.mktemp()}", world_size=1, rank=0)
    parallel_state.initialize_model_parallel(1, 1)
    tensor_parallel.random.CudaRNGStatesTracker.fork = lambda *args: nullcontext()
    run(measure)
