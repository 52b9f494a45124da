"""Modalities: a lab run reads text, images or signals. Which plan a run's JSON is, and what runs a trial of it.

A plan's ``modality`` says which it is; a plan without one is of text.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from milepost.lab.plan import LabPlan, TextPlan
from milepost.lab.space.image_plan import ImagePlan
from milepost.lab.space.image_trial import run_image_trial
from milepost.lab.space.signal_plan import SignalPlan
from milepost.lab.space.signal_trial import run_signal_trial
from milepost.lab.text_trial import run_text_trial
from milepost.lab.trial import Tell, Trial
from milepost.lab.user_modules import import_named

PLANS: dict[str, type[LabPlan]] = {"text": TextPlan, "image": ImagePlan, "video": SignalPlan, "eeg": SignalPlan}
RUNNERS: dict[type[LabPlan], Any] = {
    TextPlan: run_text_trial,
    ImagePlan: run_image_trial,
    SignalPlan: run_signal_trial,
}


def read_plan(data: dict[str, Any]) -> LabPlan:
    """The plan of `LabPlan.to_json`, of whatever modality."""
    return PLANS[data.get("modality", "text")].from_json(data)


def run_trial(
    plan: LabPlan, trial: Trial, folder: Path, tell: Tell, places: Iterable[str] = (), data: Any = None
) -> dict[str, Any]:
    """Train and measure one model in this process, with the plan's threads, deterministically.

    ``places`` are more folders to look in for a module that the encoding names; ``data`` is what the plan reads, where
    that has been read already.
    """
    torch.set_num_threads(plan.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    import_named([trial.spec], places)
    result: dict[str, Any] = RUNNERS[type(plan)](plan, trial, folder, tell, data)
    return result
