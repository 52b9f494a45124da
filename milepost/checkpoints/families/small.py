"""A small random model of a config's own class: layers and position keys as they are, widths cut down.

    hidden_size, heads, experts, vocabulary       cut: they say nothing about positions
    head_dim, rope keys, layer_types, lengths     kept
    windows                                       cut to a few tokens, a number for each key, so that a short text shows
                                                  which key acts in which layer

No code of a checkpoint is run: a config that asks for its own (auto_map) is refused, unless transformers has the type.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from milepost.checkpoints.families.bounds import (
    LAYERS,
    VALUES,
    CannotBuild,
    Clock,
    counted,
    layers_of,
    limited,
    values_of,
)

WORDS = 64
WILD = 1e3
"""No class begins with weights as large as this."""
ID = 3
"""A token that means something (an image, an end) in the small vocabulary."""

WIDTHS: dict[str, int] = {
    name: size
    for size, names in {
        0: "zero_expert_num n_hash_layers num_nextn_predict_layers num_hash_layers",
        1: "n_group topk_group num_expert_group n_shared_experts num_shared_experts",
        2: """
            num_experts_per_tok moe_k moe_topk top_k_experts num_experts_per_token moe_top_k linear_num_key_heads
            linear_num_value_heads linear_num_heads index_n_heads mamba_n_heads mamba_num_heads
        """,
        4: "num_experts num_local_experts n_routed_experts moe_num_experts num_routed_experts",
        8: "hidden_size_per_layer_input linear_key_head_dim linear_value_head_dim linear_head_dim",
        16: "q_lora_rank kv_lora_rank o_lora_rank laurel_rank mamba_chunk_size",
        32: """
            intermediate_size ffn_dim ffn_hidden_size intermediate_size_mlp moe_intermediate_size n_inner
            shared_expert_intermediate_size shared_intermediate_size expert_ffn_hidden_size encoder_ffn_dim
            decoder_ffn_dim share_expert_dim dense_intermediate_size expert_intermediate_size
            speech_encoder_intermediate_size vocoder_hidden_size
        """,
        64: """
            vocab_size vocab_size_per_layer_input text_vocab_size out_hidden_size encoder_hash_byte_group_vocab
            t2u_vocab_size unit_hifi_gan_vocab_size out_dim num_text_embeds mm_hidden_size
        """,
    }.items()
    for name in names.split()
}
"""Sizes that say nothing about positions, and what they are cut to."""
SET = {"n_inner": 32, "vocab_size": 64}
"""Sizes that some classes leave open."""
NAMES = ("id2label", "label2id", "quantization_config")
"""Lists of names, which may be long (ImageNet has 21,841 labels) and say nothing about positions: left out."""
CUT_WINDOWS = {"sliding_window": 6, "attention_chunk_size": 10, "local_attention": 8}
"""Windows of the small model, by key: numbers that tell keys apart in a text of 23 tokens."""
HEAD_KEYS = (
    *("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads", "decoder_attention_heads"),
    *("num_attention_heads_per_layer", "swa_num_attention_heads", "sliding_num_attention_heads"),
)
KEY_HEAD_KEYS = (
    *("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_global_key_value_heads", "swa_num_key_value_heads"),
    *("encoder_num_key_value_heads", "decoder_num_key_value_heads"),
)
WIDTH_KEYS = ("hidden_size", "n_embd", "d_model", "dim", "embed_dim", "lru_width", "condition_dim", "upsample_groups")


CLASSES = {"t5_gemma_module": "T5GemmaEncoder", "deepseek_ocr2_encoder": "DeepseekOcr2VisionEncoder"}
"""Models whose class can't be known by its config."""


@dataclass(frozen=True)
class Cut:
    """How widths are cut: to so many heads (None: widths stay), and to a width of 64 where heads have a size of their
    own (``narrow``), else to the heads' width."""

    heads: int | None
    narrow: bool = False


CUTS = (Cut(2, True), Cut(2), Cut(4), Cut(None))


@dataclass(frozen=True)
class Small:
    """A small model: its class, what was kept and what was cut, for who reads the answer."""

    model: Any
    config: Any
    name: str
    version: str
    clock: Clock
    cut: Mapping[str, Any] = field(default_factory=dict)


def builds(data: Mapping[str, Any]) -> Generator[Small | CannotBuild]:
    """Small random models of a config's class, in the order in which they are tried: not every class takes every cut.

    A cut that a class refuses is given as its `CannotBuild`. A config that no class reads raises it at once.
    """
    import torch

    whole = full_config(data)
    _class_of(whole)  # what it imports is no time of measuring
    clock = Clock()
    with limited():
        for cut in CUTS:
            clock.check()
            try:
                config, changed = smaller(whole, cut)
                _refuse_other_heads(whole, config)
                made = _class_of(config)
                _count(made, config, clock)
                torch.manual_seed(0)
                with _sentence(f"{made.__name__} can't be built with small sizes"):
                    model = made(config).eval().float()
                    _tame(model)
            except CannotBuild as error:
                yield error
            else:
                yield Small(model, config, made.__name__, version(), clock, changed)


def smaller(whole: Any, cut: Cut) -> tuple[Any, dict[str, Any]]:
    """The config with its widths cut down, and what was cut."""
    data = copy.deepcopy(whole.to_dict())
    changed: dict[str, Any] = {}
    _cut(data, cut, changed)
    with _sentence(f"{type(whole).__name__} refuses smaller sizes"):
        config = type(whole).from_dict(data)
        config._attn_implementation = "eager"
    return config, changed


def _tame(model: Any) -> None:
    """Draw weights that a class leaves as memory had them: they may be any number, or none."""
    import torch

    with torch.no_grad():
        for weight in model.parameters():
            if weight.is_floating_point() and not float(weight.abs().max() if weight.numel() else 0.0) < WILD:
                weight.normal_(0.0, 0.02)


def _refuse_other_heads(whole: Any, config: Any) -> None:
    """Refuse a cut after which a head has another size: some configs work it out from the width."""
    before, after = (c.to_dict().get("head_dim") for c in (whole, config))
    if isinstance(before, int) and isinstance(after, int) and before != after:
        raise CannotBuild(
            f"{type(whole).__name__} takes the size of a head from its width: {after} instead of {before}"
        )


def _count(made: Any, config: Any, clock: Clock) -> None:
    """Build it on torch's "meta" device, where it takes no memory: refused if it is too large."""
    import torch

    with _sentence(f"{made.__name__} can't be built with small sizes"), torch.device("meta"), counted(clock):
        made(copy.deepcopy(config))


@contextlib.contextmanager
def _sentence(what: str) -> Iterator[None]:
    """Whatever a class raises becomes a sentence."""
    try:
        yield
    except CannotBuild:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise CannotBuild(f"{what}: {type(error).__name__}: {text[:200]}") from None


def full_config(data: Mapping[str, Any]) -> Any:
    """The config as transformers' own class reads it."""
    version()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    name = str(data.get("model_type", ""))
    if name not in CONFIG_MAPPING:
        if data.get("auto_map"):
            raise CannotBuild(f"model type {name!r} asks for code of its own (auto_map), which is never run")
        raise CannotBuild(f"transformers has no model type {name!r}")
    data = _without_names({key: _without_names(v) if isinstance(v, Mapping) else v for key, v in data.items()})
    _refuse_many(data)  # before: classes make lists as long
    with _sentence(f"transformers can't read this config as {name!r}"):
        config = CONFIG_MAPPING[name].from_dict(copy.deepcopy(data))
    _refuse_many(config.to_dict())
    return config


def _without_names(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in NAMES}


def _refuse_many(data: Mapping[str, Any]) -> None:
    if (layers := layers_of(data)) > LAYERS:
        raise CannotBuild(f"it has {layers} layers, and {LAYERS} are the most that are built")
    if (values := values_of(data)) > VALUES:
        raise CannotBuild(f"its config has {values} values, and {VALUES} are the most that are read for measuring")


def version() -> str:
    """The version of transformers that is installed."""
    try:
        return metadata.version("transformers")
    except metadata.PackageNotFoundError:
        raise CannotBuild("transformers is not installed: pip install 'milepost[hf]'") from None


def _cut(data: dict[str, Any], cut: Cut, changed: dict[str, Any], where: str = "", outer: int | None = None) -> None:
    """Cut the widths of a config's dictionary and of those inside of it, in place; note what was changed."""

    def number(keys: tuple[str, ...]) -> int | None:
        return next((data[key] for key in keys if isinstance(data.get(key), int)), None)

    heads, width = number(HEAD_KEYS), number(WIDTH_KEYS)
    own = data.get("head_dim") or data.get("qk_rope_head_dim") or data.get("attention_head_dim")
    size = own or (width // heads if width and heads else None)
    few = cut.heads
    new_width = None if few is None else outer if size is None else WORDS if own and cut.narrow else few * size
    if isinstance(data.get("attention_hidden_size"), int) and new_width and few and size:  # Zamba: twice the width
        new_width, data["attention_hidden_size"] = few * size // 2, few * size
    if "head_dim" in data and own is None and size:
        data["head_dim"] = size
    for key, value in list(data.items()):
        new = value
        if isinstance(value, dict) and not key.startswith("rope"):
            _cut(value, cut, changed, f"{where}{key}.", new_width)
        elif isinstance(value, list) and key.endswith("_token_id"):
            new = ID
        elif isinstance(value, list) and key in (*WIDTHS, *HEAD_KEYS, *KEY_HEAD_KEYS):
            most = WIDTHS.get(key, few)
            new = [min(n, most) if isinstance(n, int) and most is not None else n for n in value]
        elif key in SET and value is None:
            new = SET[key]
        elif isinstance(value, bool) or not isinstance(value, int):
            continue
        elif key in HEAD_KEYS or key in KEY_HEAD_KEYS:
            new = min(value, few) if few is not None else value
        elif key in WIDTH_KEYS:
            new = new_width or value
        elif key in WIDTHS:
            new = min(value, WIDTHS[key])
        elif key in CUT_WINDOWS and value > 0:
            new = CUT_WINDOWS[key]
        elif key.endswith(("_token_id", "_token_index")) and value >= WORDS:
            new = ID
        if new is not value and new != value:
            changed[f"{where}{key}"] = data[key] = new
    if {"n_mamba_heads", "mamba_headdim"} <= set(data) and new_width:
        data["mamba_headdim"] = int(data.get("mamba_expand", 2) * new_width) // data["n_mamba_heads"]
    if data.get("mamba_d_ssm") and new_width:
        data |= {"mamba_d_ssm": 32, "mamba_d_head": 16}
    elif {"mamba_n_heads", "mamba_d_head"} <= set(data) and new_width:
        data["mamba_d_head"] = int(data.get("mamba_expand", 2) * new_width) // data["mamba_n_heads"]
    data.pop("quantization_config", None)


def _class_of(config: Any) -> Any:
    """The class that transformers makes of a config: AutoModel's, else the model of its module with this config."""
    import importlib

    from transformers import PreTrainedModel
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    with contextlib.suppress(KeyError, ValueError):  # some types name a class that is nowhere
        made = MODEL_MAPPING[type(config)]
        return made[0] if isinstance(made, tuple) else made
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    if config.model_type in CLASSES:
        return getattr(module, CLASSES[config.model_type])
    own = [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, PreTrainedModel)
        and value.__module__ == module.__name__
        and not name.endswith("PreTrainedModel")
        and (getattr(value, "config_class", None) is type(config) or _takes(value, config))
    ]
    if not own:
        raise CannotBuild(f"transformers has no model class for {type(config).__name__}")
    return min(own, key=lambda made: (not re.search(r"(Model|coder)$", made.__name__), len(made.__name__)))


def _takes(made: Any, config: Any) -> bool:
    """Whether a class says that it is built from such a config."""
    parameter = inspect.signature(made.__init__).parameters.get("config")
    return parameter is not None and type(config).__name__ in str(parameter.annotation)
