"""A small decoder with one encoding for all layers, or another one in each: read at once and token by token."""

import pytest
import torch
from torch import nn

from milepost import KVCache, Layout, attend, build


class Decoder(nn.Module):
    """Attention layers alone, each with its own encoding and cache; the first one's embed acts on the input."""

    def __init__(self, encodings, width=16, heads=2):
        super().__init__()
        self.encodings = nn.ModuleList(encodings)
        self.heads = heads
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in encodings)

    def forward(self, x, at, caches=None):
        x = self.encodings[0].embed(x, at.pos)
        for n, (enc, qkv) in enumerate(zip(self.encodings, self.qkv, strict=True)):
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in qkv(x).chunk(3, dim=-1))
            to = at
            if caches is not None:
                k, v, to = caches[n].append(k, v, at)
            x = x + attend(q, k, v, enc, at=at, to=to).transpose(1, 2).flatten(2)
        return x


@pytest.mark.parametrize(
    "specs",
    [
        ["rope"] * 3,
        ["learned", "nope", "nope"],
        ["rope", "nope", "alibi"],
        ["t5", "rope(base=1e6)", "rope + alibi"],
        ["rope(scaling=staged(trained=8))"] * 3,
    ],
    ids=" | ".join,
)
@torch.no_grad()
def test_a_deep_model_decodes_what_it_reads(specs):
    torch.manual_seed(0)
    encodings = [build(spec, heads=2, head_dim=8, width=16, length=64) for spec in specs]
    model = Decoder(encodings).double()
    x = torch.randn(2, 40, 16, dtype=torch.float64)
    whole = model(x, Layout.dense(40))
    caches = [KVCache(enc, capacity=4) for enc in encodings]
    parts = [
        model(x[:, a:e], caches[0].next(e - a), caches)
        for a, e in [(0, 5), (5, 6), (6, 20), *[(t, t + 1) for t in range(20, 40)]]
    ]
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-11


def test_one_encoding_may_serve_all_layers_and_is_counted_once():
    shared = build("t5", heads=2)
    model = Decoder([shared, shared])
    assert sum(p is shared.table for p in model.parameters()) == 1
    out = model(torch.randn(1, 6, 16), Layout.dense(6))
    out.sum().backward()
    assert shared.table.grad is not None and shared.table.grad.abs().sum() > 0


def test_equal_specs_in_two_layers_are_two_modules_with_their_own_parameters():
    model = Decoder([build("t5", heads=2), build("t5", heads=2)])
    tables = [name for name, _ in model.named_parameters() if name.endswith("table")]
    assert tables == ["encodings.0.table", "encodings.1.table"]
