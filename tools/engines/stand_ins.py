"""Modules that stand in for packages that an engine imports and does not need to turn anything.

stand_in("torchvision")    every import of it, or of a module inside of it, gets empty classes
configs_of_authors()       config classes that come with a model's own repository: plain ones, which hold the keys
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any


class _Name(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name, (_Nothing,), {})

    def __iter__(cls) -> Any:
        return iter(())


class _Nothing(metaclass=_Name):
    def __init__(self, *args: Any, **options: Any) -> None: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        return args[0] if args else None


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name, (_Nothing,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...]):
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if any(name == top or name.startswith(top + ".") for top in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = _Module(spec.name)
        module.__path__ = []
        module.__version__ = "0.28.0"
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


def stand_in(*names: str) -> None:
    """Let imports of these packages succeed, and give nothing."""
    sys.meta_path.insert(0, _Finder(names))


def configs_of_authors(internlm2: Any = None) -> None:
    """Let transformers read the configs of models whose config class is in their repository alone.

    ``internlm2`` is the class where the engine has a copy of it. Baichuan's has no arguments about rotation. Kimi K2's
    is a copy of DeepSeek-V3's.
    """
    from transformers import AutoConfig, DeepseekV3Config, PretrainedConfig

    class InternLM2Config(PretrainedConfig):  # type: ignore[misc]
        model_type = "internlm2"

        def __init__(self, rope_theta: float = 10000, rope_scaling: Any = None, bias: bool = True, **rest: Any):
            self.bias, self.rope_theta, self.rope_scaling = bias, rope_theta, rope_scaling
            if rope_scaling is not None and len(rope_scaling) != 2:
                raise ValueError(f"`rope_scaling` must have two fields, `type` and `factor`, got {rope_scaling}")
            if rope_scaling is not None and rope_scaling.get("type") not in ("linear", "dynamic"):
                raise ValueError(f"`rope_scaling`'s type must be linear or dynamic, got {rope_scaling.get('type')}")
            super().__init__(**rest)

    class BaichuanConfig(PretrainedConfig):  # type: ignore[misc]
        model_type = "baichuan"

        def __init__(self, max_position_embeddings: int = 4096, hidden_size: int = 4096, **rest: Any):
            self.max_position_embeddings, self.hidden_size = max_position_embeddings, hidden_size
            super().__init__(**rest)

    class KimiK2Config(DeepseekV3Config):  # type: ignore[misc,valid-type]
        model_type = "kimi_k2"

    AutoConfig.register("kimi_k2", KimiK2Config, exist_ok=True)
    AutoConfig.register("internlm2", internlm2 or InternLM2Config, exist_ok=True)
    AutoConfig.register("baichuan", BaichuanConfig, exist_ok=True)


def wide(config: dict[str, Any]) -> dict[str, Any]:
    """Baichuan with the width of its 7B: engines have a rotation for this one, and ALiBi for the others."""
    return {**config, "hidden_size": 4096, "num_attention_heads": 32} if config["model_type"] == "baichuan" else config
