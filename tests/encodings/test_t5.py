"""T5 against its logarithm formula in mpmath at 50 digits (so that exact edges are exact), and a plain loop over
heads and pairs of tokens.
"""

import math

import mpmath
import pytest
import torch

from milepost import T5, Layout, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 15, 16, 31, 32, 127, 128, 129, 255, 256, 257, 512, 131071, 1048575]


def bucket(relative: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> int:
    """T5's own function of key position minus query position, with whole numbers found where the logarithm hits
    them.
    """
    found = 0
    if bidirectional:
        buckets //= 2
        found = buckets if relative > 0 else 0
        n = abs(relative)
    else:
        n = max(-relative, 0)
    exact = buckets // 2
    if n < exact:
        return found + n
    with mpmath.workdps(50):
        x = mpmath.log(mpmath.mpf(n) / exact) / mpmath.log(mpmath.mpf(max_distance) / exact) * (buckets - exact)
        whole = mpmath.nint(x)
        step = int(whole) if abs(x - whole) < mpmath.mpf(10) ** -40 else int(mpmath.floor(x))
    return found + min(exact + step, buckets - 1)


def randomised(heads: int, **more) -> T5:
    enc = T5(heads, **more).double()
    with torch.no_grad():
        enc.table.normal_()
    return enc


def transitions(mode: str, sign: int = 1) -> list[tuple[int, int]]:
    found = T5(1, mode=mode).bucket(sign * torch.arange(200)).tolist()
    return [(n, b) for n, b in enumerate(found) if n == 0 or b != found[n - 1]]


def test_golden_bidirectional_transitions():
    near = [(n, n) for n in range(9)]
    far = [(12, 9), (16, 10), (23, 11), (32, 12), (46, 13), (64, 14), (91, 15)]
    assert transitions("bidirectional") == near + far
    after = transitions("bidirectional", sign=-1)
    assert after == [(0, 0)] + [(n, b + 16) for n, b in near[1:] + far]


def test_golden_causal_transitions():
    middle = [(19, 17), (21, 18), (24, 19), (27, 20), (31, 21), (35, 22), (40, 23)]
    far = [(46, 24), (52, 25), (59, 26), (67, 27), (77, 28), (87, 29), (99, 30), (113, 31)]
    assert transitions("causal") == [(n, n) for n in range(17)] + middle + far


@pytest.mark.parametrize(
    ("buckets", "max_distance"), [(32, 128), (64, 128), (32, 256), (128, 256), (12, 20), (4, 64), (32, 4096)]
)
def test_buckets_are_those_of_the_logarithm(buckets, max_distance):
    two, one = (
        T5(1, mode="bidirectional", buckets=buckets, max_distance=max_distance),
        T5(1, buckets=buckets, max_distance=max_distance),
    )
    distances = [*range(-max_distance - 2, max_distance + 3), 131071, 1048575, -131071, -1048575]
    got = two.bucket(torch.tensor(distances)).tolist()
    assert got == [bucket(-d, buckets, max_distance) for d in distances]
    ahead = [d for d in distances if d >= 0]
    assert one.bucket(torch.tensor(ahead)).tolist() == [
        bucket(-d, buckets, max_distance, bidirectional=False) for d in ahead
    ]


def test_an_odd_number_of_buckets_serves_one_side():
    one = T5(1, buckets=9, max_distance=40)
    assert one.bucket(torch.arange(60)).tolist() == [bucket(-d, 9, 40, bidirectional=False) for d in range(60)]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("mode", ["causal", "bidirectional"])
def test_the_bias_is_the_tables_number_for_every_head_and_pair(mode, shared):
    enc, p = randomised(3, mode=mode, shared=shared), torch.tensor(POSITIONS)
    got, table = enc.bias(torch.arange(3)[:, None, None], p[:, None], p), enc.table.tolist()
    for h in range(3):
        for a, i in enumerate(POSITIONS):
            for b, j in enumerate(POSITIONS):
                if mode == "bidirectional" or j <= i:
                    want = table[0 if shared else h][bucket(j - i, bidirectional=mode == "bidirectional")]
                    assert got[h, a, b].item() == want, (h, i, j)


@pytest.mark.parametrize("mode", ["causal", "bidirectional"])
def test_logits_in_attention_are_unscaled_scores_plus_the_tables_number(mode):
    enc = randomised(2, mode=mode)
    q, k, v = (torch.randn(2, 2, 16, 3, dtype=torch.float64) for _ in range(3))
    to, rows = Layout.dense(16).with_positions(torch.tensor(POSITIONS)), [15, 4, 9]
    at, q = to.take(torch.tensor(rows)), q[:, :, rows]
    two_sided = mode == "bidirectional"
    logits = attend(
        q, k, v, enc, at=at, to=to, causal=not two_sided, scale=1.0, backend="reference", details=True
    ).logits
    table = enc.table.tolist()
    for b in range(2):
        for h in range(2):
            for i, row in enumerate(rows):
                for j in range(16):
                    got = logits[b, h, i, j].item()
                    if j > row and not two_sided:
                        assert got == -math.inf
                        continue
                    terms = [q[b, h, i, c].item() * k[b, h, j, c].item() for c in range(3)]
                    bias = table[h][bucket(POSITIONS[j] - POSITIONS[row], bidirectional=two_sided)]
                    assert abs(got - sum(terms) - bias) <= 8 * EPS * (sum(map(abs, terms)) + abs(bias)), (b, h, row, j)


def test_the_gradient_counts_the_pairs_of_each_bucket():
    enc, p = randomised(2, mode="bidirectional"), torch.tensor(POSITIONS)
    enc.bias(torch.arange(2)[:, None, None], p[:, None], p).sum().backward()
    counts = [0] * 32
    for i in POSITIONS:
        for j in POSITIONS:
            counts[bucket(j - i)] += 1
    assert enc.table.grad.tolist() == [counts, counts]


def test_a_shard_of_heads_reads_its_own_rows():
    enc = randomised(4)
    q, k, v = (torch.randn(1, 4, 5, 2, dtype=torch.float64) for _ in range(3))
    whole = attend(q, k, v, enc, backend="reference")
    part = attend(q[:, 2:], k[:, 2:], v[:, 2:], enc, first_head=2, backend="reference")
    torch.testing.assert_close(part, whole[:, 2:], rtol=0, atol=64 * EPS)


def test_buckets_survive_every_cast_bit_for_bit():
    distances = torch.arange(-300, 300)
    before = T5(1, mode="bidirectional").bucket(distances)
    with torch.device("meta"):
        lazy = T5(1, mode="bidirectional")
    for enc in (
        T5(1, mode="bidirectional").bfloat16(),
        T5(1, mode="bidirectional").half(),
        lazy.to_empty(device="cpu"),
    ):
        assert torch.equal(enc.bucket(distances), before)


def test_negative_positions_have_distances():
    enc = randomised(1)
    assert enc.bias(torch.tensor(0), torch.tensor(-3), torch.tensor(-24)).item() == enc.table[0, 18].item()  # 21 apart


@pytest.mark.parametrize(
    "arguments",
    [
        {"heads": 0},
        {"heads": 1, "buckets": 1},
        {"heads": 1, "mode": "bidirectional", "buckets": 2},
        {"heads": 1, "mode": "bidirectional", "buckets": 33},
        {"heads": 1, "buckets": 32, "max_distance": 16},
    ],
)
def test_sizes_without_a_formula_are_refused(arguments):
    with pytest.raises(ValueError, match="T5 needs heads >= 1, at least 2 buckets a side"):
        T5(**arguments)


def test_bad_use_is_refused():
    with pytest.raises(ValueError, match="mode must be"):
        T5(1, mode="symmetric")
    x = torch.randn(1, 2, 3, 2)
    with pytest.raises(ValueError, match="causal=True"):
        attend(x, x, x, T5(2), causal=False)
    with pytest.raises(ValueError, match="is for 3 heads, q has 2"):
        attend(x, x, x, T5(3))
    with pytest.raises(ValueError, match="whole positions"):
        attend(x, x, x, T5(2), at=Layout.dense(3).with_positions(torch.tensor([0.0, 0.5, 1.0])))


def test_its_text_builds_it_again():
    text = "t5(heads=8, mode='bidirectional', buckets=64, max_distance=256, shared=True)"
    assert repr(build(text)) == text
