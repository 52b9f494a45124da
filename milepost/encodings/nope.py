"""NoPE: no positional encoding.

    logits[h, i, j] = q_i · k_j / sqrt(D)

Haviv et al., "Transformer Language Models without Positional Encodings Still Learn Positional Information", 2022.
arXiv:2203.16634; Kazemnejad et al., 2023, arXiv:2305.19466

A decoder's causal mask still lets two or more layers count; without a mask, order is invisible.

Mechanism: none; the causal mask alone breaks symmetry
Information: none given, absolute position can be learned from two layers on
Prior: none
Content: untouched
Storage: none
Used by: every fourth layer of Llama 4 and SmolLM3
"""

from __future__ import annotations

from milepost.encoding import Encoding


class NoPE(Encoding):
    """Every hook is the identity: the base class under its own name."""
