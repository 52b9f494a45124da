"""How far a map reaches, its text form, and what it says to wrong arguments."""

import random

import pytest
import torch
from by_hand import distance

from milepost import ALiBi, DualChunk, Encoding, KVCache, ReRoPE, RoPE, SelfExtend, Streaming, attend, build
from milepost.maps import NAMES
from milepost.maps.mapped import Mapped
from milepost.spec import find_class

PLAIN = RoPE(head_dim=8)

# -- reach ---------------------------------------------------------------------------------------------------------

REACHING = (
    *(SelfExtend(PLAIN, group=g, window=w) for g in (1, 2, 3, 8) for w in (1, 2, 6, 7)),
    *(ReRoPE(PLAIN, window=w, leak=leak) for w in (1, 5) for leak in (None, 1, 2.5, 16)),
    *(DualChunk(PLAIN, chunk=c, local=x) for c, x in ((1, 0), (6, 0), (6, 2), (6, 3), (6, 5), (9, 2))),
    *(Streaming(PLAIN, sinks=s, window=w) for s, w in ((0, 1), (0, 5), (3, 1), (2, 6))),
)


@pytest.mark.parametrize("enc", REACHING, ids=str)
def test_reach_is_the_largest_distance_of_all_pairs(enc):
    most = 0.0
    for length in range(1, 40):
        m = length - 1
        most = max(most, *(d for n in range(length) if (d := distance(enc, m, n)) is not None))
        assert enc.reach(length) == pytest.approx(
            most, rel=1e-15
        )  # a fraction rounded once, against one rounded thrice at most


def test_the_rule_of_self_extend_keeps_texts_in_the_trained_range():
    draw = random.Random(5)
    tried = 0
    while tried < 500:
        trained, group = draw.randint(3, 10000), draw.randint(1, 64)
        window, length = draw.randint(1, trained), draw.randint(1, 10 * trained)
        budget = draw.uniform(1 / 2, 2 / 3) * trained
        if length < window or not budget > window + (length - window) / group:
            continue
        tried += 1
        reach = SelfExtend(PLAIN, group=group, window=window).reach(length)
        assert (
            reach < window + (length - window) / group + 1 <= 2 / 3 * trained + 1 <= trained
        )  # floors add less than one place
        assert reach < length


def test_published_settings_reach_what_their_models_were_trained_for():
    assert SelfExtend(PLAIN, group=8, window=1024).reach(16384) == 1024 - 128 + 16383 // 8 < 4096
    assert ReRoPE(PLAIN).reach(1 << 20) == 512
    assert ReRoPE(PLAIN, leak=16).reach(16384) == 512 + (16383 - 512) / 16 < 4096
    assert DualChunk(PLAIN, chunk=3072, local=512).reach(1 << 20) == 3072 < 4096
    assert Streaming(PLAIN).reach(1 << 30) == 516


@pytest.mark.parametrize("length", [0, -1, 2.5, True, "8"])
@pytest.mark.parametrize(
    "enc", [SelfExtend(PLAIN), ReRoPE(PLAIN), DualChunk(PLAIN, chunk=8, local=2), Streaming(PLAIN)], ids=str
)
def test_a_text_has_at_least_one_token(enc, length):
    with pytest.raises(ValueError, match="length must be a whole number of at least 1"):
        enc.reach(length)


def test_a_map_of_ones_own_says_how_far_it_reaches():
    with pytest.raises(NotImplementedError):
        Mapped(PLAIN).reach(8)


# -- text ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            "self_extend(rope=rope(base=500000.0), group=4, window=128)",
            "self_extend(rope=rope(head_dim=64, base=500000.0), group=4, window=128)",
        ),
        ("self_extend(rope=rope)", "self_extend(rope=rope(head_dim=64))"),
        ("self_extend(rope=rope(head_dim=32))", "self_extend(rope=rope(head_dim=32))"),
        ("rerope(rope=rope, window=256, leak=16.0)", "rerope(rope=rope(head_dim=64), window=256, leak=16.0)"),
        ("rerope(rope=rope, leak=None)", "rerope(rope=rope(head_dim=64))"),
        ("dual_chunk(rope=rope, chunk=3072, local=512)", "dual_chunk(rope=rope(head_dim=64), chunk=3072, local=512)"),
        ("streaming(rope=rope(scaling=yarn(factor=4.0, trained=8)), sinks=1)", None),
        (
            "rerope(rope=rope) + logn(length=4096)",
            "rerope(rope=rope(head_dim=64)) + temperature(length=4096, form='logn')",
        ),
        ("streaming(rope=rope) + alibi(heads=4)", "streaming(rope=rope(head_dim=64)) + alibi(heads=4)"),
    ],
)
def test_text_and_objects_go_there_and_back(given, text):
    made = build(given, head_dim=64)
    assert text is None or repr(made) == text
    again = build(repr(made))
    assert type(again) is type(made) and repr(again) == repr(made)


def test_names_classes_and_pages_agree():
    for name, cls in NAMES.items():
        assert find_class(name).__name__ == cls and find_class(name).spec_name() == name
        assert issubclass(find_class(name), Mapped)


class Slower(RoPE):
    """A stranger's RoPE."""


def test_a_strangers_rope_inside_a_map_goes_there_and_back():
    made = SelfExtend(Slower(head_dim=8), group=2)
    assert repr(made) == f"self_extend(rope={__name__}:Slower(head_dim=8), group=2)"
    assert repr(build(repr(made))) == repr(made)
    assert isinstance(build(repr(made)).rope, Slower)


def sentence(make) -> str:
    with pytest.raises(ValueError) as caught:
        make()
    return str(caught.value)


@pytest.mark.parametrize("cls", [SelfExtend, ReRoPE, Streaming, lambda rope: DualChunk(rope, chunk=8, local=2)])
def test_what_is_no_plain_rope_is_refused_with_what_to_do(cls):
    dynamic = build("rope(head_dim=8, scaling=dynamic(trained=8))")
    said = sentence(lambda: cls(dynamic))
    assert repr(dynamic) in said and "rope.at(length)" in said
    assert cls(dynamic.at(64)).head_dim == 8
    for wrong in (ALiBi(heads=2), PLAIN + ALiBi(heads=2), Encoding(), None, 4, SelfExtend(PLAIN)):
        said = sentence(lambda wrong=wrong: cls(wrong))
        assert (
            "maps the places of a RoPE" in said
            and (repr(wrong) if isinstance(wrong, Encoding) else type(wrong).__name__) in said
        )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SelfExtend(PLAIN, group=0), ("group", "at least 1", "got 0")),
        (lambda: SelfExtend(PLAIN, window=0), ("window", "at least 1", "got 0")),
        (lambda: SelfExtend(PLAIN, group=2.0), ("group", "whole number", "got 2.0")),
        (lambda: ReRoPE(PLAIN, window=-3), ("window", "at least 1", "got -3")),
        (lambda: ReRoPE(PLAIN, leak=0.5), ("leak", "at least 1", "None", "got 0.5")),
        (lambda: ReRoPE(PLAIN, leak=float("nan")), ("leak", "finite", "got nan")),
        (lambda: ReRoPE(PLAIN, leak=float("inf")), ("leak", "finite", "got inf")),
        (lambda: ReRoPE(PLAIN, leak=True), ("leak", "got True")),
        (lambda: DualChunk(PLAIN, chunk=0, local=0), ("chunk", "3/4 of the trained length", "got 0")),
        (lambda: DualChunk(PLAIN, chunk=8, local=-1), ("local", "1/8 of the trained length", "got -1")),
        (lambda: DualChunk(PLAIN, chunk=8, local=8), ("local must be smaller than chunk", "chunk=8, local=8")),
        (lambda: Streaming(PLAIN, sinks=-1), ("sinks", "at least 0", "got -1")),
        (lambda: Streaming(PLAIN, window=0), ("window", "at least 1", "got 0")),
        (lambda: build("self_extend", head_dim=8), ("self_extend needs rope", "self_extend(rope=rope(...))")),
        (
            lambda: build("dual_chunk(rope=rope)", head_dim=8),
            ("dual_chunk needs chunk, local", "dual_chunk(chunk=...)"),
        ),
        (lambda: build("self_extend(rope=rope)"), ("rope needs head_dim",)),
        (lambda: build("self_extend(rope=rope, window=2.5)", head_dim=8), ("window of self_extend must be int", "2.5")),
        (lambda: build("self_extend(rope='rope')", head_dim=8), ("RoPE", "str")),
        (lambda: build("rope(base=rope)", head_dim=8), ("base of rope must be float",)),
        (lambda: build("selfextend(rope=rope)", head_dim=8), ("did you mean 'self_extend'?",)),
        (lambda: build("streaming(rope=rope, sink=3)", head_dim=8), ("did you mean 'sinks'?",)),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(make, words):
    said = sentence(make)
    assert all(word in said for word in words), said


def test_places_without_a_meaning_are_refused():
    half = torch.tensor([0.0, 0.5, 1.0])
    for enc in (SelfExtend(PLAIN), DualChunk(PLAIN, chunk=8, local=2), Streaming(PLAIN)):
        with pytest.raises(ValueError, match="counts whole positions"):
            enc.check(half)
    ReRoPE(PLAIN).check(half)
    with pytest.raises(ValueError, match="no meaning before position 0"):
        Streaming(PLAIN).check(torch.tensor([-1, 0]))


def test_raw_keys_of_a_map_are_not_taken_for_rotated_ones():
    x = torch.randn(1, 1, 3, 8)
    keys, values, to = KVCache(SelfExtend(PLAIN)).append(x, x)
    with pytest.raises(ValueError, match="come from a cache made for self_extend"):
        attend(x, keys, values, PLAIN, at=to, to=to)
