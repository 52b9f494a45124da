"""Kills: commands that write are killed (SIGKILL) at a random moment, resumed, and compared with an unbroken run.

    python -m tools.attack.kills --kills 60 --seed 0
    python -m tools.attack.kills --kills 60 --seed 0 --first 60    # the next 60

Each run is a fork of this process, which has imported everything, so that a kill takes a second or two. What is
compared is every byte of the weights and configs that were written; what else may be there is checked too: the source
is as it was, and nothing is left beside OUT. A second kill may come while the first is resumed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from milepost.measure.folder import check_out
from tools.attack.seeds import checkpoint

Command = Callable[[Path, Path, bool], Any]
"""(the folder of sources, OUT, resume)."""
TUNED = {"target_length": 32, "method": "yarn", "tune": 4, "rate": 3e-3}


def extend(home: Path, out: Path, resume: bool) -> Any:
    from milepost.checkpoints import extend as run

    return run(home / "llama", out=out, text=home / "book.npy", resume=resume, **TUNED)  # type: ignore[arg-type]


def migrate(home: Path, out: Path, resume: bool) -> Any:
    from milepost.checkpoints import migrate as run

    return run(home / "gpt2", to="rope", text=home / "book.npy", out=out, steps=4, batch=1, resume=resume)


def resize(home: Path, out: Path, resume: bool) -> Any:
    from milepost.checkpoints.resizing.resize import resize as run

    return run(home / "bert", length=48, out=out)


def convert_layout(home: Path, out: Path, resume: bool) -> Any:
    from milepost.checkpoints import convert_layout as run

    return run(home / "llama", "interleaved", out)


def lab(home: Path, out: Path, resume: bool) -> Any:
    """The lab with its trial in the driver's own process, so that a kill meets it in the middle of a step or a file."""
    from milepost.lab.sweep import distributed, processes

    processes.run_all = lambda plan, todo, out, workers, tell: distributed.run_all(plan, todo, out, tell)  # type: ignore
    return lab_with_workers(home, out, resume)


def lab_with_workers(home: Path, out: Path, resume: bool) -> Any:
    from dataclasses import replace

    from milepost.lab import plan
    from milepost.lab.sweep import sweep

    about = {"strategy_names": (), "seeds": [0], "lengths": "1x,2x", "text": str(home / "texts")}
    made = plan.make("tiny", encodings=["rope"], **about)  # type: ignore[arg-type]
    return sweep(replace(made, steps=8, windows=4), out, resume=resume and (out / "plan.json").exists(), workers=1)


COMMANDS: dict[str, tuple[Command, int]] = {
    "extend": (extend, 7), "migrate": (migrate, 6), "resize": (resize, 6), "convert_layout": (convert_layout, 6),
    "lab": (lab, 5), "lab_with_workers": (lab_with_workers, 1),
}  # fmt: skip
"""Each command, and its share of the kills."""


def prepare(home: Path) -> None:
    """Tiny sources, a text of tokens, and texts for the lab, whose own text is the whole standard library."""
    from transformers import BertConfig, BertModel

    checkpoint(home / "llama", "llama", max_position_embeddings=16, attention_dropout=0.1)
    checkpoint(home / "gpt2", "gpt2")
    sizes = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(**sizes, intermediate_size=32, max_position_embeddings=24)).save_pretrained(home / "bert")
    rng = np.random.default_rng(0)
    np.save(home / "book.npy", 3 + np.cumsum(rng.integers(0, 4, 6000)) % 50)
    (home / "texts").mkdir()
    for number in range(20):
        words = " ".join(map(str, np.cumsum(rng.integers(0, 4, 1000)) % 50))
        (home / "texts" / f"{number}.txt").write_text(words)


def digest(folder: Path) -> dict[str, str]:
    """What must be the same: weights and configs of a checkpoint, or the runs of a lab, without times and dates."""
    if (folder / "results.json").exists():
        runs = json.loads((folder / "results.json").read_text())["runs"]
        timed = ("train_tokens_per_s", "tokens_per_s", "peak_mb", "folder")
        kept = [{key: value for key, value in run.items() if key not in timed} for run in runs]
        models = {str(f.parent.name): f for f in sorted(folder.rglob("model.safetensors"))}
        return {"runs": json.dumps(kept, sort_keys=True), **{name: _sha(file) for name, file in models.items()}}
    files = [*folder.glob("*.safetensors"), folder / "config.json"]
    return {file.name: _sha(file) for file in files}


def _sha(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def fork(command: Command, home: Path, out: Path, resume: bool, log: Path) -> int:
    """Start a command in a process group of its own; the process's number."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    code = 0
    try:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                command(home, out, resume)
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)


def wait(child: int, seconds: float) -> int | None:
    """The exit code of a child, or None where it still runs after so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def kill(child: int) -> None:
    """Kill a child and what it started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def whole(command: Command, home: Path, out: Path, log: Path, resume: bool) -> None:
    """A run to its end; an error with its words where it fails."""
    child = fork(command, home, out, resume, log)
    code = wait(child, 300)
    if code is None:
        kill(child)
    if code != 0:
        raise AssertionError(f"it ended with {code}: {log.read_text()[-400:]}")


def resumable(out: Path) -> bool:
    """Whether --resume is what a user would say: a training is there."""
    return (out / "plan.json").exists() or any(out.parent.glob(f".{out.name}.unfinished/state/checkpoint-*"))


def attack(name: str, home: Path, right: dict[str, str], seconds: float, rng: random.Random) -> int:
    """One kill, perhaps a second, and a run to the end; an AssertionError is a finding.

    How many of them met a run that had not ended.
    """
    command, met = COMMANDS[name][0], 0
    before = {str(file): _sha(file) for file in sorted(home.rglob("*")) if file.is_file()}
    with tempfile.TemporaryDirectory(prefix="milepost-kill-") as folder:
        out, log = Path(folder) / "out", Path(folder) / "log"
        for _ in range(rng.choice((1, 1, 2))):
            child = fork(command, home, out, resumable(out), log)
            if wait(child, rng.uniform(0, 1.1 * seconds)) is None:
                kill(child)
                met += 1
            if not name.startswith("lab") and out.exists():
                break  # it was quicker than the kill
        if not out.exists() or name.startswith("lab"):
            whole(command, home, out, log, resumable(out))
        assert digest(out) == right, "the resumed run ends with other bits than the unbroken one"
        if not name.startswith("lab"):  # who asks for the same OUT again is refused, and what a kill left is cleared
            with suppress(ValueError):
                check_out(out)
        left = [file.name for file in Path(folder).iterdir() if file.name not in ("out", "log")]
        assert not left, f"left behind: {left}"
    after = {str(file): _sha(file) for file in sorted(home.rglob("*")) if file.is_file()}
    assert before == after, "the source was changed"
    return met


def run(
    kills: int, seed: int = 0, seconds: float = 1e9, only: tuple[str, ...] = tuple(COMMANDS), first: int = 0
) -> dict[str, Any]:
    """So many kills, from the one numbered ``first`` on, shared among the commands."""
    import torch

    import milepost.checkpoints
    import milepost.lab.sweep
    import milepost.lab.text_trial  # noqa: F401

    torch.set_num_threads(1)
    began, done, met, findings = time.monotonic(), dict.fromkeys(only, 0), 0, []
    with tempfile.TemporaryDirectory(prefix="milepost-kills-") as folder:
        home = Path(folder) / "home"
        prepare(home)
        right, lasts = {}, {}
        for name in only:
            for attempt in ("a", "b"):  # an unbroken run must be the same each time
                clock, out = time.monotonic(), Path(folder) / f"{name}-{attempt}"
                if attempt == "a" and not name.startswith("lab"):  # here, so that forks have what it imports
                    COMMANDS[name][0](home, out, False)
                else:
                    whole(COMMANDS[name][0], home, out, Path(folder) / "log", False)
                made, lasts[name] = digest(out), time.monotonic() - clock
                if right.setdefault(name, made) != made:
                    findings.append({"target": f"kill {name}", "what": "two unbroken runs differ"})
        shares = [name for name in only for _ in range(COMMANDS[name][1])]
        random.Random(seed).shuffle(shares)
        for number in range(first, first + kills):
            if time.monotonic() - began > seconds:
                break
            name = shares[number % len(shares)]
            rng = random.Random(f"kill {seed} {number}")
            try:
                met += attack(name, home, right[name], lasts[name], rng)
            except AssertionError as error:
                findings.append({"target": f"kill {name}", "seed": seed, "input": number, "what": str(error)[:400]})
            done[name] += 1
    return {"target": "kills", "inputs": sum(done.values()), "kills": done, "met a run": met, "findings": findings,
            "seconds": round(time.monotonic() - began, 1)}  # fmt: skip


def main() -> None:
    """Kills from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--only", default=",".join(COMMANDS))
    asked = parser.parse_args()
    found = run(asked.kills, asked.seed, asked.seconds, tuple(asked.only.split(",")), asked.first)
    print(json.dumps(found))
    sys.exit(bool(found["findings"]))


if __name__ == "__main__":
    main()
