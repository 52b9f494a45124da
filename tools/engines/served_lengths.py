"""Which --max-model-len vLLM takes with a config: its own ModelConfig is made, as `vllm serve` makes it.

    python served_lengths.py CONFIGS.json OUT.json     in vLLM's environment; CONFIGS: {name: config}

For each config the lengths around every number that could be the limit are tried; OUT has those taken and refused,
which run.py puts into measured/vllm-served.json under the version.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1",
               "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}  # fmt: skip

LENGTHS = (2048, 4096, 4097, 8192, 8193, 16384, 16385, 32768, 32769, 65536, 65537, 131072)


def configs() -> dict[str, dict[str, Any]]:
    """Llamas of 4096 trained positions with every scaling, and max_position_embeddings before and after it."""
    import configs as made

    yarn = made.scalings(128, 4096)["yarn"]
    found = {}
    for name in ("default", "linear", "dynamic", "yarn", "llama3", "longrope"):
        for positions in (4096, 16384):
            given = {"rope_theta": 500000.0, **made.scalings(128, 4096)[name]}
            config = {**made.plain("llama"), "max_position_embeddings": positions, "rope_parameters": given}
            found[f"llama {name}, {positions} positions"] = made.cut(config)
    qwen = {**made.plain("qwen2"), "rope_theta": 1e6, "max_position_embeddings": 8192}
    found["qwen2 yarn, 8192 positions"] = made.cut({**qwen, "rope_scaling": yarn})
    phi3 = {**made.plain("phi3"), "max_position_embeddings": 16384, "original_max_position_embeddings": 4096}
    lists = {k: v for k, v in made.scalings(128, 4096)["longrope"].items() if k.endswith("_factor")}
    found["phi3 longrope, 16384 positions"] = made.cut({**phi3, "rope_scaling": {"type": "longrope", **lists}})
    return found


def measure(job: Path, out: Path) -> None:
    """Try every length with every config."""
    from stand_ins import stand_in

    stand_in("torchvision")
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()
    answers: dict[str, Any] = {}
    for name, config in json.loads(job.read_text()).items():
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "config.json").write_text(json.dumps(config))
            answers[name] = {"config": config, "taken": [], "refused": []}
            for length in (None, *LENGTHS):
                engine = EngineArgs(model=place, skip_tokenizer_init=True, dtype="float32", enforce_eager=True,
                                    load_format="dummy", max_model_len=length)  # fmt: skip
                try:
                    made = engine.create_model_config()
                except ValueError as error:
                    answers[name]["refused"].append(length)
                    answers[name]["reason"] = next(s for s in str(error).splitlines() if "max_model_len" in s).strip()[
                        :200
                    ]
                else:
                    if length is None:
                        answers[name]["by default"] = made.max_model_len
                    else:
                        answers[name]["taken"].append(length)
    out.write_text(json.dumps(answers))


if __name__ == "__main__":
    measure(Path(sys.argv[1]), Path(sys.argv[2]))
