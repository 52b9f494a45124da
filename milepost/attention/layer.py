"""Attention: a layer for those who want a ready module. Projections, grouped-query heads, norms of q and k, a cache,
any encoding.

    q, k, v = split(W x),   q, k = norm(q), norm(k) if asked,   y = W_o attend(q, k, v, enc)

    layer = Attention(512, 8, build("rope", head_dim=64), key_heads=2)
    y = layer(x)                              # a whole text, B L C
    cache = KVCache(layer.enc)
    y = layer(x[:, :100], cache=cache)        # the same text, a part at a time
    y = layer(x[:, 100:], cache=cache)

What an encoding does to the embedding (`enc.embed`) belongs before the first layer, not in here.
"""

from __future__ import annotations

from torch import Tensor, nn

from milepost.attention.attend import attend
from milepost.attention.cache import KVCache
from milepost.encoding import Encoding
from milepost.layout import Layout


class Attention(nn.Module):
    """Self-attention of ``width`` channels in ``heads`` heads, with the positions of ``enc`` (None: NoPE).

    ``key_heads`` heads of keys and values are shared evenly by the query heads; ``head_dim`` is width / heads unless
    given;
    ``qk_norm`` puts an RMS norm on each head's queries and keys before they are turned; ``bias`` is that of the
    projections.
    """

    def __init__(
        self, width: int, heads: int, enc: Encoding | None = None, *, key_heads: int | None = None,
        head_dim: int | None = None, qk_norm: bool = False, bias: bool = False, causal: bool = True,
    ):  # fmt: skip
        super().__init__()
        shared = heads if key_heads is None else key_heads
        if heads < 1 or shared < 1 or heads % shared:
            raise ValueError(f"{heads} query heads can't share {shared} key heads evenly")
        if head_dim is None and width % heads:
            raise ValueError(f"a width of {width} can't be split into {heads} heads; give head_dim")
        size = width // heads if head_dim is None else head_dim
        self.heads, self.key_heads, self.head_dim, self.causal = heads, shared, size, causal
        self.enc = Encoding() if enc is None else enc
        for word, own, wanted in (("heads", heads, self.enc.heads), ("head_dim", size, self.enc.head_dim)):
            if wanted is not None and wanted != own:
                raise ValueError(f"{self.enc!r} was made for {word}={wanted}, and this layer has {word}={own}")
        self.qkv = nn.Linear(width, (heads + 2 * shared) * size, bias=bias)
        self.out = nn.Linear(heads * size, width, bias=bias)
        self.norms = nn.ModuleList([nn.RMSNorm(size) for _ in range(2)]) if qk_norm else None

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B H L D), k and v (B G L D) of x (B L C), not turned yet."""
        heads = self.qkv(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        q, k, v = heads.split([self.heads, self.key_heads, self.key_heads], dim=1)
        if self.norms is not None:
            q, k = self.norms[0](q), self.norms[1](k)
        return q, k, v

    def features(self, x: Tensor, at: Layout) -> Tensor | None:
        """The encoding's features (B L N) of x (B L C) at ``at``, where it asks for any."""
        return self.enc.features(x, at.pos) if self.enc.feature_count else None

    def forward(
        self, x: Tensor, at: Layout | None = None, *, cache: KVCache | None = None, backend: str = "auto"
    ) -> Tensor:
        """The layer's output (B L C) for x (B L C) at ``at`` (by default one dense text; after those of ``cache``, if
        given).
        """
        q, k, v = self.project(x)
        if cache is None:
            at = Layout.dense(x.shape[1], device=x.device) if at is None else at
            y = attend(q, k, v, self.enc, at=at, causal=self.causal, backend=backend, features=self.features(x, at))
        elif not self.causal:
            raise ValueError("a cache goes with causal attention: later tokens can't be seen before they are there")
        elif at is None and backend == "auto":
            f = self.features(x, cache.next(x.shape[1])) if self.enc.feature_count else None
            y = cache.decode(q, k, v, features=f)
        else:
            at = cache.next(x.shape[1]) if at is None else at
            f = self.features(x, at)
            keys, values, to = cache.append(k, v, at, features=f)
            both = f if f is None or cache.features is None else (f, cache.features)
            y = attend(q, keys, values, cache.rule, at=at, to=to, backend=backend, features=both)
        out: Tensor = self.out(y.transpose(1, 2).flatten(-2))
        return out
