"""FoX: forgetting attention, a gate of each token that fades all before it.

    logits[h, i, j] += sum over t = j+1 .. i of log f_h(t),        f_h(t) = sigmoid(w_h · x_t + b_h)

Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate", ICLR 2025, section 3. arXiv:2503.02130

Where every gate has one value, this is ALiBi with the slope -log f. Here a token says itself how much of the past it
leaves behind. The sum is that of the query's token less that of the key's, and a softmax does not see the query's: it
costs what ALiBi costs, and the gates are kept in the cache, one number a head and token.

Departure: the paper starts with b = 0 and learns; x-transformers ("data-dependent ALiBi") starts with b = 5, so that
gates are open at first; `start` says which. An evicted token is as if it had never been: its gate goes with it. The
paper's other parts (a norm of q and k, an output gate) are a layer's, not a position's.

Mechanism: adds to the logit the logarithms of all gates between the key and the query
Information: order, in units that each token chooses
Prior: nearer is better, as far as the gates are closed
Content: each token's hidden state makes its gate
Storage: H x (C + 1) parameters, and one number a head and token in the cache
Used by: FoX, PaTH-FoX; flash-linear-attention, x-transformers
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding


class FoX(Encoding):
    """A gate for each of ``heads`` heads, from hidden states of ``width`` channels; ``start`` is b at the beginning."""

    causal_only = True
    running = True

    def __init__(self, heads: int, width: int, start: float = 0.0):
        super().__init__()
        self.check_at_least(1, heads=heads, width=width)
        self.heads, self.width, self.start, self.feature_count = heads, width, start, heads
        self.to_gates = nn.Linear(width, heads)
        nn.init.constant_(self.to_gates.bias, start)

    def features(self, x: Tensor, pos: Tensor) -> Tensor:
        return F.logsigmoid(self.to_gates(x).to(torch.promote_types(x.dtype, torch.float32)))

    def gate(self, h: Tensor, f: Tensor) -> Tensor:
        return f[..., h].transpose(-1, -2)
