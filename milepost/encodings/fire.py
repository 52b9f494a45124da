"""FIRE: functional interpolation for relative encoding.

    logits[h, i, j] += f_h( psi(i - j) / psi(max(i, L)) ),      psi(x) = ln(c x + 1)
    f: a small ReLU network 1 - hidden - H

Li et al., "Functional Interpolation for Relative Positions Improves Long Context Transformers", 2023, section 3.
arXiv:2310.04418

Relative, yet not shift-invariant: past the threshold L, distances are measured against the query's own position.

Departure: c, L and the network learn, started at c = 0.1, L = 512 as in released codes. A ReLU network of one number is
piecewise linear, so we find its pieces (33 of them) and look up slope and offset of each argument's piece: the same
numbers and gradients as the network, without `hidden` times the memory.

Mechanism: adds a learned function of the relative distance to the logit
Information: relative, as a share of the query's position
Prior: none; a share of the context, so that lengths interpolate
Content: added to its logit
Storage: (H + 2) x hidden + H + 2 parameters
Used by: research models
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from milepost.encoding import ByRow, Encoding

ROWS = 16
"""Rows for which a distance is in one piece or not."""


class FIRE(Encoding):
    """A network of ``hidden`` units for all heads, with one output for each of ``heads`` heads (one in all, when
    ``shared``).
    """

    shift_invariant = False
    toeplitz = False
    causal_only = True
    negative = False

    def __init__(self, heads: int, hidden: int = 32, threshold: float = 512.0, c: float = 0.1, shared: bool = False):
        super().__init__()
        if heads < 1 or hidden < 1 or not 0 < threshold < float("inf") or not 0 < c < float("inf"):
            raise ValueError(
                f"FIRE needs heads, hidden >= 1 and threshold, c > 0, both finite; got heads={heads}, "
                f"hidden={hidden}, threshold={threshold}, c={c}"
            )
        if not 2.0**-126 <= min(c, threshold, c * threshold) <= max(c, threshold) < 2.0**127:
            raise ValueError(
                f"FIRE divides by log(1 + c threshold), and float32 holds no c={c} and threshold={threshold} for which "
                "that is a number above 0: both are between 1e-38 and 1e38, and so is their product"
            )
        self.heads, self.hidden, self.threshold, self.c, self.shared = heads, hidden, threshold, c, shared
        self.inner, self.outer = nn.Linear(1, hidden), nn.Linear(hidden, 1 if shared else heads)
        self.slant, self.start = nn.Parameter(torch.tensor(float(c))), nn.Parameter(torch.tensor(float(threshold)))

    def pieces(self) -> tuple[Tensor, Tensor, Tensor]:
        """The network as linear pieces: inner edges (hidden), slope and offset of each piece (H, hidden + 1)."""
        dtype = torch.promote_types(self.slant.dtype, torch.float32)
        w, b = self.inner.weight[:, 0].to(dtype), self.inner.bias.to(dtype)
        edges, order = torch.where(w == 0, torch.inf, -b / w).detach().sort()
        piece, rank = torch.arange(self.hidden + 1, device=w.device)[:, None], order.argsort()
        live = torch.where(w > 0, piece > rank, torch.where(w < 0, piece <= rank, b > 0)).to(dtype)  # (pieces, hidden)
        outer = self.outer.weight.to(dtype)
        return edges, outer @ (live * w).T, outer @ (live * b).T + self.outer.bias.to(dtype)[:, None]

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        edges, slope, offset = self.pieces()
        c, start = self.slant.to(edges.dtype), self.start.to(edges.dtype)
        distance, reach = (i - j).to(edges.dtype), torch.maximum(i.to(edges.dtype), start.abs())
        x = torch.log1p((c * distance).abs()) / torch.log1p((c * reach).abs())
        piece, row = torch.bucketize(x.detach(), edges, right=True), h % len(slope)
        return slope[row, piece] * x + offset[row, piece]

    def bias_by_row(self, i: Tensor, distance: Tensor) -> ByRow:
        """For some rows at a time: where all of them find a distance in one piece, the bias is slope psi(d)/psi(reach)
        + offset, a product. At the few other distances an edge passes as the rows go by, and the network is asked.
        """
        edges, slope, offset = self.pieces()
        c, start, count = self.slant.to(edges.dtype), self.start.to(edges.dtype), len(i)
        i = i if count == 1 else torch.cat([i, i[-1:].expand(-count % ROWS)])
        psi = torch.log1p((c * distance.to(edges.dtype)).abs())
        flat = torch.log1p((c * torch.maximum(i.to(edges.dtype), start.abs())).abs())
        if count == 1:
            return _one_row(edges, slope, offset, psi / flat)
        reach, ends = flat.view(-1, ROWS, 1), torch.cat([flat[::ROWS], flat[-1:]])[:, None]
        piece = torch.bucketize((psi / ends).detach(), edges, right=True)  # strips + 1, n
        passes = piece[:-1] != piece[1:]
        strip, passed = passes.nonzero().unbind(1)
        x = psi[passed] / reach[strip, :, 0].T  # ROWS passed
        w, b = self.inner.weight[:, 0].to(x.dtype), self.inner.bias.to(x.dtype)
        units = torch.addcmul(b[:, None], w[:, None], x.flatten()).relu_()  # hidden ROWS*passed
        asked_row, n = strip * ROWS + torch.arange(ROWS, device=i.device)[:, None], len(distance)

        def of_heads(h: Tensor, out: Tensor | None) -> Tensor:
            row = h % len(slope)
            lines = torch.cat([slope[row], offset[row]])  # 2H pieces
            rates = lines.gather(1, piece[:-1].flatten().expand(len(lines), -1)).view(2, len(h), *passes.shape)
            asked = self.outer.weight[row].to(x.dtype) @ units + self.outer.bias[row, None].to(x.dtype)
            if out is None:  # products, for the sake of their gradient
                rates = rates.masked_fill(passes, 0.0)
                share = torch.cat([1 / reach, torch.ones_like(reach)], dim=2)
                bias = (share @ torch.stack([rates[0] * psi, rates[1]], dim=2)).flatten(1)
                place = (asked_row * n + passed).flatten().expand(len(h), -1)
                return bias.scatter_add(1, place, asked).view(len(h), -1, n)[:, :count]
            whole = out if count == len(i) else out.new_empty(len(h), len(i), n)
            rates = rates[..., None, :]
            torch.addcmul(rates[1], rates[0] * psi, 1 / reach, out=whole.view(len(h), -1, ROWS, n))
            flat = whole.as_strided((len(h), (len(i) - 1) * whole.stride(1) + n), (whole.stride(0), 1))
            place = (asked_row * whole.stride(1) + passed).flatten().expand(len(h), -1)
            flat.scatter_(1, place, asked.to(out.dtype))
            return out if whole is out else out.copy_(whole[:, :count])

        return of_heads


def _one_row(edges: Tensor, slope: Tensor, offset: Tensor, x: Tensor) -> ByRow:
    """The bias of one row, such as a token that is decoded: each argument is looked up in its piece."""
    piece = torch.bucketize(x.detach(), edges, right=True)

    def of_heads(h: Tensor, out: Tensor | None) -> Tensor:
        rates, offsets = (t[h % len(t)].gather(1, piece.expand(len(h), -1)) for t in (slope, offset))
        bias = torch.addcmul(offsets, rates, x) if offsets.requires_grad else offsets.addcmul_(rates, x)
        return bias[:, None] if out is None else out.copy_(bias[:, None])

    return of_heads
