"""use_engine: a loaded BLOOM, MPT, Falcon, T5 or mT5 with its position bias run by milepost's engine.

    model = use_engine(AutoModelForCausalLM.from_pretrained(...))      # in place; use_engine(model, on=False) goes back

The same logits, and the same tokens, without an N x N bias or mask. The numbers stay the model's own, with their
rounding:

    BLOOM, MPT, Falcon   ALiBi written as one number a key: the row that the model makes goes to `key_row`
    T5, mT5              a table of buckets: `Buckets` looks it up by i - j, and gradients go to the model's own weight

transformers gives T5's attention away through its attention interface; the other three have their module's forward
replaced. All take their mask from its mask interface, where ours gives a row of B x J: which keys are tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.attention import attend
from milepost.attention.backends.key_row import key_row
from milepost.encoding import Encoding
from milepost.layout import Layout, Run

ROW, TABLE = "milepost_row", "milepost_table"
"""What ``config._attn_implementation`` says while the engine is on.

ROW is a mask's name only: transformers refuses to build a model with it.
"""
FAMILIES = {"bloom": ROW, "mpt": ROW, "falcon": ROW, "t5": TABLE, "mt5": TABLE}
"""By ``config.model_type``."""
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
        raise ValueError(
            f"use_engine knows BLOOM, MPT, Falcon (with ALiBi), T5 and mT5 of transformers, got {type(model).__name__}"
            + (f" of model type {kind!r}; a model with rotary or learned positions has no bias to run" if kind else "")
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
    for name in (ROW, TABLE):
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
    encoding of that."""

    was: str
    first: nn.Module | None = None
    enc: Buckets | None = None


def _own_implementation(model: Any, models: list[Any]) -> str:
    """The attention implementation of a model without the engine.

    Outer and inner models share a config: any of them may remember.
    """
    name: str = model.config._attn_implementation
    if name not in (ROW, TABLE):
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
        part.__dict__["_milepost"].first = first or part.__dict__["_milepost"].first


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

    causal = mask_function is own.causal_mask_function
    if (
        not (causal or mask_function is own.bidirectional_mask_function)
        or kv_offset
        or not getattr(config, "is_causal", True)
    ):
        raise ValueError(
            "the engine has the model's plain mask with padding; for a window, or a mask of your own, go back with "
            "use_engine(model, on=False)"
        )
    keys = int(q_offset) + q_length if causal else kv_length  # a static cache has room for more
    mask = own.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if keys == kv_length and (mask is None or bool(mask.all())) and config.model_type != "mpt":  # MPT can't take None
        return None
    return torch.ones(batch_size, keys, dtype=torch.bool, device=device) if mask is None else mask[:, :keys]


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


def _or_mean(y: Tensor, v: Tensor, mask: Tensor, causal: bool) -> Tensor:
    """Outputs y (B H I D) where a query sees a token, else the mean of all values (B G J D): the models' own softmax of
    equal numbers.

    It is what padding on the left gives. It means nothing, and its gradient goes to the values alone.
    """
    seen = mask.cumsum(-1)[:, -y.shape[2] :] if causal else mask.sum(-1, keepdim=True)
    return torch.where((seen == 0)[:, None, :, None], v.mean(2, keepdim=True), y)


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
        self.bucket = partial(type(layer)._relative_position_bucket, bidirectional=not layer.is_decoder, **self.numbers)
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
            f"attn_implementation={TABLE!r} is set by milepost.checkpoints.use_engine(model), for T5 and mT5; "
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


def _where(mask: Tensor) -> Layout:
    """Keys of which some are padding (mask: B J), numbered as they lie, padding included: so T5 counts."""
    index = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    first, count = mask.int().argmax(-1), mask.sum(-1)
    stretch = (index >= first[:, None]) & (index < (first + count)[:, None])
    rows = None
    if torch.equal(mask, stretch):  # no holes
        rows = tuple((Run(a, n, 0, a),) if n else () for a, n in zip(first.tolist(), count.tolist(), strict=True))
    return Layout(index, torch.where(mask, 0, -1), index, None, rows)


_FORWARDS: dict[str, Callable[..., Any]] = {
    "BloomAttention": _bloom,
    "MptAttention": _mpt,
    "MptBlock": _mpt_block,
    "FalconAttention": _falcon,
    "T5Attention": _t5,
    "MT5Attention": _t5,
}
