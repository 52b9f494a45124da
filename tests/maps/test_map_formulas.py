"""Every map against distances and scores found by hand, at and around its edges, with every kind of RoPE; and mistakes
planted in the pages, which this must catch."""

import inspect
import math
import textwrap

import pytest
import torch
from by_hand import EPS, agree, distance, rolling, room

from milepost import DualChunk, Layout, ReRoPE, RoPE, SelfExtend, Streaming, Temperature, attend, build

PLAIN = RoPE(head_dim=4)
MAPS = {
    "self_extend 3 7": SelfExtend(PLAIN, group=3, window=7),  # a group that does not divide the window
    "self_extend 4 8": SelfExtend(PLAIN, group=4, window=8),
    "self_extend 2 1": SelfExtend(PLAIN, group=2, window=1),
    "self_extend 5 3": SelfExtend(PLAIN, group=5, window=3),
    "self_extend 1 4": SelfExtend(PLAIN, group=1, window=4),
    "rerope 6": ReRoPE(PLAIN, window=6),
    "rerope 1": ReRoPE(PLAIN, window=1),
    "rerope 6 leak 4": ReRoPE(PLAIN, window=6, leak=4),
    "rerope 3 leak 2.5": ReRoPE(PLAIN, window=3, leak=2.5),
    "dual_chunk 9 3": DualChunk(PLAIN, chunk=9, local=3),
    "dual_chunk 6 0": DualChunk(PLAIN, chunk=6, local=0),
    "dual_chunk 8 6": DualChunk(PLAIN, chunk=8, local=6),  # local reaches past the whole chunk of 2
    "dual_chunk 5 4": DualChunk(PLAIN, chunk=5, local=4),  # chunks of one token
    "streaming 2 5": Streaming(PLAIN, sinks=2, window=5),
    "streaming 0 4": Streaming(PLAIN, sinks=0, window=4),
    "streaming 3 1": Streaming(PLAIN, sinks=3, window=1),
    "streaming 4 40": Streaming(PLAIN, sinks=4, window=40),
}
each = pytest.mark.parametrize("enc", MAPS.values(), ids=MAPS)
SMALL = {
    "self_extend": {"group": 3, "window": 5},
    "rerope": {"window": 5, "leak": 3.0},
    "dual_chunk": {"chunk": 6, "local": 2},
    "streaming": {"sinks": 2, "window": 4},
}
CLASSES = {"self_extend": SelfExtend, "rerope": ReRoPE, "dual_chunk": DualChunk, "streaming": Streaming}


@each
def test_a_text_from_its_start(enc):
    agree(enc, Layout.dense(25))


@each
def test_a_text_far_from_its_start(enc):
    if isinstance(enc, Streaming):
        whole = Layout.dense(61)  # the sinks, a gap that is hidden anyway, and a stretch of queries
        agree(enc, whole[47:], whole)
    else:
        agree(enc, Layout.dense(14, start=247))


@each
def test_packed_padded_windowed_and_shuffled_tokens(enc):
    agree(enc, Layout.packed([11, 1, 13]))
    agree(enc, Layout.padded(torch.tensor([[0] * 3 + [1] * 12, [1] * 10 + [0] * 5])), batch=2)
    agree(enc, Layout.dense(15).windowed(9), Layout.dense(15))
    order = torch.randperm(15)
    agree(enc, Layout.dense(15).take(order), Layout.dense(15).take(order.flip(0)))


@each
def test_rows_of_a_batch_may_be_at_different_places(enc):
    agree(enc, Layout.decode(torch.tensor([13, 9]), 3), Layout.dense(16), batch=2)


@each
def test_query_heads_that_share_key_heads(enc):
    agree(enc, Layout.dense(14), heads=4, shared=2)


ROPES = (
    "rope(head_dim=8, pairing='interleaved')",
    "rope(head_dim=8, rotary=4)",
    "rope(head_dim=8, rotary=4, pairing='interleaved')",
    "rope(head_dim=8, rotary=4, partial='proportional')",
    "rope(head_dim=8, base=500000.0)",
    "rope(head_dim=8, scaling=linear(factor=4.0))",
    "rope(head_dim=8, scaling=yarn(factor=4.0, trained=8))",  # has a temperature
    "rope(head_dim=8, rotary=4, scaling=yarn(factor=4.0, trained=8))",
)


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("name", SMALL)
def test_any_rope_can_be_mapped(name, rope):
    agree(CLASSES[name](build(rope), **SMALL[name]), Layout.dense(16))


def test_the_temperature_is_there_at_all():
    assert build(ROPES[-1]).spectrum.temperature > 1.05


def test_a_dynamic_rope_can_be_mapped_at_a_length():
    rope = build("rope(head_dim=8, scaling=dynamic(trained=8, factor=2.0))")
    plain = rope.at(32)
    assert plain.spectrum.frequencies[1] != RoPE(head_dim=8).spectrum.frequencies[1]
    agree(SelfExtend(plain, group=3, window=5), Layout.dense(16))


def test_log_n_sharpens_mapped_queries():
    enc, n = ReRoPE(PLAIN, window=3), 12
    q, k, v = (torch.randn(1, 2, n, 4, dtype=torch.float64) for _ in range(3))
    at, both = Layout.dense(n), enc + Temperature(5, "logn")
    sharp = attend(q, k, v, both, at=at, details=True).logits
    plain = attend(q, k, v, enc, at=at, details=True).logits
    factor = torch.tensor([max(1.0, math.log(p + 1) / math.log(5)) for p in range(n)], dtype=torch.float64)
    seen = plain.isfinite()
    assert ((sharp - plain * factor[:, None])[seen].abs() <= 2 * room(q, k, n)).all()
    assert ((sharp - plain)[..., 7:, :1].abs() > 1e-3).all()


# -- where the edges are ------------------------------------------------------------------------------------------


def told(enc, m: int, n: int) -> float:
    """The distance that the page itself gives, read off one slow pair of channels: atan2 of two scores."""
    rope = RoPE(head_dim=2, base=10000.0)
    mapped = type(enc)(rope, **{word: value for word, value in enc.spec_arguments().items() if word != "rope"})
    k = torch.tensor([0.01, 0.0], dtype=torch.float64)[None, None, None]
    found = []
    for q in ([1.0, 0.0], [0.0, 1.0]):
        s = torch.zeros(1, 1, 1, 1, dtype=torch.float64)
        one = torch.tensor(q, dtype=torch.float64)[None, None, None]
        found.append(mapped.rescore(s, one, k, torch.tensor([[[[m]]]]), torch.tensor([[[[n]]]])).item())
    return math.atan2(-found[1], found[0]) % (2 * math.pi)


@pytest.mark.parametrize(
    ("enc", "m", "n", "want"),
    [
        (SelfExtend(PLAIN, group=2, window=3), 3, 1, 2),  # the last near key
        (SelfExtend(PLAIN, group=2, window=3), 3, 0, 3),  # floor(3/2) - 0 + 3 - 1
        (SelfExtend(PLAIN, group=2, window=3), 4, 1, 4),  # 2 - 0 + 2: three tokens apart, four places
        (SelfExtend(PLAIN, group=2, window=3), 5, 1, 4),
        (ReRoPE(PLAIN, window=2), 9, 8, 1),
        (ReRoPE(PLAIN, window=2), 9, 7, 2),
        (ReRoPE(PLAIN, window=2), 9, 0, 2),
        (ReRoPE(PLAIN, window=2, leak=2), 9, 6, 2.5),
        (ReRoPE(PLAIN, window=2, leak=2), 9, 5, 3),
        (DualChunk(PLAIN, chunk=4, local=1), 3, 2, 1),  # chunks of 3: the first past the edge
        (DualChunk(PLAIN, chunk=4, local=1), 4, 0, 4),  # the last that keeps its distance
        (DualChunk(PLAIN, chunk=4, local=1), 5, 0, 4),
        (DualChunk(PLAIN, chunk=4, local=1), 5, 2, 2),
        (DualChunk(PLAIN, chunk=4, local=1), 6, 0, 4),  # two chunks back
        (DualChunk(PLAIN, chunk=4, local=1), 6, 2, 2),
        (DualChunk(PLAIN, chunk=4, local=1), 6, 3, 3),
        (Streaming(PLAIN, sinks=1, window=2), 3, 0, 3),  # the cache is full
        (Streaming(PLAIN, sinks=1, window=2), 4, 0, 3),
        (Streaming(PLAIN, sinks=1, window=2), 4, 2, 2),
    ],
    ids=str,
)
def test_distances_at_the_edges_are_those_worked_out_on_paper(enc, m, n, want):
    assert distance(enc, m, n) == want
    assert told(enc, m, n) == pytest.approx(want, abs=64 * EPS * 10)  # two angles of places below 10, one arc tangent


def test_streaming_hides_the_key_one_past_its_window_and_the_token_after_the_sinks():
    enc = Streaming(PLAIN, sinks=1, window=2)
    q = torch.randn(1, 1, 6, 4)
    seen = attend(q, q, q, enc, details=True).logits[0, 0].isfinite()
    assert seen[5].tolist() == [True, False, False, True, True, True]
    assert seen[3].tolist() == [True, True, True, True, False, False]
    assert rolling(1, 2, 5) == (0, 3, 4, 5)


# -- mistakes ------------------------------------------------------------------------------------------------------

MISTAKES = (
    (SelfExtend, "i - j < W", "i - j <= W"),
    (SelfExtend, "i - j < W", "i - j < W - 1"),
    (SelfExtend, "m // G + W - W // G", "m // G + W"),
    (SelfExtend, "m // G + W - W // G", "m // G - W + W // G"),
    (SelfExtend, "n // G", "-(-n // G)"),
    (SelfExtend, "near, far", "far, near"),
    (SelfExtend, "rope.query(q, m)", "rope.query(q, -m)"),
    (ReRoPE, "full_like(m, w)", "full_like(m, w - 1)"),
    (ReRoPE, "full_like(m, w)", "full_like(m, -w)"),
    (ReRoPE, "i - j < w", "i - j < w - 1"),
    (ReRoPE, "i - j < w", "i - j <= w + 1"),
    (ReRoPE, "w + (m.double() - w) / self.leak", "(m.double() - w) / self.leak"),
    (ReRoPE, "w + (m.double() - w) / self.leak", "w + m.double() / self.leak"),
    (ReRoPE, "n.double() / self.leak", "n.double() * self.leak"),
    (DualChunk, "self.chunk - self.local", "self.chunk"),
    (DualChunk, "clamp(max=self.chunk)", "clamp(max=self.chunk - 1)"),
    (DualChunk, "clamp(max=self.chunk)", "clamp(max=2 * self.chunk)"),
    (DualChunk, "min(2 * c - 1, self.chunk)", "min(2 * c - 1, self.chunk) - 1"),
    (DualChunk, "min(2 * c - 1, self.chunk)", "2 * c - 1"),
    (DualChunk, "min(2 * c - 1, self.chunk)", "self.chunk"),
    (DualChunk, "back == 1", "back >= 1"),
    (DualChunk, "n % c", "-(n % c)"),
    (Streaming, "max=self.sinks + self.window", "max=self.sinks + self.window - 1"),
    (Streaming, "m.clamp(max=self.sinks + self.window)", "m"),
    (Streaming, "i - j > self.window", "i - j >= self.window"),
    (Streaming, "i - j > self.window", "i - j > self.window + 1"),
    (Streaming, "j < self.sinks", "j <= self.sinks"),
    (Streaming, "sink, first, near", "sink, near, first"),
)


@pytest.mark.parametrize(
    ("cls", "right", "wrong"), MISTAKES, ids=[f"{cls.__name__}: {right} as {wrong}" for cls, right, wrong in MISTAKES]
)
def test_a_mistake_planted_in_a_page_is_caught(monkeypatch, cls, right, wrong):
    cases = [enc for enc in MAPS.values() if type(enc) is cls]
    source = textwrap.dedent(inspect.getsource(cls.rescore))
    assert source.count(right) == 1
    scope = dict(vars(inspect.getmodule(cls)))
    exec(source.replace(right, wrong), scope)
    monkeypatch.setattr(cls, "rescore", scope["rescore"])
    caught = 0
    for enc in cases:
        try:
            agree(enc, Layout.dense(25))
        except AssertionError:
            caught += 1
    assert caught


def test_the_hand_made_distances_tell_a_flipped_sign(monkeypatch):
    enc = SelfExtend(PLAIN, group=3, window=7)
    monkeypatch.setattr(RoPE, "key", lambda self, k, pos: self.turn(k, -pos))
    with pytest.raises(AssertionError):
        agree(enc, Layout.dense(25))
