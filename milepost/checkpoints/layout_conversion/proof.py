"""The proof of `convert_layout`: the same logits from the converted weights, with pairs formed the other way.

transformers forms pairs in one way for each model type, whatever the weights. So of the two models one runs as it is, in
transformers' own code, and the other with `milepost.rotation` in place of its `apply_rotary_pos_emb`. Random tokens at positions
up to the length that the config serves, so that slow pairs turn as well. In float32, where rounding is all that may differ:

    rounding     how far each model's float32 logits are from its own float64 logits, added up. In exact arithmetic the two models
                 are equal, so float32 can't tell them apart by more than that
    tolerance    2 x rounding: models do a few steps (norms, softmax) in float32 even when they run in float64
    unconverted  the converted weights run without the other pairing: what a mistake looks like. It must be above the tolerance,
                 or the proof could not have seen one

A model too large to be run whole is cut to its first layers, as many as show every kind of layer, at least two.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.layout_conversion.heads import layers
from milepost.checkpoints.model.quiet import first_line, quiet
from milepost.rope.config.keys import ConfigError, short
from milepost.rope.spec import RopeSpec
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
    """Compare the logits of two folders; ``own`` is how transformers forms pairs for this model type. Raises where they differ."""
    with quiet():
        before = _load(source, spec, parameters)
        text = before.config.get_text_config()
        ids, positions = _tokens(before.config, spec.served or TOKENS)
        with _paired(before, spec.main.pairing, own):
            expected = _logits(before, ids, positions)
            exact = _logits(before.double(), ids, positions)
        del before
        after = _load(converted, spec, parameters)
        with _paired(after, to, own):
            got = _logits(after, ids, positions)
        with _paired(after, spec.main.pairing, own):
            wrong = _logits(after, ids, positions)
        with _paired(after, to, own):
            again = _logits(after.double(), ids, positions)
    largest = float(exact.abs().max())
    rounding = _apart(expected, exact) + _apart(got, again)
    difference, unconverted = _apart(got, expected), _apart(wrong, expected)
    tokens, farthest, run, of = (
        ids.shape[1],
        int(positions[0, -1]),
        text.num_hidden_layers,
        text_config(source).num_hidden_layers,
    )
    proof = Proof(difference, DOUBT * rounding, rounding, unconverted, largest, tokens, farthest, run, of)
    if not difference <= proof.tolerance:
        raise ProofError(
            f"the converted model's logits differ by {difference:.3g} from the source's, and rounding allows {proof.tolerance:.3g} (a wrong pairing gives "
            f"{unconverted:.3g}). Nothing was written; please report this with the model's config.json"
        )
    if not unconverted > proof.tolerance:
        raise ProofError(
            f"a wrong pairing changes this model's logits by {unconverted:.3g}, no more than rounding may ({proof.tolerance:.3g}), so that nothing can be "
            "proved by them. Nothing was written. Are its q and k weights zeros?"
        )
    return proof


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def text_config(folder: Path) -> Any:
    """The text model's config, as transformers reads it."""
    return _config(folder).get_text_config()


def _config(folder: Path) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers' own checks raise many kinds
        raise ConfigError(f"transformers can't read {folder / 'config.json'}: {first_line(error)}") from None


def _load(folder: Path, spec: RopeSpec, parameters: int) -> Any:
    """The model in float32, cut to its first layers if it is too large."""
    import transformers

    config = _config(folder)
    if parameters > WHOLE:
        _cut(config.get_text_config(), spec)
    config._experts_implementation = "eager"  # the others have no float64
    names = config.architectures or ["AutoModelForCausalLM"]
    made = getattr(transformers, names[0], None)
    if made is None:
        raise ConfigError(
            f"architectures = {short(names)}: transformers has no such model to prove the conversion with"
        )
    how = {
        "attn_implementation": "eager",
        "dtype": torch.float32,
        "local_files_only": True,
        "use_safetensors": True,
        "output_loading_info": True,
    }
    try:
        model, told = made.from_pretrained(folder, config=config, **how)
    except Exception as error:
        raise ConfigError(f"transformers can't load {folder}, which the proof needs: {first_line(error)}") from error
    absent = sorted(told["missing_keys"]) + sorted(str(key) for key in told["mismatched_keys"])
    if absent:
        raise ConfigError(
            f"{len(absent)} weights of {names[0]} are not in {folder}, or have other shapes: {short(absent)}; is it the whole model?"
        )
    return model.eval()


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
    """Random tokens that mean no image and no end, half of them in a row and half of them spread up to the last position: 1 L, 1 L."""
    text = config.get_text_config()
    said = [
        value
        for part in (config, text)
        for name, value in part.to_dict().items()
        if name.endswith(("_token_id", "_token_index"))
    ]
    special = {value for value in said if isinstance(value, int)}
    words = torch.tensor([n for n in range(text.vocab_size) if n not in special] or [0])
    count = min(TOKENS, served)
    ids = words[torch.randint(len(words), (1, count), generator=torch.Generator().manual_seed(0))]
    near = count // 2
    far = torch.linspace(near, served - 1, count - near, dtype=torch.float64).round().long()
    return ids, torch.cat([torch.arange(near), far])[None]


def _logits(model: Any, ids: Tensor, positions: Tensor) -> Tensor:
    """The logits in float64; hidden states for a model without a head."""
    with torch.no_grad():
        out = model(
            input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids)
        )  # without a mask, jumps would mean packed texts
    found: Tensor = out.logits if "logits" in out else out.last_hidden_state
    return found.double()


# -- pairs formed another way ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _paired(model: Any, pairing: Pairing, own: Pairing) -> Iterator[None]:
    """Run ``model`` with ``pairing``: as it is where that is its own, else with milepost's rotation in place of transformers'."""
    if pairing == own:
        yield
        return
    names = {type(part).__module__ for part in model.modules()}
    modules = [sys.modules[name] for name in sorted(names) if hasattr(sys.modules[name], "apply_rotary_pos_emb")]
    if not modules:
        raise ConfigError(f"{type(model).__name__} has no apply_rotary_pos_emb for the proof to replace")
    before = [module.apply_rotary_pos_emb for module in modules]
    try:
        for module, function in zip(modules, before, strict=True):
            module.apply_rotary_pos_emb = _replacement(function, pairing)  # type: ignore[attr-defined]
        yield
    finally:
        for module, function in zip(modules, before, strict=True):
            module.apply_rotary_pos_emb = function  # type: ignore[attr-defined]


def _replacement(function: Any, pairing: Pairing) -> Any:
    """A function of the same signature that turns pairs of another form."""

    def one(x: Tensor, cos: Tensor, sin: Tensor, heads: int) -> Tensor:
        """x: B H L D (heads = 1), or B L H D (heads = 2); cos and sin: B|1 L, and pairs in one of the forms of `_pairs`."""
        cos, sin = (_pairs(cos, sin, table)[:, None].to(x.dtype) for table in (cos, sin))
        y = x if heads == 1 else x.transpose(1, 2)
        y = rotate(y, cos, sin, 2 * cos.shape[-1], pairing)
        return y if heads == 1 else y.transpose(1, 2)

    def both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
        return one(q, cos, sin, unsqueeze_dim), one(k, cos, sin, unsqueeze_dim)

    def gptj(tensor: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        return one(tensor, cos, sin, 2)

    forms = {tuple(inspect.signature(form).parameters): form for form in (both, gptj)}
    names = tuple(inspect.signature(function).parameters)
    if names not in forms:
        raise ConfigError(
            f"{function.__module__}.apply_rotary_pos_emb takes {', '.join(names)}: the proof does not know that form"
        )
    return forms[names]


def _pairs(cos: Tensor, sin: Tensor, table: Tensor) -> Tensor:
    """One number a pair, from a table that may hold each twice: one copy after the other (most models), or side by side (Cohere)."""
    half = cos.shape[-1] // 2
    if cos.shape[-1] % 2 == 0:
        if all(torch.equal(t[..., :half], t[..., half:]) for t in (cos, sin)):
            return table[..., :half]
        if all(torch.equal(t[..., 0::2], t[..., 1::2]) for t in (cos, sin)):
            return table[..., 0::2]
    return table
