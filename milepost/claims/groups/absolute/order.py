"""Order: what attention knows of it without positions."""

from __future__ import annotations

import torch

from milepost.claims.claim import Claim, Figure, Found
from milepost.claims.groups.absolute.probes import CARRIED, NOPE, nope_found
from milepost.claims.rule import control, core, limit
from milepost.claims.world import HEADS, WIDTH, Stack, drawn, largest, permutation
from milepost.encodings.rope import RoPE
from milepost.layout import Layout
from milepost.testing.layer import budget

TOKENS, DEPTHS = 24, (1, 2, 3, 4, 5, 6)
ROUNDING = budget(TOKENS * DEPTHS[-1])
"""What float64 permits after six layers over 24 tokens."""
SEEN = 1e-3
"""A change of an output, of size about 1, that is no rounding."""


def _rope() -> RoPE:
    return RoPE(WIDTH // HEADS)


def _shuffled(enc: RoPE | None) -> list[float]:
    """By depth: the largest change of any token's output when the tokens come in another order, without a mask."""
    x, order = drawn(1, TOKENS, WIDTH, seed=2), permutation(TOKENS, 3)
    found = []
    for depth in DEPTHS:
        stack = Stack(depth, enc)
        found.append(largest(stack(x, causal=False)[:, order] - stack(x[:, order], causal=False)))
    return found


def permutation_found() -> Found:
    """Shuffle the tokens of a text, with and without positions."""
    without, with_rope = _shuffled(None), _shuffled(_rope())
    figure = Figure(
        "lines", "Change of outputs when tokens are shuffled", "layers", "largest change of any output", DEPTHS,
        {"no positions": without, "rope": with_rope}, log_y=True, mark=ROUNDING,
    )  # fmt: skip
    return Found({"without": max(without), "rope": min(with_rope)}, (figure,))


def _prefixes(enc: RoPE | None = None, depths: tuple[int, ...] = DEPTHS) -> list[float]:
    """By depth: how much the last token's output changes when all tokens before it are shuffled, under a causal mask."""
    x, order = drawn(1, TOKENS, WIDTH, seed=2), torch.cat([permutation(TOKENS - 1, 3), torch.tensor([TOKENS - 1])])
    found = []
    for depth in depths:
        stack = Stack(depth, enc)
        found.append(largest(stack(x, causal=True)[:, -1] - stack(x[:, order], causal=True)[:, -1]))
    return found


def causal_bag_found() -> Found:
    """Shuffle what stands before the last token, under a causal mask."""
    changes = _prefixes()
    figure = Figure(
        "lines", "Change of the last output when all before it is shuffled, causal, no positions", "layers", "largest change of the last output",
        list(DEPTHS), {"no positions": changes}, log_y=True, mark=ROUNDING,
    )  # fmt: skip
    return Found({"one": changes[0], "deeper": max(changes[1:])}, (figure,))


def same_token_found() -> Found:
    """One text of 101 tokens in which tokens 1 and 99 are equal; scores of token 100 for both, layer by layer."""
    x = drawn(1, 101, WIDTH, seed=4)
    x[:, 1] = x[:, 99]
    at, stack = Layout.dense(101), Stack(DEPTHS[-1])
    apart = []
    for layer, state in enumerate(stack.states(x, at, causal=True)[:-1]):
        q, k, _ = stack.project(state, layer, at)
        apart.append(largest((q[:, :, 100] * (k[:, :, 99] - k[:, :, 1])).sum(-1)))
    figure = Figure(
        "lines", "Scores of token 100 for equal tokens at 99 and at 1", "layer", "largest difference of a score, over heads", DEPTHS,
        {"no positions, causal": apart}, log_y=True, mark=ROUNDING,
    )  # fmt: skip
    return Found({"first": apart[0], "deeper": max(apart[1:])}, (figure,))


def length_found() -> Found:
    """The same tokens padded, said twice over, and shuffled under a causal mask."""
    x, stack = drawn(1, TOKENS, WIDTH, seed=2), Stack(DEPTHS[-1])
    padded, worst = torch.cat([drawn(1, 8, WIDTH, seed=5), x], 1), 0.0
    mask = torch.cat([torch.zeros(1, 8), torch.ones(1, TOKENS)], 1).long()
    for causal in (False, True):
        alone, beside = stack(x, causal=causal), stack(padded, Layout.padded(mask), causal=causal)
        worst = max(worst, largest(beside[:, 8:] - alone))
    twice = largest(stack(torch.cat([x, x], 1), causal=False)[:, :TOKENS] - stack(x, causal=False))
    masked = _prefixes()
    names = ["padding", "said twice, no mask", "shuffled, causal, 1 layer", "shuffled, causal, 2 layers"]
    figure = Figure(
        "points", "What changes an output without positions", "", "largest change", names, {"change": [worst, twice, masked[0], masked[1]]}, log_y=True,
        mark=ROUNDING,
    )  # fmt: skip
    return Found({"padding": worst, "twice": twice, "mask one": masked[0], "mask": masked[1]}, (figure,))


CLAIMS = (
    Claim(
        "permutation",
        "Without positions, self-attention is permutation-equivariant: order does not change what a token gets.",
        "没有位置信息时，自注意力对置换等变：打乱顺序不会改变每个词元得到的结果。",
        "000 §1, 001 §1.1-1.2",
        "A random Transformer of one to six layers without a mask reads 24 tokens and the same tokens shuffled, in float64; and again with rope, as a control.",
        (
            control("rope", "at least", SEEN, "the smallest change that shuffling makes with rope, over depths,"),
            core("without", "at most", ROUNDING, "the largest change of any token's output without positions"),
        ),
        exact=permutation_found,
    ),
    Claim(
        "causal-bag",
        'With only a causal mask, a decoder is a "causal bag of words".',
        "只有因果掩码时，解码器退化为“因果词袋”。",
        "000 §1-3",
        "A random causal Transformer of one to six layers reads a text and the same text with all tokens before the last shuffled; the last output is "
        "compared. Then a trained model without positions is asked for the place of its tokens by a probe.",
        (
            core("one", "at most", ROUNDING, "the change of the last output in one layer"),
            limit("deeper", "at most", ROUNDING, "the largest change of the last output in two to six layers"),
            limit(
                "probe", "at most", CARRIED, "the R² with which a probe reads the place off a trained model's states"
            ),
        ),
        exact=causal_bag_found,
        trained=nope_found,
        needs=(NOPE,),
    ),
    Claim(
        "same-token",
        "Equal tokens at distance 1 and 99 get equal scores without positions.",
        "没有位置信息时，相距 1 和 99 的相同词元得到相同的注意力分数。",
        "000 §2A",
        "A random causal Transformer reads 101 tokens of which tokens 1 and 99 are equal; the scores of token 100 for both are compared in each of six layers.",
        (
            core("first", "at most", ROUNDING, "the difference of the two scores in the first layer"),
            limit("deeper", "at most", ROUNDING, "the largest difference of the two scores in layers two to six"),
        ),
        exact=same_token_found,
    ),
    Claim(
        "length-is-no-signal",
        "Padding, mask and sequence length do not replace positions.",
        "填充、掩码和序列长度不能代替位置信息。",
        "000 §2",
        "One random Transformer of six layers without positions reads a text alone, beside padding, and said twice over without a mask; and shuffled "
        "before its last token under a causal mask, in one layer and in two.",
        (
            core("padding", "at most", ROUNDING, "the largest change that padding makes"),
            core("twice", "at most", ROUNDING, "the largest change from saying the text twice, without a mask,"),
            core(
                "mask one",
                "at most",
                ROUNDING,
                "the change of the last output by shuffling, under a causal mask in one layer,",
            ),
            limit(
                "mask",
                "at most",
                ROUNDING,
                "the change of the last output by shuffling, under a causal mask in two layers,",
            ),
        ),
        exact=length_found,
    ),
)
