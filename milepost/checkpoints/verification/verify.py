"""verify: does a model in memory do with positions what its config asks for? Proved by running it.

    done = verify("path/to/model")    # or a GGUF file, a lab model, a name on the Hub, a loaded model of transformers
    done.ok, done.failed, done["frequencies"].sentence

A page for each idea: live frequencies (`frequencies`), the part of a head that turns in latent attention
(`decoupled`), one text in every layout (`layouts`), ALiBi and T5 (`bias`), what depends on the length (`length`), and
saved, loaded and verified again (`reload`); lab models have checks of their own (`lab`). What transformers makes of a
GGUF file must mean what the file says. Every check has a tolerance that is derived from rounding, and a control: where
a fault could not have been seen, it says that nothing is proved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from milepost.checkpoints.files import is_lab
from milepost.checkpoints.model.hf_load import DTYPES, as_in_the_file, check_device, check_dtype, load_checkpoint
from milepost.checkpoints.model.probe import DOUBT, Case, Check
from milepost.checkpoints.model.quiet import quiet
from milepost.checkpoints.result import CheckedResult
from milepost.checkpoints.verification import report
from milepost.checkpoints.verification.bias import biases
from milepost.checkpoints.verification.decoupled import decoupled
from milepost.checkpoints.verification.frequencies import frequencies
from milepost.checkpoints.verification.layouts import layouts
from milepost.checkpoints.verification.length import lengths
from milepost.checkpoints.verification.reload import reload
from milepost.measure.results import provenance
from milepost.rope import ConfigError
from milepost.rope.config.files import find
from milepost.rope.config.files import load as load_config

CHECKS: dict[str, Callable[[Case], list[Check]]] = {
    "frequencies": frequencies,
    "decoupled rope": decoupled,
    "layouts": layouts,
    "length": lengths,
    "bias": biases,
    "reload": reload,
}


@dataclass(frozen=True)
class Verification(CheckedResult):
    """Every check of one model."""

    model: str
    model_type: str
    checks: tuple[Check, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    def __getitem__(self, name: str) -> Check:
        """The check of a name; the worst, where there are several."""
        named = [check for check in self.checks if check.name == name]
        if not named:
            raise KeyError(
                f"there is no check {name!r}; there are {', '.join(dict.fromkeys(check.name for check in self.checks))}"
            )
        return min(named, key=lambda check: ("FAIL", "WARN", "BLIND", "PASS", "NONE").index(check.verdict))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "model": self.model,
            "model_type": self.model_type,
            "ok": self.ok,
            "failed": list(self.failed),
            "checks": [check.to_json() for check in self.checks],
            "notes": list(self.notes),
            "provenance": self.provenance,
        }

    document = staticmethod(report.document)


def verify(
    model: str | Path | torch.nn.Module,
    *,
    config: Mapping[str, Any] | str | Path | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    tell: Callable[[str], None] = lambda text: None,
) -> Verification:
    """Prove that a model's positions are those that its config asks for.

    A model that is loaded already is verified as it is, where it is (``device`` and ``dtype`` are for loading), and
    left as it was; it is held to its own config, or to ``config``. Raises ValueError for what can't be loaded.
    """
    checks: list[Check] = []
    if isinstance(model, torch.nn.Module):
        live, name = model, type(model).__name__
        held = _plain(live)
    else:
        tell(f"loading {model}")
        name, path = str(model), Path(model).expanduser()
        if is_lab(path):
            return _lab(path, name, device, dtype, tell)
        live, held = load_checkpoint(model, device, dtype)
        if path.suffix == ".gguf":
            checks.append(as_in_the_file(path, held))
    if config is not None:
        held = dict(config) if isinstance(config, Mapping) else dict(load_config(find(config)))
    training = live.training
    live.eval()
    try:
        with quiet():
            case = Case(live, held)
            for what, check in CHECKS.items():
                tell(f"checking {what}")
                checks += _guarded(what, check, case)
    finally:
        live.train(training)
    about = provenance(
        what="verify",
        dtype=str(case.dtype).removeprefix("torch."),
        device=str(case.device),
        attention=case.attention,
        tokens=case.length,
        tolerance=f"{DOUBT} x the distance of logits from the same in float64",
        seed=0,
    )
    notes = case.spec.notes if case.spec is not None else ()
    return Verification(name, case.model_type, tuple(checks), tuple(notes), about)


def _lab(path: Path, name: str, device: str, dtype: str, tell: Callable[[str], None]) -> Verification:
    from milepost.checkpoints.verification.lab import TOKENS, verify_lab

    check_dtype(dtype)
    check_device(device)
    _, checks = verify_lab(path if path.is_dir() else path.parent, device, DTYPES[dtype], tell)
    tolerance = f"{DOUBT} x the distance of logits from the same in float64"
    about = provenance(
        what="verify", dtype=dtype, device=device, attention="milepost", tokens=TOKENS, tolerance=tolerance, seed=0
    )
    return Verification(name, "lab", tuple(checks), (), about)


def _plain(model: Any) -> dict[str, Any]:
    """The config of a loaded model, as config.json would have it."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "to_dict"):
        raise ConfigError(f"verify takes a model of transformers, with its config; got {type(model).__name__}")
    if next((p for p in model.parameters() if p.is_meta), None) is not None:
        raise ConfigError("the model is on the meta device: it has no weights to be run with; load them first")
    return {key: value for key, value in config.to_dict().items() if key != "quantization_config"}


def _guarded(name: str, check: Callable[[Case], list[Check]], case: Case) -> list[Check]:
    """The check's answers; a model that can't be run that way is an answer as well."""
    try:
        return check(case)
    except (
        RuntimeError,
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        AttributeError,
        NotImplementedError,
        AssertionError,
    ) as error:
        lines = str(error).strip().splitlines()
        reason = lines[0][:200] if lines else "no words"
        return [Check(name, "FAIL", f"the model can't be run for this check: {type(error).__name__}: {reason}")]
