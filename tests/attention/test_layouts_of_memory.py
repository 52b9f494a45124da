"""However the numbers lie in memory, attend gives the reference's: strided, expanded, transposed, sliced, offset and empty storage."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

import milepost
from milepost import Encoding, KVCache, Layout, attend, build
from milepost.attention.attend import _FAST
from milepost.attention.backends.key_row import key_row
from milepost.attention.call import Call

B, H, L, D = 2, 4, 40, 16
SPECS = (
    "nope",
    "rope",
    "xpos",
    "temperature",
    "fope",
    "learned_spectrum",
    "ssmax",
    "alibi",
    "t5",
    "kerple",
    "sandwich",
    "fire",
    "shaw",
    "transformer_xl",
    "deberta",
    "cope",
    "pope",
    "rope + alibi",
    "t5 + alibi",
)


def strided(t: Tensor) -> Tensor:
    return torch.stack([t, torch.full_like(t, 1e4), t], dim=-1)[..., 2]


def expanded(t: Tensor) -> Tensor:
    return t[:, :, :1].expand_as(t)


def expanded_over_batch_and_heads(t: Tensor) -> Tensor:
    return t[:1, :1].expand_as(t)


def expanded_channels(t: Tensor) -> Tensor:
    return t[..., :1].expand_as(t)


def transposed(t: Tensor) -> Tensor:
    return t.transpose(-1, -2).contiguous().transpose(-1, -2)


def tokens_first(t: Tensor) -> Tensor:
    return t.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)


def sliced(t: Tensor) -> Tensor:
    wide = torch.full((t.shape[0], t.shape[1], 2 * t.shape[2] + 3, t.shape[3] + 5), 1e4, dtype=t.dtype)
    wide[:, :, 3::2, 2:-3] = t
    return wide[:, :, 3::2, 2:-3]


def offset(t: Tensor) -> Tensor:
    flat = torch.full((t.numel() + 7,), 1e4, dtype=t.dtype)
    flat[7:] = t.flatten()
    return flat[7:].view(t.shape)


def overlapping(t: Tensor) -> Tensor:
    flat = t.flatten()[: t.shape[2] + t.shape[3]].clone()
    return flat.unfold(0, t.shape[3], 1)[: t.shape[2]].expand(t.shape)


def backwards(t: Tensor) -> Tensor:
    return t.flip(2).contiguous().flip(2)


STORAGES = [
    strided,
    expanded,
    expanded_over_batch_and_heads,
    expanded_channels,
    transposed,
    tokens_first,
    sliced,
    offset,
    overlapping,
    backwards,
]


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(dtype)


def made(spec: str) -> Encoding:
    torch.manual_seed(5)
    enc = build(spec, heads=H, head_dim=D, width=32, length=64)
    for p in enc.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return enc


CASES = {
    "whole": (Layout.dense(L), Layout.dense(L)),
    "window": (Layout.dense(L, window=7), Layout.dense(L)),
    "several queries over a longer cache": (Layout.dense(L, start=24)[:16], Layout.dense(L)),
    "packed": (Layout.packed([23, 17]), Layout.packed([23, 17])),
    "one query": (Layout.decode(L - 1), Layout.dense(L)),
}


def differences(spec: str, store, at: Layout, to: Layout, backend: str, dtype: torch.dtype) -> float:
    """The largest difference from the reference over contiguous copies, forward and backward."""
    enc = made(spec).to(dtype)
    plain = (
        drawn(B, H, at.length, D, dtype=dtype),
        drawn(B, H, to.length, D, dtype=dtype) / 2,
        drawn(B, H, to.length, D, dtype=dtype) + 1,
    )
    stored = [store(t.clone()) for t in plain]
    given = [t.detach().requires_grad_() for t in stored]
    same = [t.detach().clone(memory_format=torch.contiguous_format).requires_grad_() for t in stored]
    weight = drawn(B, H, at.length, D, dtype=dtype)
    got = attend(given[0], given[1], given[2], enc, at=at, to=to, backend=backend)
    want = attend(same[0], same[1], same[2], enc, at=at, to=to, backend="reference")
    got_grads = torch.autograd.grad((got * store(weight)).sum(), given)
    want_grads = torch.autograd.grad((want * store(weight).contiguous()).sum(), same)
    size = max(1.0, *(float(w.abs().max()) for w in want_grads))
    apart = float((got - want).detach().abs().max())
    return max(apart, *(float((g - w).abs().max()) / size for g, w in zip(got_grads, want_grads, strict=True)))


@pytest.mark.parametrize("store", STORAGES, ids=lambda store: store.__name__)
@pytest.mark.parametrize("spec", SPECS)
def test_any_storage_gives_the_numbers_of_the_reference(spec, store):
    for at, to in CASES.values():
        assert differences(spec, store, at, to, "auto", torch.float64) < 1e-10


@pytest.mark.parametrize("backend", sorted(_FAST))
@pytest.mark.parametrize("store", STORAGES, ids=lambda store: store.__name__)
def test_every_backend_takes_any_storage(backend, store):
    for spec in ("nope", "rope", "alibi", "t5", "shaw"):
        enc = made(spec)
        for name, (at, to) in CASES.items():
            q, k, v = (store(drawn(B, H, n, D)) for n in (at.length, to.length, to.length))
            if _FAST[backend].obstacle(Call(q, k, v, enc, at, to, True, 1.0)) is not None:
                continue
            with torch.no_grad():
                got = attend(q, k, v, enc, at=at, to=to, backend=backend)
                want = attend(
                    q.contiguous(),
                    k.contiguous(),
                    v.contiguous(),
                    enc,
                    at=at,
                    to=to,
                    backend="reference",
                )
            assert float((got - want).abs().max()) < 1e-5, (spec, name)


def test_the_case_of_the_report():
    q, k, v = torch.randn(1, 4, 64, 16, 3).unbind(-1)
    enc = build("alibi", heads=4)
    assert torch.allclose(attend(q, k, v, enc), attend(q, k, v, enc, backend="reference"), atol=2e-6)


@pytest.mark.parametrize("store", STORAGES, ids=lambda store: store.__name__)
def test_grouped_heads_take_any_storage(store):
    for spec in ("nope", "alibi", "t5"):
        enc = made(spec)
        for at, to in CASES.values():
            q, k, v = store(drawn(B, H, at.length, D)), *(store(drawn(B, 2, to.length, D)) for _ in range(2))
            with torch.no_grad():
                got = attend(q, k, v, enc, at=at, to=to)
                want = attend(q.contiguous(), k.contiguous(), v.contiguous(), enc, at=at, to=to, backend="reference")
            assert float((got - want).abs().max()) < 1e-5, spec


@pytest.mark.parametrize("store", STORAGES, ids=lambda store: store.__name__)
@pytest.mark.parametrize("queries", [1, 12, L])
def test_a_key_row_takes_any_storage(store, queries):
    q, k, v = store(drawn(B, H, queries, D)), store(drawn(B, H, L, D) / 2), store(drawn(B, H, L, D) + 1)
    row = store(drawn(B, H, 1, L))
    got = key_row(q, k, v, row, scale=0.25)
    future = torch.ones(queries, L, dtype=torch.bool).triu(1 + L - queries)
    logits = (q.double() @ k.double().transpose(-1, -2)) * 0.25 + row.double()
    want = torch.softmax(logits.masked_fill(future, float("-inf")), dim=-1) @ v.double()
    assert float((got - want).abs().max()) < 2e-6


@pytest.mark.parametrize("store", STORAGES, ids=lambda store: store.__name__)
@pytest.mark.parametrize("spec", ["rope", "alibi", "t5", "nope", "rope + alibi", "shaw"])
def test_a_decode_takes_any_storage(store, spec):
    enc = made(spec)
    q, k, v = (drawn(B, H, 14, D) + shift for shift in (0, 1, 2))
    cache, plain = KVCache(enc), KVCache(enc)
    with torch.no_grad():
        for n in range(14):
            token = [store(t[:, :, n : n + 1].clone()) for t in (q, k, v)]
            got = cache.decode(*token)
            assert torch.allclose(
                got, plain.decode(*(t.clone(memory_format=torch.contiguous_format) for t in token)), atol=1e-6
            )


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("shape", [(0, 5, 5), (2, 0, 0), (2, 0, 5)])
def test_no_rows_give_no_rows(spec, shape):
    batch, queries, keys = shape
    enc = made(spec)
    q, k, v = torch.randn(batch, H, queries, D), torch.randn(batch, H, keys, D), torch.randn(batch, H, keys, D)
    at, to = Layout.dense(keys)[keys - queries :], Layout.dense(keys)
    assert attend(q, k, v, enc, at=at, to=to).shape == (batch, H, queries, D)


def test_the_raw_operators_are_called_in_one_place_alone():
    home = Path(milepost.__file__).parent
    calls = re.compile(r"_scaled_dot_product|scaled_dot_product_attention\(")
    assert [f.name for f in sorted(home.rglob("*.py")) if "bench" not in f.parts and calls.search(f.read_text())] == [
        "kernel.py"
    ]
