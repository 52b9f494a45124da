"""Statistics of attention: against the dense weights, and without ever holding them."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from milepost.attention import attend
from milepost.lab.model import Decoder, Shape
from milepost.measure.attention import ROWS, edges_for, statistics, to_rows
from milepost.spec import build

SPECS = ("nope", "rope", "alibi", "t5", "shaw", "rope + alibi", "rerope(rope=rope, window=8)", "cope(positions=32)")
L = 2 * ROWS + 23


def given(spec, length=L, keys=2):
    torch.manual_seed(0)
    enc = build(spec, heads=2, head_dim=8, width=16, length=length).double()
    for parameter in enc.parameters():
        torch.nn.init.normal_(parameter)
    q, k = torch.randn(2, 2, length, 8, dtype=torch.float64) * 2, torch.randn(2, keys, length, 8, dtype=torch.float64)
    pos = torch.arange(length)
    return enc.query(q, pos), enc.key(k, pos), enc


def dense(q, k, enc):
    return attend(q, k, torch.zeros_like(k), enc, turned=True, details=True).weights


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("first", [0, 100])
def test_they_are_those_of_the_dense_weights(spec, first):
    q, k, enc = given(spec)
    p = dense(q, k, enc)[:, :, first:].detach()
    distance = (torch.arange(first, L)[:, None] - torch.arange(L)[None]).clamp(min=0)
    for head in statistics(q, k, enc, layer=3, first=first):
        mine, count = p[:, head.head], 2 * (L - first)
        for number, (a, e) in enumerate(zip(head.edges, head.edges[1:], strict=False)):
            assert head.distance[number] == pytest.approx(
                (mine * ((distance >= a) & (distance < e))).sum().item() / count, abs=1e-12
            )
        assert head.layer == 3
        assert head.mean == pytest.approx((mine * distance).sum().item() / count, rel=1e-12)
        assert head.entropy == pytest.approx(-torch.special.xlogy(mine, mine).sum().item() / count, rel=1e-12)
        assert head.sink == pytest.approx(mine[..., 0].sum().item() / count, rel=1e-12)
        assert sum(head.distance) == pytest.approx(1, abs=1e-12)


def test_known_attention_has_known_numbers():
    """All keys alike: query n spreads evenly over n + 1 keys."""
    zero = torch.zeros(1, 1, 8, 4)
    (head,) = statistics(zero, zero, build("nope"), 0)
    assert head.edges == (0, 1, 2, 4, 8)
    each = [1 / n for n in range(1, 9)]
    assert head.sink == pytest.approx(sum(each) / 8) == pytest.approx(head.distance[0])
    assert head.mean == pytest.approx(sum(n / 2 for n in range(8)) / 8)
    assert head.entropy == pytest.approx(torch.arange(1.0, 9).log().mean().item())


def test_heads_may_share_keys():
    q, k, enc = given("rope", keys=1)
    shared, apart = statistics(q, k, enc, 0), statistics(q, k.expand(-1, 2, -1, -1), enc, 0)
    assert [head.distance for head in shared] == [head.distance for head in apart]


def test_edges_double_up_to_the_length():
    assert (
        edges_for(1) == (0, 1)
        and edges_for(2) == (0, 1, 2)
        and edges_for(64) == (0, 1, 2, 4, 8, 16, 32, 64)
        and edges_for(65)[-1] == 128
    )


def test_queries_to_count_from_are_some():
    q, k, enc = given("nope", 16)
    with pytest.raises(ValueError, match="from 0 to 15, got 16"):
        statistics(q, k, enc, 0, first=16)


class Sizes(TorchDispatchMode):
    """The largest tensor that any operation makes."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.numel())
        return made


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["rope", "alibi", "rerope(rope=rope, window=8)"])
def test_no_l_by_l_tensor_is_held(spec):
    length = 2048
    q, k, enc = given(spec, length)
    with Sizes() as seen:
        statistics(q, k, enc, 0)
    assert 0 < seen.largest <= 2 * 2 * ROWS * length < length * length
    with Sizes() as seen, torch.no_grad():
        dense(q[:1, :1], k[:1, :1], build("nope"))
    assert seen.largest >= length * length  # the watcher sees one where there is one


def test_a_model_shows_its_own_attention():
    """What `looks` gives is what the model's own layers attend with."""
    shape = Shape(32, 2, 16, 2, 24)
    for spec in ("rope", "alibi", "rope(scaling=dynamic(trained=8))", "learned", "fox", "rope + relative_logits"):
        torch.manual_seed(0)
        model, ids = Decoder(shape, spec).double().eval(), torch.randint(0, 32, (2, 24))
        with torch.no_grad():
            looks, x = model.looks(ids), model._embedded(ids, at := model.caches()[0].next(24))
            for (q, k, enc, f), block in zip(looks, model.blocks, strict=True):
                after = block(x, at)
                v = block.project(x)[2]
                mine = x + block.out((attend(q, k, v, enc, turned=True, features=f)).transpose(1, 2).flatten(-2))
                mine = mine + block.down(torch.nn.functional.gelu(block.up(block.norm_2(mine))))
                assert torch.allclose(mine, after, atol=1e-12)
                x = after
            each = [statistics(q, k, enc, layer, features=f) for layer, (q, k, enc, f) in enumerate(looks)]
            rows = to_rows([head for heads in each for head in heads])
        assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
