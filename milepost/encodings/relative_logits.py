"""Relative logits: each query says by itself how much it wants each distance.

    logits[h, i, j] += t_i (W_r x_i)_h · P[:, i - j]    for 0 <= i - j < extent, and nothing beyond
    q_i -> t_i q_i,        t_i = 1 + alpha ln max(1, (i + 1) / floor),    or 1 where no floor is given

Thinking Machines, Inkling, 2026: no paper; as in transformers, models/inkling/modeling_inkling.py, without rope beside

P holds `size` profiles over the distances, shared by all heads; a token's hidden state mixes them. Beyond the extent a
layer has no positions at all, but the temperature t: so it costs a band of one more product, `size` channels wide.

Departure: Inkling normalises q and k and divides their product by D, not by sqrt(D): attend(..., scale=1 / D) for its
weights. Its local layers have no temperature (leave `floor` out). P starts at a deviation of 0.02 as in x-transformers;
the model's own start is not known.

Mechanism: adds to the logit a profile of distances that the query's hidden state mixes
Information: relative, up to the extent
Prior: none
Content: the query's hidden state chooses; the key has no say
Storage: H x size x C + size x extent parameters; nothing in the cache
Used by: Inkling; x-transformers
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding, Relative


class RelativeLogits(Encoding):
    """``size`` profiles over ``extent`` distances for ``heads`` heads, mixed by hidden states of ``width`` channels;
    a temperature from position ``floor`` on.
    """

    causal_only = True
    fractional = False
    keyless = True

    def __init__(
        self,
        heads: int,
        width: int,
        size: int = 16,
        extent: int = 1024,
        floor: int | None = None,
        alpha: float = 0.1,
    ):
        super().__init__()
        self.check_at_least(1, heads=heads, width=width, size=size, extent=extent, floor=1 if floor is None else floor)
        self.heads, self.width, self.size, self.extent = heads, width, size, extent
        self.floor, self.alpha, self.feature_count = floor, alpha, heads * size
        self.shift_invariant = self.negative = floor is None
        self.alike_from = extent
        self._points = ("features", "weigh") if floor is None else ("query", "features", "weigh")
        self.mix = nn.Linear(width, heads * size, bias=False)
        self.profiles = nn.Parameter(torch.randn(size, extent) * 0.02)

    def temperature(self, pos: Tensor) -> Tensor:
        """t of queries at ``pos``, in float64."""
        if self.floor is None:
            return torch.ones_like(pos, dtype=torch.float64)
        return 1 + self.alpha * ((pos.double() + 1) / self.floor).clamp(min=1.0).log()

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        work = torch.promote_types(q.dtype, torch.float32)
        return (q.to(work) * self.temperature(pos)[..., None, :, None].to(work)).to(q.dtype)

    def features(self, x: Tensor, pos: Tensor) -> Tensor:
        mixed: Tensor = self.mix(x)
        return mixed

    def weigh(self, h: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
        work = torch.promote_types(f.dtype, torch.float32)
        logits = self._of_heads(h, f).to(work) @ self.profiles.to(work)
        distance = i - j
        near = (distance >= 0) & (distance < self.extent)
        wanted = logits.gather(-1, distance.clamp(0, self.extent - 1).expand(*logits.shape[:-1], -1))
        return torch.where(near, wanted * self.temperature(i).to(work), 0.0)

    def mixes(self, h: Tensor, f: Tensor, i: Tensor) -> Tensor:
        work = torch.promote_types(f.dtype, torch.float32)
        return self._of_heads(h, f).to(work) * self.temperature(i)[..., None, :, None].to(work)

    def relative(self, distance: Tensor) -> Relative:
        near = (distance >= 0) & (distance < self.extent)
        return Relative(a=torch.where(near, self.profiles[:, distance.clamp(0, self.extent - 1)], 0.0).T[None])

    def _of_heads(self, h: Tensor, f: Tensor) -> Tensor:
        """The mixes of heads ``h``: B H I size."""
        return f.reshape(*f.shape[:-1], self.feature_count // self.size, self.size)[..., h, :].transpose(1, 2)
