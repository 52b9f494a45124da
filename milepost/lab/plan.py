"""Plan: what a lab run is to do, as plain data. One size word sets model, lengths and steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from milepost.lab import corpus, strategies
from milepost.lab.compared import comparisons
from milepost.lab.kinds import Tell, Trial
from milepost.lab.model import Decoder, Shape
from milepost.lab.strangers import import_named
from milepost.spec import nearest

SCHEMA = 1
SHORTEST = 8
"""Tokens: the shortest length to train at, and to ask a task at."""


@dataclass(frozen=True)
class Profile:
    """What a size word means."""

    layers: int
    width: int
    heads: int
    length: int
    steps: int
    rows: int
    windows: int
    seeds: int
    encodings: tuple[str, ...]

    def shape(self) -> Shape:
        """The model of this size, which reads bytes."""
        return Shape(256, self.layers, self.width, self.heads, self.length)


BASIC = ("nope", "sinusoidal", "learned", "t5", "alibi", "rope")


def every(width: int) -> tuple[str, ...]:
    """What the larger profiles compare; a concatenated code takes a quarter of the embedding's channels."""
    concatenated = f'sinusoidal(width={width // 4}, how="concat")'
    codes = ("nope", "integer", "binary", "sinusoidal", concatenated, "learned")
    return (*codes, "shaw", "transformer_xl", "t5", "deberta", "alibi", "rope", "rope + alibi")


USUAL = ("none", "linear", "ntk", "dynamic", "yarn")
PROFILES = {
    "tiny": Profile(1, 32, 2, 16, 20, 8, 12, 1, ("nope", "alibi", "rope")),
    "quick": Profile(2, 96, 4, 64, 300, 32, 48, 1, BASIC),
    "standard": Profile(4, 144, 4, 128, 400, 32, 48, 3, every(144)),
    "full": Profile(8, 384, 6, 512, 5000, 32, 96, 3, every(384)),
}


def find_profile(word: str) -> Profile:
    """What a size word means."""
    if word not in PROFILES:
        raise ValueError(f"unknown profile {word!r}{nearest(word, PROFILES)}; there are {', '.join(PROFILES)}")
    return PROFILES[word]


@dataclass(frozen=True)
class Plan:
    """Everything that decides the numbers of a run. ``threads`` of a trial (they decide the last bits) and ``digest`` of the text are set as it begins."""

    profile: str
    shape: Shape
    steps: int
    rows: int
    lengths: tuple[int, ...]
    windows: int
    seeds: tuple[int, ...]
    encodings: tuple[str, ...]
    strategies: tuple[str, ...] = USUAL
    tune: int = 0
    tasks: tuple[str, ...] = ()
    text: str | None = None
    tokenizer: str = "bytes"
    threads: int = 1
    digest: str = ""
    schema: int = field(default=SCHEMA)
    reads: ClassVar[str] = "text"

    @property
    def longest(self) -> int:
        """The longest text that is tested."""
        return max(self.lengths)

    @property
    def targets(self) -> int:
        """How many last tokens are scored under growing context."""
        return max(1, min(self.lengths) // 2)

    def trials(self) -> list[Trial]:
        """Every model to train."""
        return [
            Trial(enc, seed, data) for data in ("text", *self.tasks) for seed in self.seeds for enc in self.encodings
        ]

    def trial(self, key: str) -> Trial:
        """The trial of a key."""
        return next(trial for trial in self.trials() if trial.key == key)

    def read(self) -> corpus.Corpus:
        """The text that models are trained and tested on."""
        return corpus.read(self.text, self.tokenizer, longest=self.longest, trained=self.shape.length)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @staticmethod
    def from_json(data: dict[str, Any]) -> Plan:
        """The plan of `to_json`."""
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        return Plan(**{**data, **lists, "shape": Shape(**data["shape"])})

    def weights(self) -> int:
        """About how many numbers a model has."""
        return (
            12 * self.shape.layers * self.shape.width**2
            + (2 * self.shape.vocabulary + self.shape.length) * self.shape.width
        )

    def run(self, trial: Trial, folder: Path, tell: Tell) -> dict[str, Any]:
        """Train and measure one model."""
        from milepost.lab.trial import run

        return run(self, trial, folder, tell)

    def compare(self, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Runs set against each other, on the same targets."""
        return comparisons(runs)

    def protocol(self, data: corpus.Corpus) -> dict[str, Any]:
        """How each number was made, in a sentence."""
        return {
            "plan": self.to_json(),
            "text": data.describe(),
            "targets": self.targets,
            "intervals": "95%, bootstrap over test files",
            "losses": "nats a token, token-weighted; perplexity is e^loss; bits per byte of the test text",
            "loss_by_length": f"same targets: the last {self.targets} tokens of each window, read with `length` tokens in all",
            "loss_by_position": "one pass over the longest length; one for each bucket's end where the encoding depends on the length",
            "disjoint": "windows of `length` without overlap, every token scored once",
            "sliding": "windows of `length` that advance by `stride`, every token scored once",
            "comparisons": "paired differences on the same targets, file by file; below 0 is a gain",
        }


def make(
    profile: str = "quick", *, encodings: Sequence[str] = (), strategy_names: Sequence[str] = USUAL, lengths: str = "1x,2x,4x,8x",
    train_length: int | None = None, seeds: Sequence[int] = (), tasks: Sequence[str] = (), text: str | None = None, tokenizer: str = "bytes", tune: int = 0,
) -> Plan:  # fmt: skip
    """A plan from what a user asks for; all that can be wrong is found here, before any training."""
    from milepost.lab.tasks import TASKS

    size = find_profile(profile)
    for name in strategy_names:
        if name not in strategies.NAMES:
            raise ValueError(
                f"unknown strategy {name!r}{nearest(name, strategies.NAMES)}; there are {', '.join(strategies.NAMES)}"
            )
    for name in tasks:
        if name not in TASKS:
            raise ValueError(f"unknown task {name!r}{nearest(name, TASKS)}; there are {', '.join(TASKS)}")
    if tune < 0:
        raise ValueError(f"--tune is a number of steps, at least 0, got {tune}")
    trained = size.length if train_length is None else train_length
    if trained < SHORTEST:
        raise ValueError(f"the trained length must be at least {SHORTEST} tokens, got {trained}")
    shape = Shape(
        max(256, corpus.vocabulary(tokenizer)), size.layers, size.width, size.heads, trained
    )  # tasks are written in bytes
    chosen = tuple(dict.fromkeys(encodings or size.encodings))
    import_named(chosen)
    for spec in chosen:
        Decoder(replace(shape, layers=1), spec)  # unknown names, wrong arguments: said now
    numbers = tuple(seeds) or tuple(range(size.seeds))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ValueError(f"seeds are different whole numbers, at least 0, got {list(numbers)}")
    asked = read_lengths(lengths, trained)
    if tasks and min(asked) < SHORTEST:
        raise ValueError(f"tasks are asked at lengths of at least {SHORTEST} tokens, got {min(asked)}")
    text = None if text is None else str(Path(text).resolve())  # trials may run elsewhere
    tokenizer = "bytes" if tokenizer == "bytes" else str(Path(tokenizer).resolve())
    named = tuple(dict.fromkeys(("none", *strategy_names)))
    return Plan(
        profile,
        shape,
        size.steps,
        size.rows,
        asked,
        size.windows,
        numbers,
        chosen,
        named,
        tune,
        tuple(dict.fromkeys(tasks)),
        text,
        tokenizer,
    )


def read_lengths(text: str, trained: int) -> tuple[int, ...]:
    """``1x,2x,4x`` (of the trained length) or numbers, as growing lengths."""
    found = []
    for word in text.lower().replace(" ", "").split(","):
        number, unit = (word[:-1], word[-1]) if word and word[-1] in "xk" else (word, "")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        value *= {"x": trained, "k": 1024, "": 1}[unit]
        if not 2 <= value <= 1 << 24 or value != int(value):
            raise ValueError(
                f"lengths are numbers, or times the trained length, such as 1x,2x,8x or 64,512; got {word!r}"
            )
        found.append(int(value))
    return tuple(sorted(set(found)))
