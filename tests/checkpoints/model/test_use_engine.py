"""use_engine: BLOOM, MPT, Falcon, T5, mT5, UMT5 and Inkling before and after, on logits, gradients, generation and memory."""

from __future__ import annotations

import copy
import importlib
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from milepost.checkpoints import use_engine
from milepost.checkpoints.model.engine_attention import REASONS
from milepost.checkpoints.model.watched_attention import looks
from milepost.rope import ConfigError

transformers = importlib.import_module("transformers")
transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore", module="transformers")

V = 64
LONG = 1100  # more than one strip of the engine
LONG_LEFT = pytest.param("left", LONG, marks=pytest.mark.slow)
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}


def bloom(heads: int = 6, width: int = 16, **more: Any) -> Any:
    more = {"attention_dropout": 0.0, "hidden_dropout": 0.0, **more}
    return transformers.BloomForCausalLM(
        transformers.BloomConfig(vocab_size=V, hidden_size=width * heads, n_layer=2, n_head=heads, **TOKENS, **more)
    )


def mpt(heads: int = 6, width: int = 16, **more: Any) -> Any:
    config = transformers.MptConfig(
        vocab_size=V, d_model=width * heads, n_layers=2, n_heads=heads, **{"max_seq_len": 2048, **TOKENS, **more}
    )
    return transformers.MptForCausalLM(config)


def falcon(heads: int = 6, width: int = 16, **more: Any) -> Any:
    more = {"alibi": True, "num_hidden_layers": 2, **TOKENS, **more}
    return transformers.FalconForCausalLM(
        transformers.FalconConfig(vocab_size=V, hidden_size=width * heads, num_attention_heads=heads, **more)
    )


def t5(heads: int = 6, width: int = 16, family: str = "T5", head: str = "ForConditionalGeneration", **more: Any) -> Any:
    config = getattr(transformers, f"{family}Config")(
        vocab_size=V,
        d_model=48,
        d_kv=width,
        d_ff=64,
        num_layers=2,
        num_heads=heads,
        decoder_start_token_id=3,
        **TOKENS,
        **{"dropout_rate": 0.0, **more},
    )
    return getattr(transformers, f"{family}{head}")(config)


def inkling(heads: int = 6, width: int = 16, **more: Any) -> Any:
    """A layer with a window of 12, one without, and a temperature from the 8th token on."""
    sizes = {"hidden_size": 48, "intermediate_size": 64, "sliding_window_size": 12, "rel_extent": 20, "d_rel": 5}
    full = {"num_attention_heads": heads, "num_key_value_heads": 2, "head_dim": width}
    more = {"log_scaling_n_floor": 8, "log_scaling_alpha": 0.4, **TOKENS, **more}
    config = transformers.InklingTextConfig(
        vocab_size=V, num_hidden_layers=2, layer_types=["hybrid_sliding", "hybrid"], mlp_layer_types=["dense"] * 2,
        **sizes, **full, **{f"swa_{word}": size for word, size in full.items()}, **more,
    )  # fmt: skip
    return transformers.InklingForCausalLM(config)


MODELS: dict[str, Callable[..., Any]] = {
    "bloom": bloom,
    "bloom, 12 heads": lambda **more: bloom(12, 8, **more),
    "mpt": mpt,
    "mpt, 12 heads, clipped": lambda **more: mpt(12, 8, attn_config={"clip_qkv": 1.0, "softmax_scale": 0.3}, **more),
    "falcon-rw": lambda **more: falcon(multi_query=False, parallel_attn=False, bias=True, **more),
    "falcon, multi-query": lambda **more: falcon(multi_query=True, parallel_attn=True, **more),
    "falcon, multi-query, sequential": lambda **more: falcon(5, 12, multi_query=True, parallel_attn=False, **more),
    "falcon, new decoder": lambda **more: falcon(new_decoder_architecture=True, num_kv_heads=2, **more),
    "falcon, eager": lambda **more: falcon(multi_query=False, attn_implementation="eager", **more),
    "t5": t5,
    "t5, eager": lambda **more: t5(attn_implementation="eager", **more),
    "t5, other buckets": lambda **more: t5(
        relative_attention_num_buckets=14, relative_attention_max_distance=50, **more
    ),
    "mt5": lambda **more: t5(family="MT5", **more),
    "umt5": lambda **more: t5(family="UMT5", **more),
    "inkling": inkling,
    "inkling, eager": lambda **more: inkling(attn_implementation="eager", **more),
    "inkling, no temperature": lambda **more: inkling(4, 8, log_scaling_n_floor=None, **more),
}
ONE_EACH = ["bloom", "mpt", "falcon-rw", "falcon, multi-query", "t5", "mt5", "umt5", "inkling"]


def made(name: str, **more: Any) -> Any:
    """A small model with random weights, large enough that positions, norms and biases all matter."""
    model = MODELS[name](**{"tie_word_embeddings": False, **more})
    draw = torch.Generator().manual_seed(1)
    for word, p in model.named_parameters():
        spread = 1.5 if "relative_attention_bias" in word else p.shape[-1] ** -0.5 if p.dim() > 1 else 0.1
        centre = 1.0 if p.dim() == 1 and ("norm" in word or "ln_" in word) else 0.0
        p.data = torch.randn(p.shape, generator=draw) * spread + centre
    return model.eval()


def seq2seq(model: Any) -> bool:
    return bool(model.config.is_encoder_decoder)


def inputs(model: Any, length: int, batch: int = 2) -> dict[str, Tensor]:
    ids = torch.randint(4, V, (batch, length), generator=torch.Generator().manual_seed(2))
    return (
        {"input_ids": ids, "decoder_input_ids": ids.flip(1)[:, : length - 5]} if seq2seq(model) else {"input_ids": ids}
    )


def logits(model: Any, length: int, **more: Any) -> Tensor:
    with torch.no_grad():
        return model(**inputs(model, length), **more).logits


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the scale of the second."""
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()


# -- the same numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [33, pytest.param(LONG, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_models_own(name, length):
    model = made(name)
    own = logits(model, length)
    assert use_engine(model) is model
    assert gap(logits(model, length), own) < 1e-5


def test_bloom_that_sums_by_slices():
    model = made("bloom", pretraining_tp=2, slow_but_exact=True)
    own = logits(model, 33)
    assert gap(logits(use_engine(model), 33), own) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ONE_EACH)
def test_in_half_precision_within_the_models_own_rounding(name, dtype):
    """The model's own rounding is its distance from the same weights run in float32.

    The largest of 50000 distances is a matter of luck, their mean square is not: the engine rounds no more than the
    model does, but for a tenth.
    """
    model = made(name).to(dtype)
    exact = logits(copy.deepcopy(model).float(), 400)
    own = logits(model, 400)
    ours = logits(use_engine(model), 400)
    rounding = gap(own, exact)
    assert 0 < rounding < 0.3
    assert gap(ours, own) < 2 * rounding
    assert gap(ours, exact) < 1.5 * rounding or name == "inkling"
    mine, its = ((got.double() - exact.double()).square().mean().sqrt() for got in (ours, own))
    assert mine < 1.1 * its


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_falcons_bfloat16_steps_are_kept_to_the_last_bit(dtype):
    """Its biases near key 1000 go in steps of 2 to 4 in every dtype: a smooth ALiBi would be another model."""
    model = made("falcon-rw").to(dtype)
    own = logits(model, LONG)
    assert torch.equal(logits(use_engine(model), LONG), own)


@pytest.mark.parametrize("family", ["T5", "MT5", "UMT5"])
@pytest.mark.parametrize(
    "head", ["Model", "EncoderModel", "ForTokenClassification", "ForSequenceClassification", "ForQuestionAnswering"]
)
def test_the_other_heads_of_t5(family, head):
    MODELS["other"] = lambda **more: t5(family=family, head=head, **more)
    try:
        model = made("other")
    finally:
        del MODELS["other"]
    ids = torch.randint(4, V, (2, 40), generator=torch.Generator().manual_seed(2))
    ids[:, -1] = 2
    given = {"input_ids": ids, "decoder_input_ids": ids[:, :9]} if head == "Model" else {"input_ids": ids}
    mask = torch.ones_like(ids)
    mask[0, 30:-1] = 0
    with torch.no_grad():
        own = model(**given, attention_mask=mask)
        ours = use_engine(model)(**given, attention_mask=mask)
    assert gap(ours[0], own[0]) < 1e-5


@pytest.mark.parametrize("make", ["BloomModel", "MptModel", "FalconModel"])
def test_base_models(make):
    whole = made({"BloomModel": "bloom", "MptModel": "mpt", "FalconModel": "falcon-rw"}[make])
    model, ids = whole.transformer, torch.arange(4, 44)[None]
    assert type(model).__name__ == make
    with torch.no_grad():
        own = model(ids)[0]
        assert gap(use_engine(model)(ids)[0], own) < 1e-5


# -- padding and caches ------------------------------------------------------------------------------------------------


def padding(kind: str, length: int) -> Tensor:
    mask = torch.ones(2, length, dtype=torch.long)
    if kind == "left":
        mask[0, : length // 3] = 0
    elif kind == "right":
        mask[1, length // 3 :] = 0
    else:
        mask[0, length // 3 : length // 2] = 0
    return mask


@pytest.mark.parametrize(("kind", "length"), [("left", 33), ("right", 33), ("a hole", 33), LONG_LEFT])
@pytest.mark.parametrize("name", ONE_EACH)
def test_padded_batches(name, kind, length):
    """All logits, those of padding included."""
    model = made(name)
    mask = padding(kind, length)
    more = {"decoder_attention_mask": mask.flip(1)[:, : length - 5]} if seq2seq(model) else {}
    own = logits(model, length, attention_mask=mask, **more)
    ours = logits(use_engine(model), length, attention_mask=mask, **more)
    assert gap(ours, own) < 1e-5


GENERATED = [(name, "dynamic") for name in [*ONE_EACH, "falcon, new decoder", "falcon, eager"]]
# transformers' Falcon with ALiBi can't take the 4-D mask that its generate() makes for a static cache
# and its Inkling makes a mask of all the room for layers whose cache is a window: it fails in its own attention
GENERATED += [(name, "static") for name in ONE_EACH if not name.startswith(("falcon", "inkling"))]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(("name", "cache"), GENERATED)
def test_generation_with_a_cache_and_left_padding(name, beams, cache):
    """The same tokens, and the same scores at each step."""
    model = made(name)
    ids = inputs(model, 40, batch=3)["input_ids"]
    mask = torch.ones_like(ids)
    mask[0, :25], mask[1, :7] = 0, 0
    ids = ids.masked_fill(mask == 0, 3)
    how: dict[str, Any] = {"max_new_tokens": 24, "min_new_tokens": 24, "num_beams": beams, "do_sample": False}
    how |= {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3}  # random weights love one token
    how |= {"return_dict_in_generate": True, "output_scores": True}
    if cache == "static":
        how["cache_implementation"] = "static"
    own = model.generate(ids, attention_mask=mask, **how)
    ours = use_engine(model).generate(ids, attention_mask=mask, **how)
    assert torch.equal(ours.sequences, own.sequences)
    assert len(set(ours.sequences[0, -24:].tolist())) > 4  # it says something
    for a, b in zip(ours.scores, own.scores, strict=True):
        seen = b.isfinite()
        assert torch.equal(a.isfinite(), seen)
        assert gap(a[seen], b[seen]) < 1e-5


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_text_that_goes_on_in_pieces_with_left_padding(name):
    """Pieces of several tokens after a cache; the first piece of row 0 is all padding."""
    model = use_engine(made(name))
    length = 60
    mask = torch.ones(2, length, dtype=torch.long)
    mask[0, :25] = 0
    given = inputs(model, length)
    word, where = ("decoder_input_ids", "decoder_attention_mask") if seq2seq(model) else ("input_ids", "attention_mask")
    given[word] = inputs(model, length)["input_ids"]
    with torch.no_grad():
        whole = model(**given, **{where: mask}).logits
        past, found = None, []
        for a, e in [(0, 20), (20, 41), (41, 42), (42, 60)]:
            step = model(
                **{**given, word: given[word][:, a:e], where: mask[:, :e]}, past_key_values=past, use_cache=True
            )
            past = step.past_key_values
            found.append(step.logits)
    assert gap(torch.cat(found, 1)[mask.bool()], whole[mask.bool()]) < 1e-5


# -- training ----------------------------------------------------------------------------------------------------------


def gradients(model: Any, length: int, mask: Tensor | None) -> dict[str, Tensor]:
    model.train().zero_grad()
    ids = inputs(model, length)["input_ids"]
    labels = (
        ids if mask is None or seq2seq(model) else ids.masked_fill(mask.cumsum(-1) < 2, -100)
    )  # padding says nothing of the first token
    more = {} if mask is None else {"attention_mask": mask}
    model(input_ids=ids, labels=labels, use_cache=False, **more).loss.backward()
    return {word: p.grad.clone() for word, p in model.named_parameters()}


@pytest.mark.parametrize(("kind", "length"), [("none", 33), ("left", 33), LONG_LEFT])
@pytest.mark.parametrize("name", ["bloom", "falcon, multi-query", "t5", "umt5", "inkling"])
def test_gradients_are_the_models_own(name, length, kind):
    model = made(name)
    mask = None if kind == "none" else padding(kind, length)
    own = gradients(model, length, mask)
    ours = gradients(use_engine(model), length, mask)
    assert list(ours) == list(own)
    if name in ("t5", "umt5", "inkling"):
        tables = [word for word in own if "relative_attention_bias" in word or "rel_logits_proj" in word]
        assert len(tables) == (4 if name == "umt5" else 2) and all(own[word].abs().max() > 0 for word in tables)
    for word, grad in own.items():
        assert gap(ours[word], grad) < 2e-4, word  # float32 sums over 2200 tokens


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["bloom", "t5"])
def test_gradient_checkpointing(name, reentrant):
    model = use_engine(made(name))
    plain = gradients(model, 33, None)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if reentrant:
        model.enable_input_require_grads()
    for word, grad in gradients(model, 33, None).items():
        assert gap(grad, plain[word]) < 1e-4, word


def test_a_changed_table_is_seen():
    """By an optimiser's step, another dtype, other weights: what the engine remembers of a table is never old."""
    model = use_engine(made("t5"))
    logits(model, 33)
    weight = model.decoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    with torch.no_grad():
        weight.mul_(-2)
    changes: list[Callable[[], Any]] = [
        lambda: model.to(torch.bfloat16).float(),
        lambda: model.load_state_dict({k: v * 1.5 for k, v in model.state_dict().items()}, assign=True),
    ]
    for change in [lambda: None, *changes]:
        change()
        own = copy.deepcopy(model)
        assert gap(logits(model, 33), logits(use_engine(own, on=False), 33)) < 1e-5


# -- memory ------------------------------------------------------------------------------------------------------------


def largest(run: Callable[[], Any]) -> int:
    """The largest single allocation, in bytes: of any operator, inside or outside of torch."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        run()
    return max(event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]")


SMALL = {
    "bloom": lambda: bloom(4, 8),
    "mpt": lambda: mpt(4, 8),
    "falcon-rw": lambda: falcon(4, 8, multi_query=False),
    "falcon, multi-query": lambda: falcon(4, 8, multi_query=True),
    "t5": lambda: t5(4, 8),
    "mt5": lambda: t5(4, 8, family="MT5"),
    "umt5": lambda: t5(4, 8, family="UMT5"),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_nothing_of_n_by_n_is_made(name, padded):
    """Neither in a forward, with or without left padding, nor in the next step of decoding: not even one byte for each
    pair."""
    model = SMALL[name]().eval()
    given = inputs(model, LONG, batch=1)
    if padded:
        given["attention_mask"] = padding("left", LONG)[:1]

    @torch.no_grad()
    def run() -> None:
        past = model(**given, use_cache=True).past_key_values
        grown = torch.cat([given["attention_mask"], torch.ones(1, 1, dtype=torch.long)], 1) if padded else None
        if seq2seq(model):
            model(**{**given, "decoder_input_ids": given["input_ids"][:, :1]}, past_key_values=past)
        else:
            model(given["input_ids"][:, :1], attention_mask=grown, past_key_values=past)

    assert largest(run) >= LONG * (LONG - 5)  # the watch sees it
    use_engine(model)
    assert largest(run) < LONG * (LONG - 5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "left", "right", "a hole"])
def test_a_band_does_not_grow_with_the_text(kind):
    """Inkling: blocks of a band beside the diagonal, as large for twice the tokens, where the model's own bias is four
    times as large. Around a hole it is some rows of all keys, as many as a
    chunk of fixed size holds."""
    model = inkling(4, 8).eval()

    def grows() -> float:
        sizes = []
        for n in (LONG, 2 * LONG):
            more = {} if kind == "none" else {"attention_mask": padding(kind, n)}
            sizes.append(largest(lambda n=n, more=more: logits(model, n, use_cache=False, **more)))
        return sizes[1] / sizes[0]

    assert grows() > 3.9
    use_engine(model)
    assert grows() < 1.01


@pytest.mark.parametrize("name", ["bloom", "t5"])
def test_nothing_of_n_by_n_is_made_in_training(name):
    """T5's backward pass works on a few rows at a time, which are fewer numbers than one head's N x N."""
    model = SMALL[name]().train()
    ids = inputs(model, LONG, batch=1)["input_ids"]

    def step() -> None:
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()

    assert largest(step) >= 4 * LONG**2
    use_engine(model)
    assert largest(step) < 4 * LONG**2


# -- in place, twice, and back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_EACH)
def test_twice_is_as_once_and_there_is_a_way_back(name):
    model = made(name)
    before, keys, was = logits(model, 33), list(model.state_dict()), model.config._attn_implementation
    parts = [word for word, _ in model.named_modules()]
    ours = logits(use_engine(model), 33)
    assert torch.equal(logits(use_engine(model), 33), ours)
    assert list(model.state_dict()) == keys and [word for word, _ in model.named_modules()] == parts
    assert "milepost" not in str(model.config.to_dict())
    assert torch.equal(logits(use_engine(model, on=False), 33), before)
    assert model.config._attn_implementation == was
    assert torch.equal(logits(use_engine(model, on=False), 33), before)
    assert torch.equal(logits(use_engine(model), 33), ours)


def test_the_inner_model_can_go_back_alone_and_it_takes_the_outer_along():
    model = made("bloom")
    before = logits(model, 33)
    use_engine(model)
    use_engine(model.transformer, on=False)
    assert torch.equal(logits(model, 33), before)
    use_engine(use_engine(model.transformer) and model)
    assert gap(logits(model, 33), before) > 0
    assert torch.equal(logits(use_engine(model, on=False), 33), before)
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["bloom", "t5"])
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"]
)
def test_copies_stand_alone(name, copied):
    model = made(name)
    before = logits(model, 33)
    ours = logits(use_engine(model), 33)
    other = copied(model)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert torch.equal(logits(other, 33), ours)
    assert torch.equal(logits(use_engine(other, on=False), 33), before)


@pytest.mark.parametrize("hooked_first", [True, False])
@pytest.mark.parametrize("name", ["falcon-rw", "t5"])
def test_with_the_hooks_of_accelerate(name, hooked_first):
    """accelerate wraps every forward of a dispatched model: the engine goes below its hook."""
    hooks = importlib.import_module("accelerate.hooks")

    class Count(hooks.ModelHook):
        calls = 0

        def pre_forward(self, module: Any, *args: Any, **kwargs: Any) -> Any:
            Count.calls += 1
            return args, kwargs

    model = made(name)
    own = logits(model, 33)
    steps = [lambda: use_engine(model), lambda: hooks.add_hook_to_module(parts[0], Count())]
    parts = [m for m in model.modules() if type(m).__name__.endswith("Attention") and hasattr(m, "layer_idx")]
    for step in steps[::-1] if hooked_first else steps:
        step()
    ours = logits(model, 33)
    assert Count.calls == 1 and gap(ours, own) < 1e-5
    assert parts[0].__dict__["_old_forward"].func.__name__ in ("_falcon", "_t5")
    assert torch.equal(logits(use_engine(model, on=False), 33), own)
    assert Count.calls == 2


def test_t5_given_another_implementation_by_hand_runs_it():
    model = made("t5")
    own, ours = logits(model, 33), logits(use_engine(model), 33)
    model.set_attn_implementation("sdpa")
    assert torch.equal(logits(model, 33), own)
    assert torch.equal(logits(use_engine(model), 33), ours)


# -- what it refuses ---------------------------------------------------------------------------------------------------


def test_other_families_are_refused_by_name():
    config = transformers.GPT2Config(vocab_size=V, n_embd=32, n_layer=1, n_head=2)
    with pytest.raises(
        ValueError,
        match=r"knows BLOOM, MPT, Falcon .with ALiBi., T5, mT5, UMT5 and Inkling of transformers, got GPT2Model of model type 'gpt2'",
    ):
        use_engine(transformers.GPT2Model(config))
    with pytest.raises(ValueError, match="got Linear"):
        use_engine(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="rotary positions"):
        use_engine(falcon(alibi=False))


def test_a_model_that_adds_something_else_by_position_is_told_why_it_is_not_taken():
    """Each reason by a real class where it is quickly built, and every name is a model type of transformers."""
    known = set(transformers.models.auto.configuration_auto.CONFIG_MAPPING)
    assert set(REASONS) <= known, set(REASONS) - known
    sizes = {"vocab_size": V, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    small = {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    deberta = transformers.DebertaV2Config(**small, intermediate_size=16, relative_attention=True)
    for model in (
        transformers.SwitchTransformersEncoderModel(
            transformers.SwitchTransformersConfig(**sizes, num_experts=2, expert_capacity=4)
        ),
        transformers.LongT5EncoderModel(transformers.LongT5Config(**sizes)),
        transformers.DebertaV2Model(deberta),
    ):
        kind = model.config.model_type
        with pytest.raises(ValueError, match=f"of model type '{kind}'; {REASONS[kind][:40]}"):
            use_engine(model)


def test_a_bias_of_the_models_own_is_no_attention_that_can_be_looked_at():
    """Queries and keys alone would give other weights than the model has."""
    model = made("inkling")
    with pytest.raises(ConfigError, match="InklingAttention adds a bias of its own to the logits"):
        looks(model, lambda: logits(model, 33))


def test_packed_texts_of_inkling_are_refused():
    model = use_engine(made("inkling"))
    places = torch.cat([torch.arange(20), torch.arange(13)])[None].expand(2, -1)
    with pytest.raises(ValueError, match="plain mask with padding"):
        logits(model, 33, position_ids=places, use_cache=False)


@pytest.mark.parametrize(
    ("name", "more", "word"),
    [
        ("bloom", {"attention_dropout": 0.1}, "attention_dropout=0.0"),
        ("mpt", {"attn_config": {"attn_pdrop": 1}}, "attn_pdrop"),
        ("falcon-rw", {"attention_dropout": 0.1}, "attention_dropout=0.0"),
        ("t5", {"dropout_rate": 0.1}, "dropout_rate=0.0"),
        ("inkling", {"attention_dropout": 0.1}, "attention_dropout=0.0"),
    ],
)
def test_attention_dropout_is_refused_in_training_only(name, more, word):
    model = use_engine(made(name, **more))
    assert logits(model, 33).isfinite().all()
    with pytest.raises(ValueError, match=rf"must be 0 in training mode, got (0.1|1).*{word}"):
        logits(model.train(), 33)


@pytest.mark.parametrize("name", ONE_EACH)
def test_attention_weights_are_refused(name):
    model = use_engine(made(name))
    with pytest.raises(ValueError, match=r"output_attentions=True was asked for.*on=False"):
        logits(model, 33, output_attentions=True)
    with pytest.raises(ValueError, match=r"config.output_attentions is True"):
        use_engine(MODELS[name](output_attentions=True, attn_implementation="eager"))


@pytest.mark.parametrize("name", ["mpt", "t5", "inkling"])
def test_masks_of_ones_own_are_refused(name):
    """BLOOM and Falcon make their biases from a 2-D mask, and can't take another themselves."""
    with pytest.raises(ValueError, match=r"shape \(B, J\), got \(2, 1, 33, 33\)"):
        logits(use_engine(made(name)), 33, attention_mask=torch.zeros(2, 1, 33, 33))


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-rw", "inkling"])
def test_a_model_told_not_to_be_causal_is_refused(name):
    model = use_engine(made(name))
    model.config.is_causal = False
    with pytest.raises(ValueError, match="plain mask with padding"):
        logits(model, 33)


def test_bloom_given_another_implementation_by_hand_says_so():
    model = use_engine(made("bloom"))
    model.config._attn_implementation = "eager"
    with pytest.raises(ValueError, match=r"padding mask of shape \(B, J\), got \(2, 1, 33, 33\).*on=False"):
        logits(model, 33)


def test_mpt_past_its_biases():
    model = use_engine(made("mpt", max_seq_len=32))
    with pytest.raises(
        ValueError, match=r"config.max_seq_len = 32 tokens, got 33; set model.config.max_seq_len higher"
    ):
        logits(model, 33)
    model.config.max_seq_len = 64
    assert logits(model, 33).isfinite().all()


@pytest.mark.parametrize("name", ["bloom", "mpt", "falcon-rw", "t5", "inkling"])
def test_another_model_of_a_switched_models_config_is_never_half_switched(name):
    """Its mask would be the engine's and its attention not: refused when it is built, or when it runs."""
    switched = use_engine(made(name))
    with pytest.raises(ValueError, match=r"milepost_(row|table|band)"):
        logits(type(switched)(switched.config).eval(), 33)


def test_a_switched_model_is_saved_as_it_was(tmp_path):
    model = made("t5")
    own = logits(model, 33)
    use_engine(model).save_pretrained(tmp_path)
    assert "milepost" not in (tmp_path / "config.json").read_text()
    again = type(model).from_pretrained(tmp_path).eval()
    assert again.config._attn_implementation == "sdpa" and torch.equal(logits(again, 33), own)
