"""A lab run's model as a loaded checkpoint.

It reads bytes, unless it was trained with a tokenizer of its own, which is then named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import Tensor

from milepost.checkpoints.inspection.inspect import Inspection
from milepost.checkpoints.model.hf_load import DTYPES, check_device, check_dtype
from milepost.checkpoints.model.loaded import Loaded, Look, token_losses
from milepost.checkpoints.model.patch import patched
from milepost.checkpoints.model.tokenizers import find_tokenizer
from milepost.encoding import Encoding
from milepost.lab.checkpoint import load
from milepost.lab.model import Decoder
from milepost.layout import Layout


class LabModel(Loaded):
    """`milepost.lab`'s Decoder."""

    model: Decoder

    def __init__(self, name: str, inspection: Inspection, device: str, dtype: str, tokenizer: str | Path | None):
        check_dtype(dtype)
        check_device(device)
        path = Path(name).expanduser()
        self.model = load(path if path.is_dir() else path.parent).to(device, DTYPES[dtype]).eval()
        self.name, self.form, self.family = name, "lab", "lab"
        self.inspection, self.spec = inspection, inspection.spec
        self.vocabulary, self.shifts = self.model.shape.vocabulary, True
        self.length_dependent = self.model.length_dependent
        self.tokenizer = find_tokenizer("bytes" if tokenizer is None else tokenizer)

    @property
    def end(self) -> int | None:
        return self.model.end

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        out: Tensor = self.model(ids)
        return out

    @torch.no_grad()
    def losses(self, ids: Tensor, first: int = 0) -> Tensor:
        logits = self.model(ids[:, :-1], Layout.dense(ids.shape[1] - 1, start=first, device=ids.device))
        return token_losses(logits, ids[:, 1:])

    def last(self, ids: Tensor) -> Tensor:
        return self(ids)[:, -1]

    @torch.no_grad()
    def looks(self, ids: Tensor) -> Iterator[Look]:
        for layer, (q, k, enc, f) in enumerate(self.model.looks(ids)):
            yield Look(layer, q, k, enc, q.shape[-1] ** -0.5, self.model.windows[layer], f)

    @torch.no_grad()
    def continued(self, ids: Tensor, said: int) -> Tensor:
        caches, first = self.model.caches(), ids.shape[1] - said
        self.model(ids[:, :first], caches=caches)
        return torch.cat([self.model(ids[:, t : t + 1], caches=caches) for t in range(first, ids.shape[1])], 1)

    def turned(self, encodings: Mapping[int, Encoding]) -> AbstractContextManager[None]:
        return patched(*((self.model.blocks[n], "enc", enc) for n, enc in encodings.items()))

    def prove(self, own: Mapping[int, Encoding]) -> None:
        """A lab model is turned by milepost anyway."""
