"""load: a checkpoint in memory as one kind of thing, whatever it came from.

    subject = load("path/to/model")    # a folder in Hugging Face form, a name on the Hub, GGUF, a lab run's model
    subject.losses(ids)                # nats of each next token (B L), without holding logits for all of them
    subject.losses(ids, first=4096)    # the same text at other positions
    with subject.turned(ropes): ...    # the same weights under other rotations, see `turned_attention`

Only safetensors and GGUF are opened; no code of a checkpoint is run.
"""

from __future__ import annotations

from pathlib import Path

from milepost.checkpoints.inspection.inspect import inspect
from milepost.checkpoints.model.hf import HuggingFace
from milepost.checkpoints.model.lab import LabModel
from milepost.checkpoints.model.loaded import Loaded


def load(
    model: str | Path, *, device: str = "cpu", dtype: str = "float32", tokenizer: str | Path | None = None
) -> Loaded:
    """Load a causal language model with its tokenizer, if it has one, or with ``tokenizer``.

    ``tokenizer`` is a tokenizer.json, a folder, a name on the Hub, or ``bytes``. Raises ConfigError, a ValueError, in
    one sentence, for what can't be loaded.
    """
    inspection = inspect(model)
    made = LabModel if inspection.form == "lab" else HuggingFace
    return made(str(model), inspection, device, dtype, tokenizer)
