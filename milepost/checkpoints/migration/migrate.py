"""migrate: a model with learned positions becomes one with RoPE, ALiBi, none, or a longer table, in a folder that
other tools load.

    done = migrate("path/to/gpt2", to="rope", text="mine.txt", steps=500, out="turned")
    done.ok, done.recovered, done.share

1 replace      the positions are taken out, and the weights put into an architecture that has the others: `swap`,
proved by `proof` 2 recover      tuned at a low rate, on one half of the text; with ``anneal`` the old positions fade
while the new come in: `fade` 3 fine-tune    over the last fifth of the steps the rate falls to 0 4 serve        loss
by position and past the old end, with PI and NTK where the model turns: `losses`; `milepost extend` writes them

The source is only read. The new folder appears when it is finished. A run that is killed goes on with ``resume``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from milepost.checkpoints.files import INDEX, write_sidecar, write_weights
from milepost.checkpoints.migration import report
from milepost.checkpoints.migration.fade import changes_while_tuned
from milepost.checkpoints.migration.folder import save, write_rest
from milepost.checkpoints.migration.losses import ENOUGH, MigrationLosses
from milepost.checkpoints.migration.source import Origin, check_length, open_origin
from milepost.checkpoints.migration.swap import choose_table, notes, prove_swap, swap
from milepost.checkpoints.model.hf_load import check_device
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.tune import Tuning, processes, room_to_tune, tune
from milepost.checkpoints.result import CommandResult
from milepost.checkpoints.verification.verify import verify
from milepost.draw import fill
from milepost.measure.folder import check_out, check_room, new_folder
from milepost.measure.results import provenance, write_json
from milepost.rope import ConfigError
from milepost.rope.config.files import load as read_json

FINE = 5
"""The last one in so many steps is of fine-tuning."""


@dataclass(frozen=True)
class Migration(CommandResult):
    """What was done: plain data. ``old`` is the length that the source reads, or was trained for; ``length`` what the
    new model was tuned for.

    ``by_position`` and ``inside`` (the old length) hold the loss before, swapped and recovered; ``share`` is how much
    of it was recovered, None where the swap lost nothing or nothing was tuned. ``past`` are the same last tokens with
    the old length and with twice that; ``methods`` the ways to a longer table. ``retrieval``, of a model whose
    positions are dropped: how often a needle is found, before, swapped and recovered.
    """

    model: str
    out: str
    family: str
    architecture: str
    to: str
    old: int
    ended: bool
    length: int
    inside: dict[str, Any]
    share: dict[str, Any] | None
    by_position: tuple[dict[str, Any], ...]
    past: tuple[dict[str, Any], ...]
    methods: tuple[dict[str, Any], ...]
    retrieval: dict[str, Any] | None
    proofs: tuple[dict[str, Any], ...]
    anneal: int
    tuned: dict[str, Any] | None
    verification: dict[str, Any]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Whether every proof and every check of the written folder passed."""
        return bool(self.verification["ok"]) and all(proof["verdict"] != "FAIL" for proof in self.proofs)

    @property
    def recovered(self) -> bool | None:
        """Whether at least nine tenths of the loss was recovered, by the whole interval;

        None where it straddles that, or there is no share.
        """
        if self.share is None or self.share["low"] < ENOUGH <= self.share["high"]:
            return None
        return bool(self.share["low"] >= ENOUGH)

    leading = ("schema", "ok", "recovered")
    document = staticmethod(report.document)


def migrate(
    model: str | Path, *, to: str, text: str | Path, out: str | Path, steps: int, length: int | None = None,
    rate: float = 1e-4, batch: int = 8, anneal: bool = False, seed: int = 0, resume: bool = False, device: str = "cpu",
    tell: Callable[[str], None] = lambda text: None,
) -> Migration:  # fmt: skip
    """Move ``model`` to other positions, tune it for ``steps`` on ``batch`` windows of ``text`` each, and write it to
    ``out``.

    ``length`` is what the new model is tuned for: by default the old length, or twice that for a longer table.
    ``steps`` may be 0: then only the positions are replaced. Raises ValueError for bad input and ProofError where a
    proof fails; neither leaves anything behind. Under `accelerate launch` all processes tune, and those but the first
    end there.
    """
    check_device(device)
    if steps < 0 or (steps == 0 and (resume or anneal)):
        raise ConfigError(
            f"steps are a number from 0 on, and --resume and --anneal are for a model that is tuned; got {steps} steps"
        )
    origin = open_origin(model, to, device)
    length = check_length(origin, to, length, anneal)
    fade = max(1, steps // 2) if anneal else 0  # the first half
    tuning = None if steps == 0 else Tuning(steps, length, rate, seed, batch, steps // FINE)
    place = check_out(out, origin.files.folder)
    state = None if tuning is None else processes(device)
    main = state is None or state.is_main_process
    tell(f"reading {text}")
    ends = to == "longer-table" or (to == "nope" and origin.added)
    measured = MigrationLosses(
        origin.loaded, text, tuning, origin.length, length if ends else max(2 * origin.length, length)
    )
    about = _about(origin, to, length, anneal, tuning, measured, 1 if state is None else state.num_processes)
    with new_folder(place, resume=resume, main=main) as draft:
        asked: dict[str, dict[str, Any] | None] = {}
        work, start, swap_file = draft.files, draft.hidden / "start", draft.hidden / "swap.json"
        if main:
            held = sum((origin.files.folder / name).stat().st_size for name in origin.files.others)
            weights = 2 * sum(origin.files.sizes.values())  # the swapped model is kept beside the tuned one
            room = 0 if tuning is None else room_to_tune(origin.files, draft.training, lora=False)
            check_room(place, held + weights + room)
            draft.check_plan(about, resume, tell)
            tell("replacing the positions")
            if to == "longer-table":
                made, methods = choose_table(origin, length, measured, device, tell)
            else:
                made, methods = swap(origin, to, length), []
            checks = prove_swap(origin, made, to, length)
            shutil.rmtree(start, ignore_errors=True)
            swapped = save(made.model, origin.dtype, start)
            write_rest(origin, swapped, length, work, tell)
            write_json(swap_file, {"kept": None if made.table is None else made.kept})  # for the other processes
            tell("measuring the loss before, and right after the swap")
            bare = load(start, device=device)
            stages = {"before": measured.losses(origin.loaded), "swapped": measured.losses(bare)}
            if to == "nope":
                tell("asking for needles before, and right after the swap")
                asked = {
                    "before": measured.retrieval(origin.loaded, device),
                    "swapped": measured.retrieval(bare, device),
                }
        tuned = None
        if tuning is None:
            write_weights(swapped, work, link=False, tell=tell)
            if (start / INDEX).is_file():
                shutil.copyfile(start / INDEX, work / INDEX)
        else:
            assert state is not None
            state.wait_for_everyone()
            changes = changes_while_tuned(
                origin.table() if origin.added else None, to, read_json(swap_file)["kept"], fade
            )
            tuned = tune(
                replace(origin.files, folder=start), work, measured.training, tuning, device=device,
                state=draft.training, tell=tell, lora=False, around=changes,
            )  # fmt: skip
            tuned |= {"text": measured.trained_on.describe(), "measured_on": measured.text.describe()}
            if not main:
                raise SystemExit(0)
        subject = load(work, device=device)
        if tuning is not None:
            tell("measuring the loss after recovery")
            stages["recovered"] = measured.losses(subject)
            if to == "nope":
                asked["recovered"] = measured.retrieval(subject, device)
        past = measured.past(subject)
        checked = replace(verify(work, device=device, tell=tell), model=str(place), notes=())
        done = Migration(
            model=origin.files.name, out=str(place), family=origin.family, architecture=type(made.model).__name__,
            to=to, old=origin.length, ended=origin.ends, length=length, inside=measured.inside(stages),
            share=measured.share(stages), by_position=tuple(measured.by_position(stages)), past=tuple(past),
            methods=tuple(methods),
            retrieval=asked if any(asked.values()) else None, proofs=tuple(check.to_json() for check in checks),
            anneal=fade, tuned=tuned,
            verification=checked.to_json(), left_out=origin.files.left_out, notes=tuple(notes(origin, to, length)),
            provenance=provenance(what="migrate", **about),
        )  # fmt: skip
        _write_report(done, work)
    return done


def _about(
    origin: Origin, to: str, length: int, anneal: bool, tuning: Tuning | None, measured: MigrationLosses, processes: int
) -> dict[str, Any]:
    """What was asked of which files: a migration goes on only where this is the same."""
    return {
        "source": {"name": origin.files.name, "config_sha256": origin.files.digest, "weights": origin.files.sizes},
        "to": to,
        "old": origin.length,
        "length": length,
        "anneal": anneal,
        "text": measured.text.describe(),
        "tuning": None if tuning is None else {**asdict(tuning), "processes": processes},
    }


def _write_report(done: Migration, work: Path) -> None:
    """The sidecar and the report."""
    sidecar = {
        "schema": done.schema, "what": "milepost migrate", "to": done.to,
        "source": done.provenance["protocol"]["source"], "old": done.old, "length": done.length,
        "architecture": done.architecture, "tuned": done.tuned,
        "share": done.share, "recovered": done.recovered, "verified": done.ok, "notes": list(done.notes),
        "provenance": done.provenance,
    }  # fmt: skip
    write_sidecar(work, sidecar)
    fill(work / "milepost", "migration", (data := done.to_json()), report.document(data))
