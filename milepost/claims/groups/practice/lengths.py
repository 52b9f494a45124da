"""Past the trained length: what small models lose there, and where they look.

A longer context counts as read where the same tokens are lost by at most 2% more than with the trained length (as `recommend` counts), and as broken
where by more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from milepost.checkpoints.recommendation.recommend import HURTS
from milepost.claims.claim import Claim, Figure, Found, collected, points
from milepost.claims.groups.absolute.sinusoids import WIDTH
from milepost.claims.needs import Need
from milepost.claims.rule import Number, control, core
from milepost.claims.seeds import Run, both, losses, rise
from milepost.claims.trained import Lab
from milepost.claims.world import FAR
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.lab import corpus
from milepost.lab.measure import Texts
from milepost.lab.model import Decoder
from milepost.layout import Layout
from milepost.measure.intervals import mean
from milepost.measure.losses import same_targets

SIN, ROPE = Need("text", ("sinusoidal",)), Need("text", ("rope",))
ROPE_ITSELF, SIN_ITSELF = (Need("text", (name,), weights=True) for name in ("rope", "sinusoidal"))
NOTED = (4096, 4100, 4500)
"""The notes' example: a trained length, and two places past it."""


def by_length(title: str, lines: dict[str, list[Run]]) -> Figure:
    """Mean loss over seeds against length."""
    known = sorted({int(n) for runs in lines.values() for run in runs for n in run["loss_by_window"]})
    drawn = {
        name: [
            float(losses(runs, n).mean()) if all(str(n) in run["loss_by_window"] for run in runs) else None
            for n in known
        ]
        for name, runs in lines.items()
    }
    return Figure("lines", title, "tokens of context", "loss, nats a token", known, drawn, log_x=True)


def rises(runs: list[Run]) -> dict[str, Number]:
    """The rise of the loss at 2 and at 8 times the trained length."""
    trained = runs[0]["trained_length"]
    return {f"{times} times": rise(runs, times * trained, trained) for times in (2, 8)}


def farther(
    lab: Lab,
    models: Sequence[Decoder],
    times: int,
    windows: int,
    served: Callable[[Decoder], Decoder] = lambda model: model,
) -> Number:
    """The rise of the loss at so many times the trained length, farther than the sweep tests; ``served`` sets a model for that length."""
    plan, home = lab.plans["text"], lab.plans["text"].shape.length
    text = corpus.read(plan.text, plan.tokenizer, longest=times * home, trained=home)
    texts = Texts.of(replace(plan, lengths=(home, times * home), windows=windows), text)
    by_model = []
    for model in models:
        before = same_targets(model, texts.windows, home, plan.targets).mean(1)
        by_model.append(
            (same_targets(served(model), texts.windows, times * home, plan.targets).mean(1) - before) / before.mean()
        )
    lost = np.array(by_model)
    one = mean(lost.mean(0)[:, None], texts.files)
    return both([float(v) for v in lost.mean(1)], one.low, one.high, f"{len(set(texts.files.tolist()))} files")


def any_length_found() -> Found:
    """Codes at positions up to 1,048,575: are all of them numbers?"""
    pos = torch.cat([torch.arange(0, FAR, 1001), torch.tensor([FAR])])
    return Found({"represented": float(torch.isfinite(Sinusoidal(WIDTH).code(pos)).all(-1).double().mean())})


def sinusoidal_found(lab: Lab) -> Found:
    """The length sweep of sinusoidal codes."""
    runs = lab.runs(SIN, "sinusoidal")
    numbers = rises(runs) | collected(
        {"16 times": lambda: farther(lab, lab.models(SIN_ITSELF, "sinusoidal"), 16, lab.plans["text"].windows)}
    )
    return Found(numbers, (by_length("Loss of the same tokens", {"sinusoidal": runs}),), lab.source(SIN))


def breaks_found(lab: Lab) -> Found:
    """The length sweep of rope."""
    runs = lab.runs(ROPE, "rope")
    return Found(rises(runs), (by_length("Loss of the same tokens", {"rope": runs}),), lab.source(ROPE))


def in_range_found(lab: Lab) -> Found:
    """The same models with a window of the trained length, in which no distance is new."""
    models, plan = lab.models(ROPE_ITSELF, "rope"), lab.plans["text"]
    texts, trained = Texts.of(plan, plan.read()), plan.shape.length
    lost: dict[str, list[np.ndarray]] = {"home": [], "whole": [], "window": []}
    for model in models:

        def windowed(ids: Tensor, model: torch.nn.Module = model) -> Tensor:
            logits: Tensor = model(ids, Layout.dense(ids.shape[1], window=trained))
            return logits

        for name, reader, length in (
            ("home", model, trained),
            ("whole", model, 8 * trained),
            ("window", windowed, 8 * trained),
        ):
            lost[name].append(same_targets(reader, texts.windows, length, plan.targets).mean(1))
    home = float(np.mean(lost["home"]))
    numbers = {}
    for name in ("whole", "window"):
        change = (np.array(lost[name]) - np.array(lost["home"])) / home
        one = mean(change.mean(0)[:, None], texts.files)
        numbers[name] = both(
            [float(v) for v in change.mean(1)], one.low, one.high, f"{len(set(texts.files.tolist()))} files"
        )
    shown = {"whole text": numbers["whole"], "window of the trained length": numbers["window"]}
    return Found(
        numbers,
        (points("Loss at 8 times the trained length, against the trained length", "rise, as a share", shown, HURTS),),
    )


def far_random_found(lab: Lab) -> Found:
    """Trained queries and keys set at two distances past the trained length, and at two as far from each other inside it."""
    plan = lab.plans["text"]
    trained = plan.shape.length
    windows = torch.from_numpy(Texts.of(plan, plan.read()).windows[:, :trained])
    first, second = (max(trained + n, round(trained * place / NOTED[0])) for n, place in enumerate(NOTED[1:]))
    apart, inside = second - first, trained // 2
    by_model = []
    for model in lab.models(ROPE_ITSELF, "rope"):
        with torch.no_grad():
            pos, back = Layout.dense(trained).pos, []
            for q, k, enc in model.looks(windows):
                plain_q, plain_k = (enc.turn(x.double(), -pos) for x in (q, k))  # type: ignore[operator]

                def at(
                    distance: int, last: Tensor = plain_q[..., -1:, :], k: Tensor = plain_k, enc: torch.nn.Module = enc
                ) -> Tensor:
                    turned: Tensor = enc.turn(k, torch.full((1, k.shape[2]), -distance))  # type: ignore[operator]
                    return (last * turned).sum(-1)

                far, near = (((at(d) - at(d + apart)) ** 2).mean((1, 2)) for d in (first, inside))
                back.append((far / near).sqrt())
            by_model.append(torch.stack(back).mean(0).numpy())
    ratios = np.array(by_model)
    one = mean(ratios.mean(0)[:, None], np.arange(ratios.shape[1]))
    ratio = both([float(v) for v in ratios.mean(1)], one.low, one.high, f"{ratios.shape[1]} texts")
    note = f"distances {first} and {second} against {inside} and {inside + apart}, for models trained at {trained}"
    figure = points(
        "How far two distances part a key's scores, past the trained length over inside",
        "ratio",
        {f"{first} and {second}": ratio},
        0.5,
    )
    return Found({"told apart": ratio}, (figure,), (note,))


CLAIMS = (
    Claim(
        "sin-extrapolates",
        'Sinusoidal codes "can represent any length", yet extrapolate badly.',
        "正弦编码“理论上可表示任意长度”，但外推效果差。",
        "001 §3.2, 002 §1",
        "Codes at positions up to 1,048,575; small models trained with sinusoidal codes, tested on the same tokens at up to 16 times the trained length.",
        (
            core("represented", "at least", 1.0, "the share of positions up to 1,048,575 that have a code"),
            core("2 times", "at least", HURTS, "the rise of the loss at 2 times the trained length, as a share,"),
            core("8 times", "at least", HURTS, "the rise of the loss at 8 times, as a share,"),
            core("16 times", "at least", HURTS, "the rise of the loss at 16 times, as a share,"),
        ),
        exact=any_length_found,
        trained=sinusoidal_found,
        needs=(SIN, SIN_ITSELF),
    ),
    Claim(
        "rope-breaks",
        "RoPE fails past its trained length.",
        "RoPE 超过训练长度后会失效。",
        "002",
        "Small models trained with rope, tested on the same tokens at up to 8 times the trained length.",
        (
            core("2 times", "at least", HURTS, "the rise of the loss at 2 times the trained length, as a share,"),
            core("8 times", "at least", HURTS, "the rise of the loss at 8 times, as a share,"),
        ),
        trained=breaks_found,
        needs=(ROPE,),
    ),
    Claim(
        "rope-in-range",
        "RoPE stays fine past the trained length as long as distances stay in range.",
        "只要相对距离仍在训练范围内，RoPE 在更长的序列上依然有效。",
        "002 §2",
        "Small models trained with rope read 8 times the trained length, whole and through a sliding window of the trained length.",
        (
            control("whole", "at least", HURTS, "the rise of the loss at 8 times without a window, as a share,"),
            core(
                "window",
                "at most",
                HURTS,
                "the rise of the loss at 8 times with a window of the trained length, as a share,",
            ),
        ),
        trained=in_range_found,
        needs=(ROPE_ITSELF,),
    ),
    Claim(
        "rope-far-random",
        "Past the trained length, keys at 4100 and 4500 can't be told apart.",
        "超过训练长度后，模型无法区分位置 4100 和 4500 的键。",
        "002 §二",
        "Trained queries and keys of small models: how much the score of one key changes between two distances past the trained length (scaled from "
        "4096, 4100 and 4500), over the change between two distances as far apart at half the trained length.",
        (core("told apart", "at most", 0.5, "the change of scores past the trained length over that inside it"),),
        trained=far_random_found,
        needs=(ROPE_ITSELF,),
    ),
)
