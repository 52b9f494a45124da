"""The stack of a real config as text that `build` reads: the pattern, and each layer's rope as the spec has it."""

import pytest

from milepost import RopeSpec, Stack, build
from milepost.rope.stack import stack_text
from milepost.stack import layer_of

LLAMA4 = {
    "model_type": "llama4_text", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 48,
    "head_dim": 128, "rope_theta": 5e5, "no_rope_layer_interval": 4, "max_position_embeddings": 262144,
}  # fmt: skip
GEMMA3 = {
    "model_type": "gemma3_text", "hidden_size": 640, "num_attention_heads": 4, "head_dim": 256, "num_hidden_layers": 26,
    "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 512, "sliding_window_pattern": 6,
    "max_position_embeddings": 32768,
}  # fmt: skip
QWEN3 = {
    "model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16, "head_dim": 128, "num_hidden_layers": 28,
    "rope_theta": 1e6, "max_position_embeddings": 40960,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
}  # fmt: skip
QWEN2_VL = {
    "model_type": "qwen2_vl", "hidden_size": 1536, "num_attention_heads": 12, "num_hidden_layers": 28,
    "rope_theta": 1e6, "max_position_embeddings": 32768, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "given", "text"),
    [
        (LLAMA4, {}, "layers(3 * rope(head_dim=128, base=500000.0, pairing='interleaved'), nope())"),
        (
            LLAMA4,
            {"temperatures": {"no_rope": "temperature(length=8192)"}},
            "layers(3 * rope(head_dim=128, base=500000.0, pairing='interleaved'), temperature(length=8192))",
        ),
        (
            GEMMA3,
            {"windows": {"sliding_attention": 512}},
            "layers(5 * rope(head_dim=256) in window(512), rope(head_dim=256, base=1000000.0))",
        ),
        (
            QWEN3,
            {"temperatures": {"all": "temperature(length=64)"}, "windows": {"all": 9}},
            "layers(rope(head_dim=128, base=1000000.0, scaling=yarn(factor=4.0, trained=32768)) + "
            "temperature(length=64) in window(9))",
        ),
        (QWEN3, {}, "rope(head_dim=128, base=1000000.0, scaling=yarn(factor=4.0, trained=32768))"),
        (QWEN2_VL, {}, "mrope(head_dim=128, sections=(16, 24, 24), base=1000000.0)"),
    ],
)
def test_the_text_is_the_shortest_pattern_and_builds_the_layers_of_the_spec(config, given, text):
    spec = RopeSpec.from_config(config)
    assert stack_text(spec, **given) == text
    made = build(text)
    assert repr(made) == text
    for number, kind in enumerate(spec.layers):
        rope, (enc, window) = dict(spec.kinds)[kind], layer_of(made, number)
        assert window == given.get("windows", {}).get(kind)
        first = repr(enc).partition(" + ")[0]
        if rope is not None and rope.sections is None:
            assert first == repr(rope.encoding())
        elif rope is None:
            assert first == given.get("temperatures", {}).get(kind, "nope()")


def test_a_pattern_that_ends_early_is_kept_and_one_that_never_repeats_is_written_out():
    spec = RopeSpec.from_config(GEMMA3)
    assert len(spec.layers) == 26 and build(stack_text(spec)).period == 6  # four times six, and two more
    odd = RopeSpec(spec.kinds, (*spec.layers[:6], "full_attention", "full_attention"))
    text = stack_text(odd)
    assert isinstance(build(text), Stack) and text.startswith("layers(5 * rope(head_dim=256), 3 * rope(")


def test_a_kind_that_is_not_there_is_refused():
    with pytest.raises(
        ValueError, match="windows are given for local; the kinds of layers are sliding_attention, full"
    ):
        stack_text(RopeSpec.from_config(GEMMA3), windows={"local": 4})


def test_windows_may_be_given_for_each_layer():
    spec = RopeSpec.from_config(QWEN3)
    text = stack_text(spec, windows=[None] * 27 + [64])
    assert text.startswith("layers(27 * rope(") and text.endswith("in window(64))") and build(text).period == 28
    with pytest.raises(ValueError, match="2 windows are given for 28 layers"):
        stack_text(spec, windows=[None, 4])


def test_temperatures_of_a_spec_are_in_its_text():
    config = LLAMA4 | {"attn_temperature_tuning": True, "attn_scale": 0.2, "floor_scale": 4096}
    text = stack_text(RopeSpec.from_config(config))
    assert text.endswith("temperature(length=4096, rate=0.2))") and repr(build(text)) == text


def test_some_layers_of_molmo_2_turn_without_the_scaling():
    yarn = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 4096}
    config = {
        "model_type": "molmo2_text", "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128,
        "num_hidden_layers": 6, "rope_parameters": yarn, "max_position_embeddings": 16384,
    }  # fmt: skip
    scaled = "rope(head_dim=128, base=1000000.0, scaling=yarn(factor=4.0, trained=4096))"
    assert stack_text(RopeSpec.from_config(config)) == scaled
    assert stack_text(RopeSpec.from_config(config | {"rope_scaling_layers": [0, 1, 2, 3, 4, 5]})) == scaled
    text = stack_text(RopeSpec.from_config(config | {"rope_scaling_layers": [1, 3, 5]}))
    assert text == f"layers(rope(head_dim=128, base=1000000.0), {scaled})"
    with pytest.raises(ValueError, match="layers are numbered 0 to 5"):
        RopeSpec.from_config(config | {"rope_scaling_layers": [6]})


def test_values_that_turn_and_outputs_that_do_not_are_refused():
    config = {"model_type": "roformer", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    assert RopeSpec.from_config(config | {"rotary_value": False}).main.rotary == 16
    with pytest.raises(ValueError, match="rotary_value is true: values are turned, and outputs are not turned back"):
        RopeSpec.from_config(config | {"rotary_value": True})
