"""GGUF: the header byte by byte, damaged files, and what llama.cpp makes of the keys, held to the same model's
config.json."""

import math
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.rope import read
from milepost.rope.config import gguf
from milepost.rope.config.gguf_header import DEEP, STEPS, Tensor
from milepost.rope.config.keys import ConfigError
from milepost.rope.engines.parity import differences
from milepost.rope.temperature import QueryTemperature
from milepost.scaling import Linear, Llama3, LongRoPE, YaRN

U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 = range(13)
LETTERS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def packed(kind, value):
    """The bytes of one value; an array is (type of its items, items)."""
    if kind == TEXT:
        return text(value)
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(packed(inner, item) for item in items)
    return struct.pack("<" + LETTERS[kind], value)


def header(pairs, tensors=(), *, version=3, magic=b"GGUF"):
    """The bytes of a file: key-values as (name, type, value), tensors as (name, sizes, float32 values)."""
    out = magic + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for name, kind, value in pairs:
        out += text(name) + struct.pack("<I", kind) + packed(kind, value)
    alignment = next((value for name, _, value in pairs if name == "general.alignment"), 32)
    data = b""
    for name, sizes, values in tensors:
        data += b"\0" * (-len(data) % alignment)
        out += (
            text(name)
            + struct.pack("<I", len(sizes))
            + b"".join(struct.pack("<Q", n) for n in sizes)
            + struct.pack("<IQ", 0, len(data))
        )
        data += struct.pack(f"<{len(values)}f", *values)
    return out + b"\0" * (-len(out) % alignment) + data


def kind_of(value):
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, list):
        return ARRAY
    return {int: U32, float: F32, str: TEXT}[type(value)]


def pairs_of(arch, keys):
    """Key-values with the types that converters write."""
    common = {f"{arch}.{name}": value for name, value in keys.items()}
    listed = [
        (name, kind_of(v), (kind_of(v[0]) if v[0] is not True else BOOL, v) if isinstance(v, list) else v)
        for name, v in common.items()
    ]
    return [("general.architecture", TEXT, arch), *listed]


@pytest.fixture
def written(tmp_path):
    """Writes bytes into a file, and gives its path."""

    def write(raw):
        path = tmp_path / "model.gguf"
        path.write_bytes(raw)
        return path

    return write


@pytest.fixture
def model(written):
    """The spec of a file with these keys, through the common door."""

    def make(arch, keys, tensors=(), **options):
        return read(written(header(pairs_of(arch, keys), tensors)), **options)

    return make


def factors(name, values):
    return (name, (len(values),), values)


LLAMA2 = {
    "context_length": 4096,
    "embedding_length": 4096,
    "block_count": 32,
    "attention.head_count": 32,
    "rope.dimension_count": 128,
    "rope.freq_base": 1e4,
}
LLAMA31 = {**LLAMA2, "context_length": 131072, "rope.freq_base": 5e5}
QWEN = {
    "context_length": 131072,
    "embedding_length": 3584,
    "block_count": 28,
    "attention.head_count": 28,
    "rope.freq_base": 1e6,
}
QWEN_YARN = {
    **QWEN,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32768,
}
PHI3 = {
    "context_length": 131072,
    "embedding_length": 3072,
    "block_count": 32,
    "attention.head_count": 32,
    "rope.dimension_count": 96,
    "rope.freq_base": 1e4,
}
PHI3_LONG = {
    **PHI3,
    "rope.scaling.original_context_length": 4096,
    "rope.scaling.attn_factor": math.sqrt(1 + math.log(32) / math.log(4096)),
}
GEMMA3 = {
    "context_length": 131072,
    "embedding_length": 2560,
    "block_count": 34,
    "attention.head_count": 8,
    "attention.key_length": 256,
    "attention.sliding_window": 1024,
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4,
    "rope.scaling.type": "linear",
    "rope.scaling.factor": 8.0,
}
SHORT = [1.0 + i / 64 for i in range(48)]
LONG = [1.5 + i for i in range(48)]


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def llama3_factors(factor, base=5e5, size=128, trained=8192):
    """What a converter bakes: in float32, from the wavelength of each pair."""
    found = []
    for i in range(size // 2):
        wave = 2 * math.pi / float32(1.0 / float32(base ** float32(2 * i / size)))
        turns = trained / wave
        found.append(
            1.0
            if turns > 4
            else factor
            if turns < 1
            else float32(1 / ((1 - (turns - 1) / 3) / factor + (turns - 1) / 3))
        )
    return found


# --- the header ---


def test_every_type_of_value_is_read_as_it_was_written(written):
    values = [
        ("a.u8", U8, 200),
        ("a.i8", I8, -5),
        ("a.u16", U16, 60000),
        ("a.i16", I16, -300),
        ("a.u32", U32, 1 << 31),
        ("a.i32", I32, -(1 << 30)),
        ("a.f32", F32, 0.5),
        ("a.bool", BOOL, True),
        ("a.text", TEXT, "Grüße"),
        ("a.u64", U64, 1 << 63),
        ("a.i64", I64, -(1 << 62)),
        ("a.f64", F64, 0.1),
    ]
    lists = [("a.ints", ARRAY, (I32, [16, 24, 24, 0])), ("a.flags", ARRAY, (BOOL, [True, False]))]
    for version in (2, 3):
        found = gguf.metadata(written(header([*values, *lists], version=version)))
        assert found == {
            **{name: value for name, _, value in values},
            "a.ints": [16, 24, 24, 0],
            "a.flags": [True, False],
        }
        assert found["a.bool"] is True and found["a.flags"][1] is False


def test_long_arrays_texts_and_arrays_in_arrays_are_stepped_over(written):
    before, after = ("a.before", U32, 1), ("a.after", U32, 2)
    vocabulary = ("tokenizer.ggml.tokens", ARRAY, (TEXT, ["", "a", "ß" * 40] * 4000))
    scores = ("tokenizer.ggml.scores", ARRAY, (F32, [0.0] * 1025))
    nested = ("a.nested", ARRAY, (ARRAY, [(TEXT, ["x"]), (U8, [1, 2])]))
    template = ("tokenizer.chat_template", TEXT, "x" * 70000)
    assert gguf.metadata(written(header([before, vocabulary, scores, nested, template, after]))) == {
        "a.before": 1,
        "a.after": 2,
    }


@pytest.mark.parametrize("alignment", [None, 8, 64, 4096])
def test_tensors_of_factors_are_read_from_the_data_wherever_they_stand(written, alignment):
    pairs = [("general.alignment", U32, alignment)] if alignment else []
    weights = [
        ("blk.0.attn_q.weight", (3, 2), [9.0] * 6),
        ("rope_freqs.weight", (4,), [1.0, 1.5, 2.5, 8.0]),
        ("blk.0.attn_k.weight", (1,), [7.0]),
    ]
    both = [("rope_factors_long.weight", (2,), [3.0, 4.0]), ("rope_factors_short.weight", (2, 1), [1.0, 2.0])]
    found = gguf.metadata(written(header(pairs, [*weights, *both])))
    assert found["rope_freqs.weight"] == Tensor((4,), (1.0, 1.5, 2.5, 8.0))
    assert found["rope_factors_long.weight"] == Tensor((2,), (3.0, 4.0))
    assert found["rope_factors_short.weight"] == Tensor((2, 1), (1.0, 2.0))
    assert set(found) == {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"} | {
        name for name, _, _ in pairs
    }


def refused(path, words):
    with pytest.raises(ConfigError) as caught:
        gguf.metadata(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


BAD = {
    "no GGUF file": header([], magic=b"GGML"),
    "is empty": b"",
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "version 1": header([], version=1),
    "version 9": header([], version=9),
    "tensors, and no model has more than": b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0),
    "key-values, and no model has more than": b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60),
    "unknown type, 13": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IQ", 13, 0),
    "unknown type, 77": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", ARRAY, 77, 1),
    "name of 0 bytes": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("") + struct.pack("<IB", U8, 0),
    "name of 18446744073709551615 bytes": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, (1 << 64) - 1),
    "no UTF-8": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(b"\xff\xfe") + struct.pack("<IB", U8, 0),
    "needs 18446744073709551615 more bytes": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + text("a")
    + struct.pack("<IQ", TEXT, (1 << 64) - 1),
    "has 1152921504606846976 texts": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + text("a")
    + struct.pack("<IIQ", ARRAY, TEXT, 1 << 60),
    "inside the texts": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + text("a")
    + struct.pack("<IIQQQ", ARRAY, TEXT, 2, (1 << 64) - 1, 0),
    "more bytes": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", ARRAY, F64, 1 << 60),
    "more than 4194304": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + text("a")
    + struct.pack("<IIQ", ARRAY, ARRAY, STEPS + 1),
    "twice": header([("a", U8, 1), ("a", U8, 1)]),
    "neither 0 nor 1": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IB", BOOL, 2),
    "general.alignment = 7": header([("general.alignment", U32, 7)]),
    "general.alignment = 'x'": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + text("general.alignment")
    + struct.pack("<I", TEXT)
    + text("x"),
    "9 axes": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<I", 9) + b"\0" * 99,
    "type 1: it is always float32": b"GGUF"
    + struct.pack("<IQQ", 3, 1, 0)
    + text("rope_freqs.weight")
    + struct.pack("<IQIQ", 1, 4, 1, 0)
    + b"\0" * 99,
    "of sizes [18446744073709551615]": b"GGUF"
    + struct.pack("<IQQ", 3, 1, 0)
    + text("rope_freqs.weight")
    + struct.pack("<IQIQ", 1, (1 << 64) - 1, 0, 0),
    "of sizes [0]": b"GGUF"
    + struct.pack("<IQQ", 3, 1, 0)
    + text("rope_freqs.weight")
    + struct.pack("<IQIQ", 1, 0, 0, 0)
    + b"\0" * 99,
    "rope_freqs.weight ends at byte": header([], [("rope_freqs.weight", (4,), [1.0] * 4)])[:-1],
}


@pytest.mark.parametrize("words", BAD)
def test_a_damaged_file_is_refused_in_one_sentence(written, words):
    refused(written(BAD[words]), words)


def test_arrays_in_arrays_are_read_so_deep_and_no_deeper(written):
    def nest(depth):
        value = (U8, [1])
        for _ in range(depth - 1):
            value = (ARRAY, [value])
        return header([("a", ARRAY, value)])

    assert gguf.metadata(written(nest(DEEP))) == {}
    refused(written(nest(DEEP + 1)), "more than 4 deep")


def test_what_is_no_file_is_refused(tmp_path):
    refused(tmp_path, "is not a file")
    refused(tmp_path / "nowhere.gguf", "is not a file")


WHOLE = header(
    [
        *pairs_of(
            "llama", {**LLAMA31, "rope.dimension_sections": [8, 8], "attention.sliding_window_pattern": [True, False]}
        ),
        ("tokenizer.ggml.tokens", ARRAY, (TEXT, ["<s>", "a", "bc"])),
        ("a.nested", ARRAY, (ARRAY, [(F32, [1.0])])),
    ],
    [("blk.0.attn_q.weight", (2, 2), [1.0] * 4), ("rope_freqs.weight", (64,), llama3_factors(8.0))],
)


def test_cut_anywhere_it_is_refused(written):
    whole = gguf.metadata(written(WHOLE))
    assert whole["rope_freqs.weight"].values[-1] == 8.0
    for size in range(len(WHOLE)):
        with pytest.raises(ConfigError):
            gguf.metadata(written(WHOLE[:size]))


def test_a_header_without_its_weights_is_enough(written):
    raw = header(pairs_of("qwen2", QWEN), [("blk.0.attn_q.weight", (64, 2), [1.0] * 128)])
    assert read(written(raw[:-500])) == read(written(raw))


def survive(path):
    """Either a spec, or one sentence; never anything else."""
    try:
        read(path, allow_unknown=True)
    except ConfigError as error:
        assert "\n" not in str(error)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    flips=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, len(WHOLE)),
)
def test_flipped_bytes_give_a_spec_or_one_sentence(written, flips, cut):
    raw = bytearray(WHOLE)
    for at, value in flips:
        raw[at] = value
    survive(written(bytes(raw)))
    survive(written(bytes(raw[:cut])))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_noise_after_a_good_beginning_gives_a_spec_or_one_sentence(written, noise):
    survive(written(b"GGUF" + struct.pack("<IQQ", 3, 1, 3) + noise))


VALUES = st.one_of(
    st.integers(0, 1 << 32),
    st.floats(),
    st.booleans(),
    st.text(max_size=5),
    st.lists(st.integers(-1, 99), max_size=4),
    st.none(),
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["llama", "gemma3", "grok", "deepseek2", "nobody"]),
    st.dictionaries(st.sampled_from(sorted({*GEMMA3, *gguf.KNOWN})), VALUES),
)
def test_whatever_the_keys_hold_gives_a_spec_or_one_sentence(arch, keys):
    meta = {"general.architecture": arch, **{f"{arch}.{name}": value for name, value in {**GEMMA3, **keys}.items()}}
    try:
        gguf.read(meta)
    except ConfigError as error:
        assert "\n" not in str(error)


# --- the meaning, and the same model's config.json ---

CONFIG = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}


def only_the_pairing_differs(spec, config):
    found = differences(spec, read(config))
    assert [(d.what, d.a, d.b) for d in found] == [("pairing", "interleaved", "half")]
    assert any("permutes the rows of q and k" in note for note in spec.notes)


def test_llama_2_is_its_config_but_for_the_permuted_weights(model):
    spec = model("llama", LLAMA2)
    only_the_pairing_differs(spec, {**CONFIG, "rope_theta": 10000.0, "max_position_embeddings": 4096})
    assert (spec.trained, spec.served, spec.model, len(spec.layers)) == (4096, 4096, "llama", 32)
    assert spec.sources["base"] == "llama.rope.freq_base"
    for pair, frequency in {0: 1.0, 32: 0.01, 63: 1.1547819846894582e-4}.items():
        assert math.isclose(spec.main.spectrum().frequencies[pair], frequency, rel_tol=1e-12)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3_is_known_by_its_baked_factors(model, factor):
    spec = model("llama", LLAMA31, [factors("rope_freqs.weight", llama3_factors(factor))])
    assert spec.main.scaling == Llama3(factor, 8192, 1.0, 4.0)
    assert "rope_freqs.weight" in spec.sources["scaling"] and "float32" in spec.sources["scaling"]
    assert (spec.trained, spec.served) == (8192, 131072)
    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    only_the_pairing_differs(
        spec, {**CONFIG, "rope_theta": 5e5, "max_position_embeddings": 131072, "rope_scaling": scaling}
    )


def test_the_frequencies_of_llama_3_are_those_derived_by_hand(model):
    spectrum = model("llama", LLAMA31, [factors("rope_freqs.weight", llama3_factors(8.0))]).main.spectrum()
    plain = 500000.0 ** (-64 / 128)  # pair 32 makes 8192 / (2 pi 707.1) = 1.844 turns, on the ramp from 1 to 4
    kept = (8192 * plain / (2 * math.pi) - 1) / 3
    assert 0.2 < kept < 0.3
    assert spectrum.frequencies[0] == 1.0
    assert math.isclose(spectrum.frequencies[32], plain * (kept + (1 - kept) / 8), rel_tol=1e-12)
    assert math.isclose(spectrum.frequencies[63], 500000.0 ** (-126 / 128) / 8, rel_tol=1e-12)
    assert spectrum.temperature == 1.0


def test_factors_of_nobody_are_held_as_they_are(model):
    values = [1.0 + i / 8 for i in range(64)]
    spec = model("llama", LLAMA31, [factors("rope_freqs.weight", values)])
    assert spec.main.scaling == LongRoPE(tuple(values), tuple(values), 131072, attention_factor=1.0)
    assert spec.sources["scaling"] == "rope_freqs.weight"
    spectrum = spec.main.spectrum()
    for pair in (0, 32, 63):
        assert math.isclose(spectrum.frequencies[pair], 500000.0 ** (-pair / 64) / values[pair], rel_tol=1e-12)
    assert spectrum.temperature == 1.0


def test_a_llama_3_with_one_factor_changed_is_not_taken_for_one(model):
    for at in (0, 30, 40):
        values = llama3_factors(8.0)
        values[at] *= 1.001
        assert isinstance(model("llama", LLAMA31, [factors("rope_freqs.weight", values)]).main.scaling, LongRoPE)


def test_factors_that_are_all_one_scale_nothing(model):
    spec = model("llama", LLAMA31, [factors("rope_freqs.weight", [1.0] * 64)])
    assert spec.main.scaling is None and any("only ones" in note for note in spec.notes)


def test_qwen_with_yarn_is_its_config(model):
    spec = model("qwen2", QWEN_YARN)
    assert spec.main.scaling == YaRN(4.0, 32768) and spec.trained == 32768
    config = {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "max_position_embeddings": 131072,
    }
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert differences(spec, read({**config, "rope_theta": 1e6, "rope_scaling": yarn})) == []
    # bounds: c(r) = 64 ln(32768 / (2 pi r)) / ln(1e6) = 23.6 and 39.7 for 32 and 1 turns, so the ramp falls from pair
    # 23 to pair 40
    kept = 1 - (32 - 23) / (40 - 23)
    spectrum = spec.main.spectrum()
    assert spectrum.frequencies[0] == 1.0
    assert math.isclose(spectrum.frequencies[32], 1e-3 * (kept + (1 - kept) / 4), rel_tol=1e-12)
    assert math.isclose(spectrum.frequencies[63], 1e6 ** (-126 / 128) / 4, rel_tol=1e-12)
    assert math.isclose(spectrum.temperature, (1 + 0.1 * math.log(4)) ** 2, rel_tol=1e-12)


def test_what_llama_cpp_passes_over_in_yarn_is_said_and_changes_nothing(model):
    spec = model("qwen2", QWEN_YARN)
    keys = {
        "yarn_attn_factor": 0.5,
        "yarn_beta_fast": 64.0,
        "yarn_beta_slow": 2.0,
        "yarn_ext_factor": 0.5,
        "yarn_log_multiplier": 0.1,
    }
    for name, value in keys.items():
        other = model("qwen2", {**QWEN_YARN, f"rope.scaling.{name}": value})
        assert other == spec
        assert [note for note in other.notes if name in note] and not [note for note in spec.notes if name in note]


def test_betas_are_read_where_llama_cpp_reads_them(model):
    keys = {**QWEN_YARN, "rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0}
    assert model("mistral3", keys).main.scaling == YaRN(4.0, 32768, 16.0, 2.0)
    assert model("grok", QWEN_YARN).main.scaling == YaRN(4.0, 32768, 8.0)
    off = model("grok", {**QWEN_YARN, "rope.scaling.yarn_ext_factor": 0.0})
    assert off.main.scaling == Linear(4.0)
    with pytest.raises(ConfigError, match="by parts"):
        model("grok", {**QWEN_YARN, "rope.scaling.yarn_ext_factor": 0.5})


def test_the_attention_factor_multiplies_m(model):
    m = 1 + 0.1 * math.log(4)
    assert math.isclose(
        model("qwen2", {**QWEN_YARN, "rope.scaling.attn_factor": 0.5}).main.temperature(), (m / 2) ** 2, rel_tol=1e-12
    )
    linear = model("qwen2", {**QWEN, "rope.scaling.factor": 4.0, "rope.scaling.attn_factor": 0.5})
    assert linear.main.temperature() == 0.25
    assert math.isclose(linear.main.spectrum().frequencies[32], 1e-3 / 4, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("multiplier", "m"),
    [(0.0, 1 + 0.1 * math.log(4)), (1.0, 1.0), (0.5, (1 + 0.1 * math.log(4)) / (1 + 0.05 * math.log(4)))],
)
def test_mistral_3_cancels_m_by_its_log_multiplier(model, multiplier, m):
    spec = model("mistral3", {**QWEN_YARN, "rope.scaling.yarn_log_multiplier": multiplier})
    assert math.isclose(spec.main.temperature(), m**2, rel_tol=1e-12)


@pytest.mark.parametrize("mscale", [1.0, 0.707])
def test_deepseek_is_its_config(model, mscale):
    keys = {
        "context_length": 163840,
        "embedding_length": 7168,
        "block_count": 61,
        "attention.head_count": 128,
        "attention.key_length": 576,
        "attention.kv_lora_rank": 512,
        "rope.dimension_count": 64,
        "rope.freq_base": 1e4,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_log_multiplier": 0.1 * mscale,
    }
    yarn = {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": mscale,
        "mscale_all_dim": mscale,
    }
    config = {
        "model_type": "deepseek_v3",
        "qk_rope_head_dim": 64,
        "num_hidden_layers": 61,
        "rope_theta": 10000,
        "max_position_embeddings": 163840,
    }
    spec = model("deepseek2", keys)
    assert differences(spec, read({**config, "rope_scaling": yarn})) == []
    assert math.isclose(spec.main.temperature(), (1 + 0.1 * mscale * math.log(40)) ** 2, rel_tol=1e-6)


def test_phi_3_is_its_config_at_every_length(model):
    both = [factors("rope_factors_long.weight", LONG), factors("rope_factors_short.weight", SHORT)]
    longrope = {"type": "longrope", "short_factor": SHORT, "long_factor": LONG}
    config = {
        "model_type": "phi3",
        "hidden_size": 3072,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "max_position_embeddings": 131072,
    }
    other = read({**config, "rope_theta": 10000.0, "original_max_position_embeddings": 4096, "rope_scaling": longrope})
    for keys in (PHI3_LONG, {**PHI3_LONG, "rope.scaling.type": "longrope"}):
        spec = model("phi3", keys, both)
        assert differences(spec, other) == []
        assert any("-c" in note and "4096" in note for note in spec.notes)
        for length, values in ((4096, SHORT), (4097, LONG)):
            for pair in (0, 24, 47):
                assert math.isclose(
                    spec.main.spectrum(length).frequencies[pair], 10000 ** (-pair / 48) / values[pair], rel_tol=1e-12
                )


def test_longrope_without_its_attention_factor_has_m_1_and_says_so(model):
    keys = {name: value for name, value in PHI3_LONG.items() if name != "rope.scaling.attn_factor"}
    spec = model("phi3", keys, [factors("rope_factors_long.weight", LONG), factors("rope_factors_short.weight", SHORT)])
    assert spec.main.temperature(131072) == 1.0 and any("takes 1" in note for note in spec.notes)


def test_a_factor_besides_the_lists_divides_too(model):
    spec = model("llama", {**LLAMA31, "rope.scaling.factor": 2.0}, [factors("rope_freqs.weight", llama3_factors(8.0))])
    assert math.isclose(spec.main.spectrum().frequencies[63], 500000.0 ** (-126 / 128) / 16, rel_tol=1e-12)


def test_gemma_3_is_its_config_in_both_kinds_of_layers(model):
    spec = model("gemma3", GEMMA3)
    config = {
        "model_type": "gemma3_text",
        "head_dim": 256,
        "num_hidden_layers": 34,
        "max_position_embeddings": 131072,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window_pattern": 6,
    }
    assert differences(spec, read(config)) == []
    assert [i for i, kind in enumerate(spec.layers) if kind == "full_attention"] == [5, 11, 17, 23, 29]
    for layer, base, factor in ((0, 1e4, 1.0), (5, 1e6, 8.0)):
        for pair in (0, 64, 127):
            assert math.isclose(
                spec.layer(layer).spectrum().frequencies[pair], base ** (-pair / 128) / factor, rel_tol=1e-12
            )
    assert model("gemma3", {name: value for name, value in GEMMA3.items() if name != "rope.freq_base_swa"}) == spec
    listed = model("gemma3", {**GEMMA3, "attention.sliding_window_pattern": [(i + 1) % 6 != 0 for i in range(34)]})
    assert listed == spec
    assert model("gemma3", {**GEMMA3, "attention.sliding_window_pattern": 2}).layers[:2] == (
        "sliding_attention",
        "full_attention",
    )


def test_layers_that_do_not_turn(model):
    cohere = model("cohere2", {**QWEN, "attention.sliding_window": 4096})
    assert [cohere.layer(i) is None for i in range(4)] == [False, False, False, True]
    smol = model("smollm3", QWEN)
    assert [smol.layer(i) is None for i in range(8)] == [False, False, False, True] * 2
    assert model("cohere2", QWEN).layer(3) is not None  # no window: one kind of layer


def test_an_architecture_with_a_sliding_base_of_its_own(model):
    keys = {
        **QWEN,
        "rope.freq_base_swa": 1e4,
        "rope.dimension_count": 128,
        "rope.dimension_count_swa": 64,
        "attention.sliding_window": 512,
    }
    spec = model("laguna", {**keys, "block_count": 2, "attention.sliding_window_pattern": [True, False]})
    assert (spec.layer(0).base, spec.layer(0).rotary, spec.layer(1).base, spec.layer(1).rotary) == (1e4, 64, 1e6, 128)
    unknown = model("laguna", keys)
    assert unknown.layers == () and set(unknown.ropes()) == {"full_attention", "sliding_attention"}
    assert any("which layers slide" in note for note in unknown.notes)


def test_heads_listed_by_layer(model):
    assert model("nobody", {**QWEN, "attention.head_count": [28, 0, 28]}).main.head_dim == 128
    with pytest.raises(ConfigError, match=r"add attention.key_length"):
        model("nobody", {**QWEN, "attention.head_count": [28, 14]})
    assert model("nobody", {**QWEN, "attention.head_count": [28, 14], "attention.key_length": 64}).main.head_dim == 64


def test_the_base_is_never_silent(model):
    spec = model("qwen2", {name: value for name, value in QWEN.items() if name != "rope.freq_base"})
    assert spec.main.base == 10000.0 and spec.sources["base"] == "not in the file: llama.cpp's default"
    assert any("10000" in note for note in spec.notes)


@pytest.mark.parametrize(
    ("arch", "pairing"),
    [
        ("llama", "interleaved"),
        ("baichuan", "interleaved"),
        ("command-r", "interleaved"),
        ("qwen2", "half"),
        ("gptneox", "half"),
        ("gpt-oss", "half"),
    ],
)
def test_pairing_is_the_architecture_s(model, arch, pairing):
    spec = model(arch, QWEN)
    assert spec.main.pairing == pairing and "assumed" not in spec.sources["pairing"]
    unknown = model("nobody", QWEN)
    assert unknown.main.pairing == "half" and unknown.sources["pairing"].startswith("assumed")


def test_sections_of_m_rope(model):
    spec = model("qwen2vl", {**QWEN, "rope.dimension_sections": [16, 24, 24, 0]})
    assert spec.main.sections == (16, 24, 24) and not spec.main.sections_interleaved
    assert model("qwen3vl", {**QWEN, "rope.dimension_sections": [24, 20, 20, 0]}).main.sections_interleaved
    with pytest.raises(ConfigError, match="64 pairs"):
        model("qwen2vl", {**QWEN, "rope.dimension_sections": [16, 24, 25, 0]})


def test_older_and_idle_keys(model):
    assert model("qwen2", {**QWEN, "rope.scale_linear": 2.0}).main.scaling == Linear(2.0)
    assert model("qwen2", {**QWEN, "rope.scaling.factor": 0.0}).main.scaling is None
    none = model("qwen2", {**QWEN, "rope.scaling.type": "none", "rope.scaling.factor": 4.0})
    assert none.main.scaling is None and any("no effect" in note for note in none.notes)
    assert model("gptneox", {**QWEN, "rope.dimension_count": 32}).main.rotary == 32


WRONG = [
    ("qwen2", {"rope.scaling.type": "ntk"}, (), "is not a type that llama.cpp has"),
    ("qwen2", {"rope.scaling.type": "longrope"}, (), "no tensor rope_factors_short.weight"),
    ("qwen2", {"rope.scaling.type": "linear", "rope.scaling.factor": 0.25}, (), "inverse of 4"),
    ("qwen2", {"rope.freq_base": math.inf}, (), "qwen2.rope.freq_base must be a finite number"),
    ("qwen2", {"rope.freq_base": 1.0}, (), "above 1"),
    ("qwen2", {"rope.dimension_count": 256}, (), "rotary size"),
    ("qwen2", {"rope.dimension_count": 7}, (), "rotary size"),
    ("qwen2", {"rope.wobble": 1.0}, (), "unknown key qwen2.rope.wobble"),
    ("qwen2", {"attention.head_count": 27}, (), "the head size is not known"),
    ("gpt2", {}, (), "learned positions"),
    ("baichuan", {"block_count": 40}, (), "ALiBi"),
    ("granite", {"rope.scaling.finetuned": False}, (), "no rotary positions"),
    (
        "gemma3",
        {"attention.sliding_window": 9, "attention.sliding_window_pattern": [True, False]},
        (),
        "lists 2 layers, and there are 28",
    ),
    ("qwen2", {}, [factors("rope_freqs.weight", [1.0, 2.0])], "2 factors, and there are 64 pairs"),
    ("qwen2", {}, [factors("rope_freqs.weight", [0.0] * 64)], "above 0"),
    ("qwen2", {}, [factors("rope_factors_long.weight", LONG)], "rope_factors_short.weight is missing"),
    (
        "qwen2",
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0},
        [factors("rope_freqs.weight", [2.0] * 64)],
        "YaRN and rope_freqs.weight",
    ),
]


@pytest.mark.parametrize(
    ("arch", "keys", "tensors", "words"), WRONG, ids=[f"{arch}-{words}" for arch, _, _, words in WRONG]
)
def test_what_can_t_be_read_for_certain_is_refused(model, arch, keys, tensors, words):
    with pytest.raises(ConfigError) as caught:
        model(arch, {**QWEN, **keys}, tensors)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_key_can_be_passed_over(model):
    spec = model("qwen2", {**QWEN, "rope.wobble": 1.0}, allow_unknown=True)
    assert spec == model("qwen2", QWEN) and any("rope.wobble" in note for note in spec.notes)


def test_a_file_without_architecture_or_length_is_refused():
    with pytest.raises(ConfigError, match=r"general\.architecture"):
        gguf.read({})
    with pytest.raises(ConfigError, match=r"llama\.context_length"):
        gguf.read({"general.architecture": "llama"})


# -- temperatures by position -------------------------------------------------------------------------------------


@pytest.fixture
def model_of(model):
    """A file with the sizes of a small model, and these keys."""
    sizes = {"context_length": 32768, "embedding_length": 512, "attention.head_count": 8, "block_count": 2}
    return lambda arch, keys: model(arch, {**sizes, "rope.dimension_count": 64, **keys})


def test_mistral_3_sharpens_queries_by_the_length_before_yarn(model_of):
    given = {
        "attention.temperature_scale": 0.125,
        gguf.ORIGINAL: 8192,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
    }
    spec = model_of("mistral3", given)
    assert dict(spec.temperatures) == {"all": QueryTemperature("mistral", 0.125, 8192)}
    assert "mistral3.attention.temperature_scale" in spec.sources["temperature"]
    assert dict(model_of("mistral3", {"attention.temperature_scale": 0.125}).temperatures)["all"].n == spec.served
    assert model_of("mistral3", {"attention.temperature_scale": 0.0}).temperatures == ()


@pytest.mark.parametrize("arch", ["deepseek2", "mistral4"])
def test_deepseek_and_mistral_4_have_a_length_of_their_own(model_of, arch):
    spec = model_of(arch, {"attention.temperature_scale": 0.25, "attention.temperature_length": 4096})
    assert dict(spec.temperatures) == {"all": QueryTemperature("mistral", 0.25, 4096)}
    with pytest.raises(ConfigError, match=r"needs .*attention.temperature_length, which the file does not have"):
        model_of(arch, {"attention.temperature_scale": 0.25})


def test_llama_4_sharpens_the_layers_that_do_not_turn(model_of):
    spec = model_of("llama4", {"block_count": 8, "attention.sliding_window": 8192})
    still = [kind for kind, rope in spec.kinds if rope is None]
    assert still and dict(spec.temperatures) == dict.fromkeys(still, QueryTemperature("llama4", 0.1, 8192))


def test_a_temperature_that_no_code_reads_is_said_to_do_nothing(model_of):
    spec = model_of("qwen2", {"attention.temperature_scale": 0.5, "attention.temperature_length": 64})
    assert spec.temperatures == () and any("is not read by llama.cpp for qwen2" in note for note in spec.notes)


def test_alpha_of_hunyuan_is_a_larger_base(model):
    """freq_base x alpha^(d / (d - 2)): at d = 128 and alpha = 1000 a base of 1e4 becomes 11 158 839.9."""
    spec = model("hunyuan-dense", {**LLAMA2, "rope.scaling.alpha": 1000.0})
    assert math.isclose(spec.main.base, 11158839.925, rel_tol=1e-6)
    assert "rope.scaling.alpha" in spec.sources["base"]
    other = model("llama", {**LLAMA2, "rope.scaling.alpha": 1000.0})
    assert other.main.base == 1e4 and any("read for Hunyuan alone" in note for note in other.notes)


def test_a_pattern_says_which_layers_turn(model):
    keys = {**LLAMA2, "block_count": 4}
    spec = model("llama", {**keys, "attention.rope_pattern": [1, 1, 1, 0]})
    assert [spec.layer(n) is None for n in range(4)] == [False, False, False, True]
    with pytest.raises(ConfigError, match=r"has 1 or 0 for each of 4 layers"):
        model("llama", {**keys, "attention.rope_pattern": [1, 0]})
    with pytest.raises(ConfigError, match="no rotary positions"):
        model("llama", {**keys, "attention.rope_pattern": [0, 0, 0, 0]})


def test_the_base_of_compressed_keys_is_named(model):
    spec = model("llama", {**LLAMA2, "attention.compress_rope_freq_base": 160000.0})
    assert any("a base of their own, 160000 (llama.attention.compress_rope_freq_base)" in note for note in spec.notes)
    assert spec.main.base == 1e4
