"""A model of transformers as a loaded checkpoint.

Losses: the model is run once, up to the hidden states that its head is given. Then its own forward is called for a few
tokens at a time, with those hidden states in place of the layers: softcapping, scaling, whatever it does to logits, is
its own, and B x L x V logits are never held.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.inspection.inspect import Inspection
from milepost.checkpoints.model import turned_attention, watched_attention
from milepost.checkpoints.model.hf_load import as_in_the_file, load_checkpoint
from milepost.checkpoints.model.loaded import CHUNK, Loaded, Look, token_losses
from milepost.checkpoints.model.patch import hooked, patched
from milepost.checkpoints.model.probe import depends_on_length, read_spec, unchanged
from milepost.checkpoints.model.quiet import quiet
from milepost.checkpoints.model.tokenizers import find_tokenizer, has_tokenizer
from milepost.encoding import Encoding
from milepost.rope import ConfigError


class HuggingFace(Loaded):
    """A causal language model of transformers."""

    model: Any

    def __init__(self, name: str, inspection: Inspection, device: str, dtype: str, tokenizer: str | Path | None):
        path = Path(name).expanduser()
        gguf = path.suffix == ".gguf"
        self.model, config = load_checkpoint(name, device, dtype, None if gguf else inspection.config)
        if gguf and (check := as_in_the_file(path, config)).verdict == "FAIL":
            raise ConfigError(
                f"{name} can't be measured in transformers: {check.sentence}; "
                "write it as a folder with that scaling in config.json"
            )
        self.name, self.form, self.family = name, inspection.form, inspection.family
        self.inspection = inspection
        self.text_config = self.model.config.get_text_config()
        self._check_causal()
        self.spec = read_spec(config)[0] if gguf else inspection.spec
        self.vocabulary = int(self.model.get_input_embeddings().num_embeddings)
        takes = inspect.signature(self.model.forward).parameters
        self.shifts = "position_ids" in takes and not getattr(self.text_config, "alibi", False)
        self.length_dependent = self.spec is not None and depends_on_length(self.spec)
        self.tokenizer = None
        if tokenizer is not None:
            self.tokenizer = find_tokenizer(tokenizer)
        elif gguf:
            self.tokenizer = find_tokenizer(path)
        elif not path.is_dir() or has_tokenizer(path):
            self.tokenizer = find_tokenizer(name)

    def _check_causal(self) -> None:
        kind = type(self.model).__name__
        if (
            self.model.config.is_encoder_decoder
            or not getattr(self.model, "can_generate", lambda: False)()
            or getattr(self.text_config, "is_causal", True) is False
            or "MaskedLM" in kind
        ):
            raise ConfigError(
                f"{self.name} is a {kind}, and this needs a causal language model, which predicts the next token; "
                "inspect and verify take any"
            )

    # -- runs ------------------------------------------------------------------------------------------------------

    def _more(self, length: int, first: int) -> dict[str, Any]:
        if first == 0:
            return {}
        if not self.shifts:
            raise ValueError(
                f"{self.family} takes no positions: its text always starts at 0, and can't start at {first}"
            )
        return {"position_ids": torch.arange(first, first + length, device=self.device)[None]}

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        with quiet():
            out: Tensor = self.model(input_ids=ids, use_cache=False).logits
        return out

    def losses(self, ids: Tensor, first: int = 0) -> Tensor:
        return self._losses(ids, first, range(ids.shape[1] - 1))

    def last_losses(self, ids: Tensor, count: int) -> Tensor:
        return self._losses(ids, 0, range(ids.shape[1] - 1 - count, ids.shape[1] - 1))

    def chosen_losses(self, ids: Tensor, at: Sequence[int]) -> Tensor:
        return self._losses(ids, 0, [p - 1 for p in at])

    @torch.no_grad()
    def _losses(self, ids: Tensor, first: int, after: Sequence[int]) -> Tensor:
        """Nats of the next token after each of these."""
        length = ids.shape[1] - 1
        with quiet(), unchanged(self.model):
            decoder, outputs = self.model.get_decoder(), []  # what gives hidden states; its base where it has none
            inner = self.model.base_model if decoder is self.model else decoder
            with hooked(inner.register_forward_hook(lambda _, __, out: outputs.append(out))):
                self.model(input_ids=ids[:, :-1], use_cache=False, logits_to_keep=1, **self._more(length, first))
            if not outputs:
                raise ConfigError(
                    f"{type(self.model).__name__} does not call its {type(inner).__name__}: "
                    "its logits can't be computed a few at a time"
                )
            chunks = [list(after[a : a + CHUNK]) for a in range(0, len(after), CHUNK)]
            losses = [token_losses(self._head(inner, outputs[-1], part), ids[:, 1:][:, part]) for part in chunks]
        return torch.cat(losses, 1)

    @torch.no_grad()
    def last(self, ids: Tensor) -> Tensor:
        with quiet(), unchanged(self.model):
            out: Tensor = self.model(input_ids=ids, use_cache=False, logits_to_keep=1).logits
        return out[:, -1]

    def _head(self, inner: Any, output: Any, part: list[int]) -> Tensor:
        """The model's own logits of some of the hidden states in the ``output`` of its ``inner`` part."""
        some = copy.copy(output)
        some.last_hidden_state = output.last_hidden_state[:, part]
        ids = torch.zeros(some.last_hidden_state.shape[:2], dtype=torch.long, device=self.device)
        with patched((inner, "forward", lambda *args, **kwargs: some)):
            out: Tensor = self.model(input_ids=ids, use_cache=False).logits
        return out

    @torch.no_grad()
    def looks(self, ids: Tensor) -> Iterator[Look]:
        with quiet(), unchanged(self.model):
            run = partial(self.model, input_ids=ids, use_cache=False, logits_to_keep=1)
            seen = watched_attention.looks(self.model, run)
        yield from seen

    @torch.no_grad()
    def continued(self, ids: Tensor, said: int) -> Tensor:
        first = ids.shape[1] - said
        with quiet(), unchanged(self.model):
            out = self.model(input_ids=ids[:, :first], use_cache=True, logits_to_keep=1)
            parts = []
            for t in range(first, ids.shape[1]):
                out = self.model(input_ids=ids[:, t : t + 1], past_key_values=out.past_key_values, use_cache=True)
                parts.append(out.logits[:, -1:])
        return torch.cat(parts, 1)

    def turned(self, encodings: Mapping[int, Encoding]) -> Any:
        if self.spec is None:
            raise ConfigError(f"{self.family} has no rotary positions to be turned otherwise")
        return turned_attention.turned(self.model, encodings)

    def prove(self, own: Mapping[int, Encoding]) -> None:
        turned_attention.prove(self.model, self.model.config.to_dict(), own)
