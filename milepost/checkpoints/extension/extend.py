"""extend: a checkpoint for longer texts, in a folder that other tools load.

    done = extend("path/to/model", target_length=8192, method="yarn", out="longer")
    done = extend("path/to/model", target_length=8192, method="auto", text="mine.txt", out="longer", tune=200)
    done.ok, done.losses, done.changed

A page for each idea: what can be extended (`files.source`), what config.json will say (`plan`, `config`), the folder
(`measure.folder`), tuning (`model.tune`), loss before and after (`losses`). The source is only read. The new folder
appears when it is finished: written, tuned, verified and measured; where a check of `verify` fails it is kept, and
`ok` is False.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from milepost.checkpoints.extension import report
from milepost.checkpoints.extension.losses import ExtensionLosses
from milepost.checkpoints.extension.plan import ExtensionPlan, plan_extension
from milepost.checkpoints.extension.request import check_request, choose_method
from milepost.checkpoints.extension.source import open_source
from milepost.checkpoints.files import (
    SourceFiles,
    write_files,
    write_sidecar,
    write_weights,
)
from milepost.checkpoints.model.hf_load import check_device, check_dtype
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.tune import Tuning, has_peft, processes, room_to_tune
from milepost.checkpoints.model.tune import tune as tune_weights
from milepost.checkpoints.result import CommandResult
from milepost.checkpoints.verification.verify import verify
from milepost.draw import fill
from milepost.measure.folder import check_out, check_room, new_folder
from milepost.measure.results import provenance
from milepost.rope import RopeSpec


@dataclass(frozen=True)
class Extension(CommandResult):
    """What was done: plain data. ``served`` is what the model served before, ``target`` what it serves now;
    ``factor`` is from ``trained``.

    ``scaling`` and ``unseen`` (pairs that meet angles never trained, at the target) are before and after, by kind of
    layer; ``changed`` are the keys of config.json, old and new. ``losses`` is empty where no text was given;
    ``tuned`` and ``recommendation`` are None where they were not asked for.
    """

    model: str
    out: str
    method: str
    factor: float
    trained: int
    served: int
    target: int
    scaling: dict[str, dict[str, str]]
    unseen: dict[str, dict[str, list[int]]]
    changed: dict[str, list[Any]]
    weights: str
    left_out: tuple[str, ...]
    losses: tuple[dict[str, Any], ...]
    tuned: dict[str, Any] | None
    recommendation: dict[str, Any] | None
    verification: dict[str, Any]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Whether every check of the written folder passed."""
        return bool(self.verification["ok"])

    leading = ("schema", "ok")
    document = staticmethod(report.document)


def extend(
    model: str | Path, *, target_length: int, out: str | Path, method: str = "auto", factor: float | None = None,
    text: str | Path | None = None, tune: int | None = None, tune_length: int | None = None, rate: float = 2e-5,
    seed: int = 0, link: bool = False, resume: bool = False, device: str = "cpu", dtype: str = "float32",
    tell: Callable[[str], None] = lambda text: None,
) -> Extension:  # fmt: skip
    """Write the checkpoint ``model`` for ``target_length`` tokens to the folder ``out``.

    ``method`` auto measures all of them on ``text``. ``factor`` may be more than the target asks for. ``tune`` is a
    number of training steps at ``tune_length`` (by default the target). ``link`` gives the weights a second name
    instead of copying them; ``resume`` goes on with a training that was killed.

    Raises ValueError for bad input and `Refused` (a ValueError) for what can't be extended; neither leaves anything
    behind. Under `accelerate launch` all processes tune, and those but the first end there.
    """
    tuning = check_request(target_length, method, factor, text, tune, tune_length, rate, seed, link, resume)
    check_dtype(dtype)
    check_device(device)
    start = open_source(model, target_length)
    source = start.source
    place = check_out(out, source.folder)
    state = None if tuning is None else processes(device)
    main = state is None or state.is_main_process
    with new_folder(place, resume=resume, main=main) as draft:
        recommendation = measured = before = subject = None
        if text is not None:
            tell(f"reading {text}")
            subject = load(source.folder, device=device, dtype=dtype)
        if method == "auto":
            assert subject is not None
            resumed = draft.plan if resume else None
            method, factor, recommendation = choose_method(source, subject, target_length, text, resumed, tell)
        plan = plan_extension(start, method, factor)
        names = source.others if link else (*source.weights, *source.others)
        room = 0 if tuning is None else room_to_tune(source, draft.training, has_peft())
        check_room(place, room + sum((source.folder / name).stat().st_size for name in names))
        if subject is not None:
            measured = ExtensionLosses(subject, plan, text, tuning, recommendation is not None)
        about = _about(source, plan, tuning, measured, dtype, 1 if state is None else state.num_processes)
        tuned, work = None, draft.files
        if main:
            if tuning is not None:
                draft.check_plan(about, resume, tell)
            write_files(source, plan.config, target_length, work, tell)
            if measured is not None and subject is not None:
                tell(f"measuring the loss before, at {plan.trained} and {target_length} tokens")
                before = measured.measure(subject)
        subject = None  # one model at a time
        if tuning is None:
            write_weights(source, work, link=link, tell=tell)
        else:
            assert state is not None and measured is not None
            state.wait_for_everyone()
            tuned = tune_weights(
                source, work, measured.training, tuning, device=device, state=draft.training, tell=tell
            )
            tuned |= {"text": measured.trained_on.describe(), "measured_on": measured.text.describe()}
            if not main:
                raise SystemExit(0)
        checked = verify(work, device=device, dtype=dtype, tell=tell)
        losses = []
        if measured is not None and before is not None:
            tell(f"measuring the loss after, at {plan.trained} and {target_length} tokens")
            losses = measured.compare(before, measured.measure(load(work, device=device, dtype=dtype)))
        done = Extension(
            model=source.name, out=str(place), method=plan.method, factor=plan.factor, trained=plan.trained,
            served=plan.served, target=target_length, unseen=plan.unseen(),
            scaling={"before": _scalings(plan.before), "after": _scalings(plan.after)},
            changed={key: list(both) for key, both in plan.changed.items()},
            weights="tuned" if tuning else "linked" if link else "copied", left_out=source.left_out,
            losses=tuple(losses), tuned=tuned, recommendation=recommendation,
            verification=replace(checked, model=str(place), notes=()).to_json(),  # the plan has given the notes
            notes=plan.notes, provenance=provenance(what="extend", **about),
        )  # fmt: skip
        _write_report(done, source, plan, work)
    return done


def _scalings(spec: RopeSpec) -> dict[str, str]:
    """The base and the scaling of each kind of layer."""
    return {
        kind: "no rotation" if rope is None
        else f"base {rope.base:.10g}, {'no scaling' if rope.scaling is None else repr(rope.scaling)}"
        for kind, rope in spec.kinds
    }  # fmt: skip


def _about(
    source: SourceFiles, plan: ExtensionPlan, tuning: Tuning | None, measured: ExtensionLosses | None, dtype: str,
    processes: int,
) -> dict[str, Any]:  # fmt: skip
    """What was asked of which files: a training is resumed only where this is the same."""
    return {
        "source": {"name": source.name, "config_sha256": source.digest, "weights": source.sizes},
        "method": plan.method, "factor": plan.factor, "trained": plan.trained, "target": plan.target, "dtype": dtype,
        "text": None if measured is None else measured.text.describe(),
        "tuning": None if tuning is None else {**asdict(tuning), "lora": has_peft(), "processes": processes},
    }  # fmt: skip


def _write_report(done: Extension, source: SourceFiles, plan: ExtensionPlan, work: Path) -> None:
    """The sidecar and the report."""
    sidecar = {
        "schema": done.schema, "what": "milepost extend", "method": plan.method, "factor": plan.factor,
        "trained": plan.trained, "from": plan.served, "to": plan.target,
        "source": {"name": source.name, "config_sha256": source.digest}, "original": plan.original,
        "weights": done.weights, "tuned": done.tuned, "losses": list(done.losses), "verified": done.ok,
        "provenance": done.provenance,
    }  # fmt: skip
    write_sidecar(work, sidecar)
    fill(work / "milepost", "extension", (data := done.to_json()), report.document(data))
