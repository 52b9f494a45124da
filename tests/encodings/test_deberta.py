"""DeBERTa against the authors' bucket function with logarithms from mpmath at 50 digits, and its three terms summed
for every pair of tokens.
"""

import math

import mpmath
import pytest
import torch

from milepost import DeBERTa, Layout, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 127, 128, 129, 255, 256, 257, 511, 512, 513, 2048, 131071, 1048575]
ROWS = [14, 3, 8, 10]


def bucket(d: int, buckets: int, span: int) -> int:
    """`make_log_bucket_position`, with whole numbers found where the logarithm hits them."""
    middle = buckets // 2
    if abs(d) <= middle:
        return d
    with mpmath.workdps(50):
        x = mpmath.log(mpmath.mpf(abs(d)) / middle) / mpmath.log(mpmath.mpf(span - 1) / middle) * (middle - 1)
        whole = mpmath.nint(x)
        step = int(whole) if abs(x - whole) < mpmath.mpf(10) ** -40 else int(mpmath.ceil(x))
    return int(math.copysign(middle + step, d))


def row(d: int, buckets: int | None, span: int) -> int:
    side = span if buckets is None else buckets
    return min(max((d if buckets is None else bucket(d, buckets, span)) + side, 0), 2 * side - 1)


def randomised(heads: int, head_dim: int, **more) -> DeBERTa:
    enc = DeBERTa(heads, head_dim, **more).double()
    with torch.no_grad():
        for p in enc.parameters():
            p.normal_()
    return enc


@pytest.mark.parametrize(
    ("buckets", "span"), [(256, 512), (32, 128), (8, 20), (4, 512), (64, 4096), (None, 512), (None, 3)]
)
def test_rows_are_those_of_the_logarithm(buckets, span):
    enc = DeBERTa(1, 1, buckets=buckets, span=span)
    distances = [
        *range(-min(span, 1000) - 3, min(span, 1000) + 4),
        *range(span - 3, span + 4),
        -131071,
        -1048575,
        131071,
        1048575,
    ]
    got = enc.row(torch.tensor(distances), torch.tensor(0)).tolist()
    assert got == [row(d, buckets, span) for d in distances]
    assert enc.row(torch.tensor(1048575), 1048575 - torch.tensor(distances)).tolist() == got


def test_golden_rows_of_the_published_sizes():
    enc = DeBERTa(1, 1, buckets=256, span=512)
    distances = [0, 1, 128, 129, 131, 132, 133, 256, 505, 506, 511, 512, -1, -128, -129, -511, -512, -1048575]
    rows = [256, 257, 384, 385, 387, 387, 388, 448, 510, 511, 511, 511, 255, 128, 127, 1, 0, 0]
    assert enc.row(torch.tensor(distances), torch.tensor(0)).tolist() == rows


@pytest.mark.parametrize(("c2p", "p2c"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("buckets", [256, None])
def test_logits_are_the_terms_over_the_root_of_their_number(c2p, p2c, buckets):
    heads, D = 2, 3
    enc = randomised(heads, D, buckets=buckets, span=512, c2p=c2p, p2c=p2c)
    to = Layout.dense(15).with_positions(torch.tensor(POSITIONS))
    q, k, v = (torch.randn(2, heads, 15, D, dtype=torch.float64) for _ in range(3))
    at, q = to.take(torch.tensor(ROWS)), q[:, :, ROWS]
    logits = attend(q, k, v, enc, at=at, to=to, causal=False, backend="reference", details=True).logits
    for b in range(2):
        for h in range(heads):
            for i, m in enumerate(ROWS):
                for j in range(15):
                    r, terms = row(POSITIONS[m] - POSITIONS[j], buckets, 512), []
                    for c in range(D):
                        qc, kc = q[b, h, i, c].item(), k[b, h, j, c].item()
                        terms.append(qc * kc)
                        terms += [qc * enc.keys[h, r, c].item()] if c2p else []
                        terms += [kc * enc.queries[h, r, c].item()] if p2c else []
                    want = sum(terms) / math.sqrt(D * (1 + c2p + p2c))
                    assert abs(logits[b, h, i, j].item() - want) <= 16 * EPS * sum(map(abs, terms)), (b, h, m, j)


def test_what_the_mask_hides_stays_hidden():
    enc = randomised(1, 2)
    x = torch.randn(1, 1, 4, 2, dtype=torch.float64)
    logits = attend(x, x, x, enc, backend="reference", details=True).logits
    assert torch.equal(logits[0, 0].isinf(), torch.ones(4, 4).triu(1).bool())


def test_edges_survive_every_cast_bit_for_bit():
    distances = torch.arange(-600, 600)
    before = DeBERTa(1, 1).row(distances, torch.tensor(0))
    with torch.device("meta"):
        lazy = DeBERTa(1, 1)
    for enc in (DeBERTa(1, 1).bfloat16(), DeBERTa(1, 1).half(), lazy.to_empty(device="cpu")):
        assert torch.equal(enc.row(distances, torch.tensor(0)), before)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_shard_of_heads_reads_its_own_tables_or_is_refused(heads):
    enc = randomised(4, 3)
    q, k, v = (torch.randn(1, 4, 5, 3, dtype=torch.float64) for _ in range(3))
    whole = attend(q, k, v, enc, backend="reference")[:, 2 : 2 + heads]
    try:
        part = attend(*(t[:, 2 : 2 + heads] for t in (q, k, v)), enc, first_head=2, backend="reference")
    except ValueError:  # a sentence is an answer, too
        return
    torch.testing.assert_close(part, whole, rtol=0, atol=64 * EPS)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"heads": 0}, "heads, head_dim >= 1 and span >= 3"),
        ({"head_dim": 0}, "heads, head_dim >= 1"),
        ({"span": 2, "buckets": None}, "span >= 3"),
        ({"buckets": 5}, "buckets must be even, at least 4"),
        ({"buckets": 2}, "at least 4"),
        ({"buckets": 1024, "span": 512}, "below span - 1 = 511"),
        ({"c2p": False, "p2c": False}, "use nope"),
    ],
)
def test_bad_arguments_are_refused(argument, message):
    with pytest.raises(ValueError, match=message):
        DeBERTa(**{"heads": 2, "head_dim": 4, **argument})


def test_bad_use_is_refused():
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="is for 3 heads, q has 2"):
        attend(x, x, x, DeBERTa(3, 4))
    with pytest.raises(ValueError, match="is for head_dim=6, q has 4"):
        attend(x, x, x, DeBERTa(2, 6))
    with pytest.raises(ValueError, match="whole positions"):
        attend(x, x, x, DeBERTa(2, 4), at=Layout.dense(3).with_positions(torch.tensor([0.0, 0.5, 1.0])))


def test_its_text_builds_it_again():
    text = "deberta(heads=2, head_dim=4, buckets=None, span=64, p2c=False)"
    assert repr(build(text)) == text
