"""vLLM on the CPU: its own model class, built by its own loader from its own ModelConfig, with random weights.

Of a command line that milepost printed, --max-model-len and --hf-overrides go into vLLM's own EngineArgs, so that
overrides are merged as vLLM merges them.
Each layer's rotation is the module that the model holds; whether a layer turns is found by calling its attention, with
the attention proper stood in for; where that can't be called, the log says that it was assumed.

Stand-ins: VLLM_TARGET_DEVICE=cpu; vllm._C (kernels; `forward_native` is the same code in torch); the attention
proper; projections (torch's linear); torchvision (empty classes); the process in which vLLM looks at a model class.
"""

# ruff: noqa: E402

from __future__ import annotations

import gc
import json
import os
import shlex
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1",
               "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}  # fmt: skip

from stand_ins import stand_in

stand_in("torchvision")

import numpy as np
import torch
from probe import Layer, NotMeasured, run, softmax_over
from turn_transformers import hf_turn
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers import rotary_embedding
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry

STARTED = False
registry._run_in_subprocess = lambda function: function()  # a model class is looked at here, not in a new process
for name in ("gelu_new", "gelu_fast", "gelu_quick", "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "relu2"):
    if not hasattr(torch.ops._C, name):
        setattr(torch.ops._C, name, None)


def measure(case: dict[str, Any]) -> list[Layer]:
    global STARTED  # noqa: PLW0603
    folder = Path(tempfile.mkdtemp(prefix="model"))
    (folder / "config.json").write_text(json.dumps(case["config"]))
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
        if "failed to be inspected" in str(error):
            raise NotMeasured("its class does not import: a stand-in is missing") from None
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
        try:
            model = initialize_model(config)
        except ValueError as error:
            if "requires a vision configuration" in str(error):
                raise NotMeasured("the cut-down config has no vision part") from None
            raise
        except IndexError as error:  # of the vision part, which is cut down further than this version takes
            raise NotMeasured(f"the cut-down model can't be built: {error}") from None
        except OSError as error:
            raise NotMeasured(f"the cut-down model has no image processor: {error}") from None
        return layers_of(model, config)


def layers_of(model: Any, config: Any) -> list[Layer]:
    """The layers of the text model, by number."""
    found: dict[int, list[tuple[str, Any]]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        parts = name.split(".")
        if any(word in name for word in ("visual", "vision", "audio", "image")):
            continue
        numbers = [i for i, part in enumerate(parts) if part.isdigit()]
        if numbers and parts[numbers[0] - 1] in ("layers", "h", "layer", "blocks"):
            found.setdefault(int(parts[numbers[0]]), []).append((".".join(parts[numbers[0] + 1 :]), module))
    if not found:
        raise NotMeasured("no layers found in the model")
    hf = [m for n, m in model.named_modules() if any(k.endswith("inv_freq") for k in m._buffers) and "vis" not in n
          and type(m).__module__.startswith("transformers")]  # fmt: skip
    return [_layer(n, found[n], hf, model) for n in sorted(found)]


def _layer(number: int, modules: list[tuple[str, Any]], hf: list[Any], model: Any) -> Layer:
    cores = [m for n, m in modules if hasattr(m, "impl") and hasattr(m, "head_size")]
    rotary = next((m for n, m in modules if hasattr(m, "head_size") and "Rotary" in type(m).__name__), None)
    softmax = window = None
    if cores:
        scale = getattr(cores[0], "scale", None) or getattr(cores[0].impl, "scale", None)
        size = getattr(cores[0], "qk_head_dim", None) or cores[0].head_size
        for _n, m in modules:
            if hasattr(m, "qk_head_dim"):
                size = m.qk_head_dim
        softmax = softmax_over(float(scale), size) if scale is not None else None
        window = getattr(cores[0], "sliding_window", None)
        window = window[0] if isinstance(window, tuple) else window
    if rotary is None and hf:  # the model is transformers' own
        if any(getattr(m, "use_rope", 1) in (0, False) for n, m in modules):
            return Layer(None)
        kinds = getattr(hf[0].config, "layer_types", None)
        name = f"{kinds[number]}_inv_freq" if kinds else ""
        args = (kinds[number],) if name in hf[0]._buffers else ()
        return Layer(hf_turn(hf[0], None, args), 2 * len(getattr(hf[0], name if args else "inv_freq")), softmax, window)
    if rotary is None:
        return Layer(None)
    holder = next((m for n, m in modules if getattr(m, "rotary_emb", None) is rotary), None)
    if holder is not None and not _turns(holder, rotary, cores):
        return Layer(None)
    cache = getattr(rotary, "cos_sin_cache", None)
    limit = rotary.max_position_embeddings if cache is None else cache.shape[0]
    return Layer(
        _turn(
            rotary,
            hasattr(model, "permute_qk_weight_for_rotary")
            or any(hasattr(m, "permute_qk_weight_for_rotary") for m in model.children()),
        ),
        rotary.head_size,
        softmax,
        window,
        limit,
    )


def _turns(holder: Any, rotary: Any, cores: list[Any]) -> bool:
    """Whether the attention calls its rotation: it is called, and the call is noted."""
    noted: list[int] = []

    class Noted(Exception):  # noqa: N818
        pass

    def forward(*args: Any, **kwargs: Any) -> Any:
        noted.append(1)
        raise Noted

    kept = rotary.forward
    rotary.forward = forward
    for core in cores:
        core.forward = lambda query, *args, **options: query
    for module in holder.modules():  # norms have kernels, and the same in torch
        if module is not rotary and hasattr(module, "forward_native"):
            module.forward = module.forward_native
        if hasattr(module, "quant_method") and getattr(module, "weight", None) is not None:
            module.forward = partial(_linear, module)
    try:
        width = next(p for n, p in holder.named_parameters() if p.dim() == 2).shape[1]
        positions = torch.tensor([0, 5])
        try:
            holder(positions, torch.ones(2, width))
        except TypeError:
            holder(positions=positions, hidden_states=torch.ones(2, width))
    except Noted:
        return True
    except Exception as error:  # kernels that are not here
        print(f"assumed: {type(holder).__name__} turns; it could not be called: {error!r}"[:200])
        return bool(noted) or not getattr(holder, "nope", False)
    finally:
        rotary.forward = kept
    return bool(noted)


def _linear(module: Any, x: torch.Tensor) -> tuple[torch.Tensor, None]:
    """A projection in torch: vLLM's own is made when weights are loaded."""
    return torch.nn.functional.linear(x, module.weight), None


def _turn(rotary: Any, permuted: bool) -> Any:
    """``permuted``: vLLM reorders q and k of Llama 4 when it loads them: halves become the neighbouring channels."""
    forward = getattr(rotary, "forward_native", rotary.forward)

    def turn(x: np.ndarray, position: int, length: int | None) -> np.ndarray:
        rows = torch.tensor(np.ascontiguousarray(x))
        positions = torch.full((rows.shape[0],), position)
        order = torch.arange(rows.shape[1])
        if permuted:
            order = order.view(-1, 2).t().reshape(-1)
        rows = rows[:, order]
        with torch.no_grad():
            shaped = rows.clone() if not hasattr(rotary, "forward_native") else rows.clone()[:, None]
            q, _ = forward(positions, shaped, shaped.clone())
        return q.reshape(rows.shape)[:, order.argsort()].numpy()

    return turn


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(measure, lambda: gc.collect() and None)
