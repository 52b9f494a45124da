"""SGLang on the CPU: its own model class, built by its own loader from its own ModelConfig, with random weights.

Of a command line that milepost printed, --context-length and --json-model-override-args go into SGLang's own
ServerArgs, so that overrides are merged as SGLang merges them. Each layer's rotation is the module that the model
holds; held_ropes.py says how it is found out which layers turn.

Stand-ins: SGLANG_USE_CPU_ENGINE=1; sgl_kernel and flashinfer (kernels; `forward_native` is the same code in torch);
torchvision and torchaudio (empty classes); torch.compile (off); the attention proper; projections (torch's linear);
get_rope_cpu, which only DeepSeek's yarn has on a CPU (get_rope, which GPUs have).
"""

# ruff: noqa: E402

from __future__ import annotations

import contextlib
import gc
import inspect
import logging
import os
import shlex
import sys
import tempfile
import types
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ |= {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1"}

from stand_ins import configs_of_authors, stand_in, wide

STOOD_IN = ("torchvision", "torchaudio", "sgl_kernel", "flashinfer")
stand_in(*STOOD_IN)

import torch
import transformers
from held_ropes import Modules, layer_of_transformers, layers_by_number, transformers_ropes, turn_held, turns
from probe import FAR, Layer, NotMeasured, run, softmax_over
from real_keys import completed, write_folder
from turn_transformers import hf_turn


class Kernels(types.ModuleType):
    """torch.ops.sgl_kernel without kernels: model classes look up some of the CPU's when they are imported."""

    def __getattr__(self, name: str) -> None:
        if not name.endswith("_cpu"):
            raise AttributeError(name)


torch.ops.sgl_kernel = Kernels("sgl_kernel")

from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.layers.rotary_embedding import get_rope, get_rope_wrapper
from sglang.srt.model_loader import loader
from sglang.srt.models.registry import ModelRegistry
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

logging.disable(logging.ERROR)


def _get_rope(*args: Any) -> Any:
    """What GPUs have in place of get_rope_cpu, which DeepSeek's models call on a CPU, with the device at the end."""
    return get_rope(*args[:-1])


get_rope_wrapper.__globals__["get_rope_cpu"] = _get_rope
STARTED = False


def measure(case: dict[str, Any]) -> list[Layer]:
    folder = Path(tempfile.mkdtemp(prefix="model"))
    write_folder(completed(wide(case["config"])), folder)
    words = shlex.split(case.get("command", ""))
    given = {word: words[i + 1] for i, word in enumerate(words) if word.startswith("--") and i + 1 < len(words)}
    length = given.get("--context-length")
    try:
        arguments = ServerArgs(
            model_path=str(folder), device="cpu", dtype="float32", load_format="dummy", skip_tokenizer_init=True,
            attention_backend="triton", disable_cuda_graph=True, disable_radix_cache=True,
            context_length=None if length is None else int(length),
            json_model_override_args=given.get("--json-model-override-args", "{}"),
        )  # fmt: skip
        _publish(arguments)
        config = ModelConfig.from_server_args(arguments)
    except (ValueError, KeyError) as error:
        if "does not recognize this architecture" in str(error) or str(error) == "'ministral3'":
            kind = case["config"].get("text_config", case["config"])["model_type"]
            raise NotMeasured(f"transformers {transformers.__version__}, which it pins, has no {kind}") from None
        raise
    _start(arguments, config)
    get_rope.__globals__["_ROPE_DICT"].clear()
    missing = [name for name in config.hf_config.architectures or [] if name not in ModelRegistry.get_supported_archs()]
    torch.set_default_dtype(torch.float32)
    for name in ("linear_num_key_heads", "linear_num_value_heads"):  # SGLang's CPU engine pads these at its start
        if hasattr(config.hf_text_config, name):
            setattr(config.hf_text_config, f"{name}_cpu", getattr(config.hf_text_config, name))
    try:
        model = loader._initialize_model(config, LoadConfig(load_format="dummy"))
    except Exception as error:
        if missing:
            why = str(error).splitlines()[0]
            raise NotMeasured(f"no model class, and transformers' can't stand in: {why}") from None
        raise
    return layers_of(model)


def _publish(arguments: ServerArgs) -> None:
    """Make the arguments those of this process."""
    try:
        from sglang.srt.runtime_context import SpawnRanks, publish
    except ImportError:  # to 0.5.9
        set_global_server_args_for_scheduler(arguments)
    else:
        publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0))


def _start(arguments: ServerArgs, config: ModelConfig) -> None:
    """The groups of one process that layers ask for."""
    global STARTED  # noqa: PLW0603
    if STARTED:
        return
    from sglang.srt.distributed import parallel_state as groups
    from sglang.srt.layers.dp_attention import initialize_dp_attention

    place = f"file://{tempfile.mktemp()}"
    groups.init_distributed_environment(1, 0, place, 0, "gloo")
    groups.initialize_model_parallel()
    with contextlib.suppress(TypeError):  # later versions publish it
        initialize_dp_attention(arguments, config)
    STARTED = True


def layers_of(model: Any) -> list[Layer]:
    """The layers of the text model, by number."""
    theirs = transformers_ropes(model)
    outer = {name.split(".")[-1]: module for name, module in model.named_modules()
             if name.split(".")[-1] in ("rotary_emb", "rotary_emb_local") and hasattr(module, "inv_freq")}  # fmt: skip
    permuted = any(hasattr(module, "permute_qk_weight_for_rotary") for module in model.modules())
    turn = cache(partial(turn_held, permuted=permuted))
    return [_layer(number, modules, theirs, outer, turn) for number, modules in layers_by_number(model).items()]


def _layer(number: int, modules: Modules, theirs: list[Any], outer: dict[str, Any], turn: Any) -> Layer:
    cores = [m for _, m in modules if isinstance(m, RadixAttention)]
    softmax = window = None
    if cores:
        size = next((m.qk_head_dim for _, m in modules if hasattr(m, "kv_lora_rank")), cores[0].head_dim)
        softmax = softmax_over(float(cores[0].scaling), size)
        window = cores[0].sliding_window_size if cores[0].sliding_window_size > 0 else None
    if outer and not theirs:  # Gemma 3: the model makes cos and sin for its layers
        local = any(getattr(m, "is_sliding", False) for _, m in modules)
        rotary = outer["rotary_emb_local" if local else "rotary_emb"]
        return Layer(hf_turn(rotary, _apply_outside), 2 * len(rotary.inv_freq), softmax, window)
    rotary = next((m for _, m in modules if hasattr(m, "head_size") and "Rotary" in type(m).__name__), None)
    if rotary is None and theirs:
        return layer_of_transformers(number, modules, theirs[0], softmax, window)
    if rotary is None:
        return Layer(None)
    holder = next((m for _, m in modules if getattr(m, "rotary_emb", None) is rotary), None)
    does, assumed = (True, "") if holder is None else turns(holder, rotary, cores, _call)
    if not does:
        return Layer(None)
    table = getattr(rotary, "cos_sin_cache", None)
    limit = rotary.max_position_embeddings if table is None else table.shape[0]
    queries, beta = None, getattr(holder, "llama_4_scaling_beta", None)
    if beta is not None:
        scale = sys.modules[type(holder).__module__]._get_llama_4_attn_scale
        queries = float(scale(torch.tensor([FAR]), beta, holder.max_position_embeddings))
    return Layer(turn(rotary), rotary.head_size, softmax, window, limit, assumed, queries)


def _apply_outside(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    """SGLang's own function, which has tokens before heads."""
    from sglang.srt.layers.rotary_embedding import apply_rotary_pos_emb

    rows = q[0].transpose(0, 1)
    return (apply_rotary_pos_emb(rows, rows, cos[0], sin[0])[0].transpose(0, 1)[None],)


def _call(holder: Any, width: int) -> None:
    given = {"positions": torch.tensor([0, 5]), "hidden_states": torch.ones(2, width)}
    names = [name for name, parameter in inspect.signature(holder.forward).parameters.items()
             if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD]  # fmt: skip
    holder(**{name: given.get(name, types.SimpleNamespace()) for name in names})


if __name__ == "__main__":
    from sglang.srt.configs.internvl import InternLM2Config

    configs_of_authors(InternLM2Config)
    torch.set_num_threads(1)
    gc.freeze()
    run(measure, lambda: gc.collect() and None)
