"""The proof of `convert_layout`: the same logits from the converted weights, with pairs formed the other way.

transformers forms pairs in one way for each model type, whatever the weights. So of the two models one runs as it is,
in transformers' own code, and the other with `milepost.rotation` in place of its `apply_rotary_pos_emb`. Random tokens
at positions up to the length that the config serves, so that slow pairs turn as well. In float32, where rounding is all
that may differ:

    rounding     how far each model's float32 logits are from its own float64 logits, added up. In exact arithmetic
                 the two models are equal, so float32 can't tell them apart by more than that
    tolerance    2 x rounding: models do a few steps (norms, softmax) in float32 even when they run in float64
    unconverted  the converted weights run without the other pairing: what a mistake looks like. It must be above the
                 tolerance, or the proof could not have seen one

A model too large to be run whole is cut to its first layers, as many as show every kind of layer, at least two.
"""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.layout_conversion.heads import layers
from milepost.checkpoints.model.hf_load import from_pretrained, model_class
from milepost.checkpoints.model.probe import apart, logits_of, special_tokens
from milepost.checkpoints.model.quiet import first_line, quiet
from milepost.checkpoints.model.turned_attention import rotary_replaced
from milepost.rope import ConfigError, RopeSpec
from milepost.rotation import Pairing, rotate

TOKENS = 272
"""How many tokens the proof runs: some past 256, where half precision would lose positions."""
WHOLE = 1 << 30
"""The most parameters of a model that is run whole: 8 GB in float64."""
DOUBT = 2
"""How many times its rounding a difference may be."""


class ProofError(RuntimeError):
    """The converted model does not give the source's logits, or nothing could be seen; nothing was written."""


@dataclass(frozen=True)
class Proof:
    """The numbers of a proof. ``layers`` of ``of`` were run, on ``tokens`` tokens up to position ``farthest``."""

    difference: float
    tolerance: float
    rounding: float
    unconverted: float
    largest: float
    tokens: int
    farthest: int
    layers: int
    of: int


def prove(source: Path, converted: Path, spec: RopeSpec, own: Pairing, to: Pairing, parameters: int) -> Proof:
    """Compare the logits of two folders; ``own`` is how transformers forms pairs for this model type.

    Raises `ProofError` where they differ.
    """
    with quiet():
        before, of = _load(source, spec, parameters)
        ids, positions = _tokens(before.config, spec.served or TOKENS)
        with _paired(before, spec.main.pairing, own):
            expected = _logits(before, ids, positions)
            exact = _logits(before.double(), ids, positions)
        del before
        after, _ = _load(converted, spec, parameters)
        with _paired(after, to, own):
            got = _logits(after, ids, positions)
        with _paired(after, spec.main.pairing, own):
            wrong = _logits(after, ids, positions)
        with _paired(after, to, own):
            again = _logits(after.double(), ids, positions)
    rounding = apart(expected, exact) + apart(got, again)
    proof = Proof(
        difference=apart(got, expected),
        tolerance=DOUBT * rounding,
        rounding=rounding,
        unconverted=apart(wrong, expected),
        largest=float(exact.abs().max()),
        tokens=ids.shape[1],
        farthest=int(positions[0, -1]),
        layers=after.config.get_text_config().num_hidden_layers,
        of=of,
    )
    if not proof.difference <= proof.tolerance:
        raise ProofError(
            f"the converted model's logits differ by {proof.difference:.3g} from the source's, and rounding allows "
            f"{proof.tolerance:.3g} (a wrong pairing gives {proof.unconverted:.3g}). Nothing was written; "
            "please report this with the model's config.json"
        )
    if not proof.unconverted > proof.tolerance:
        raise ProofError(
            f"a wrong pairing changes this model's logits by {proof.unconverted:.3g}, no more than rounding may "
            f"({proof.tolerance:.3g}), so that nothing can be proved by them. Nothing was written. "
            "Are its q and k weights zeros?"
        )
    return proof


def read_config(folder: Path) -> Any:
    """The config of a folder, as transformers reads it."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers' own checks raise many kinds
        raise ConfigError(f"transformers can't read {folder / 'config.json'}: {first_line(error)}") from None


def _load(folder: Path, spec: RopeSpec, parameters: int) -> tuple[Any, int]:
    """The model in float32, cut to its first layers if it is too large; and how many layers the whole one has."""
    config = read_config(folder)
    text, parsed = config.get_text_config(), config.to_dict()
    count = text.num_hidden_layers
    if parameters > WHOLE:
        _cut(text, spec)
    config._experts_implementation = "eager"  # the others have no float64
    made = model_class({"model_type": config.model_type, "architectures": config.architectures})
    how = {"config": config, "attn_implementation": "eager", "dtype": torch.float32}
    return from_pretrained(made, folder, parsed, **how).eval(), count


def _cut(text: Any, spec: RopeSpec) -> None:
    """Keep the first layers, as many as show every kind, and every list in the config that has one item a layer."""
    ropes, count = layers(text, spec), text.num_hidden_layers
    kinds = list(zip(spec.layers or ("",) * count, (rope is None for rope in ropes), strict=True))
    keep = min(count, max(2, 1 + max(kinds.index(kind) for kind in kinds)))
    for name, value in list(vars(text).items()):
        if isinstance(value, list | tuple) and len(value) == count:
            setattr(text, name, value[:keep])
    text.num_hidden_layers = keep


def _tokens(config: Any, served: int) -> tuple[Tensor, Tensor]:
    """Random tokens that mean no image and no end, and their positions (1 L, 1 L): half in a row, half spread to the
    end."""
    text = config.get_text_config()
    special = special_tokens(config)
    words = torch.tensor([n for n in range(text.vocab_size) if n not in special] or [0])
    count = min(TOKENS, served)
    ids = words[torch.randint(len(words), (1, count), generator=torch.Generator().manual_seed(0))]
    near = count // 2
    far = torch.linspace(near, served - 1, count - near, dtype=torch.float64).round().long()
    return ids, torch.cat([torch.arange(near), far])[None]


def _logits(model: Any, ids: Tensor, positions: Tensor) -> Tensor:
    """The logits in float64; hidden states for a model without a head."""
    with torch.no_grad():
        mask = torch.ones_like(ids)  # without one, jumps would mean packed texts
        out = model(input_ids=ids, position_ids=positions, attention_mask=mask)
    return logits_of(out)


# -- pairs formed another way ----------------------------------------------------------------------------------------


def _paired(model: Any, pairing: Pairing, own: Pairing) -> contextlib.AbstractContextManager[None]:
    """Run ``model`` with ``pairing``: as it is where that is its own, else with milepost's rotation in its place."""
    if pairing == own:
        return contextlib.nullcontext()
    return rotary_replaced(model, partial(_replacement, pairing=pairing))


def _replacement(function: Any, pairing: Pairing) -> Any:
    """A function of the same signature that turns pairs of another form."""

    def turn(x: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
        """x: B H L D (heads = 1), or B L H D (heads = 2); cos and sin: B|1 L, and pairs in a form of `_pairs`."""
        cos, sin = (_pairs(cos, sin, table)[:, None].to(x.dtype) for table in (cos, sin))
        y = x if heads == 1 else x.transpose(1, 2)
        y = rotate(y, cos, sin, 2 * cos.shape[-1], pairing)
        return y if heads == 1 else y.transpose(1, 2)

    def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
        return turn(q, cos, sin, unsqueeze_dim), turn(k, cos, sin, unsqueeze_dim)

    def gptj(tensor: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        return turn(tensor, cos, sin, 2)

    forms = {tuple(inspect.signature(form).parameters): form for form in (both, gptj)}
    names = tuple(inspect.signature(function).parameters)
    if names not in forms:
        raise ConfigError(
            f"{function.__module__}.apply_rotary_pos_emb takes {', '.join(names)}: the proof does not know that form"
        )
    return forms[names]


def _pairs(cos: Tensor, sin: Tensor, table: Tensor) -> Tensor:
    """One number a pair, from a table that may hold each twice: one copy after the other, or side by side (Cohere)."""
    half = cos.shape[-1] // 2
    if cos.shape[-1] % 2 == 0:
        if all(torch.equal(t[..., :half], t[..., half:]) for t in (cos, sin)):
            return table[..., :half]
        if all(torch.equal(t[..., 0::2], t[..., 1::2]) for t in (cos, sin)):
            return table[..., 0::2]
    return table
