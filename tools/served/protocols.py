"""vLLM's and SGLang's own classes of requests and answers, read out of their wheels, as judges of ours.

    python tools/served/protocols.py < cases.json > verdicts.json

Run in an environment that has the two packages without what they need: torch and everything that computes is stood in
for by empty classes, as are modules of theirs that are not about the form of a request. A case is

    ["vllm request", body]             CompletionRequest, and the SamplingParams that it makes
    ["vllm answer", body]              CompletionResponse
    ["vllm models", body]              ModelList
    ["vllm error", body]               ErrorResponse
    ["sglang request", body]           GenerateReqInput, normalised, and SamplingParams, verified
    ["sglang meta_info", state]        what TokenizerManager's own code makes of these log-likelihoods

and its verdict {"ok": true, "data": what the class made of it} or {"ok": false, "why": its words}. Fields that a class
does not know are named in "unknown".
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import sys
import traceback
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
from stand_ins import _Module, stand_in

OPEN = {
    "vllm": ("vllm.entrypoints.openai.completion.protocol", "vllm.entrypoints.generate.base.protocol",
             "vllm.entrypoints.serve.engine.protocol", "vllm.exceptions", "vllm.logprobs", "vllm.sampling_params",
             "vllm.envs", "vllm.utils.collection_utils", "vllm.v1.serial_utils"),
    "sglang": ("sglang.srt.managers.io_struct", "sglang.srt.managers.tokenizer_manager",
               "sglang.srt.sampling.sampling_params", "sglang.srt.utils.field_validators",
               "sglang.srt.utils.msgspec_utils", "sglang.srt.managers.embed_types",
               "sglang.srt.managers.kv_hints", "sglang.srt.lora.lora_registry"),
}  # fmt: skip
"""The modules that are read as they are."""


class _Parents:
    """Packages of theirs whose __init__ computes: they are given as empty packages, with their modules inside."""

    def __init__(self, top: str):
        self.top, self.home = top, next(Path(p) / top for p in sys.path if (Path(p) / top).is_dir())

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.top and not name.startswith(self.top + "."):
            return None
        file = self.home.joinpath(*name.split(".")[1:])
        if name in OPEN[self.top]:
            module = file.with_suffix(".py") if file.with_suffix(".py").is_file() else file / "__init__.py"
            return importlib.util.spec_from_file_location(name, module)
        if any(one.startswith(name + ".") for one in OPEN[self.top]):
            spec = importlib.machinery.ModuleSpec(name, _Empty(), is_package=True)
            spec.submodule_search_locations = [str(file)]
            return spec
        return None


class _Empty:
    def create_module(self, spec: Any) -> types.ModuleType:
        module = _Module(spec.name)
        module.__path__ = list(spec.submodule_search_locations)
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


def judge_vllm_request(body: Any) -> Any:
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    made = CompletionRequest.model_validate(body)
    params = made.to_sampling_params(made.max_tokens, {})
    names = ("max_tokens", "temperature", "logprobs", "prompt_logprobs", "logit_bias")
    sampled = {name: getattr(params, name) for name in names}
    return {"request": made.model_dump(exclude_unset=True), "sampling": sampled}, sorted(made.model_extra or {})


def judge_vllm_answer(body: Any) -> Any:
    from vllm.entrypoints.openai.completion.protocol import CompletionResponse

    made = CompletionResponse.model_validate(body)
    return made.model_dump(mode="json"), _unknown(made)


def judge_vllm_models(body: Any) -> Any:
    from vllm.entrypoints.serve.engine.protocol import ModelList

    made = ModelList.model_validate(body)
    return made.model_dump(mode="json"), _unknown(made)


def judge_vllm_error(body: Any) -> Any:
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse

    made = ErrorResponse.model_validate(body)
    return made.model_dump(mode="json"), _unknown(made)


def _unknown(made: Any) -> list[str]:
    """Fields that no class knows, at any depth."""
    found = list(getattr(made, "model_extra", None) or {})
    for value in dict(made).values():
        for one in value if isinstance(value, list) else [value]:
            if hasattr(one, "model_fields_set"):
                found += _unknown(one)
    return sorted(found)


def judge_sglang_request(body: Any) -> Any:
    import dataclasses

    import pydantic
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.sampling.sampling_params import SamplingParams

    fields = {one.name for one in dataclasses.fields(GenerateReqInput)}
    GenerateReqInput.__pydantic_config__ = {"arbitrary_types_allowed": True}  # images and such are stood in for
    made = pydantic.TypeAdapter(GenerateReqInput).validate_python(body)
    made.normalize_batch_and_arguments()
    params = SamplingParams(**made.sampling_params)
    params.verify(1 << 16)
    names = ("input_ids", "return_logprob", "logprob_start_len", "top_logprobs_num", "is_single")
    sampled = {name: getattr(params, name) for name in ("max_new_tokens", "temperature", "ignore_eos", "logit_bias")}
    return {**{name: getattr(made, name) for name in names}, "sampling": sampled}, sorted(set(body) - fields)


def judge_sglang_meta_info(state: Any) -> Any:
    import asyncio

    asyncio.set_event_loop_policy = lambda policy: None  # uvloop's is stood in for, and no loop is run
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    kept = types.SimpleNamespace(
        **{f"{side}_{what}_{part}": state.get(f"{side}_{what}_{part}", []) for side in ("input", "output")
           for what in ("token_logprobs", "top_logprobs") for part in ("val", "idx")},
        input_token_logprobs=[], output_token_logprobs=[], input_top_logprobs=[], output_top_logprobs=[],
        obj=types.SimpleNamespace(return_flat_raw_top_logprobs=False, return_flat_raw_output_top_logprobs=False),
    )  # fmt: skip
    meta: dict[str, Any] = {}
    manager = TokenizerManager.__new__(TokenizerManager)
    TokenizerManager.add_logprob_to_meta_info(manager, meta, kept, state["top_logprobs_num"], None, False, True)
    return meta, []


JUDGES = {
    "vllm request": judge_vllm_request,
    "vllm answer": judge_vllm_answer,
    "vllm models": judge_vllm_models,
    "vllm error": judge_vllm_error,
    "sglang request": judge_sglang_request,
    "sglang meta_info": judge_sglang_meta_info,
}


def main() -> None:
    cases = json.load(sys.stdin)
    stand_in("torch", "zmq", "cloudpickle", "fastapi", "uvloop", "psutil", "aiohttp", "orjson", "transformers", "PIL",
             "requests", "triton", "pybase64", "setproctitle", "starlette", "uvicorn", "dill", "IPython", "packaging",
             "vllm", "sglang")  # fmt: skip
    sys.meta_path[:0] = [_Parents("vllm"), _Parents("sglang")]
    verdicts = []
    for kind, body in cases:
        try:
            data, unknown = JUDGES[kind](body)
            verdicts.append({"ok": True, "data": data, "unknown": unknown})
        except Exception as error:
            if "--debug" in sys.argv:
                traceback.print_exc()
            verdicts.append({"ok": False, "why": f"{type(error).__name__}: {error}"[:2000]})
    json.dump(verdicts, sys.stdout, default=str)


if __name__ == "__main__":
    main()
