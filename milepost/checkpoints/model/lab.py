"""A lab run's model as a loaded checkpoint. It reads bytes, unless it was trained with a tokenizer of its own, which is then named."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.checkpoints.inspection import lab as inspect_lab
from milepost.checkpoints.inspection.inspect import Inspection
from milepost.checkpoints.model.hf_load import DTYPES, check_device
from milepost.checkpoints.model.load import Loaded, Look
from milepost.checkpoints.model.tokenizers import find_tokenizer
from milepost.encoding import Encoding
from milepost.lab.model import Decoder
from milepost.lab.saved import load
from milepost.layout import Layout
from milepost.rope.config import files
from milepost.rope.config.keys import ConfigError


class LabModel(Loaded):
    """`milepost.lab`'s Decoder."""

    model: Decoder

    def __init__(self, folder: Path, found: Inspection, device: str, dtype: str, tokenizer: str | Path | None):
        if dtype not in DTYPES:
            raise ConfigError(f"dtype is one of {', '.join(DTYPES)}, got {dtype!r}")
        check_device(device)
        self.model = load(folder if folder.is_dir() else folder.parent).to(device, DTYPES[dtype]).eval()
        self.name, self.form, self.family, self.inspection = str(folder), "lab", "lab", found
        self.spec = inspect_lab.positions(
            files.load((folder if folder.is_dir() else folder.parent) / "model.json"), {}, None
        )[1]
        self.vocabulary, self.shifts, self.length_dependent = (
            self.model.shape.vocabulary,
            True,
            self.model.length_dependent,
        )
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
        return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)

    def last(self, ids: Tensor) -> Tensor:
        return self(ids)[:, -1]

    @torch.no_grad()
    def looks(self, ids: Tensor) -> Iterator[Look]:
        for layer, (q, k, enc) in enumerate(self.model.looks(ids)):
            yield Look(layer, q, k, enc, q.shape[-1] ** -0.5, None)

    @torch.no_grad()
    def continued(self, ids: Tensor, said: int) -> Tensor:
        caches = self.model.caches()
        self.model(ids[:, : ids.shape[1] - said], caches=caches)
        return torch.cat(
            [self.model(ids[:, t : t + 1], caches=caches) for t in range(ids.shape[1] - said, ids.shape[1])], 1
        )

    @contextlib.contextmanager
    def turned(self, encodings: Mapping[int, Encoding]) -> Iterator[None]:
        before = {n: self.model.blocks[n].enc for n in encodings}
        try:
            for n, enc in encodings.items():
                self.model.blocks[n].enc = enc
            yield
        finally:
            for n, was in before.items():
                self.model.blocks[n].enc = was

    def prove(self, own: Mapping[int, Encoding]) -> None:
        """A lab model is turned by milepost anyway."""
