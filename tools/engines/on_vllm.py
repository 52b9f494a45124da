"""vLLM on the CPU: its own model class, built by its own loader from its own ModelConfig, with random weights.

Of a command line that milepost printed, --max-model-len and --hf-overrides go into vLLM's own EngineArgs, so that
overrides are merged as vLLM merges them.
Each layer's rotation is the module that the model holds; held_ropes.py says how it is found out which layers turn.

Stand-ins: VLLM_TARGET_DEVICE=cpu; vllm._C (kernels; `forward_native` is the same code in torch); the attention
proper; projections (torch's linear); torchvision (empty classes); the process in which vLLM looks at a model class.
"""

# ruff: noqa: E402

from __future__ import annotations

import gc
import inspect
import json
import os
import shlex
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1",
               "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}  # fmt: skip

from stand_ins import configs_of_authors, stand_in, wide

stand_in("torchvision")

import torch
from held_ropes import Modules, layer_of_transformers, layers_by_number, transformers_ropes, turn_held, turns
from probe import FAR, Layer, NotMeasured, run, softmax_over
from real_keys import completed, write_folder
from transformers.models.pixtral import modeling_pixtral
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers import rotary_embedding
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry

STARTED = False
IMPORTS: list[str] = []
"""Why the last model class that could not be imported could not."""


def _look_at(function: Any) -> Any:
    """Look at a model class here, not in a new process."""
    try:
        return function()
    except Exception as error:
        IMPORTS.append(f"{type(error).__name__}: {error}")
        raise


registry._run_in_subprocess = _look_at
if not hasattr(modeling_pixtral, "PixtralRotaryEmbedding"):  # names of pictures' positions that vLLM to 0.30 imports
    modeling_pixtral.PixtralRotaryEmbedding = lambda config, _: modeling_pixtral.PixtralVisionRotaryEmbedding(config)
    modeling_pixtral.position_ids_in_meshgrid = None
for name in ("gelu_new", "gelu_fast", "gelu_quick", "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "relu2"):
    if not hasattr(torch.ops._C, name):
        setattr(torch.ops._C, name, None)


def measure(case: dict[str, Any]) -> list[Layer]:
    global STARTED  # noqa: PLW0603
    folder = Path(tempfile.mkdtemp(prefix="model"))
    given = completed(wide(case["config"]))
    if given["model_type"] == "qwen3_vl":  # 0.29 asks for it on a CPU
        given["text_config"] = {"architectures": ["Qwen3ForCausalLM"], **given["text_config"]}
    write_folder(given, folder)
    options: dict[str, Any] = {"max_model_len": case.get("served"), "hf_overrides": {}}
    if "command" in case:
        words = shlex.split(case["command"])
        if "--max-model-len" in words:
            options["max_model_len"] = int(words[words.index("--max-model-len") + 1])
        if "--hf-overrides" in words:
            options["hf_overrides"] = json.loads(words[words.index("--hf-overrides") + 1])
    engine = EngineArgs(model=str(folder), skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
                        load_format="dummy", **options)  # fmt: skip
    try:
        model_config = engine.create_model_config()
    except IndexError as error:
        raise NotMeasured(f"its class does not import, and transformers' can't stand in: {error}") from None
    except ValueError as error:
        if "does not recognize this architecture" in str(error):
            raise NotMeasured("its config needs code from the model's own repository") from None
        if "is not supported anymore" in str(error):
            raise NotMeasured("no model class: this version has none any more") from None
        if "failed to be inspected" in str(error):
            why = IMPORTS[-1] if IMPORTS else error
            raise NotMeasured(f"its class does not import, a package or a stand-in is missing: {why}") from None
        raise
    from vllm.config import VllmConfig

    config = VllmConfig(model_config=model_config)
    rotary_embedding._ROPE_DICT.clear()
    with set_current_vllm_config(config):
        if not STARTED:
            from vllm.distributed import init_distributed_environment, initialize_model_parallel

            init_distributed_environment(1, 0, f"file://{tempfile.mktemp()}", 0, "gloo")
            initialize_model_parallel(1, 1)
            from vllm.distributed import parallel_state as groups

            for name in ("_EP", "_EPLB"):
                if getattr(groups, name, 0) is None:
                    setattr(
                        groups, name, groups.init_model_parallel_group([[0]], 0, "gloo", group_name=name[1:].lower())
                    )
            STARTED = True
        torch.set_default_dtype(torch.float32)
        return layers_of(initialize_model(config))


def layers_of(model: Any) -> list[Layer]:
    """The layers of the text model, by number."""
    theirs = transformers_ropes(model)
    permuted = any(hasattr(m, "permute_qk_weight_for_rotary") for m in (model, *model.children()))
    turn = cache(partial(turn_held, permuted=permuted))
    return [_layer(number, modules, theirs, turn) for number, modules in layers_by_number(model).items()]


def _layer(number: int, modules: Modules, theirs: list[Any], turn: Any) -> Layer:
    cores = [m for n, m in modules if hasattr(m, "impl") and hasattr(m, "head_size")]
    rotary = next((m for n, m in modules if hasattr(m, "head_size") and "Rotary" in type(m).__name__), None)
    softmax = window = None
    if cores:
        scale = getattr(cores[0], "scale", None) or getattr(cores[0].impl, "scale", None)
        size = getattr(cores[0], "qk_head_dim", None) or cores[0].head_size
        size = next((m.qk_head_dim for _, m in reversed(modules) if hasattr(m, "qk_head_dim")), size)
        softmax = softmax_over(float(scale), size) if scale is not None else None
        window = getattr(cores[0], "sliding_window", None)
        window = window[0] if isinstance(window, tuple) else window
    if rotary is None and theirs:
        return layer_of_transformers(number, modules, theirs[0], softmax, window)
    if rotary is None:
        return Layer(None)
    holder = next((m for n, m in modules if getattr(m, "rotary_emb", None) is rotary), None)
    does, assumed = (True, "") if holder is None else turns(holder, rotary, cores, _call)
    if not does:
        return Layer(None)
    table = getattr(rotary, "cos_sin_cache", None)
    limit = rotary.max_position_embeddings if table is None else table.shape[0]
    queries = None
    if hasattr(holder, "do_llama_4_scaling"):
        queries = float(holder._get_llama_4_attn_scale(torch.tensor([FAR]))) if holder.do_llama_4_scaling else 1.0
    return Layer(turn(rotary), rotary.head_size, softmax, window, limit, assumed, queries)


def _call(holder: Any, width: int) -> None:
    hidden = torch.ones(2, width)
    given = {"positions": torch.tensor([0, 5]), "position_ids": torch.tensor([0, 5]), "hidden_states": hidden}
    given["output"] = torch.empty_like(hidden)  # Qwen3.5's attention writes into it
    names = [name for name, parameter in inspect.signature(holder.forward).parameters.items()
             if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD]  # fmt: skip
    holder(**{name: given.get(name) for name in names})


if __name__ == "__main__":
    configs_of_authors()
    torch.set_num_threads(1)
    gc.freeze()
    run(measure, lambda: gc.collect() and None)
