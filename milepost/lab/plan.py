"""Plan: what a lab run does, as plain data. One size word sets model, lengths and steps.

`LabPlan` is what the plans of text, images and signals share; `TextPlan` is the plan of text, and `make` makes one. The
plans of images and signals are in ``space/``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from milepost.checks import check_known
from milepost.lab import corpus, strategies
from milepost.lab.comparisons import comparisons
from milepost.lab.model import Decoder, Shape
from milepost.lab.tasks import TASKS
from milepost.lab.train import TOLD
from milepost.lab.trial import AS_LARGE_AS, Run, Trial
from milepost.lab.user_modules import import_named

SCHEMA = 1
SHORTEST = 8
"""Tokens: the shortest length to train at, and to test a task at."""


@dataclass(frozen=True, kw_only=True)
class LabPlan(ABC):
    """Everything that decides the numbers of a run.

    ``threads`` of a trial and whether its products are of ``bfloat16`` (both decide the last bits), and the ``digest``
    of the data are set as the run begins.
    """

    profile: str
    shape: Any
    steps: int
    rows: int
    seeds: tuple[int, ...]
    encodings: tuple[str, ...]
    threads: int = 1
    bfloat16: bool = False
    digest: str = ""
    schema: int = SCHEMA
    shape_class: ClassVar[type]
    reads: ClassVar[str]
    """What models are trained on, in a word."""

    @property
    @abstractmethod
    def trained_on(self) -> tuple[str, ...]:
        """What models read: each of these has models of its own."""

    @abstractmethod
    def read(self) -> Any:
        """The data that models are trained and tested on: it has a ``digest`` and a method ``describe``."""

    @abstractmethod
    def protocol(self, data: Any) -> dict[str, Any]:
        """How each number was made, in a sentence."""

    def compare(self, runs: list[Run]) -> list[dict[str, Any]]:
        """Paired differences between runs; none where each run is compared with chance alone."""
        return []

    def trials(self) -> list[Trial]:
        """Every model to train."""
        return [Trial(enc, seed, data) for data in self.trained_on for seed in self.seeds for enc in self.encodings]

    def trial(self, key: str) -> Trial:
        """The trial of a key."""
        return next(trial for trial in self.trials() if trial.key == key)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """The plan of `to_json`."""
        fields = _tuples(data)
        return cls(**{**fields, "shape": cls.shape_class(**fields["shape"])})


def _tuples(value: Any) -> Any:
    """JSON with tuples in place of its lists."""
    if isinstance(value, dict):
        return {name: _tuples(inner) for name, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def check_encodings(specs: Sequence[str], build: Callable[[str], Any]) -> tuple[str, ...]:
    """Every spec once, each of them built: unknown names and wrong arguments are refused before any training."""
    chosen = tuple(dict.fromkeys(specs))
    import_named(chosen)
    for spec in chosen:
        build(spec)
    return chosen


def check_seeds(seeds: Sequence[int], default: int) -> tuple[int, ...]:
    """The seeds that were given, or as many as the profile has."""
    numbers = tuple(seeds) or tuple(range(default))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ValueError(f"seeds are different whole numbers, at least 0, got {list(numbers)}")
    return numbers


@dataclass(frozen=True)
class TextProfile:
    """What a size word means for text."""

    layers: int
    width: int
    heads: int
    length: int
    steps: int
    rows: int
    windows: int
    seeds: int
    encodings: tuple[str, ...]
    rates: tuple[float, ...] = (1.0,)

    def shape(self) -> Shape:
        """The model of this size, which reads bytes."""
        return Shape(256, self.layers, self.width, self.heads, self.length)

    def tokens_per_parameter(self) -> float:
        """How much a model of this size reads in training: at least 8 in quick, 20 in the larger ones."""
        return self.steps * self.rows * self.length / self.shape().weights()


BASIC = ("rope", "nope", "sinusoidal", "learned", "t5", "alibi")
"""RoPE is first because it takes longest: every strategy is measured on it."""


def all_encodings(width: int) -> tuple[str, ...]:
    """What the larger profiles compare; a concatenated code takes a quarter of the embedding's channels."""
    concatenated = f'sinusoidal(width={width // 4}, how="concat")'
    codes = ("nope", "integer", "binary", "sinusoidal", concatenated, "learned")
    stacks = ("layers(rope, nope)", "layers(rope, temperature)")
    return (*codes, "shaw", "transformer_xl", "t5", "deberta", "alibi", "rope", "rope + alibi", *stacks)


CONTROL, ADDED = "rope", 0.05
"""An encoding that adds more than this share of parameters has a control beside it: rope in a wider model."""
LENGTHS = "1x,1.25x,1.5x,2x,4x,8x"
"""Lengths that are tested where none are named: RoPE is known to break between 1.2 and 1.5 times its trained length."""
USUAL = ("none", "linear", "ntk", "dynamic", "yarn")
"""Strategies that are measured where none are named."""
RATES = (0.5, 1.0, 2.0)
"""Learning rates that the larger profiles try for each encoding, over the usual ones."""
PROFILES = {
    "tiny": TextProfile(1, 32, 2, 16, 20, 8, 12, 1, ("nope", "alibi", "rope")),
    "quick": TextProfile(2, 96, 4, 64, 1300, 32, 320, 1, BASIC),
    "standard": TextProfile(4, 144, 4, 128, 5400, 32, 480, 3, all_encodings(144), RATES),
    "full": TextProfile(8, 384, 6, 512, 18000, 32, 480, 3, all_encodings(384), RATES),
}


def find_profile(word: str) -> TextProfile:
    """What a size word means."""
    check_known("profile", word, PROFILES)
    return PROFILES[word]


@dataclass(frozen=True, kw_only=True)
class TextPlan(LabPlan):
    """A run on text, and on tasks."""

    shape: Shape
    lengths: tuple[int, ...]
    windows: int
    rates: tuple[float, ...] = (1.0,)
    controls: tuple[str, ...] = ()
    strategies: tuple[str, ...] = USUAL
    tune: int = 0
    tasks: tuple[str, ...] = ()
    text: str | None = None
    second_text: str | None = None
    tokenizer: str = "bytes"
    told: str = "index"
    shape_class, reads = Shape, "text"

    @property
    def longest(self) -> int:
        """The longest text that is tested."""
        return max(self.lengths)

    @property
    def targets(self) -> int:
        """How many last tokens are scored under growing context."""
        return max(1, min(self.lengths) // 2)

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Text, and each task."""
        return ("text", *self.tasks)

    def trials(self) -> list[Trial]:
        """Every model to train, with a control beside each encoding whose own parameters make a model larger."""
        return super().trials() + [Trial(enc, seed) for seed in self.seeds for enc in self.controls]

    def shape_of(self, trial: Trial) -> Shape:
        """The model's size: that of the plan, or a control's, the smallest that has as many parameters."""
        if not trial.as_large_as:
            return self.shape
        wanted, step = Decoder(self.shape, trial.as_large_as).count(), 2 * self.shape.heads
        widths = range(self.shape.width, 64 * self.shape.width, step)
        return next(
            shape
            for shape in (replace(self.shape, width=width) for width in widths)
            if Decoder(shape, trial.spec).count() >= wanted
        )

    def read(self) -> corpus.Corpus:
        """The text that models are trained and tested on."""
        first = corpus.read(self.text, self.tokenizer, longest=self.longest, trained=self.shape.length)
        if self.second_text is None:
            return first
        return corpus.with_second(first, corpus.read_second(self.second_text, self.tokenizer, longest=self.longest))

    def compare(self, runs: list[Run]) -> list[dict[str, Any]]:
        """Paired differences on the same targets."""
        return comparisons(runs)

    def protocol(self, data: corpus.Corpus) -> dict[str, Any]:
        """How each number was made, in a sentence."""
        same = f"same targets: the last {self.targets} tokens of each window, read with `length` tokens in all"
        return {
            "plan": self.to_json(),
            "text": data.describe(),
            "targets": self.targets,
            "intervals": "95%, bootstrap over test files",
            "losses": "nats a token, token-weighted; perplexity is e^loss; bits per byte of the test text",
            "loss_by_length": same,
            "loss_by_position": "one pass over the longest length; "
            "one for each bucket's end where the encoding depends on the length",
            "disjoint": "windows of `length` without overlap, every token scored once",
            "sliding": "windows of `length` that advance by `stride`, every token scored once",
            "comparisons": "paired differences on the same targets, file by file; below 0 is a gain",
        }


def choose_controls(shape: Shape, encodings: Sequence[str]) -> tuple[str, ...]:
    """A control for each encoding whose own parameters are more than `ADDED` of the others."""
    models = {spec: Decoder(shape, spec) for spec in encodings}
    adds = {spec: model.count_encoding() / (model.count() - model.count_encoding()) for spec, model in models.items()}
    return tuple(f"{CONTROL}{AS_LARGE_AS}{spec}" for spec, share in adds.items() if share > ADDED)


def make(
    profile: str = "quick",
    *,
    encodings: Sequence[str] = (),
    strategy_names: Sequence[str] = USUAL,
    lengths: str = LENGTHS,
    train_length: int | None = None,
    seeds: Sequence[int] = (),
    tasks: Sequence[str] = (),
    text: str | None = None,
    second_text: str | None = None,
    tokenizer: str = "bytes",
    tune: int = 0,
    told: str = "index",
) -> TextPlan:
    """A plan from what a user asks for. Mistakes are found here, before any training."""
    size = find_profile(profile)
    for name in strategy_names:
        check_known("strategy", name, strategies.NAMES)
    for name in tasks:
        check_known("task", name, TASKS)
    check_known("kind of positions", told, TOLD)
    if tune < 0:
        raise ValueError(f"--tune is a number of steps, at least 0, got {tune}")
    trained = size.length if train_length is None else train_length
    if trained < SHORTEST:
        raise ValueError(f"the trained length must be at least {SHORTEST} tokens, got {trained}")
    vocabulary = max(256, corpus.vocabulary(tokenizer))  # tasks are written in bytes
    shape = replace(size.shape(), vocabulary=vocabulary, length=trained)
    tested = read_lengths(lengths, trained)
    if tasks and min(tested) < SHORTEST:
        raise ValueError(f"tasks are tested at lengths of at least {SHORTEST} tokens, got {min(tested)}")
    chosen = check_encodings(encodings or size.encodings, lambda spec: Decoder(replace(shape, layers=1), spec))
    for spec in chosen if told != "index" else ():
        end = Decoder(shape, spec).end
        if end is not None and end < max(tested):
            raise ValueError(
                f"{spec} has no position past {end - 1}, and --positions {told} tells texts positions below "
                f"{max(tested)}: choose an encoding without a table of positions"
            )
    return TextPlan(
        profile=profile,
        shape=shape,
        steps=size.steps,
        rows=size.rows,
        lengths=tested,
        windows=size.windows,
        rates=size.rates,
        seeds=check_seeds(seeds, size.seeds),
        encodings=chosen,
        controls=choose_controls(shape, chosen),
        strategies=tuple(dict.fromkeys(("none", *strategy_names))),
        tune=tune,
        told=told,
        tasks=tuple(dict.fromkeys(tasks)),
        text=None if text is None else str(Path(text).resolve()),  # trials may run elsewhere
        second_text=None if second_text is None else str(Path(second_text).resolve()),
        tokenizer="bytes" if tokenizer == "bytes" else str(Path(tokenizer).resolve()),
    )


def read_lengths(text: str, trained: int) -> tuple[int, ...]:
    """``1x,2x,4x`` (of the trained length) or numbers, as growing lengths."""
    lengths = set()
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
        lengths.add(int(value))
    return tuple(sorted(lengths))
