"""A lab model under proof: the laws of its encodings with their trained numbers, one text in every layout, and saved
and loaded again.

Tolerance and control as in `model.probe`: 4 times what rounding does to its logits, in one pass or in the way that is
compared with it, and what mixed positions do.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.probe import DOUBT, Check, apart, judged
from milepost.lab.checkpoint import load, save
from milepost.lab.model import Decoder
from milepost.layout import Layout
from milepost.testing import Verdict, check_encoding

TOKENS, BEFORE = 23, 6
"""Tokens of the text; and how many others, or how much padding, stand before it."""
BLIND = "other positions would give the same logits"
Way = Callable[[Decoder], Tensor]
"""How a model, in whatever precision, is made to give the logits of the text."""


class LabCase:
    """A model and a text."""

    def __init__(self, model: Decoder):
        self.model = model
        room = model.shape.length if model.end is None else model.end
        self.length = max(2, min(TOKENS, room))
        draw = torch.Generator().manual_seed(0)
        self.text, self.other = (
            torch.randint(model.shape.vocabulary, (1, n), generator=draw).to(model.device)
            for n in (self.length, BEFORE)
        )
        self.exact = copy.deepcopy(model).double()
        self.alone = self.logits(self.text)
        self.tolerance = self._tolerance(self.alone, lambda model: model(self.text))

    @torch.no_grad()
    def logits(self, ids: Tensor, at: Layout | None = None) -> Tensor:
        out: Tensor = self.model(ids, at)
        return out.double()

    @torch.no_grad()
    def _tolerance(self, own: Tensor, way: Way) -> float:
        return DOUBT * max(apart(own, way(self.exact)), 2**-24 * float(own.abs().max()))

    @property
    def shuffled(self) -> float:
        """What other positions do to the logits."""
        at = Layout.dense(self.length, device=self.model.device)
        mixed = torch.randperm(self.length, generator=torch.Generator().manual_seed(1)).to(self.model.device)
        return apart(self.logits(self.text, at.with_positions(at.pos[:, mixed])), self.alone)

    @torch.no_grad()
    def check(self, name: str, way: Way, right: str, wrong: str) -> Check:
        """The same text gives the same logits, however it is laid out."""
        found = way(self.model).double()
        off, allowed = apart(found, self.alone), self.tolerance
        if allowed < off:
            allowed = max(allowed, self._tolerance(found, way))
        return judged(Check(name, "PASS", right, off, allowed, self.shuffled, "logits"), wrong, BLIND)


def verify_lab(
    folder: Path, device: str, dtype: torch.dtype, tell: Callable[[str], None]
) -> tuple[Decoder, list[Check]]:
    """Every check of a lab model."""
    model = load(folder).to(device, dtype).eval()
    tell("checking laws")
    checks = _laws(model)
    case = LabCase(model)
    for check in (_cached, _padded, _packed, _reload):
        tell(f"checking {check.__name__.removeprefix('_')}")
        checks.append(check(case))
    return model, checks


def _laws(model: Decoder) -> list[Check]:
    """The laws of `milepost.testing`, on the encodings as they were trained."""
    checks = []
    known: dict[str, tuple[Verdict, ...]] = {}
    for number, enc in enumerate(model.encodings):
        if enc.state_dict() or repr(enc) not in known:  # without weights, layers of one spec are the same encoding
            known[repr(enc)] = check_encoding(enc).verdicts
        verdicts = known[repr(enc)]
        broken = [v for v in verdicts if v.passed is False]
        count = sum(v.passed is True for v in verdicts)
        name, ok = f"laws, layer {number}", not broken
        sentence = f"{enc!r} keeps its {count} laws" if ok else f"{enc!r} breaks {broken[0].row()}"
        checks.append(Check(name, "PASS" if ok else "FAIL", sentence, float(len(broken)), 0.0, None, "laws"))
    return checks


def _cached(case: LabCase) -> Check:
    if case.model.length_dependent and "embed" in case.model.encodings[0].points:
        return Check(
            "cached", "NONE", "its embedding depends on the length of the whole text: there is no cache for it"
        )

    def by_token(model: Decoder) -> Tensor:
        caches = model.caches()
        first = model(case.text[:, :-4], caches=caches)
        rest = [model(case.text[:, t : t + 1], caches=caches) for t in range(case.length - 4, case.length)]
        return torch.cat([first, *rest], 1)

    return case.check(
        "cached",
        by_token,
        "read token by token with a cache, it gives the logits of one pass",
        "a cache gives other logits than one pass",
    )


def _padded(case: LabCase) -> Check:
    mask = torch.ones(1, BEFORE + case.length, dtype=torch.bool, device=case.model.device)
    mask[:, :BEFORE] = False
    ids = torch.cat([torch.zeros_like(case.other), case.text], 1)
    return case.check(
        "padded",
        lambda model: model(ids, Layout.padded(mask))[:, BEFORE:],
        "padding on the left changes nothing",
        "padding on the left changes the logits: positions don't follow it",
    )


def _packed(case: LabCase) -> Check:
    ids = torch.cat([case.other, case.text], 1)
    return case.check(
        "packed",
        lambda model: model(ids, Layout.packed([BEFORE, case.length], device=case.model.device))[:, BEFORE:],
        "another text before it in its row changes nothing",
        "a text before it in its row changes the logits",
    )


def _reload(case: LabCase) -> Check:
    def again(model: Decoder) -> Tensor:
        with tempfile.TemporaryDirectory(prefix="milepost-verify-") as folder:
            loaded: Any = load(save(model, Path(folder))).to(model.device, next(model.parameters()).dtype)
        return loaded(case.text)  # type: ignore[no-any-return]

    return case.check(
        "reload",
        again,
        "saved and loaded again, it gives the same logits",
        "saved and loaded again, it gives other logits",
    )
