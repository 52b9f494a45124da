"""inspect gives back a model's stack as text, which build reads; and says what the text leaves out."""

import importlib
import json

import pytest
import torch
from typer.testing import CliRunner

from milepost import build
from milepost.checkpoints import inspect
from milepost.cli import app
from milepost.stack import layer_of

GEMMA3 = {
    "model_type": "gemma3_text", "hidden_size": 640, "num_attention_heads": 4, "head_dim": 256, "num_hidden_layers": 26,
    "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 512, "sliding_window_pattern": 6,
    "max_position_embeddings": 32768,
}  # fmt: skip
LLAMA4 = {
    "model_type": "llama4_text", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 8,
    "head_dim": 128, "rope_theta": 5e5, "no_rope_layer_interval": 4, "max_position_embeddings": 262144,
    "attn_temperature_tuning": True, "floor_scale": 8192, "attn_scale": 0.1, "attention_chunk_size": 8192,
    "layer_types": ["chunked_attention"] * 3 + ["full_attention"] + ["chunked_attention"] * 3 + ["full_attention"],
}  # fmt: skip
QWEN2 = {
    "model_type": "qwen2", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 6, "rope_theta": 1e6,
    "use_sliding_window": True, "max_window_layers": 4, "sliding_window": 4096, "max_position_embeddings": 32768,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v32", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 3,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "rope_theta": 1e4, "max_position_embeddings": 4096,
}  # fmt: skip
HYBRID = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_attention_heads": 16, "head_dim": 256, "num_hidden_layers": 8,
    "partial_rotary_factor": 0.25, "rope_theta": 1e7, "max_position_embeddings": 262144,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
}  # fmt: skip
BLOOM = {"model_type": "bloom", "hidden_size": 64, "n_head": 4, "n_layer": 2}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128}


@pytest.mark.parametrize(
    ("config", "text", "left"),
    [
        (GEMMA3, "layers(5 * rope(head_dim=256) in window(512), rope(head_dim=256, base=1000000.0))", ()),
        (
            LLAMA4,
            "layers(3 * rope(head_dim=128, base=500000.0, pairing='interleaved'), temperature(length=8192))",
            ("some layers see no further than a chunk of 8192 tokens",),
        ),
        (
            QWEN2,
            "layers(4 * rope(head_dim=128, base=1000000.0), 2 * rope(head_dim=128, base=1000000.0) in window(4096))",
            (),
        ),
        (
            DEEPSEEK,
            "rope(head_dim=64, pairing='interleaved')",
            (
                "head_dim is the part of a head that turns, and one key serves all heads",
                "what chooses keys (the indexer) has a rope of its own",
            ),
        ),
        (
            HYBRID,
            "layers(3 * nope(), rope(head_dim=256, base=10000000.0, rotary=64))",
            ("6 layers have no attention, and nope() stands for them",),
        ),
        (BLOOM, "alibi(heads=4, slopes=(0.25, 0.0625, 0.015625, 0.00390625))", ()),
        (GPT2, "", ()),
    ],
)
def test_a_real_config_gives_back_its_stack(config, text, left, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    found = inspect(file)
    assert (found.text, found.not_in_text) == (text, left)
    if text:
        made = build(text)
        assert repr(made) == text
        for layer in found.layers:
            enc, window = layer_of(made, layer.layer)
            assert window == (None if layer.kind == "chunked_attention" else layer.window)
            assert layer.scheme not in ("rope", "alibi") or repr(enc).startswith(f"{layer.scheme}(")
    data = json.loads(CliRunner().invoke(app, ["inspect", str(file), "--json"]).stdout)
    assert data["text"] == text and data["not_in_text"] == list(left)
    shown = "".join(CliRunner().invoke(app, ["inspect", str(file)]).stdout.split())
    assert "".join(text.split()) in shown and all("".join(f"left out: {s}".split()) in shown for s in left)


@pytest.mark.parametrize("more", [{}, {"log_scaling_n_floor": 4, "log_scaling_alpha": 0.3}, {"local_layer_ids": [1]}])
def test_the_text_of_inkling_builds_what_its_layers_add(more, tmp_path):
    """Every layer's relative logits and its temperature, by encodings that are built of the text alone, with the model's
    own weights: the bias and the queries that its class hands to attention."""
    transformers, utils = (importlib.import_module(name) for name in ("transformers", "transformers.modeling_utils"))
    sizes = {"hidden_size": 24, "intermediate_size": 16, "sliding_window_size": 3, "rel_extent": 7, "d_rel": 5}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "swa_num_attention_heads": 2}
    swa = {"swa_num_key_value_heads": 1, "swa_head_dim": 12}
    config = transformers.InklingTextConfig(
        vocab_size=20,
        num_hidden_layers=7,
        mlp_layer_types=["dense"] * 7,
        pad_token_id=0,
        **sizes,
        **heads,
        **swa,
        **more,
    )
    (tmp_path / "config.json").write_text(json.dumps({**config.to_dict(), **more}))
    found = inspect(tmp_path / "config.json")
    stack = build(found.text)
    model, handed = transformers.InklingTextModel(config).eval(), []
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)

    def keep(module, q, k, v, *_, position_bias=None, sliding_window=None, **__):
        handed.append((module, q, position_bias, sliding_window))
        return torch.zeros(*q.transpose(1, 2).shape), None

    utils.ALL_ATTENTION_FUNCTIONS.register("handed", keep)
    hidden: dict[int, torch.Tensor] = {}
    for n, layer in enumerate(model.layers):
        layer.self_attn.register_forward_pre_hook(
            lambda _, args, kwargs, n=n: hidden.update({n: kwargs.get("hidden_states", args[0] if args else None)}),
            with_kwargs=True,
        )
    model.config._attn_implementation = "handed"
    try:
        with torch.no_grad():
            model(torch.arange(1, 12)[None], use_cache=False)
            pos, at = torch.arange(11), torch.arange(11)
            for n, (module, q, bias, window) in enumerate(handed):
                enc, sees = layer_of(stack, n)
                assert sees == window == found.layers[n].window
                enc.mix.weight.copy_(module.r_proj.weight)
                enc.profiles.copy_(module.rel_logits_proj.proj)
                f = enc.features(hidden[n], pos)
                ours = enc.weigh(torch.arange(enc.heads), f, f, at[:, None], at[None])
                seen = torch.ones(11, 11, dtype=torch.bool).tril()
                assert (ours - bias)[..., seen].abs().max() <= 8 * 2.0**-23 * bias.abs().max()
                plain = module.q_norm(module.q_proj(hidden[n]).view(1, 11, enc.heads, -1)).transpose(1, 2)
                assert (enc.query(plain, pos) - q).abs().max() <= 4 * 2.0**-23 * q.abs().max()
                assert bias[..., seen].abs().max() > 0.1
    finally:
        utils.ALL_ATTENTION_FUNCTIONS._global_mapping.pop("handed")
    assert len(handed) == len(found.layers) == 7
