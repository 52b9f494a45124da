"""The protocols against a slow loop that scores one token at a time, and against each other where they must agree."""

import math

import numpy as np
import pytest
import torch

from milepost.lab.model import Decoder, Shape
from milepost.measure.losses import buckets, by_position, disjoint, same_targets, sliding, token_losses

SHAPE = Shape(32, 2, 16, 2, 16)
RNG = np.random.default_rng(0)
TEXT = RNG.integers(0, 32, 50)
WINDOWS = RNG.integers(0, 32, (3, 41))
CLOSE = 1e-9
"""float64 models: 16 digits, losses below 10, some hundred sums."""


def made(spec="rope"):
    torch.manual_seed(0)
    return Decoder(SHAPE, spec).double().eval()  # weights of size one: context matters


def loss_of(model, context, token):
    """Of one token after a context, by the definition."""
    with torch.no_grad():
        return -torch.log_softmax(model(torch.tensor([list(context)]))[0, -1].double(), -1)[token].item()


@pytest.fixture(scope="module")
def model():
    return made()


@pytest.fixture(scope="module", autouse=True)
def in_double():
    """`token_losses` takes logits to float32, as training does; here its arithmetic is to be seen to more digits."""
    patch = pytest.MonkeyPatch()
    patch.setattr(torch.Tensor, "float", torch.Tensor.double)
    yield
    patch.undo()


def test_token_losses_is_what_a_loop_finds(model):
    want = [[loss_of(model, row[: n + 1], row[n + 1]) for n in range(12)] for row in WINDOWS[:, :13]]
    assert np.abs(token_losses(model, WINDOWS[:, :13]) - want).max() < CLOSE


def test_calls_are_cut_into_parts_that_change_nothing(model, monkeypatch):
    whole = token_losses(model, WINDOWS)
    monkeypatch.setattr("milepost.measure.losses.AT_ONCE", 41)
    assert np.abs(token_losses(model, WINDOWS) - whole).max() < CLOSE


@pytest.mark.parametrize("length", [8, 13, 40])
def test_same_targets_scores_the_same_last_tokens_with_more_context(model, length):
    want = [[loss_of(model, row[40 - length : place], row[place]) for place in range(41 - 5, 41)] for row in WINDOWS]
    assert np.abs(same_targets(model, WINDOWS, length, 5) - want).max() < CLOSE


def test_more_context_is_another_loss(model):
    assert np.abs(same_targets(model, WINDOWS, 8, 5) - same_targets(model, WINDOWS, 40, 5)).max() > 0.01


@pytest.mark.parametrize("length", [7, 10, 49])
def test_disjoint_windows(model, length):
    count = 49 // length
    want = [
        [loss_of(model, TEXT[n * length : n * length + k + 1], TEXT[n * length + k + 1]) for k in range(length)]
        for n in range(count)
    ]
    assert np.abs(disjoint(model, TEXT, length) - want).max() < CLOSE


@pytest.mark.parametrize(("length", "stride"), [(10, 3), (10, 10), (12, 1), (49, 20), (20, 13)])
def test_sliding_windows_score_each_token_once_with_enough_context(model, length, stride):
    got = sliding(model, TEXT, length, stride)
    want = []
    for place in range(1, 1 + length + (49 - length) // stride * stride):
        end = max(length, length + math.ceil((place - length) / stride) * stride)  # the first window that holds it
        assert place <= length or place - (end - length) > length - stride  # so much context at least
        want.append(loss_of(model, TEXT[end - length : place], TEXT[place]))
    assert got.shape == (len(want),) and np.abs(got - want).max() < CLOSE


@pytest.mark.parametrize("length", [5, 7, 16, 49])
def test_a_stride_of_the_length_is_disjoint(model, length):
    assert np.array_equal(sliding(model, TEXT, length, length), disjoint(model, TEXT, length).reshape(-1))


def counting(ids):
    """A model whose loss tells which token is scored: logits that make the loss of token t depend on nothing else."""
    return torch.zeros(*ids.shape, 64, dtype=torch.float64) - torch.arange(64.0)


def test_every_token_is_scored_exactly_once():
    text = np.arange(50)
    shift = math.log(sum(math.exp(-n) for n in range(64)))
    for lost in (
        disjoint(counting, text, 7),
        sliding(counting, text, 10, 3),
        sliding(counting, text, 49, 5),
        disjoint(counting, text, 1),
    ):
        tokens = np.rint(lost.reshape(-1) - shift).astype(int)
        assert tokens.tolist() == list(range(1, len(tokens) + 1))
    assert len(sliding(counting, text, 10, 3)) == 49 and len(disjoint(counting, text, 7)) == 7


@pytest.mark.parametrize("spec", ["rope", "alibi", "nope", "rope(scaling=staged(trained=8))"])
def test_by_position_one_pass_equals_a_pass_for_each_length(spec):
    """Staged declares that it depends on the length, and is made such that a token does not: both ways must agree
    there too.
    """
    model, edges = made(spec), buckets(40, 16)
    once = by_position(model, WINDOWS, edges)
    each = by_position(model, WINDOWS, edges, length_dependent=True)
    assert [part.shape for part in once] == [(3, 4)] * 10
    assert max(np.abs(a - b).max() for a, b in zip(once, each, strict=True)) < CLOSE
    want = [[loss_of(model, row[: n + 1], row[n + 1]) for n in range(40)] for row in WINDOWS]
    assert np.abs(np.concatenate(once, axis=1) - want).max() < CLOSE


@pytest.mark.parametrize("spec", ["rope(scaling=dynamic(trained=8))", "rope(scaling=dynamic(trained=4)) + alibi"])
def test_by_position_of_a_model_that_depends_on_the_length_reads_up_to_each_buckets_end(spec):
    model, edges = made(spec), buckets(40, 16)
    each = by_position(model, WINDOWS, edges, length_dependent=model.length_dependent)
    for (a, e), got in zip(edges, each, strict=True):
        assert np.abs(got - token_losses(model, WINDOWS[:, : e + 1])[:, a:e]).max() < CLOSE
    once = by_position(model, WINDOWS, edges)
    assert (
        max(np.abs(a - b).max() for a, b in zip(once, each, strict=True)) > 1e6 * CLOSE
    )  # one pass would be something else


def test_the_last_bucket_is_where_position_and_length_meet(model):
    """The last tokens of a text of N tokens: their loss by position is their loss by length."""
    at_end = by_position(model, WINDOWS, [(0, 36), (36, 40)])[-1]
    assert np.abs(at_end - same_targets(model, WINDOWS, 40, 4)).max() < CLOSE


def test_buckets_cover_every_position_once():
    for length, trained in ((512, 64), (40, 16), (50, 16), (10, 64), (3, 2)):
        found = buckets(length, trained)
        assert [p for a, e in found for p in range(a, e)] == list(range(length))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: same_targets(m, WINDOWS, 41, 5), "the last 5 of 41 tokens can't be scored in windows of 40"),
        (lambda m: same_targets(m, WINDOWS, 4, 5), "the last 5 of 4 tokens"),
        (lambda m: disjoint(m, TEXT, 50), "a text of 50 tokens has no window of 50"),
        (lambda m: sliding(m, TEXT, 50, 5), "a text of 50 tokens has no window of 50"),
        (lambda m: sliding(m, TEXT, 10, 0), "a stride is from 1 to the length 10, got 0"),
        (lambda m: sliding(m, TEXT, 10, 11), "a stride is from 1 to the length 10, got 11"),
    ],
)
def test_what_can_not_be_scored_is_said(model, call, said):
    with pytest.raises(ValueError, match=said):
        call(model)
