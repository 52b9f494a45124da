"""Biases: ALiBi and T5's are really there, in reading and at every token said, under each attention implementation.

Queries and keys are silenced (set to zero) in every attention layer, and values set to one-hot rows: token j's value is
1 in channel j. What comes out of attention is then its weights, and these come from the bias alone:

    weights of query i = softmax over j of bias(h, i, j)

against the formula: slopes by the number of heads (BLOOM, MPT, Falcon), or the model's own table by buckets of distance
(T5). Falcon's slopes are rounded to bfloat16 and divided by sqrt(D) with the logits: its own way, which its weights
were trained with.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from milepost.checkpoints.model.patch import hooked, patched
from milepost.checkpoints.model.probe import Case, Check, judged, unchanged, zero_output
from milepost.checkpoints.model.watched_attention import implementation
from milepost.encodings.alibi import ALiBi
from milepost.encodings.t5 import T5

SAID = 4
"""Tokens said one by one after the text is read."""
OUT = {
    "BloomAttention": "dense",
    "FalconAttention": "dense",
    "MptAttention": "out_proj",
    "T5Attention": "o",
    "MT5Attention": "o",
}
"""Attention classes, and the name of what their output goes through."""
TWICE = (
    "transformers' own code does this, not the checkpoint: its eager Falcon adds ALiBi to the mask, and again to the "
    "logits"
)


def biases(case: Case) -> list[Check]:
    """One check for reading and one for saying, under each implementation."""
    parts = _attentions(case.model)
    if not parts:
        return []
    checks = []
    for name in ("eager", "sdpa") if case.model._supports_sdpa else ("eager",):
        with implementation(case.model, name), unchanged(case.model):
            checks += [_known(case, check, name) for check in _probe(case, parts, name)]
    return checks


def _known(case: Case, check: Check, implementation: str) -> Check:
    """A fault of transformers is said to be one; a warning where the model was loaded with another implementation,
    which has it not."""
    if not (
        case.model_type == "falcon"
        and implementation == "eager"
        and check.verdict == "FAIL"
        and "twice" in check.sentence
    ):
        return check
    own, sentence = case.attention, f"{check.sentence}; {TWICE}"
    return (
        replace(check, sentence=sentence)
        if own == implementation
        else replace(check, verdict="WARN", sentence=f"{sentence}. This model was loaded with {own}")
    )


def _attentions(model: nn.Module) -> list[Any]:
    """The self-attention modules whose bias is known."""
    named = [
        (name, part)
        for name, part in model.named_modules()
        if type(part).__name__ in OUT and not name.endswith("EncDecAttention")
    ]
    rotary = not getattr(getattr(model, "config", None), "alibi", True)  # Falcon has either
    return [] if rotary else [part for _, part in named]


# -- the probe -------------------------------------------------------------------------------------------------------


def _probe(case: Case, parts: list[Any], implementation: str) -> list[Check]:
    count = min(16, *(_head_dim(part) for part in parts))
    continued = min(SAID, count - 2)
    passes = [_weights(case, parts, count, continued, masked) for masked in ((False,) if case.both else (False, True))]
    checks = []
    for turn, (when, first) in enumerate((("reading", 0), ("saying", count - continued))):
        worst: tuple[float, float, int, float, str] | None = None
        for number, part, got in [
            (n, part, found[turn].get(id(part))) for found in passes for n, part in enumerate(parts)
        ]:
            if not got:
                continue  # an encoder says nothing
            seen = torch.cat(got, 1)[0, :, :, :count].double().cpu().transpose(0, 1)
            width = count if case.both and not part.is_decoder else first + seen.shape[1]
            bias = _expected(part, parts, case)(seen.shape[1], width, first)
            want, none = (_softmax(b, first, part) for b in (bias, torch.zeros_like(bias)))
            off, flat = float((seen[..., :width] - want).abs().max()), float((want - none).abs().max())
            allowed = 64 * case.eps * (1 + float(bias.abs().max()))
            if worst is None or not off / allowed <= worst[0] / worst[1]:
                worst = off, allowed, number, flat, _cause(seen[..., :width], bias, first, part, allowed)
        if worst is not None:
            off, allowed, number, flat, cause = worst
            right = Check(
                f"bias, {when}, {implementation}",
                "PASS",
                f"attention weights are those of the bias in all {len(parts)} layers",
                off,
                allowed,
                flat,
                "weight",
            )
            checks.append(judged(right, f"layer {number}: {cause}", "the bias of this model is the same for all keys"))
    return checks


def _weights(
    case: Case, parts: list[Any], count: int, continued: int, masked: bool
) -> tuple[dict[int, list[Tensor]], dict[int, list[Tensor]]]:
    """The weights of every layer while all but ``said`` tokens are read, and at each of the others.

    With a mask of ones some models take another path.
    """
    ids = case.tokens(count)

    def mask(tokens: int) -> dict[str, Any]:
        return {"attention_mask": torch.ones(1, tokens, dtype=torch.long, device=case.device)} if masked else {}

    with _silenced(parts) as weights:
        out = case.run(
            ids[:, : count - continued],
            use_cache=True,
            **({"input_ids": ids} if case.both else mask(count - continued)),
        )
        reading = {id(part): weights.pop(id(part), []) for part in parts}
        for t in range(count - continued, count):
            more = (
                {"encoder_outputs": (out.encoder_last_hidden_state,), "input_ids": None} if case.both else mask(t + 1)
            )
            out = case.run(ids[:, t : t + 1], past_key_values=out.past_key_values, use_cache=True, **more)
    return reading, weights


def _softmax(bias: Tensor, first: int, part: Any) -> Tensor:
    """Weights H I J of a bias, causal but in an encoder; queries begin at ``first``."""
    I, J = bias.shape[1:]
    if getattr(part, "is_decoder", True) or "T5" not in type(part).__name__:
        hidden = torch.arange(J)[None, :] > torch.arange(I)[:, None] + first
        bias = bias.masked_fill(hidden, float("-inf"))
    return bias.softmax(-1)


def _cause(seen: Tensor, bias: Tensor, first: int, part: Any, allowed: float) -> str:
    for times, words in (
        (0.0, "there is no bias: all keys count alike"),
        (2.0, "the bias is there twice"),
        (-1.0, "the bias has the wrong sign"),
    ):
        if float((seen - _softmax(times * bias, first, part)).abs().max()) <= 4 * allowed:
            return words
    return "the weights are not those of the bias that the model type and its heads ask for"


def _head_dim(part: Any) -> int:
    return int(part.key_value_proj_dim if "T5" in type(part).__name__ else part.head_dim)


def _by_head(x: Tensor, size: int) -> Tensor:
    """B L H D, from heads side by side."""
    return x.reshape(*x.shape[:-1], -1, size)


# -- silence ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _silenced(parts: list[Any]) -> Iterator[dict[int, list[Tensor]]]:
    """q and k are zero, v is one-hot; gives the list of weights B I H D of each layer, one item a call."""
    weights: dict[int, list[Tensor]] = {}
    with contextlib.ExitStack() as stack:
        for part in parts:
            stack.enter_context(_silence(part, weights))
        yield weights


def _silence(part: Any, weights: dict[int, list[Tensor]]) -> contextlib.AbstractContextManager[Any]:
    kind, past = type(part).__name__, [0]

    def one_hot(v: Tensor) -> Tensor:
        """v: B L H D; the first token of the call is number past[0]."""
        eye = torch.zeros_like(v)
        for t in range(v.shape[1]):
            eye[:, t, :, past[0] + t] = 1.0
        past[0] += v.shape[1]
        return eye

    def note(_: Any, given: tuple[Tensor, ...]) -> None:
        weights.setdefault(id(part), []).append(_by_head(given[0].detach(), _head_dim(part)))

    hooks, heads_first = [getattr(part, OUT[kind]).register_forward_pre_hook(note)], kind == "BloomAttention"
    if "T5" in kind:
        hooks += [getattr(part, name).register_forward_hook(zero_output) for name in ("q", "k")]
        hooks.append(
            part.v.register_forward_hook(lambda _, __, out: one_hot(_by_head(out, _head_dim(part))).flatten(-2))
        )
        return hooked(*hooks)
    if kind == "MptAttention":

        def silent_fused(_: Any, __: Any, out: Tensor) -> Tensor:
            q, k, v = out.chunk(3, dim=-1)
            eye = one_hot(_by_head(v, part.head_dim)).flatten(-2)
            return torch.cat([torch.zeros_like(q), torch.zeros_like(k), eye], -1)

        return hooked(*hooks, part.Wqkv.register_forward_hook(silent_fused))
    name = "_reshape" if heads_first else "_split_heads"
    split = getattr(part, name)

    def silent(fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = split(fused)
        eye = one_hot(v.transpose(1, 2)).transpose(1, 2) if heads_first else one_hot(v)
        return torch.zeros_like(q), torch.zeros_like(k), eye

    stack = contextlib.ExitStack()
    stack.enter_context(hooked(*hooks))
    stack.enter_context(patched((part, name, silent)))
    return stack


# -- the formula -----------------------------------------------------------------------------------------------------


def _expected(part: Any, parts: list[Any], case: Case) -> Callable[[int, int, int], Tensor]:
    """The bias H I J of I queries from ``first`` on, and J keys."""
    kind = type(part).__name__
    if "T5" in kind:
        side = [p for p in parts if p.is_decoder == part.is_decoder]
        table = (
            next(p for p in side if p.has_relative_attention_bias)
            .relative_attention_bias.weight.detach()
            .double()
            .cpu()
        )
        buckets = T5(
            part.n_heads,
            "causal" if part.is_decoder else "bidirectional",
            part.relative_attention_num_buckets,
            part.relative_attention_max_distance,
        )

        def by_bucket(queries: int, keys: int, first: int) -> Tensor:
            distance = torch.arange(queries)[:, None] + first - torch.arange(keys)[None, :]
            rows: Tensor = table[buckets.bucket(distance.clamp_min(0) if part.is_decoder else distance)]
            return rows.permute(2, 0, 1)

        return by_bucket
    heads = part.n_heads if kind == "MptAttention" else part.num_heads
    slopes = ALiBi(heads=heads).past_slopes
    if kind == "MptAttention":
        slopes = slopes ** (case.text_config.attn_config.alibi_bias_max / 8)

    def by_key(queries: int, keys: int, first: int) -> Tensor:
        """slope * key, as these models write it; a softmax can't tell it from -slope * distance."""
        key = torch.arange(keys)
        row = slopes.double()[:, None] * key
        if kind == "FalconAttention":
            row = (slopes.bfloat16()[:, None] * key.bfloat16()).double() / math.sqrt(part.head_dim)
        return row[:, None].expand(heads, queries, keys)

    return by_key
