"""Training: one model on stretches of text, images or signals, the same ones in the same order for every encoding.

AdamW, a short warm-up, then a cosine down to a tenth. The state is written whole every so often and at the end, so that a killed run
goes on from there and ends with the very same numbers.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.lab import peak
from milepost.lab.corpus import batch

Numbers = np.ndarray[Any, Any]
PATIENCE = 60.0
"""Seconds after which the state is written even if no round number of steps is reached."""


class Diverged(RuntimeError):  # noqa: N818 (a result, which is recorded)
    """A loss that is no number: the trial is stopped, recorded and shown."""


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: ``rows`` stretches of ``length`` tokens a step. ``decay_encoding``: weights of the encoding decay as the others do."""

    steps: int
    rows: int
    length: int
    rate: float = 3e-3
    seed: int = 0
    decay_encoding: bool = True

    @property
    def save_every(self) -> int:
        """Steps between two writings of the state."""
        return max(1, min(100, self.steps // 10))

    def rate_at(self, step: int) -> float:
        """The learning rate of a step."""
        warm = max(1, self.steps // 20)
        if step < warm:
            return self.rate * (step + 1) / warm
        along = (step - warm) / max(1, self.steps - warm)
        return self.rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * along)))


Batches = Callable[[int], tuple[Numbers, Numbers | None]]
"""What a step reads, a row for each row: tokens (rows x length + 1) and which of the next tokens count (None: all); or inputs and their labels."""
Lost = Callable[[nn.Module, tuple[Numbers, Numbers | None], slice, torch.device], tuple[Tensor, int]]
"""The summed loss of a model on a share of a step's rows, and how many answers all of its rows score."""


def from_text(row: Numbers, recipe: Recipe) -> Batches:
    """Stretches of a long row of tokens."""
    return lambda step: (batch(row, recipe.length, recipe.rows, recipe.seed, step), None)


def next_tokens(
    model: nn.Module, read: tuple[Numbers, Numbers | None], share: slice, device: torch.device
) -> tuple[Tensor, int]:
    """Of text: the loss of every next token that counts."""
    tokens, counted = read
    ids = torch.from_numpy(tokens[share]).to(device)
    wanted = (
        ids[:, 1:]
        if counted is None
        else ids[:, 1:].masked_fill(~torch.from_numpy(counted[share]).to(ids.device), -100)
    )
    scored = tokens[:, 1:].size if counted is None else int(counted.sum())
    return F.cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), wanted.flatten(), reduction="sum"), scored


def labels(
    model: nn.Module, read: tuple[Numbers, Numbers | None], share: slice, device: torch.device
) -> tuple[Tensor, int]:
    """Of images and signals: the loss of each one's label."""
    inputs, wanted = read
    assert wanted is not None
    logits = model(torch.from_numpy(inputs[share]).to(device))
    return F.cross_entropy(logits.float(), torch.from_numpy(wanted[share]).to(device), reduction="sum"), len(wanted)


def train(
    model: nn.Module, batches: Batches, recipe: Recipe, *, state: Path | None = None,
    tell: Callable[[int, float, float], None] = lambda step, loss, rate: None, lost: Lost = next_tokens,
) -> dict[str, Any]:  # fmt: skip
    """Train a model in place; ``state`` is the file that a killed run goes on from. Tells (step, loss, tokens a second).

    Runs on what accelerate finds: the CPU, a GPU in bfloat16, or as many as `accelerate launch` was told of, which share each step's rows.
    """
    accelerator = _accelerator()
    if recipe.rows % accelerator.num_processes:
        raise ValueError(f"{recipe.rows} rows a step can't be shared evenly by {accelerator.num_processes} processes")
    peak.begin()
    whole = {
        name: p
        for name, p in model.named_parameters()
        if p.dim() > 1 and (recipe.decay_encoding or ".enc." not in name)
    }
    decay, rest = list(whole.values()), [p for name, p in model.named_parameters() if name not in whole]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=recipe.rate,
        betas=(0.9, 0.95),
    )
    ready, optimizer = accelerator.prepare(model, optimizer)
    first, spent, losses = _resume(state, model, optimizer, accelerator.device)
    share = slice(accelerator.process_index, None, accelerator.num_processes)
    model.train()
    begun = kept = time.perf_counter()
    for step in range(first, recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate_at(step)
        summed, scored = lost(ready, batches(step), share, accelerator.device)
        loss = summed * (
            accelerator.num_processes / scored
        )  # gradients are averaged over processes: this gives the mean over all tokens
        value = float(accelerator.reduce(loss.detach(), "mean"))
        if not math.isfinite(value):
            raise Diverged(f"the loss at step {step} is {value}")
        optimizer.zero_grad(set_to_none=True)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(value)
        now = time.perf_counter()
        passed = spent + now - begun
        tell(step + 1, value, (step + 1) * recipe.rows * recipe.length / passed)
        due = (step + 1) % recipe.save_every == 0 or step + 1 == recipe.steps or now - kept > PATIENCE
        if state is not None and due and accelerator.is_main_process:
            _keep(state, model, optimizer, step + 1, passed, losses)
            kept = time.perf_counter()
    if first >= recipe.steps:
        tell(
            recipe.steps, losses[-1], recipe.steps * recipe.rows * recipe.length / spent
        )  # it was killed after the last step
    accelerator.unwrap_model(
        ready, keep_fp32_wrapper=False
    ).eval()  # measured in full precision, whatever it was trained in
    tokens_read = recipe.steps * recipe.rows * recipe.length
    spent += time.perf_counter() - begun
    return {
        "tokens": tokens_read,
        "tokens_per_s": tokens_read / max(spent, 1e-9),
        "losses": losses,
        "peak_mb": peak.peak_mb(),
    }


def _accelerator() -> Any:
    """The CPU, or GPUs in bfloat16 where they have it."""
    from accelerate import Accelerator

    gpu = torch.cuda.is_available()
    return Accelerator(cpu=not gpu, mixed_precision="bf16" if gpu and torch.cuda.is_bf16_supported() else "no")


def _keep(state: Path, model: nn.Module, optimizer: Any, step: int, spent: float, losses: list[float]) -> None:
    temporary = state.with_name(f".{state.name}.{os.getpid()}.tmp")
    try:
        held = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
            "spent": spent,
            "losses": losses,
        }
        torch.save(held, temporary)
        os.replace(temporary, state)
    finally:
        temporary.unlink(missing_ok=True)


def _resume(
    state: Path | None, model: nn.Module, optimizer: Any, device: torch.device
) -> tuple[int, float, list[float]]:
    """The step to go on from, the time spent so far, and the losses."""
    if state is None or not state.exists():
        return 0, 0.0, []
    held = torch.load(state, map_location=device, weights_only=True)
    model.load_state_dict(held["model"])
    optimizer.load_state_dict(held["optimizer"])
    return int(held["step"]), float(held["spent"]), list(held["losses"])
