"""Trial: one model trained and measured, as plain data.

    loss_by_length      the same last tokens under growing context (see diagnose/losses), for each strategy with a setting that fits each length
    fixed               the same with the one setting that the longest length needs: what short texts pay for it
    loss_by_position    one long pass; for encodings that depend on the length, a pass for each bucket
    disjoint, sliding   the two other protocols

Lengths past a table's end are kept as such, not as a crash.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from milepost.diagnose.attention import statistics, to_rows
from milepost.diagnose.intervals import Mean, mean
from milepost.diagnose.losses import buckets, by_position, disjoint, same_targets, sliding
from milepost.lab import corpus, saved, strategies, tasks
from milepost.lab.model import Decoder
from milepost.lab.plan import Plan, Trial
from milepost.lab.train import Diverged, Recipe, from_text, train

Numbers = np.ndarray[Any, Any]
Tell = Callable[[dict[str, Any]], None]
LOOKED_AT = 8
"""Windows that statistics of attention are made of."""


def run(plan: Plan, trial: Trial, folder: Path, tell: Tell = lambda news: None) -> dict[str, Any]:
    """Train and measure. What it returns is all that a report needs; the model stays in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    base = {"encoding": trial.encoding, "seed": trial.seed, "data": trial.data, "trained_length": plan.shape.length, "folder": trial.key}
    model = Decoder(plan.shape, trial.encoding).start(trial.seed)
    try:
        if trial.data == "text":
            text = corpus.read(plan.text, plan.tokenizer, longest=max(plan.lengths))
            if text.vocabulary > plan.shape.vocabulary:
                raise ValueError(f"the tokenizer has {text.vocabulary} tokens, and the model {plan.shape.vocabulary}")
            learned = _train(plan, trial, model, text.train, folder, tell)
            runs = _on_text(plan, trial, model, text, folder, tell)
        else:
            learned = tasks.train(plan, trial, model, folder, tell)
            runs = [{"strategy": "none", "tasks": {trial.data: tasks.score(plan, trial, model)}}]
    except Diverged as error:
        return {"trial": base, "runs": [{**base, "strategy": "none", "failed": str(error)}]}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cost = {"parameters": model.count(), "train_tokens": learned["tokens"], "train_tokens_per_s": learned["tokens_per_s"], "peak_mb": peak}
    curve = [round(v, 5) for v in learned["losses"][:: max(1, len(learned["losses"]) // 100)]]
    (folder / "state.pt").unlink(missing_ok=True)
    return {"trial": base, "runs": [{**base, **cost, "train_loss": curve, **one} for one in runs]}


def _train(plan: Plan, trial: Trial, model: Decoder, row: Numbers, folder: Path, tell: Tell) -> dict[str, Any]:
    recipe = Recipe(plan.steps, plan.rows, plan.shape.length, seed=trial.seed)

    def told(step: int, loss: float, speed: float) -> None:
        tell({"step": step, "of": plan.steps, "loss": loss, "tokens_per_s": speed})

    done = train(model, from_text(row, recipe), recipe, state=folder / "state.pt", tell=told)
    saved.save(model, folder, seed=trial.seed, steps=plan.steps)
    return done


def _on_text(plan: Plan, trial: Trial, model: Decoder, text: corpus.Corpus, folder: Path, tell: Tell) -> list[dict[str, Any]]:
    cut = corpus.windows(text.test, max(plan.lengths), plan.windows)
    files, windows = np.array([number for number, _ in cut]), np.stack([tokens for _, tokens in cut])
    names = plan.strategies if strategies.applies(trial.encoding, plan.shape) else ("none",)
    done = []
    for name in names:
        tell({"measuring": name})
        done.append({"strategy": name, **_measured(plan, trial, model, name, windows, files, text)})
        if plan.tune and name != "none":
            tell({"tuning": name})
            done.append({"strategy": f"{name} tuned", **_tuned(plan, trial, model, name, windows, files, text, folder)})
    return done


def _measured(plan: Plan, trial: Trial, model: Decoder, strategy: str, windows: Numbers, files: Numbers, text: corpus.Corpus) -> dict[str, Any]:
    longest, rows = max(plan.lengths), []
    fixed: list[dict[str, Any]] = []
    held: dict[str, list[float]] = {}
    for length in plan.lengths:
        lost = _try(same_targets, _at(model, trial, strategy, plan, length), windows, length, plan.targets)
        rows.append(_row(length, lost, files, text))
        if not isinstance(lost, str):
            held[str(length)] = [round(float(v), 6) for v in lost.mean(1)]
        if strategy != "none":
            lost = _try(same_targets, _at(model, trial, strategy, plan, longest), windows, length, plan.targets)
            fixed.append(_row(length, lost, files, text))
    reader = _at(model, trial, strategy, plan, longest)
    end = reader.encodings[0].end
    far = longest if end is None else min(longest, end)
    edges = buckets(far, plan.shape.length)
    by_place = by_position(reader, windows, edges, length_dependent=reader.length_dependent)
    places = [{"start": a, "end": e, **_mean(mean(lost, files))} for (a, e), lost in zip(edges, by_place, strict=True)]
    result: dict[str, Any] = {
        "loss_by_length": rows,
        "loss_by_position": places,
        "loss_by_window": held,
        "window_files": files.tolist(),
        "targets": plan.targets,
    }
    if fixed:
        result["fixed"] = fixed
    if strategy == "none":
        result["attention"] = [{"length": n, "heads": _attention(reader, windows, n)} for n in sorted({plan.shape.length, far})]
        result["disjoint"], result["sliding"] = _other_protocols(plan, reader, windows, files, text)
    return result


def _attention(model: Decoder, windows: Numbers, length: int) -> list[dict[str, Any]]:
    """How far each head looks in texts of this length, over a few windows."""
    with torch.no_grad():
        layers = model.looks(torch.from_numpy(windows[:LOOKED_AT, :length]))
        return to_rows([head for layer, (q, k, enc) in enumerate(layers) for head in statistics(q, k, enc, layer)])


def _other_protocols(plan: Plan, model: Decoder, windows: Numbers, files: Numbers, text: corpus.Corpus) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    apart, over = [], []
    for length in plan.lengths:
        lost = _try(_each, disjoint, model, windows, length)
        apart.append(_row(length, lost, files, text))
        lost = _try(_each, sliding, model, windows, length, max(1, length // 2))
        over.append({**_row(length, lost, files, text), "stride": max(1, length // 2)})
    return apart, over


def _at(model: Decoder, trial: Trial, strategy: str, plan: Plan, length: int) -> Decoder:
    if strategy == "none":
        return model
    return model.with_encoding(strategies.served(trial.encoding, strategy, plan.shape, length)).eval()


def _tuned(plan: Plan, trial: Trial, model: Decoder, strategy: str, windows: Numbers, files: Numbers, text: corpus.Corpus, folder: Path) -> dict[str, Any]:
    """The strategy's setting for the longest length, trained for some steps at that length."""
    longest = max(plan.lengths)
    reader = model.with_encoding(strategies.served(trial.encoding, strategy, plan.shape, longest))
    rows = max(1, plan.rows * plan.shape.length // longest)
    recipe = Recipe(plan.tune, rows, longest, rate=3e-4, seed=trial.seed)
    train(reader, from_text(text.train, recipe), recipe, state=folder / f"tune-{strategy}.pt")
    (folder / f"tune-{strategy}.pt").unlink(missing_ok=True)
    found = [_row(n, _try(same_targets, reader, windows, n, plan.targets), files, text) for n in plan.lengths]
    return {"loss_by_length": found, "loss_by_position": [], "tuned_steps": plan.tune, "targets": plan.targets}


def _each(protocol: Callable[..., Numbers], model: Decoder, windows: Numbers, *how: int) -> Numbers:
    """A protocol on each window as a text of its own (windows x tokens)."""
    return np.stack([protocol(model, window, *how).reshape(-1) for window in windows])


def _try(measure: Callable[..., Numbers], *given: Any) -> Numbers | str:
    """The losses, or the sentence of an encoding that ends before this length."""
    try:
        return measure(*given)
    except ValueError as error:
        if "past the end" not in str(error):
            raise
        return "table ends"


def _row(length: int, lost: Numbers | str, files: Numbers, text: corpus.Corpus) -> dict[str, Any]:
    if isinstance(lost, str):
        return {"length": length, "loss": None, "note": lost}
    return {"length": length, **_mean(mean(lost, files)), "bits_per_byte": float(lost.mean()) / math.log(2) / text.bytes_per_token}


def _mean(found: Mean) -> dict[str, Any]:
    perplexity = math.exp(found.value) if found.value < 700 else None
    return {"loss": found.value, "perplexity": perplexity, "low": found.low, "high": found.high, "tokens": found.tokens}


def threads(count: int) -> None:
    """Use so many threads, and be deterministic."""
    torch.set_num_threads(count)
    torch.use_deterministic_algorithms(True, warn_only=True)
