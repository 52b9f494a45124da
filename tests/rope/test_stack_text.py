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
