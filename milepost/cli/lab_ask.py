"""What `milepost lab` is asked for, as a plan of one modality. An option that the modality has no use for is refused, never passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.cli.shared import read_length

if TYPE_CHECKING:
    from milepost.lab.plan import LabPlan

TEXT = ("tasks", "text", "tokenizer", "tune")
"""Options for text alone."""
UNUSED = {"text": ("images",), "image": TEXT, "video": (*TEXT, "images", "lengths", "train_length", "strategies")}
WORDS = {"image": "images have", "video": "made signals have", "text": "text has"}


def plan_of(modality: str, profile: str, given: dict[str, Any]) -> LabPlan:
    """The plan; ``given`` holds every option, None where it was left out."""
    kind = "video" if modality == "eeg" else modality
    for name in UNUSED[kind]:
        if given[name] is not None:
            raise ValueError(
                f"--modality {modality} has no use for --{name.replace('_', '-')}: {WORDS[kind]} nothing like it; leave it out"
            )
    encodings, seeds = words(given["encodings"]), read_seeds(given["seeds"])
    if modality == "text":
        return _text(profile, encodings, seeds, given)
    if modality == "image":
        from milepost.lab.space.image_plan import STRATEGIES, make

        named = STRATEGIES if given["strategies"] is None else words(given["strategies"])
        size = read_length(given["train_length"], "--train-length")
        return make(
            profile, encodings=encodings, strategy_names=named, sizes=given["lengths"] or "", train_size=size, seeds=seeds, folder=given["images"]
        )  # fmt: skip
    from milepost.lab.space import signal_plan

    return signal_plan.make(modality, profile, encodings=encodings, seeds=seeds)


def _text(profile: str, encodings: list[str], seeds: list[int], given: dict[str, Any]) -> LabPlan:
    from milepost.lab.plan import USUAL, make
    from milepost.lab.tasks import TASKS

    tasks = (given["tasks"] or "").strip()
    return make(
        profile, encodings=encodings, strategy_names=USUAL if given["strategies"] is None else words(given["strategies"]),
        lengths="1x,2x,4x,8x" if given["lengths"] is None else given["lengths"], train_length=read_length(given["train_length"], "--train-length"),
        seeds=seeds, tasks=list(TASKS) if tasks == "all" else words(tasks), text=given["text"], tokenizer=given["tokenizer"] or "bytes",
        tune=given["tune"] or 0,
    )  # fmt: skip


def words(text: str) -> list[str]:
    """A list separated by commas, but for those inside brackets: specs hold commas too."""
    found, depth, word = [], 0, ""
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            found.append(word)
            word = ""
        else:
            word += letter
    return [one.strip() for one in [*found, word] if one.strip()]


def read_seeds(text: str) -> list[int]:
    """How many seeds, or which."""
    found = words(text)
    if not all(word.isdigit() for word in found):
        raise ValueError(f"--seeds is how many, such as 3, or which, such as 0,7; got {text!r}")
    if len(found) == 1 and "," not in text:
        if int(found[0]) < 1:
            raise ValueError("--seeds must be at least 1")
        return list(range(int(found[0])))
    return [int(word) for word in found]
