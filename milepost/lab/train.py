"""Training: one model on stretches of text, images or signals, the same ones in the same order for every encoding.

Muon and AdamW (see optimizers), a short warm-up, then a cosine down to a tenth. The state is written whole every so
often and at the end, so that a killed run resumes from there and ends with the very same numbers.
"""

from __future__ import annotations

import math
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.lab.corpus import batch
from milepost.lab.training.linear import rounded_products
from milepost.lab.training.optimizers import Optimizers
from milepost.layout import Layout
from milepost.measure.folder import saving
from milepost.measure.memory import held_at_peak_mb, reset_peak
from milepost.measure.results import whole_file
from milepost.positions import randomised, skipped

Numbers = np.ndarray[Any, Any]
PATIENCE = 60.0
"""Seconds after which the state is written even if no round number of steps is reached."""


class Diverged(RuntimeError):  # noqa: N818 (a result, which is recorded)
    """A loss that is no number: the trial is stopped, recorded and shown."""


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: ``rows`` stretches of ``length`` tokens a step.

    ``rate`` multiplies the rates of both optimizers; ``bfloat16``: products are rounded to it (see linear).
    """

    steps: int
    rows: int
    length: int
    rate: float = 1.0
    seed: int = 0
    bfloat16: bool = False

    @property
    def save_every(self) -> int:
        """Steps between two writings of the state."""
        return max(1, min(100, self.steps // 10))

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, over the full rates of the optimizers."""
        warm = max(1, self.steps // 20)
        if step < warm:
            return self.rate * (step + 1) / warm
        along = (step - warm) / max(1, self.steps - warm)
        return self.rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * along)))


Batches = Callable[[int], tuple[Numbers, Numbers | None]]
"""What a step reads, a row for each row: tokens (rows x length + 1) and which of the next tokens count (None: all); or
inputs and their labels."""
Loss = Callable[[nn.Module, tuple[Numbers, Numbers | None], slice, torch.device], tuple[Tensor, int]]
"""The summed loss of a model on a share of a step's rows, and how many answers all of its rows score."""


def from_text(row: Numbers, recipe: Recipe) -> Batches:
    """Stretches of a long row of tokens."""
    return lambda step: (batch(row, recipe.length, recipe.rows, recipe.seed, step), None)


TOLD: dict[str, Callable[..., Tensor] | None] = {"index": None, "randomised": randomised, "pose": skipped}
"""What texts are told in training, by name: their index, or a remap of it (`milepost.positions`)."""


def next_tokens(
    model: nn.Module,
    read: tuple[Numbers, Numbers | None],
    share: slice,
    device: torch.device,
    *,
    told: str = "index",
    limit: int = 0,
) -> tuple[Tensor, int]:
    """Of text: the loss of every next token that counts.

    ``told`` names the positions of the texts, all below ``limit``. They are drawn from the tokens themselves: the same
    for every encoding, and for a run that was stopped.
    """
    tokens, counted = read
    ids = torch.from_numpy(tokens[share]).to(device)
    wanted, scored = ids[:, 1:], tokens[:, 1:].size
    if counted is not None:
        wanted = wanted.masked_fill(~torch.from_numpy(counted[share]).to(device), -100)
        scored = int(counted.sum())
    at, remap = None, TOLD[told]
    if remap is not None:
        generator = torch.Generator().manual_seed(zlib.crc32(tokens.tobytes()))
        pos = remap(ids.shape[1] - 1, limit, batch=len(tokens), generator=generator)[share]
        at = Layout.dense(ids.shape[1] - 1, device=device).with_positions(pos.to(device))
    logits = model(ids[:, :-1]) if at is None else model(ids[:, :-1], at)
    return F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten(), reduction="sum"), scored


def labels(
    model: nn.Module, read: tuple[Numbers, Numbers | None], share: slice, device: torch.device
) -> tuple[Tensor, int]:
    """Of images and signals: the loss of each one's label."""
    inputs, wanted = read
    assert wanted is not None
    logits = model(torch.from_numpy(inputs[share]).to(device))
    return F.cross_entropy(logits.float(), torch.from_numpy(wanted[share]).to(device), reduction="sum"), len(wanted)


def train(
    model: nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    state: Path | None = None,
    tell: Callable[[int, float, float], None] = lambda step, loss, rate: None,
    loss: Loss = next_tokens,
) -> dict[str, Any]:
    """Train a model in place; ``state`` is the file that a killed run resumes from.

    ``tell`` gets the step, its loss, and the tokens a second.

    Runs on what accelerate finds: the CPU, a GPU in bfloat16, or as many as `accelerate launch` names, which share
    the rows of each step.
    """
    accelerator = _accelerator()
    if recipe.rows % accelerator.num_processes:
        raise ValueError(
            f"{recipe.rows} rows a step can't be shared evenly by {accelerator.num_processes} processes; "
            "start a number of processes that divides the rows"
        )
    reset_peak()
    optimizers = Optimizers(model)
    ready = accelerator.prepare(model)
    first, spent, losses = _resume(state, model, optimizers, accelerator.device)
    share = slice(accelerator.process_index, None, accelerator.num_processes)
    tokens_a_step = recipe.rows * recipe.length
    model.train()
    begun = written = time.perf_counter()
    with rounded_products(model, recipe.bfloat16 and accelerator.device.type == "cpu"):
        for step in range(first, recipe.steps):
            summed, scored = loss(ready, batches(step), share, accelerator.device)
            # processes average their gradients: the mean over all tokens
            mean = summed * (accelerator.num_processes / scored)
            value = float(accelerator.reduce(mean.detach(), "mean"))
            if not math.isfinite(value):
                raise Diverged(f"the loss at step {step} is {value}")
            accelerator.backward(mean)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizers.step(recipe.rate_at(step))
            losses.append(value)
            now = time.perf_counter()
            passed = spent + now - begun
            tell(step + 1, value, (step + 1) * tokens_a_step / passed)
            due = (step + 1) % recipe.save_every == 0 or step + 1 == recipe.steps or now - written > PATIENCE
            if state is not None and due and accelerator.is_main_process:
                _write_state(state, model, optimizers, step + 1, passed, losses)
                written = time.perf_counter()
    if first >= recipe.steps:  # it was killed after the last step
        tell(recipe.steps, losses[-1], recipe.steps * tokens_a_step / spent)
    # measured in full precision, however it was trained
    accelerator.unwrap_model(ready, keep_fp32_wrapper=False).eval()
    tokens, spent = recipe.steps * tokens_a_step, spent + time.perf_counter() - begun
    return {
        "tokens": tokens,
        "tokens_per_s": tokens / max(spent, 1e-9),
        "losses": losses,
        "peak_mb": held_at_peak_mb(),
    }


def is_main_process() -> bool:
    """Whether this is the process that writes, of those that `accelerate launch` started."""
    return os.environ.get("RANK", "0") == "0"


def _accelerator() -> Any:
    """The CPU, or GPUs in bfloat16 where they have it."""
    from accelerate import Accelerator

    gpu = torch.cuda.is_available()
    return Accelerator(cpu=not gpu, mixed_precision="bf16" if gpu and torch.cuda.is_bf16_supported() else "no")


def _write_state(
    state: Path, model: nn.Module, optimizers: Optimizers, step: int, spent: float, losses: list[float]
) -> None:
    weights = {"model": model.state_dict(), "optimizers": optimizers.state_dict()}
    with saving(state.name, state.parent), whole_file(state) as temporary:
        torch.save({**weights, "step": step, "spent": spent, "losses": losses}, temporary)


def _resume(
    state: Path | None, model: nn.Module, optimizers: Optimizers, device: torch.device
) -> tuple[int, float, list[float]]:
    """The step to resume from, the time spent so far, and the losses."""
    if state is None or not state.exists():
        return 0, 0.0, []
    held = torch.load(state, map_location=device, weights_only=True)
    model.load_state_dict(held["model"])
    optimizers.load_state_dict(held["optimizers"])
    return int(held["step"]), float(held["spent"]), list(held["losses"])
