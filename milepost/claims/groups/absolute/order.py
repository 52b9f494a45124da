"""Order: what attention knows of it without positions."""

from __future__ import annotations

import torch

from milepost.claims.experiment import (
    HEADS,
    WIDTH,
    Claim,
    Measurement,
    Plot,
    RandomModel,
    control,
    core,
    gaussian,
    limit,
    max_abs,
    permutation,
)
from milepost.claims.groups.absolute.probes import CARRIED, NOPE, measure_nope
from milepost.encodings.rope import RoPE
from milepost.layout import Layout
from milepost.testing.layer import budget

TOKENS, DEPTHS = 24, (1, 2, 3, 4, 5, 6)
ROUNDING = budget(TOKENS * DEPTHS[-1])
"""What float64 permits after six layers over 24 tokens."""
SEEN = 1e-3
"""A change of an output, of size about 1, that is larger than rounding."""


def _shuffled(enc: RoPE | None) -> list[float]:
    """By depth: the largest change of any token's output when the tokens come in another order, without a mask."""
    x, order = gaussian(1, TOKENS, WIDTH, seed=2), permutation(TOKENS, 3)
    stacks = [RandomModel(depth, enc) for depth in DEPTHS]
    return [max_abs(stack(x, causal=False)[:, order] - stack(x[:, order], causal=False)) for stack in stacks]


def measure_permutation() -> Measurement:
    """Shuffle the tokens of a text, with and without positions."""
    without, with_rope = _shuffled(None), _shuffled(RoPE(WIDTH // HEADS))
    figure = Plot(
        "lines",
        "Change of outputs when tokens are shuffled",
        "layers",
        "largest change of any output",
        DEPTHS,
        {"no positions": without, "rope": with_rope},
        log_y=True,
        mark=ROUNDING,
    )
    return Measurement({"without": max(without), "rope": min(with_rope)}, (figure,))


def _prefixes() -> list[float]:
    """By depth: the change of the last token's output when all tokens before it are shuffled, under a causal mask."""
    x = gaussian(1, TOKENS, WIDTH, seed=2)
    order = torch.cat([permutation(TOKENS - 1, 3), torch.tensor([TOKENS - 1])])
    stacks = [RandomModel(depth) for depth in DEPTHS]
    return [max_abs(stack(x, causal=True)[:, -1] - stack(x[:, order], causal=True)[:, -1]) for stack in stacks]


def measure_causal_bag() -> Measurement:
    """Shuffle all tokens before the last one, under a causal mask."""
    changes = _prefixes()
    figure = Plot(
        "lines",
        "Change of the last output when all before it is shuffled, causal, no positions",
        "layers",
        "largest change of the last output",
        list(DEPTHS),
        {"no positions": changes},
        log_y=True,
        mark=ROUNDING,
    )
    return Measurement({"one": changes[0], "deeper": max(changes[1:])}, (figure,))


def measure_same_token() -> Measurement:
    """One text of 101 tokens in which tokens 1 and 99 are equal; scores of token 100 for both, layer by layer."""
    x = gaussian(1, 101, WIDTH, seed=4)
    x[:, 1] = x[:, 99]
    at, stack = Layout.dense(101), RandomModel(DEPTHS[-1])
    apart = []
    for layer, state in enumerate(stack.states(x, at, causal=True)[:-1]):
        q, k, _ = stack.project(state, layer, at)
        apart.append(max_abs((q[:, :, 100] * (k[:, :, 99] - k[:, :, 1])).sum(-1)))
    figure = Plot(
        "lines",
        "Scores of token 100 for equal tokens at 99 and at 1",
        "layer",
        "largest difference of a score, over heads",
        DEPTHS,
        {"no positions, causal": apart},
        log_y=True,
        mark=ROUNDING,
    )
    return Measurement({"first": apart[0], "deeper": max(apart[1:])}, (figure,))


def measure_length() -> Measurement:
    """The same tokens beside padding, twice in a row, and shuffled under a causal mask."""
    x, stack = gaussian(1, TOKENS, WIDTH, seed=2), RandomModel(DEPTHS[-1])
    padded, worst = torch.cat([gaussian(1, 8, WIDTH, seed=5), x], 1), 0.0
    mask = torch.cat([torch.zeros(1, 8), torch.ones(1, TOKENS)], 1).long()
    for causal in (False, True):
        alone, beside = stack(x, causal=causal), stack(padded, Layout.padded(mask), causal=causal)
        worst = max(worst, max_abs(beside[:, 8:] - alone))
    twice = max_abs(stack(torch.cat([x, x], 1), causal=False)[:, :TOKENS] - stack(x, causal=False))
    one_layer, two = _prefixes()[:2]
    changes = {
        "padding": worst,
        "repeated, no mask": twice,
        "shuffled, causal, 1 layer": one_layer,
        "shuffled, causal, 2 layers": two,
    }
    figure = Plot(
        "points",
        "What changes an output without positions",
        "",
        "largest change",
        list(changes),
        {"change": list(changes.values())},
        log_y=True,
        mark=ROUNDING,
    )
    return Measurement({"padding": worst, "twice": twice, "mask one": one_layer, "mask": two}, (figure,))


CLAIMS = (
    Claim(
        "permutation",
        "Without positions, self-attention is permutation-equivariant: order does not change what a token gets.",
        "没有位置信息时，自注意力对置换等变：打乱顺序不会改变每个词元得到的结果。",
        "000 §1, 001 §1.1-1.2",
        "A random Transformer of one to six layers without a mask reads 24 tokens and the same tokens shuffled, in "
        "float64; and again with rope, as a control.",
        (
            control("rope", "at least", SEEN, "the smallest change that shuffling makes with rope, over depths"),
            core("without", "at most", ROUNDING, "the largest change of any token's output without positions"),
        ),
        exact=measure_permutation,
    ),
    Claim(
        "causal-bag",
        'With only a causal mask, a decoder is a "causal bag of words".',
        "只有因果掩码时，解码器退化为“因果词袋”。",
        "000 §1-3",
        "A random causal Transformer of one to six layers reads a text and the same text with all tokens before the "
        "last shuffled; the last output is compared. Then a probe reads the position of each token from the states of "
        "a model that was trained without positions.",
        (
            core("one", "at most", ROUNDING, "the change of the last output in one layer"),
            limit("deeper", "at most", ROUNDING, "the largest change of the last output in two to six layers"),
            limit(
                "probe", "at most", CARRIED, "the R² of a probe that reads the position from a trained model's states"
            ),
        ),
        exact=measure_causal_bag,
        trained=measure_nope,
        needs=(NOPE,),
    ),
    Claim(
        "same-token",
        "Equal tokens at distance 1 and 99 get equal scores without positions.",
        "没有位置信息时，相距 1 和 99 的相同词元得到相同的注意力分数。",
        "000 §2A",
        "A random causal Transformer reads 101 tokens of which tokens 1 and 99 are equal; the scores of token 100 for "
        "both are compared in each of six layers.",
        (
            core("first", "at most", ROUNDING, "the difference of the two scores in the first layer"),
            limit("deeper", "at most", ROUNDING, "the largest difference of the two scores in layers two to six"),
        ),
        exact=measure_same_token,
    ),
    Claim(
        "length-is-no-signal",
        "Padding, mask and sequence length do not replace positions.",
        "填充、掩码和序列长度不能代替位置信息。",
        "000 §2",
        "A random Transformer of six layers without positions reads a text alone, beside padding, and twice in a row "
        "without a mask; and with all tokens before the last shuffled, under a causal mask, in one layer and in two.",
        (
            core("padding", "at most", ROUNDING, "the largest change that padding makes"),
            core("twice", "at most", ROUNDING, "the largest change when the text is repeated, without a mask"),
            core(
                "mask one",
                "at most",
                ROUNDING,
                "the change of the last output by shuffling, under a causal mask in one layer",
            ),
            limit(
                "mask",
                "at most",
                ROUNDING,
                "the change of the last output by shuffling, under a causal mask in two layers",
            ),
        ),
        exact=measure_length,
    ),
)
