"""Hooks under the real compiler and under torch.export: one graph for all lengths, the numbers of eager, no complex
numbers; and the memo of tables.
"""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from milepost import Layout, attend, build
from milepost.encoding import Encoding
from milepost.encodings import rope
from milepost.testing import randomised_copy

SIZES = {"heads": 2, "head_dim": 8, "width": 16, "length": 64}
LENGTHS = (6, 9, 17)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the compiler has warnings of its own


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    torch.manual_seed(11)
    yield
    torch._dynamo.reset()


def hooks(enc: Encoding):
    """All hooks that the encoding overrides, in one function of tensors."""

    def run(x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, ...]:
        found = [enc.embed(x, pos), enc.query(q, pos), enc.key(k, pos)]
        i, j = pos[None, None, :, None], pos[None, None, None, :]
        if "bias" in enc.points:
            found.append(enc.bias(torch.arange(q.shape[1])[:, None, None], i, j))
        if "rescore" in enc.points:
            found.append(enc.rescore(q @ k.transpose(-1, -2), q, k, i, j))
        return tuple(found)

    return run


def given(enc: Encoding, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k = (torch.randn(1, SIZES["heads"], length, SIZES["head_dim"], dtype=torch.float64) for _ in range(2))
    return torch.randn(1, length, SIZES["width"], dtype=torch.float64), q, k, torch.arange(3, 3 + length)


def alike(a: Tensor, b: Tensor) -> None:
    assert a.shape == b.shape and a.dtype == b.dtype
    assert (a - b).abs().max() <= 1e-12 * max(1.0, b.abs().max().item())


@pytest.mark.parametrize("spec", ["rope", "alibi", "t5", "sinusoidal", "shaw"])
def test_compiled_hooks_equal_eager_over_three_lengths_with_one_graph(spec):
    enc = randomised_copy(build(spec, **SIZES))
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(hooks(enc), backend=counter, fullgraph=True, dynamic=True)
    graphs = []
    with torch.no_grad():
        for length in LENGTHS:
            inputs = given(enc, length)
            for got, want in zip(compiled(*inputs), hooks(enc)(*inputs), strict=True):
                alike(got, want)
            graphs.append(counter.frame_count)
    assert graphs == [graphs[0]] * len(LENGTHS)  # the compiler may try twice at the first length, and never again


def test_compiled_attention_trains_rope_as_eager_does():
    enc = build("rope", **SIZES)

    def loss(q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
        y = attend(q, k, v, enc, at=Layout.dense(q.shape[2]).with_positions(pos), backend="reference")
        return y.pow(2).sum()

    q, k, v = (torch.randn(1, 2, 9, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
    want = torch.autograd.grad(loss(q, k, v, torch.arange(9)), (q, k, v))
    for a, b in zip(torch.autograd.grad(compiled(q, k, v, torch.arange(9)), (q, k, v)), want, strict=True):
        alike(a, b)


class Block(nn.Module):
    """What a model does with RoPE, in a few lines."""

    def __init__(self):
        super().__init__()
        self.enc = build("rope(base=5e5)", head_dim=8)
        self.project = nn.Linear(16, 48, dtype=torch.float64)

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 2, 8)).transpose(1, 3).unbind(2)
        q, k = self.enc.query(q, pos), self.enc.key(k, pos)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.fixture(scope="module")
def exported():
    block = Block().eval()
    length = torch.export.Dim("length", min=2, max=4096)
    shapes = {"x": {1: length}, "pos": {0: length}}
    return block, torch.export.export(
        block, (torch.randn(1, 8, 16, dtype=torch.float64), torch.arange(8)), dynamic_shapes=shapes
    )


@pytest.mark.parametrize("length", [3, 29])
def test_an_exported_module_gives_the_same_at_other_lengths(exported, length):
    block, program = exported
    x, pos = torch.randn(1, length, 16, dtype=torch.float64), torch.arange(100, 100 + length)
    alike(program.module()(x, pos), block(x, pos))


def test_an_exported_graph_has_no_complex_numbers_and_no_table_of_fixed_length(exported):
    _, program = exported
    values = [node.meta["val"] for node in program.graph.nodes if isinstance(node.meta.get("val"), Tensor)]
    assert values and not any(value.is_complex() for value in values)
    assert all(t.dim() < 2 or name.startswith("project") for name, t in program.state_dict.items())


@pytest.mark.parametrize(
    "spec", ["rope", "rope(pairing='interleaved')", "xpos", "sinusoidal", "transformer_xl", "sandwich"]
)
def test_no_complex_dtype_is_in_the_compiled_graph(spec):
    enc = randomised_copy(build(spec, **SIZES))
    seen: list[torch.dtype] = []

    def look(graph: torch.fx.GraphModule, inputs: list[Tensor]):
        seen.extend(
            node.meta["example_value"].dtype
            for node in graph.graph.nodes
            if isinstance(node.meta.get("example_value"), Tensor)
        )
        return graph.forward

    torch.compile(hooks(enc), backend=look, fullgraph=True, dynamic=True)(*given(enc, 6))
    assert seen and not any(dtype.is_complex for dtype in seen)


# -- the memo of tables on positions ------------------------------------------------------------------------------


@pytest.fixture
def tables(monkeypatch):
    """Every table of cosines that was made, held weakly."""
    made: list[weakref.ref[Tensor]] = []
    real = rope.cos_sin.__globals__["_table"]

    def table(*given):
        cos, sin = real(*given)
        made.append(weakref.ref(cos))
        return cos, sin

    monkeypatch.setitem(rope.cos_sin.__globals__, "_table", table)
    return made


def ones(length: int) -> Tensor:
    return torch.ones(1, 1, length, 8, dtype=torch.float64)


def test_queries_keys_and_layers_share_one_table(tables):
    pos = torch.arange(5)
    for enc in (build("rope", head_dim=8), build("rope", head_dim=8)):
        enc.query(ones(5), pos)
        enc.key(ones(5), pos)
    assert len(tables) == 1


def test_a_write_to_the_positions_is_seen():
    enc, pos = build("rope", head_dim=8), torch.arange(5)
    for change in (
        lambda: pos.add_(7),
        lambda: pos.__setitem__(0, 99),
        lambda: pos.copy_(torch.arange(5, 10)),
        pos.zero_,
        lambda: pos[2:].fill_(3),
    ):
        enc.query(ones(5), pos)
        change()
        assert torch.equal(enc.query(ones(5), pos), enc.query(ones(5), pos.clone()))


def test_a_write_through_a_view_is_seen():
    enc, pos = build("rope", head_dim=8), torch.arange(8)
    view = pos[2:6]
    enc.query(ones(4), view)
    enc.query(ones(8), pos)
    pos += 100
    assert torch.equal(enc.query(ones(4), view), enc.query(ones(4), torch.arange(102, 106)))
    view -= 50
    assert torch.equal(enc.query(ones(8), pos), enc.query(ones(8), pos.clone()))


def test_slices_of_the_positions_are_separate():
    enc, pos = build("rope", head_dim=8), torch.arange(8)
    whole = enc.query(ones(8), pos)
    first, second = enc.query(ones(4), pos[:4]), enc.query(ones(4), pos[4:])
    assert torch.equal(torch.cat([first, second], dim=2), whole)
    assert torch.equal(enc.query(ones(4), pos[::2]), whole[:, :, ::2])


def test_two_bases_and_two_sizes_never_share_a_table():
    pos = torch.arange(5)
    specs = [
        "rope(head_dim=8)",
        "rope(head_dim=8, base=5e5)",
        "rope(head_dim=8, rotary=4)",
        "rope(head_dim=8, rotary=4, partial='proportional')",
    ]
    together = [build(spec).query(ones(5), pos) for spec in specs]
    alone = [build(spec).query(ones(5), torch.arange(5)) for spec in specs]
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))
    assert all(not torch.equal(together[0], other) for other in together[1:])


def test_two_precisions_never_share_a_table():
    enc, pos = build("rope", head_dim=8), torch.arange(1048570, 1048575)
    narrow = enc.query(ones(5).float(), pos)
    assert torch.equal(enc.query(ones(5), pos), enc.query(ones(5), pos.clone()))
    assert torch.equal(enc.query(ones(5).float(), pos), narrow)


def test_sinusoidal_and_rope_of_one_spectrum_each_get_their_own_code():
    pos = torch.arange(5)
    turned = build("rope", head_dim=8).query(ones(5), pos)
    code = build("sinusoidal", width=8).embed(torch.zeros(1, 5, 8, dtype=torch.float64), pos)
    assert torch.equal(turned, build("rope", head_dim=8).query(ones(5), torch.arange(5)))
    assert torch.equal(
        code, build("sinusoidal", width=8).embed(torch.zeros(1, 5, 8, dtype=torch.float64), torch.arange(5))
    )


def test_a_table_lives_and_dies_with_its_positions(tables):
    enc, pos = build("rope", head_dim=8), torch.arange(5)
    enc.query(ones(5), pos)
    gc.collect()
    assert [table() is not None for table in tables] == [True]
    del pos
    gc.collect()
    assert [table() is not None for table in tables] == [False]


def test_positions_that_learn_are_never_remembered():
    enc, pos = build("rope", head_dim=8), torch.arange(5.0, dtype=torch.float64).requires_grad_()
    for _ in range(2):
        (grad,) = torch.autograd.grad(enc.query(ones(5) * 0.3, pos).pow(3).sum(), pos)
        assert grad.isfinite().all() and grad.any()


def test_inference_mode_gives_the_same_and_does_not_spoil_what_follows():
    enc, pos = build("rope", head_dim=8), torch.arange(5)
    want = enc.query(ones(5), pos.clone())
    with torch.inference_mode():
        assert torch.equal(enc.query(ones(5), pos), want)
        assert torch.equal(enc.query(ones(5), torch.arange(5)), want)
    x = ones(5).requires_grad_()
    torch.autograd.grad(enc.query(x, pos).sum(), x)
    assert torch.equal(enc.query(ones(5), pos), want)
