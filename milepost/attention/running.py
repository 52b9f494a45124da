"""running: features summed along each text.

    f of the token at index t  becomes  the sum of f over the tokens 0 .. t of its text that are there

What matters is the difference of two such sums, F_i - F_j: what lies between two tokens. So it does not matter where
a sum begins, and the tokens of other texts may lie before. The order is that of the index, whatever lies where in
memory, and padding adds nothing. The sum of a query's token is that of the keys up to it. Sums are float64: they grow
with the text, and their differences do not.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention.call import Call
from milepost.encoding import Encoding, parts_of
from milepost.layout import Layout, Run


def run_along(call: Call) -> Call:
    """A call whose features are summed along each text, those of the parts that ask for it."""
    f, g = call.features
    at, to, enc = call.at, call.to, call.enc
    span = torch.maximum(_highest(at), _highest(to)) + 1
    mine, theirs = _codes(at, span), _codes(to, span)
    g = g.double().masked_fill((to.segment < 0)[..., None], 0.0)
    if to.rows is not None and all(map(_in_order, to.rows)):
        line, sums = theirs.cummax(dim=-1).values, g.cumsum(dim=1)  # padding stands where the token before it does
        there = sums
    else:
        line, order = theirs.sort(dim=-1, stable=True)
        places = order[..., None].expand(g.shape)
        sums = g.gather(1, places).cumsum(dim=1)
        there = torch.empty_like(sums).scatter(1, places, sums)
    rows = max(line.shape[0], mine.shape[0])
    line, mine = (t.expand(rows, -1).contiguous() for t in (line, mine))
    before = torch.searchsorted(line, mine, right=True).expand(g.shape[0], -1)  # keys up to each query's token
    here = F.pad(sums, (0, 0, 1, 0)).gather(1, before[..., None].expand(-1, -1, g.shape[-1]))
    return replace(call, f=_chosen(enc, f, here), g=_chosen(enc, call.features[1], there))


def _highest(layout: Layout) -> Tensor:
    return layout.index.max() if layout.index.numel() else layout.index.new_zeros(())


def _codes(layout: Layout, span: Tensor) -> Tensor:
    """One number a token that grows along each text, and from text to text; -1 for padding."""
    return torch.where(layout.segment < 0, -1, layout.segment * span + layout.index)


def _in_order(runs: tuple[Run, ...]) -> bool:
    """Whether the tokens of a row lie in memory text after text, each in its own order."""
    stands = [(run.segment, run.first) for run in runs]
    return stands == sorted(stands)


def _chosen(enc: Encoding, plain: Tensor, summed: Tensor) -> Tensor:
    """Sums for the parts of an encoding that run, and numbers as they are for the others."""
    counts = [(part.running, part.feature_count) for part in parts_of(enc) if part.feature_count]
    if all(running for running, _ in counts):
        return summed
    sizes = [count for _, count in counts]
    pairs = zip(counts, torch.split(plain, sizes, dim=-1), torch.split(summed, sizes, dim=-1), strict=True)
    return torch.cat([total if running else number.double() for (running, _), number, total in pairs], dim=-1)
