"""The twelve faults that `verify` must find: each is planted in a tiny real model, and found by a check that names it.

A fault is planted where it happens in real life: in the table of a loaded model, in the module's forward, or in
transformers' rotary function.
"""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import DYNAMIC, LONG, build, rope, rotary

from milepost.checkpoints import Verification, verify


def code(model: Any) -> Any:
    """transformers' file of a model."""
    return sys.modules[type(model).__module__]


def found(model: Any, check: str, words: str) -> Verification:
    """The verification, which must fail in this check, and say these words."""
    done = verify(model)
    assert not done.ok
    assert check in done.failed, [(c.name, c.sentence) for c in done.checks]
    assert words in done[check].sentence, done[check].sentence
    return done


def around(owner: Any, name: str, change: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace a function by one that calls ``change(function, ...)``; it keeps its signature."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(function, *args, **kwargs)

    monkeypatch.setattr(owner, name, changed)


def test_config_changed_after_load():
    model = build("llama")
    model.config.rope_parameters = {"rope_type": "linear", "rope_theta": 50000.0, "factor": 4.0}
    done = found(
        model, "frequencies", "without the config's scaling: was the config changed after the model was built?"
    )
    assert "reload" in done.failed  # from its files, the scaling is applied
    other = build("llama")
    other.config.rope_parameters = {"rope_type": "default", "rope_theta": 1e6}
    found(other, "frequencies", "those of base 50000, and the config has 1e+06: was the config changed")


def test_temperature_squared():
    model = build("llama, yarn")
    rotary(model).attention_scaling **= 2
    done = found(model, "temperature", "it is squared: applied twice")
    assert done["frequencies"].verdict == "PASS"


def test_temperature_squared_in_a_bfloat16_model():
    model = cast_right(build("llama, yarn"))
    rotary(model).attention_scaling **= 2
    found(model, "temperature", "logits by 1.6")


def test_temperature_lost():
    model = build("llama, yarn")
    rotary(model).attention_scaling = 1.0
    found(model, "temperature", "it is not applied")


def test_theta_lost():
    model, plain = build("llama"), build("llama", **rope("default", rope_theta=10000.0))
    rotary(model).inv_freq = rotary(plain).inv_freq.clone()
    found(model, "frequencies", "those of base 10000, and the config has 50000: theta was lost")


@pytest.mark.parametrize(
    ("rounding", "right"), [("of its own precision", True), ("to half", False), ("to bfloat16", False)]
)
def test_a_cache_may_round_more_than_one_pass_but_not_to_another_precision(rounding, right, monkeypatch):
    """What a cache rounds is measured on the cached way: 100 times the model's precision is rounding, float16 none."""
    from transformers.cache_utils import DynamicLayer

    def rounded(x):
        if x.shape[-2] > 1:  # one pass goes through a cache as well
            return x
        if right:
            return x * (1 + 100 * torch.finfo(x.dtype).eps)
        return x.to(torch.float16 if rounding == "to half" else torch.bfloat16).to(x.dtype)

    def update(function, layer, keys, values, *more, **how):
        return function(layer, rounded(keys), rounded(values), *more, **how)

    around(DynamicLayer, "update", update, monkeypatch)
    done = verify(build("llama"))
    assert ("cached" in done.failed) != right, done["cached"]


@pytest.mark.parametrize("name", ["llama", "llama, yarn", "falcon"])
def test_positions_wrapped_at_a_tables_end(name, monkeypatch):
    model = build(name)
    end = model.config.max_position_embeddings
    around(rotary(model), "forward", lambda own, x, position_ids: own(x, position_ids % end), monkeypatch)
    done = found(
        model, "positions", f"position {end} is turned as position 0: positions are wrapped at {end}, a table's end"
    )
    assert done["frequencies"].verdict == "PASS"


def test_positions_held_at_a_tables_end(monkeypatch):
    model = build("llama")
    around(rotary(model), "forward", lambda own, x, position_ids: own(x, position_ids.clamp(max=511)), monkeypatch)
    found(model, "positions", "positions are held at 511")


def test_positions_wrapped_in_a_learned_table(monkeypatch):
    model = build("gpt2")
    around(model.transformer.wpe, "forward", lambda own, at: own(at % 512), monkeypatch)
    found(model, "past the end", "as position 0: positions are wrapped or held")


def test_two_kinds_of_layers_swapped():
    model = build("gemma3")
    table = rotary(model)
    full, sliding = table.full_attention_inv_freq, table.sliding_attention_inv_freq
    table.full_attention_inv_freq, table.sliding_attention_inv_freq = sliding, full
    found(model, "frequencies", "two kinds of layers are swapped")


def test_bfloat16_frequencies():
    model = build("llama")
    table = rotary(model)
    table.inv_freq = table.inv_freq.bfloat16()
    done = found(model, "precision", "in half precision: model.rotary_emb.inv_freq (bfloat16)")
    assert "rounded to bfloat16" in done["frequencies"].sentence
    # rounded, and then in float32 again: no dtype tells, but what it does
    table.inv_freq = table.inv_freq.float()
    found(model, "precision", "turns by frequencies rounded to bfloat16")


def test_bfloat16_frequencies_of_a_whole_model_that_was_cast():
    honest = verify(cast_right(build("llama")))
    assert honest.ok, [(c.name, c.sentence) for c in honest.checks if c.verdict == "FAIL"]
    found(build("llama").to(torch.bfloat16), "precision", "in half precision")


def cast_right(model: Any) -> Any:
    """The weights in bfloat16, and the table of frequencies as it was."""
    table = rotary(model)
    kept = table.inv_freq.clone(), table.original_inv_freq.clone()
    model.to(torch.bfloat16)
    table.inv_freq, table.original_inv_freq = kept
    return model


def test_positions_in_half_precision(monkeypatch):
    model = build("llama")
    around(rotary(model), "forward", lambda own, x, position_ids: own(x, position_ids.bfloat16()), monkeypatch)
    found(model, "positions", "position 257 is turned as position 256: positions are in bfloat16")


@pytest.mark.parametrize(("name", "attention"), [("bloom", "BloomAttention"), ("falcon, alibi", "FalconAttention")])
def test_alibi_dropped_at_decode(name, attention, monkeypatch):
    model = build(name)

    def without(own: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.shape[1] == 1:
            kwargs["alibi"] = torch.zeros_like(kwargs["alibi"])
            if name != "bloom":  # here the bias is in the mask
                kwargs["attention_mask"] = torch.zeros_like(kwargs["attention_mask"])
        return own(x, *args, **kwargs)

    for part in model.modules():
        if type(part).__name__ == attention:
            around(part, "forward", without, monkeypatch)
    kind = model.config._attn_implementation
    done = found(model, f"bias, saying, {kind}", "there is no bias: all keys count alike")
    assert done[f"bias, reading, {kind}"].verdict == "PASS"
    assert "cached" in done.failed


def test_mpt_bias_dropped_at_decode(monkeypatch):
    model = build("mpt")
    for block in model.transformer.blocks:
        around(
            block.attn,
            "forward",
            lambda own, x, position_bias, **kw: own(x, position_bias * (x.shape[1] > 1), **kw),
            monkeypatch,
        )
    found(model, "bias, saying, eager", "there is no bias")


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_t5_bias_dropped_at_decode_under_one_implementation(implementation, monkeypatch):
    model = build("t5")

    def without(own: Any, length: int, *args: Any, **kwargs: Any) -> Any:
        only = model.decoder.config._attn_implementation == implementation and length == 1
        return own(length, *args, **kwargs) * (0 if only else 1)

    around(model.decoder.block[0].layer[0].SelfAttention, "compute_bias", without, monkeypatch)
    done = found(model, f"bias, saying, {implementation}", "there is no bias")
    assert [c.name for c in done.checks if c.verdict == "FAIL" and "bias" in c.name] == [
        f"bias, saying, {implementation}"
    ]


def test_positions_doubled(monkeypatch):
    model = build("llama")
    around(rotary(model), "forward", lambda own, x, position_ids: own(x, 2 * position_ids), monkeypatch)
    found(model, "positions", "(slope 2): the encoding is applied twice, or positions are doubled")


def test_encoding_applied_twice(monkeypatch):
    model = build("llama")
    once = code(model).apply_rotary_pos_emb

    def watched_twice(own: Any, q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        return once(*once(q, k, cos, sin, unsqueeze_dim), cos, sin, unsqueeze_dim)

    around(code(model), "apply_rotary_pos_emb", watched_twice, monkeypatch)
    done = found(model, "positions", "slope 2")
    assert done["pairing"].verdict == "PASS"


def test_keys_turned_again_on_their_way_into_the_cache(monkeypatch):
    model = build("llama")
    cache = sys.modules["transformers.cache_utils"].DynamicCache
    once, table = code(model).apply_rotary_pos_emb, rotary(model)

    def again(own: Any, self: Any, k: Any, v: Any, layer: int, *args: Any, **kwargs: Any) -> Any:
        cos, sin = table.seen
        return own(self, once(k, k, cos, sin)[0], v, layer, *args, **kwargs)

    def remember(own: Any, *args: Any, **kwargs: Any) -> Any:
        table.__dict__["seen"] = own(*args, **kwargs)
        return table.__dict__["seen"]

    around(table, "forward", remember, monkeypatch)
    around(cache, "update", again, monkeypatch)
    found(model, "positions", "slope 2")


@pytest.mark.parametrize("name", ["llama", "gemma3", "gptj"])
def test_pairing_swapped(name, monkeypatch):
    model = build(name)
    module = code(model)
    if name == "gptj":

        def half(own: Any, tensor: Any, sin: Any, cos: Any) -> Any:
            cos, sin = (torch.cat([t, t], -1)[:, :, None] for t in (cos, sin))
            a, b = tensor.chunk(2, -1)
            return tensor * cos + torch.cat([-b, a], -1) * sin

        around(module, "apply_rotary_pos_emb", half, monkeypatch)
        found(model, "pairing", "forms half pairs; the model type has interleaved ones")
        return

    def neighbours(own: Any, q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        d = cos.shape[-1]
        cos, sin = (t[..., : d // 2].repeat_interleave(2, -1).unsqueeze(unsqueeze_dim) for t in (cos, sin))

        def turn(x: Any) -> Any:
            return x * cos + torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2) * sin

        return turn(q), turn(k)

    around(module, "apply_rotary_pos_emb", neighbours, monkeypatch)
    done = found(model, "pairing", "forms interleaved pairs; the model type has half ones")
    assert done["cached"].verdict == "PASS"  # every other check by logits is content


@pytest.mark.parametrize("share", [0.5, 0.125])
def test_partial_rotary_size_wrong(share):
    model, other = (
        build("gpt_neox"),
        build("gpt_neox", **rope("default", rope_theta=10000.0, partial_rotary_factor=share)),
    )
    rotary(model).inv_freq = rotary(other).inv_freq.clone()
    found(model, "rotary size", f"turns {int(16 * share)} channels of a head of 16; the config asks for 4")


@pytest.mark.parametrize("left", [float("nan"), 0.0, "noise"])
def test_uninitialised_frequencies_after_a_lazy_load(left):
    whole = build("llama")
    with torch.device("meta"):
        model = type(whole)(whole.config)
    model = model.to_empty(device="cpu").eval()
    model.load_state_dict(whole.state_dict())  # which has no frequencies: they are no part of a checkpoint
    table = rotary(model).inv_freq
    table.copy_(
        torch.rand(table.shape, generator=torch.Generator().manual_seed(1)) * 3
        if left == "noise"
        else torch.full(table.shape, left)
    )
    found(model, "frequencies", "never initialised")


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt", "gptj", "smollm3"])
def test_positions_not_following_left_padding(name, monkeypatch):
    model = build(name)

    def counted(own: Any, *args: Any, **kwargs: Any) -> Any:
        """As many a serving stack does: positions are counted from the start of the row, padding included."""
        mask, ids = kwargs.get("attention_mask"), kwargs.get("input_ids")
        if mask is not None and mask.dim() == 2 and bool((mask == 0).any()):
            end = mask.shape[1]
            kwargs["position_ids"] = torch.arange(end - ids.shape[1], end)[None].expand(ids.shape)
        return own(*args, **kwargs)

    around(model, "forward", counted, monkeypatch)
    done = found(model, "positions under padding", "positions don't follow left padding")
    if name in ("gpt2", "opt"):  # absolute positions: the logits are wrong; relative ones hide it
        assert "left-padded" in done.failed


# -- known faults of transformers itself -----------------------------------------------------------------------------


def test_dynamic_is_said_to_be_wrong_from_a_cache_and_after_a_long_text():
    done = verify(build("llama", **DYNAMIC))
    assert set(done.failed) == {"cached past trained", "history"}, [(c.name, c.sentence) for c in done.checks]
    assert "transformers' own code does this" in done["cached past trained"].sentence
    assert "the trained length 128" in done["history"].sentence and "they only grow" in done["history"].sentence
    assert done["frequencies"].verdict == done["positions"].verdict == "PASS"


def test_longrope_is_said_to_be_wrong_from_a_cache_at_its_switch_and_has_no_history():
    done = verify(build("llama", **LONG))
    assert done.failed == ("cached past trained",), [(c.name, c.sentence) for c in done.checks]
    assert "LongRoPE does not turn new keys as those it has cached" in done["cached past trained"].sentence


def test_falcon_with_eager_attention_has_its_bias_twice():
    done = verify(build("falcon, alibi"))
    assert done.ok and done["bias, reading, eager"].verdict == "WARN"  # loaded with sdpa, which has not
    assert "the bias is there twice" in done["bias, reading, eager"].sentence
    loaded = build("falcon, alibi")
    loaded.config._attn_implementation = "eager"
    found(loaded, "bias, saying, eager", "its eager Falcon adds ALiBi to the mask, and again to the logits")


def test_a_model_is_left_as_it_was():
    model = build("llama", **DYNAMIC).train()
    before = (
        {name: b.clone() for name, b in model.named_buffers()},
        {k: v.clone() for k, v in model.state_dict().items()},
        rotary(model).max_seq_len_cached,
    )
    own = code(model).apply_rotary_pos_emb
    verify(model)
    assert model.training and code(model).apply_rotary_pos_emb is own
    assert rotary(model).max_seq_len_cached == before[2]
    for now, then in ((dict(model.named_buffers()), before[0]), (model.state_dict(), before[1])):
        assert now.keys() == then.keys()
        assert all(torch.equal(now[k], then[k]) and now[k].dtype == then[k].dtype for k in then)


# -- DeepSeek's decoupled rope: a part of each head, and one key for all -------------------------------------------


def latent(version: int) -> Any:
    """A small DeepSeek-V2 or V3 with random weights: 8 of 24 channels of a head turn."""
    import transformers

    named = {"head_dim": 8} if version == 2 else {}
    config = getattr(transformers, f"DeepseekV{version}Config")(
        vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1, n_routed_experts=4, num_experts_per_tok=2,
        kv_lora_rank=16, q_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
        max_position_embeddings=256, first_k_dense_replace=1, n_group=1, topk_group=1, bos_token_id=1, eos_token_id=2,
        **named,
    )  # fmt: skip
    torch.manual_seed(0)
    return getattr(transformers, f"DeepseekV{version}ForCausalLM")(config).eval()


def rewritten(model: Any, monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> None:
    """The model's attention with lines of its source replaced."""
    made = type(model.model.layers[0].self_attn)
    source = textwrap.dedent(inspect.getsource(made.forward))
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    there: dict[str, Any] = {}
    exec(source, vars(code(model)), there)
    monkeypatch.setattr(made, "forward", there["forward"])


@pytest.mark.parametrize("version", [2, 3])
def test_a_decoupled_rope_passes_as_it_is(version):
    done = verify(latent(version))
    assert done.ok, [(c.name, c.sentence) for c in done.checks]
    assert done["decoupled rope"].verdict == done["frequencies"].verdict == "PASS"
    assert "8 (16 to 23) of 24 channels" in done["decoupled rope"].sentence


def test_a_decoupled_rope_paired_otherwise(monkeypatch):
    model = latent(3)
    monkeypatch.setattr(code(model), "apply_rotary_pos_emb_interleave", code(model).apply_rotary_pos_emb)
    found(model, "pairing", "forms half pairs; the model type has interleaved ones")


@pytest.mark.parametrize("version", [2, 3])
def test_a_decoupled_rope_of_another_base(version):
    model = latent(version)
    model.config.rope_parameters = {"rope_type": "default", "rope_theta": 5e5}
    found(model, "frequencies", "those of base 10000, and the config has 500000")


def test_queries_turned_in_another_part_than_keys(monkeypatch):
    model = latent(3)
    rewritten(model, monkeypatch, ("torch.cat((q_pass, q_rot), dim=-1)", "torch.cat((q_rot, q_pass), dim=-1)"))
    found(model, "decoupled rope", "turns 8 (0 to 7) of a query's 24 channels and 8 (16 to 23) of a key's")


def test_rope_on_the_part_of_each_head_and_not_on_the_shared_key(monkeypatch):
    model = latent(3)
    turned = (
        "q_turned, k_turned = apply_rotary_pos_emb_interleave(query_states[..., :8], key_states[..., :8], cos, sin)"
    )
    rewritten(
        model,
        monkeypatch,
        ("q_rot, k_rot = apply_rotary_pos_emb_interleave(q_rot, k_rot, cos, sin)", "pass"),
        (
            "key_states, value_states = self.expand_kv(kv_nope, k_rot)\n",
            "key_states, value_states = self.expand_kv(kv_nope, k_rot)\n"
            f"    {turned}\n"
            "    query_states = torch.cat((q_turned, query_states[..., 8:]), dim=-1)\n"
            "    key_states = torch.cat((k_turned, key_states[..., 8:]), dim=-1)\n",
        ),
    )
    found(model, "decoupled rope", "differ from head to head; what turns must be the one key that all heads share")


def test_rope_on_the_whole_head(monkeypatch):
    model = latent(3)
    wide = "torch.cat([cos] * 3, dim=-1), torch.cat([sin] * 3, dim=-1)"
    rewritten(
        model,
        monkeypatch,
        ("q_rot, k_rot = apply_rotary_pos_emb_interleave(q_rot, k_rot, cos, sin)", "pass"),
        (
            "key_states, value_states = self.expand_kv(kv_nope, k_rot)\n",
            "key_states, value_states = self.expand_kv(kv_nope, k_rot)\n"
            f"    query_states, key_states = apply_rotary_pos_emb(query_states, key_states, {wide})\n",
        ),
    )
    found(model, "decoupled rope", "turns 24 (0 to 23) of 24 channels, and the config asks for 8")


def test_a_decoupled_rope_that_reaches_queries_alone(monkeypatch):
    model = latent(3)
    rewritten(
        model,
        monkeypatch,
        ("q_rot, k_rot = apply_rotary_pos_emb_interleave(q_rot, k_rot, cos, sin)",
         "q_rot, _ = apply_rotary_pos_emb_interleave(q_rot, k_rot, cos, sin)"),
    )  # fmt: skip
    found(model, "decoupled rope", "the attention gets keys that no position has turned")
