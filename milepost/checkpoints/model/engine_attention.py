"""use_engine: a loaded BLOOM, MPT, Falcon, T5, mT5, UMT5 or Inkling with its position bias run by milepost's engine.

    model = use_engine(AutoModelForCausalLM.from_pretrained(...))      # in place; use_engine(model, on=False) goes back

The same logits, and the same tokens, without an N x N bias or mask. The numbers stay the model's own, with their
rounding:

    BLOOM, MPT, Falcon   ALiBi written as one number a key: the row that the model makes goes to `key_row`
    T5, mT5, UMT5        a table of buckets: `Buckets` looks it up by i - j, and gradients go to the model's own weight
    Inkling              profiles of distances that the query mixes: `Profiles`, our `relative_logits` with the model's
                         own weights, a band of the flash kernel; its temperature and its windows are the engine's, too

transformers gives T5's attention away through its attention interface; the others have their module's forward
replaced. All take their mask from its mask interface, where ours gives a row of B x J: which keys are tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.attention import attend
from milepost.attention.backends.key_row import key_row
from milepost.checkpoints.model.patch import patched
from milepost.encoding import Encoding
from milepost.encodings.relative_logits import RelativeLogits
from milepost.layout import Layout, Run

ROW, TABLE, BAND = "milepost_row", "milepost_table", "milepost_band"
"""What ``config._attn_implementation`` says while the engine is on.

ROW and BAND are a mask's name only: transformers refuses to build a model with them.
"""
FAMILIES = {"bloom": ROW, "mpt": ROW, "falcon": ROW, "t5": TABLE, "mt5": TABLE, "umt5": TABLE, "inkling_text": BAND}
"""By ``config.model_type``."""
_OWN = "its table is added by code of its own, which use_engine does not replace"
_LINEAR = "its forget gates decay the state of linear attention: there is no softmax, and no logit to add them to"
_SPACE = "its bias is a table over a small window of an image, which is never large"
_TWO = "content meets a table of distances in two products of its own code; milepost.DeBERTa is that encoding"
_SHARPER = (
    "its positions are a rotation and a temperature of the queries: no bias, and its own attention is right for it"
)
REASONS = (
    dict.fromkeys(("switch_transformers", "pop2piano", "pix2struct_text_model", "mpnet", "cpmant"), _OWN)
    | dict.fromkeys(("kimi_linear", "bailing_hybrid", "glm5_next", "glm5_next_text", "xlstm"), _LINEAR)
    | dict.fromkeys(("swin", "swinv2", "swin2sr", "donut-swin", "maskformer-swin", "clap_audio_model"), _SPACE)
    | dict.fromkeys(("beit", "data2vec-vision", "sam_vision_model", "vitdet"), _SPACE)
    | dict.fromkeys(("deberta", "deberta-v2"), _TWO)
    | dict.fromkeys(("llama4_text", "ministral3", "mistral4", "mistral_large4_text", "beam"), _SHARPER)
    | {
        "udop": "it adds three tables, by places in the text, on the page and across it, before its layers see them",
        "longt5": "it attends by blocks of its own, and milepost has no such layout",
        "deepseek_v4": "it turns values, and its position_bias weighs the tokens of a window that it makes one of: no "
        "number is added to a logit",
        "wavlm": "a gate of each query scales its table before it is added, which is no encoding of milepost",
    }
)
"""Why models that add something by position are not taken, by ``config.model_type``."""
M = TypeVar("M", bound=nn.Module)


def use_engine(model: M, on: bool = True) -> M:
    """``model`` itself, its attention switched to milepost's engine, or back to its own with ``on=False``.

    Twice is as once.

    Takes any transformers model of a known family: base, with a head, encoder only. ALiBi has no limit here, but MPT
    makes its biases for ``config.max_seq_len`` tokens, and no more.
    """
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

    models = [
        part for part in model.modules() if isinstance(part, PreTrainedModel) and part.config.model_type in FAMILIES
    ]
    if not models:
        kind = getattr(getattr(model, "config", None), "model_type", None)
        why = REASONS.get(kind or "", "a model with rotary or learned positions has no bias to run")
        raise ValueError(
            "use_engine knows BLOOM, MPT, Falcon (with ALiBi), T5, mT5, UMT5 and Inkling of transformers, got "
            f"{type(model).__name__}" + (f" of model type {kind!r}; {why}" if kind else "")
        )
    for part in models:
        if part.config.model_type == "falcon" and not part.config.alibi:
            raise ValueError(
                "this Falcon has rotary positions (config.alibi is False), and no bias for the engine to run; its own "
                "attention is right for it"
            )
        if on and part.config.output_attentions:
            raise ValueError(_NO_WEIGHTS.format("config.output_attentions is True"))
    AttentionInterface.register(TABLE, _t5_attention)
    for name in (ROW, TABLE, BAND):
        AttentionMaskInterface.register(name, _tokens)
    for part, was in [(part, _own_implementation(part, models)) for part in models]:
        if on and "_milepost" not in part.__dict__:
            _switch(part, was)
        elif not on:
            part.__dict__.pop("_milepost", None)
        part.config._attn_implementation = FAMILIES[part.config.model_type] if on else was
    for module in model.modules() if not on else ():
        if module.__dict__.pop("_milepost", None):
            _place(module, None)
    return model


@dataclass
class _Switched:
    """What a switched module remembers: the implementation it had, whose table of buckets it uses (T5), and the
    encoding of that, or of its own profiles (Inkling)."""

    was: str
    first: nn.Module | None = None
    enc: Buckets | Profiles | None = None


def _own_implementation(model: Any, models: list[Any]) -> str:
    """The attention implementation of a model without the engine.

    Outer and inner models share a config: any of them may remember.
    """
    name: str = model.config._attn_implementation
    if name not in (ROW, TABLE, BAND):
        return name
    marked = [
        other.__dict__["_milepost"].was
        for other in models
        if other.config is model.config and "_milepost" in other.__dict__
    ]
    return marked[0] if marked else "sdpa" if model._supports_sdpa else "eager"


def _switch(model: nn.Module, was: str) -> None:
    """Mark a model, and give the attention modules below it their new forward.

    The marks are no submodules, and in no state_dict.
    """
    model.__dict__["_milepost"] = _Switched(was)
    stack: Any = model
    first = stack.block[0].layer[0].SelfAttention if type(model).__name__ in ("T5Stack", "MT5Stack") else None
    for part in model.modules():
        run = _FORWARDS.get(type(part).__name__)
        if run is None:
            continue
        if "_milepost" not in part.__dict__:
            part.__dict__["_milepost"] = _Switched(was)
            _place(part, partial(run, part))
        own = part if type(part).__name__ == "UMT5Attention" else None  # every layer has a table of its own
        part.__dict__["_milepost"].first = first or own or part.__dict__["_milepost"].first


def _place(module: nn.Module, forward: Callable[..., Any] | None) -> None:
    """Put a forward in place of the class's own, or (None) take it away; under the hook of accelerate, where there is
    one."""
    if "_old_forward" in module.__dict__:
        module.__dict__["_old_forward"] = forward or partial(type(module).forward, module)
    elif forward is not None:
        module.__dict__["forward"] = forward
    else:
        module.__dict__.pop("forward", None)


# -- masks, and what the engine has not ------------------------------------------------------------------------------


def _tokens(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    config: Any = None,
    device: torch.device | str = "cpu",
    **_: Any,
) -> Tensor | None:
    """In place of transformers' masks (B 1 I J): which of the keys so far are tokens (B J), or None where all are."""
    from transformers import masking_utils as own

    banded = config._attn_implementation == BAND
    causal = mask_function is own.causal_mask_function or (banded and _slides(mask_function))
    if (
        not (causal or mask_function is own.bidirectional_mask_function)
        or (kv_offset and not banded)
        or not getattr(config, "is_causal", True)
    ):
        raise ValueError(
            "the engine has the model's plain mask with padding; for a window, or a mask of your own, go back with "
            "use_engine(model, on=False)"
        )
    keys = int(q_offset) + q_length - kv_offset if causal else kv_length  # a static cache has room for more
    mask = own.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    mask = mask[:, kv_offset:] if mask is not None and kv_offset else mask
    if keys == kv_length and (mask is None or bool(mask.all())) and config.model_type != "mpt":  # MPT can't take None
        return None
    return torch.ones(batch_size, keys, dtype=torch.bool, device=device) if mask is None else mask[:, :keys]


def _slides(mask_function: Any) -> bool:
    """Whether this is transformers' causal mask of a sliding window, with nothing else in it, such as packed texts."""
    inside = [cell.cell_contents for cell in getattr(mask_function, "__closure__", None) or ()]
    names = [getattr(each, "__qualname__", "") for each in inside[0]] if inside and isinstance(inside[0], tuple) else []
    return names == ["sliding_window_overlay.<locals>.inner_mask", "causal_mask_function"]


_NO_WEIGHTS = (
    "{}, but the engine never holds the attention weights (B, H, N, N); use_engine(model, on=False) brings the "
    "model's own attention back"
)


def _check(module: nn.Module, mask: Tensor | None, dropout: float, word: str, weights: bool = False) -> None:
    """Refuse what would be left out in silence."""
    if weights:
        raise ValueError(_NO_WEIGHTS.format("output_attentions=True was asked for"))
    if module.training and dropout > 0:
        raise ValueError(
            f"attention dropout must be 0 in training mode, got {dropout}: the engine has none, and leaving it out "
            "would train another model; "
            f"load the model with {word}, or call model.eval()"
        )
    if mask is not None and mask.dim() != 2:
        raise ValueError(
            f"the engine takes a padding mask of shape (B, J), got {tuple(mask.shape)}; for a mask of your own, or "
            "another "
            "attention implementation, go back first with use_engine(model, on=False)"
        )


def _or_mean(y: Tensor, v: Tensor, mask: Tensor, causal: bool, window: int | None = None) -> Tensor:
    """Outputs y (B H I D) where a query sees a token, else the mean of all values (B G J D): the models' own softmax of
    equal numbers.

    It is what padding on the left gives. It means nothing, and its gradient goes to the values alone.
    """
    seen = mask.cumsum(-1) if causal else mask.sum(-1, keepdim=True)
    if window is not None and mask.shape[1] > window:
        seen = seen - F.pad(seen[:, :-window], (window, 0))
    seen = seen[:, -y.shape[2] :] if causal else seen
    mean = v.mean(2, keepdim=True).repeat_interleave(y.shape[1] // v.shape[1], 1)
    return torch.where((seen == 0)[:, None, :, None], mean, y)


# -- ALiBi, one number a key -----------------------------------------------------------------------------------------


_watchers: list[Callable[[Tensor, Tensor, Tensor, float], Any]] = []


@contextmanager
def watched(each: Callable[[Tensor, Tensor, Tensor, float], Any]) -> Iterator[None]:
    """Call ``each`` with every layer's q (B H I D), k (B G J D), row (B|1 H 1 J) and scale, while models with a row
    run."""
    _watchers.append(each)
    try:
        yield
    finally:
        _watchers.remove(each)


def _by_row(q: Tensor, k: Tensor, v: Tensor, row: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Causal attention of q (B H I D) to k, v (B G J D) with the model's own row (B|1 H 1 J), heads merged: B I H*D."""
    for each in _watchers:
        each(q, k, row, scale)
    if mask is None:
        y = key_row(q, k, v, row, scale=scale)
    else:
        J = mask.shape[1]
        hidden = row[..., :J].masked_fill(~mask[:, None, None], float("-inf"))
        y = _or_mean(key_row(q, k[:, :, :J], v[:, :, :J], hidden, scale=scale), v, mask, causal=True)
    return y.transpose(1, 2).flatten(2)


def _bloom(
    self: Any,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    attention_mask: Tensor | None,
    layer_past: Any = None,
    use_cache: bool = False,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """BloomAttention.forward. alibi: B*H 1 J."""
    _check(self, attention_mask, self.attention_dropout.p, "attention_dropout=0.0", output_attentions)
    q, k, v = self._reshape(self.query_key_value(hidden_states))
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    y = _by_row(q, k, v, alibi.view(-1, self.num_heads, *alibi.shape[1:]), attention_mask, self.inv_norm_factor)
    if self.pretraining_tp > 1 and self.slow_but_exact:
        slices = zip(y.chunk(self.pretraining_tp, -1), self.dense.weight.chunk(self.pretraining_tp, -1), strict=True)
        y = torch.stack([F.linear(some, weight) for some, weight in slices]).sum(0)
    else:
        y = self.dense(y)
    return residual + F.dropout(y, self.hidden_dropout, self.training), None


def _mpt(
    self: Any,
    hidden_states: Tensor,
    position_bias: Tensor,
    past_key_values: Any = None,
    attention_mask: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """MptAttention.forward. position_bias: H 1 max_seq_len, of which the last J count."""
    _check(self, attention_mask, self.attn_dropout_p, 'attn_config={"attn_pdrop": 0}')
    qkv = self.Wqkv(hidden_states)
    if self.clip_qkv:
        qkv = qkv.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    q, k, v = (t.unflatten(-1, (self.n_heads, self.head_dim)).transpose(1, 2) for t in qkv.chunk(3, dim=2))
    if past_key_values is not None:
        k, v = past_key_values.update(k, v, self.layer_idx)
    if k.shape[2] > position_bias.shape[2]:
        raise ValueError(
            f"MPT makes its biases for config.max_seq_len = {position_bias.shape[2]} tokens, got {k.shape[2]}; set "
            "model.config.max_seq_len higher"
        )
    row = position_bias[None, :, :, position_bias.shape[2] - k.shape[2] :]
    return self.out_proj(_by_row(q, k, v, row, attention_mask, self.softmax_scale)), None


def _mpt_block(self: Any, *args: Any, output_attentions: bool = False, **more: Any) -> Any:
    """MptBlock.forward, which does not tell its attention that weights are wanted."""
    _check(self, None, 0.0, "", output_attentions)
    return type(self).forward(self, *args, **more)


def _falcon(
    self: Any,
    hidden_states: Tensor,
    alibi: Tensor,
    attention_mask: Tensor | None,
    position_ids: Any = None,
    layer_past: Any = None,
    use_cache: bool = False,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """FalconAttention.forward. alibi: B*H 1 J, in bfloat16's steps, and divided by sqrt(D) with the logits."""
    _check(self, attention_mask, self.attention_dropout.p, "attention_dropout=0.0", output_attentions)
    q, k, v = (t.transpose(1, 2) for t in self._split_heads(self.query_key_value(hidden_states)))
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    row = alibi.view(-1, self.num_heads, *alibi.shape[1:])
    twice = (
        row.float() * self.inv_norm_factor if self._milepost.was == "eager" else 0
    )  # that path adds it to the mask, and again to the logits
    row = row / math.sqrt(self.head_dim) + twice
    return self.dense(_by_row(q, k, v, row, attention_mask, self.inv_norm_factor)), None


# -- T5, a table of buckets ------------------------------------------------------------------------------------------


class Buckets(Encoding):
    """T5's learned bias by bucket of i - j, with the buckets and the table (buckets H) of a T5 layer: that layer's own
    weight."""

    fractional = False

    def __init__(self, layer: Any):
        super().__init__()
        self.table = layer.relative_attention_bias.weight
        self.heads, self.causal_only = layer.n_heads, layer.is_decoder
        self.numbers = {
            "num_buckets": layer.relative_attention_num_buckets,
            "max_distance": layer.relative_attention_max_distance,
        }
        bucket = type(layer)._relative_position_bucket
        if type(layer).__name__ == "UMT5Attention":  # a method, which reads these
            words = {f"relative_attention_{name}": number for name, number in self.numbers.items()}
            self.bucket = partial(bucket, SimpleNamespace(is_decoder=layer.is_decoder, **words))
        else:
            self.bucket = partial(bucket, bidirectional=not layer.is_decoder, **self.numbers)
        self.memory = _memory(self.table)

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        found: Tensor = self.table[self.bucket(j - i), h]
        return found

    def __repr__(self) -> str:
        return f"the checkpoint's t5(heads={self.heads}, {', '.join(f'{k}={v}' for k, v in self.numbers.items())})"


def _memory(weight: Tensor) -> tuple[int, torch.dtype]:
    """What changes when a weight is given other numbers without a new version: model.to(dtype)."""
    return weight.data_ptr(), weight.dtype


def _buckets(first: Any) -> Buckets:
    """The encoding of a stack's first layer, kept until its weight is another."""
    mark, weight = first._milepost, first.relative_attention_bias.weight
    if mark.enc is None or mark.enc.table is not weight or mark.enc.memory != _memory(weight):
        mark.enc = Buckets(first)
    enc: Buckets = mark.enc
    return enc


def _t5(self: Any, hidden_states: Tensor, *args: Any, position_bias: Tensor | None = None, **more: Any) -> Any:
    """T5Attention.forward with a bias of one number, so that it makes none of H I J."""
    if position_bias is None and self.config._attn_implementation == TABLE:
        position_bias = hidden_states.new_zeros(1, 1, 1, 1)
    return type(self).forward(self, hidden_states, *args, position_bias=position_bias, **more)


def _umt5(self: Any, *args: Any, **more: Any) -> Any:
    """UMT5Attention.forward, which makes a bias in every call: here, one of one number."""
    if self.config._attn_implementation != TABLE:
        return type(self).forward(self, *args, **more)
    with patched((self, "has_relative_attention_bias", True), (self, "compute_bias", lambda *_, **__: None)):
        return type(self).forward(self, *args, **more)


def _t5_attention(
    module: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """The attention interface: q (B H I D), k and v (B H J D), the output B I H D."""
    mark = module.__dict__.get("_milepost")
    if mark is None or mark.first is None:
        raise ValueError(
            f"attn_implementation={TABLE!r} is set by milepost.checkpoints.use_engine(model), for T5, mT5 and UMT5; "
            f"{type(module).__name__} has not been switched"
        )
    _check(module, mask, dropout, "dropout_rate=0.0", bool(more.get("output_attentions")))
    I, J, device = q.shape[2], k.shape[2] if mask is None else mask.shape[1], q.device
    scale = q.shape[-1] ** -0.5 if scaling is None else scaling
    if not module.is_decoder or module.is_causal:
        at, to = (
            Layout.dense(I, start=J - I, device=device),
            Layout.dense(J, device=device) if mask is None else _where(mask),
        )
        y = attend(
            q, k[:, :, :J], v[:, :, :J], _buckets(mark.first), at=at, to=to, causal=module.is_causal, scale=scale
        )
    elif mask is None:  # the decoder looks at the encoder: no positions
        y = attend(
            q, k, v, at=Layout.dense(I, device=device), to=Layout.dense(J, device=device), causal=False, scale=scale
        )
    else:
        row = torch.zeros(mask.shape, device=device).masked_fill(~mask, float("-inf"))
        y = key_row(q, k, v, row[:, None, None], scale=scale, causal=False)
    y = y if mask is None else _or_mean(y, v, mask, module.is_causal)
    return y.transpose(1, 2), None


def _where(mask: Tensor, start: int = 0) -> Layout:
    """Keys of which some are padding (mask: B J), numbered as they lie, padding included: so T5 and Inkling count."""
    places = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    first, count = mask.int().argmax(-1), mask.sum(-1)
    stretch = (places >= first[:, None]) & (places < (first + count)[:, None])
    rows = None
    if torch.equal(mask, stretch):  # no holes
        ends = zip(first.tolist(), count.tolist(), strict=True)
        rows = tuple((Run(a, n, 0, start + a),) if n else () for a, n in ends)
    index = places + start  # one tensor twice: a second one would read as positions that are not the index
    return Layout(index, torch.where(mask, 0, -1), index, None, rows)


# -- Inkling, profiles of distances ----------------------------------------------------------------------------------


class Profiles(RelativeLogits):
    """Our relative_logits with the numbers of an Inkling layer: its own weight, its extent, its temperature.

    Hidden states are mixed by the layer itself: features are what its r_proj gives.
    """

    def __init__(self, layer: Any):
        config, weight = layer.config, layer.rel_logits_proj.proj
        with torch.device("meta"):  # no number is drawn
            super().__init__(
                heads=layer.num_heads, width=1, size=config.d_rel, extent=layer.rel_extent,
                floor=None if layer.is_sliding else config.log_scaling_n_floor, alpha=config.log_scaling_alpha,
            )  # fmt: skip
        del self.mix
        self.profiles, self.memory = weight, _memory(weight)


def _profiles(layer: Any) -> Profiles:
    """The encoding of a layer, kept until its weight is another."""
    mark, weight = layer._milepost, layer.rel_logits_proj.proj
    if mark.enc is None or mark.enc.profiles is not weight or mark.enc.memory != _memory(weight):
        mark.enc = Profiles(layer)
    enc: Profiles = mark.enc
    return enc


def _inkling(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None,
    conv_mask: Tensor | None = None,
    past_key_values: Any = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """InklingAttention.forward. A sliding layer's cache holds the last keys alone, from index ``first`` on."""
    _check(self, attention_mask, self.attention_dropout, "attention_dropout=0.0", bool(more.get("output_attentions")))
    x, shape = hidden_states, (*hidden_states.shape[:-1], -1, self.head_dim)
    k = self.k_sconv(self.k_proj(x), past_key_values=past_key_values, conv_mask=conv_mask)
    v = self.v_sconv(self.v_proj(x), past_key_values=past_key_values, conv_mask=conv_mask).view(shape).transpose(1, 2)
    q, k = (norm(t.view(shape)).transpose(1, 2) for norm, t in ((self.q_norm, self.q_proj(x)), (self.k_norm, k)))
    I, start, first = q.shape[2], 0, 0
    if past_key_values is not None:
        first = past_key_values.get_mask_sizes(I, self.layer_idx)[1]
        start = int(past_key_values.get_query_offset(self.layer_idx))
        k, v = past_key_values.update(k, v, self.layer_idx)
    J, window, device = start + I - first, self.sliding_window, q.device
    at = Layout.dense(I, start=start, window=window, device=device)
    to = Layout.dense(J, start=first, device=device) if attention_mask is None else _where(attention_mask, first)
    enc = _profiles(self)
    y = attend(q, k[:, :, :J], v[:, :, :J], enc, at=at, to=to, scale=self.scaling, features=self.r_proj(x))
    y = y if attention_mask is None else _or_mean(y, v, attention_mask, True, window)
    return self.o_proj(y.transpose(1, 2).flatten(2)), None


_FORWARDS: dict[str, Callable[..., Any]] = {
    "BloomAttention": _bloom,
    "MptAttention": _mpt,
    "MptBlock": _mpt_block,
    "FalconAttention": _falcon,
    "T5Attention": _t5,
    "MT5Attention": _t5,
    "UMT5Attention": _umt5,
    "InklingAttention": _inkling,
}
