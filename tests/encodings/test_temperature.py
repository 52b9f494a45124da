"""Temperatures against mpmath: the query at p times the published t(p), and nothing else touched."""

import math

import mpmath
import pytest
import torch

from milepost import KVCache, Layout, Temperature, attend, build

EPS = torch.finfo(torch.float64).eps
L = 512
POSITIONS = [0, 1, 2, 255, 256, 257, L - 2, L - 1, L, L + 1, 2 * L - 1, 2 * L, 4 * L, 131071, 1048575]
FORMS = ("llama4", "mistral", "inkling", "beam", "logn")


def factor(form: str, p: float, length: int, rate: float = 0.1) -> float:
    """The forms as they are printed, in forty digits; whole steps are counted by dividing whole numbers."""
    with mpmath.workdps(40):
        a, n = mpmath.mpf(rate), mpmath.mpf(p) + 1
        if form == "logn":
            return float(max(1, mpmath.log(n, length)))
        if form == "beam":
            return float((1 + n / length) ** a)
        if form == "inkling":
            return float(1 + a * max(0, mpmath.log(n) - mpmath.log(length)))
        steps = int(n) // length if form == "llama4" else int(p) // length
        return float(1 + a * mpmath.log(steps + 1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [2, 100, 512, 4096])
def test_queries_are_sharpened_by_their_own_position(form, length):
    q = torch.randn(2, 3, len(POSITIONS), 4, dtype=torch.float64)
    rate = 0.1 if form == "logn" else 0.37
    got = Temperature(length, form, rate).query(q, torch.tensor(POSITIONS))
    for t, p in enumerate(POSITIONS):
        want = q[:, :, t] * factor(form, p, length, rate)
        room = 4 + 2 * rate * abs(math.log1p((p + 1) / length))  # a power's exponent is rounded before exp
        assert ((got[:, :, t] - want).abs() <= room * EPS * want.abs()).all(), p  # logarithms, a quotient, products


@pytest.mark.parametrize(
    ("form", "rate", "positions", "want"),
    [
        ("logn", 0.1, [511, 2**18 - 1, 1048575], [1.0, 2.0, 20 / 9]),
        (
            "llama4",
            0.1,
            [510, 511, 1022, 1023],
            [1.0, 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(2), 1.1098612288668110],
        ),
        ("mistral", 0.1, [510, 511, 512, 1023, 1024], [1.0, 1.0, *[1.0693147180559945] * 2, 1.1098612288668110]),
        ("inkling", 0.1, [0, 511, 512, 1048575], [1.0, 1.0, 1 + 0.1 * math.log(513 / 512), 1 + 1.1 * math.log(2)]),
        ("beam", 0.1, [511, 1535, 1048575], [2**0.1, 4**0.1, 2049**0.1]),
    ],
)
def test_golden_factors_where_a_step_begins(form, rate, positions, want):
    q = torch.ones(1, 1, len(positions), 1, dtype=torch.float64)
    got = Temperature(512, form, rate).query(q, torch.tensor(positions)).flatten().tolist()
    assert got == pytest.approx(want, rel=4 * EPS)


@pytest.mark.parametrize(("form", "until"), [("llama4", 511), ("mistral", 512), ("inkling", 512), ("logn", 512)])
def test_texts_of_the_trained_length_come_back_bit_equal_and_the_next_token_does_not(form, until):
    q = torch.randn(1, 2, 514, 4)
    y = Temperature(512, form).query(q, torch.arange(514))
    assert torch.equal(y[:, :, :until], q[:, :, :until])
    assert not torch.equal(y[:, :, until], q[:, :, until])


def test_beam_sharpens_from_the_first_token_on():
    q = torch.randn(1, 2, 2, 4)
    assert not torch.equal(Temperature(512, "beam").query(q, torch.arange(2))[:, :, 0], q[:, :, 0])


@pytest.mark.parametrize("form", FORMS)
def test_keys_are_never_touched(form):
    k = torch.randn(1, 2, 3, 4)
    assert Temperature(4, form).key(k, torch.tensor([0, 100, 131071])) is k


@pytest.mark.parametrize("form", FORMS)
def test_in_attention_a_whole_row_of_logits_is_sharpened_by_the_query(form):
    q, k, v = (torch.randn(1, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    places = [3, 100, 511, 512, 2048, 131071]
    enc, at = Temperature(100, form), Layout.dense(6).with_positions(torch.tensor(places))
    logits = attend(q, k, v, enc, at=at, backend="reference", details=True).logits
    for h in range(2):
        for i in range(6):
            for j in range(i + 1):
                terms = [q[0, h, i, c].item() * k[0, h, j, c].item() for c in range(4)]
                want = sum(terms) * factor(form, places[i], 100) / 2
                assert abs(logits[0, h, i, j].item() - want) <= 24 * EPS * sum(map(abs, terms))


def test_each_row_is_told_its_own_positions_and_fractions_count():
    y = Temperature(10, "logn").query(
        torch.ones(2, 1, 2, 1, dtype=torch.float64), torch.tensor([[99.0, 0.5], [9.5, 999.0]], dtype=torch.float64)
    )
    assert y[:, 0, :, 0].tolist() == [
        pytest.approx([2.0, 1.0], rel=4 * EPS),
        pytest.approx([math.log(10.5) / math.log(10), 3.0], rel=4 * EPS),
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_stay_finite_past_65520(form, dtype):
    y = Temperature(512, form).half().query(torch.ones(1, 1, 2, 1, dtype=dtype), torch.tensor([65520, 1048575]))
    want = torch.tensor([factor(form, 65520, 512), factor(form, 1048575, 512)], dtype=torch.float64)
    assert y.dtype == dtype
    assert (
        (y.flatten().double() - want).abs() <= 0.51 * torch.finfo(dtype).eps * want
    ).all()  # the factor rounded once, times one


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="length must be at least 2"):
        Temperature(1, "logn")
    with pytest.raises(ValueError, match="length must be at least 1, got 0"):
        Temperature(0)
    with pytest.raises(ValueError, match=r'form must be "llama4", .* or "logn", got \'ssmax\''):
        Temperature(8, "ssmax")
    with pytest.raises(ValueError, match="rate must be above 0 and at most 100, got nan"):
        Temperature(8, rate=float("nan"))
    with pytest.raises(ValueError, match="logn has no rate"):
        Temperature(8, "logn", rate=0.5)
    with pytest.raises(ValueError, match="before position 0"):
        Temperature(8).query(torch.zeros(1, 1, 1, 2), torch.tensor([-1]))
    with pytest.raises(ValueError, match="float16"):
        Temperature(8).query(torch.zeros(1, 1, 1, 2), torch.tensor([1.0]).half())
    with pytest.raises(ValueError, match=r"\(B, H, L, D\)"):
        Temperature(8).query(torch.zeros(1, 1, 2), torch.tensor([1]))


def test_its_text_builds_it_again_and_the_old_name_is_read():
    assert repr(build("temperature", length=4096)) == "temperature(length=4096)"
    text = "temperature(length=2048, form='beam', rate=0.2)"
    assert repr(build(text)) == text
    for old in ("logn(length=4096)", "logn"):
        assert repr(build(old, length=4096)) == "temperature(length=4096, form='logn')"
    assert repr(build("rerope(rope=rope) + logn", head_dim=8, length=16)).endswith("length=16, form='logn')")


@pytest.mark.parametrize("form", ["llama4", "mistral", "inkling", "beam", "logn"])
def test_decoded_by_a_lane_it_is_as_sharp_as_in_one_pass_and_never_stale(form):
    enc, n = Temperature(16, form), 60
    q, k, v = (torch.randn(1, 4, n + 1, 8, dtype=torch.float64) for _ in range(3))
    cache = KVCache(enc)
    with torch.no_grad():
        steps = [cache.decode(*(t[:, :, m : m + 1] for t in (q, k, v))) for m in range(n)]
        assert (torch.cat(steps, 2) - attend(*(t[:, :, :n] for t in (q, k, v)), enc)).abs().max() < 1e-14
        enc.length = 4
        last = cache.decode(*(t[:, :, n:] for t in (q, k, v)))
        assert (last - attend(q[:, :, n:], k, v, enc)).abs().max() < 1e-14
