"""The model under proof: how checks run it, and how far float rounding alone may move its logits.

rounding     how far the logits of a text are from the same model's in float64. Two ways to compute one thing differ
             by no more than the rounding of each; that of another way, such as a cache, is measured in the same manner
             (that way, against that way in float64) where one pass's does not explain the difference. A fault is in
             both of them, and makes no rounding
tolerance    4 x the larger rounding: two of them, and twice, because models do a few steps (norms, softmax) in float32
             even in float64
control      what a fault would do to the same number. Where it is not above the tolerance, the check could not have
             failed, and says so
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from milepost.checkpoints.model.patch import hooked, patched
from milepost.rope import ConfigError, RopeSpec
from milepost.rope.config.families import NOT_HELD, NOT_ROTARY

Verdict = Literal["PASS", "FAIL", "WARN", "BLIND", "NONE"]
"""BLIND: it could not have failed, so nothing is proved.

NONE: it does not apply. WARN: true of another way to run the model.
"""
DOUBT = 4
"""How many times its rounding a difference of logits may be."""
BLIND = "other positions, or no bias at all, change this model's logits no more than rounding does"
WHOLE = 1 << 29
"""The most parameters of a model that is run in float64 as well: 4 GB more."""


@dataclass(frozen=True)
class Check:
    """One proof: a sentence with its numbers. ``control`` is what a fault would give in place of ``measured``."""

    name: str
    verdict: Verdict
    sentence: str
    measured: float | None = None
    allowed: float | None = None
    control: float | None = None
    unit: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data; a number that is not finite is null, and the sentence says so."""
        numbers = {name: finite(getattr(self, name)) for name in ("measured", "allowed", "control")}
        return {"name": self.name, "verdict": self.verdict, "sentence": self.sentence, **numbers, "unit": self.unit}


def finite(value: float | None) -> float | None:
    """A number as JSON has it: None where it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def judged(check: Check, wrong: str, blind: str) -> Check:
    """The check with its verdict: FAIL above what is allowed (or not a number), BLIND where the control is not above
    it."""
    assert check.measured is not None and check.allowed is not None
    if not check.measured <= check.allowed:
        return replace(check, verdict="FAIL", sentence=wrong)
    if check.control is not None and not check.control > check.allowed:
        return replace(check, verdict="BLIND", sentence=f"nothing is proved: {blind}")
    return check


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference; NaN where there is one."""
    return float((a.double() - b.double()).abs().max())


class Case:
    """A model in memory, the config that it is held to, and one text."""

    def __init__(self, model: Any, config: dict[str, Any]):
        self.model, self.config = model, config
        self.spec, self.no_spec = read_spec(config)
        self.text_config = model.config.get_text_config()
        self.both = bool(getattr(model.config, "is_encoder_decoder", False))
        self.dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
        self.device = next(model.parameters()).device
        self.eps = max(
            torch.finfo(self.dtype).eps, torch.finfo(torch.float32).eps
        )  # angles, norms and softmax are in float32 at best
        self.attention = str(getattr(model.config, "_attn_implementation", ""))

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def model_type(self) -> str:
        return str(self.text_config.model_type)

    @cached_property
    def takes_positions(self) -> bool:
        """Whether position_ids can be given, and mean something."""
        return (
            not self.both
            and "position_ids" in inspect.signature(self.model.forward).parameters
            and not getattr(self.text_config, "alibi", False)
        )

    @cached_property
    def generates(self) -> bool:
        """Whether it can continue a text with a cache."""
        can = getattr(self.model, "can_generate", None)
        causal = self.both or getattr(self.text_config, "is_causal", True) is not False
        return bool(
            can is not None
            and can()
            and causal
            and self.model_type not in ("bert", "roberta", "xlm-roberta", "electra")
        )

    @cached_property
    def table(self) -> nn.Embedding | None:
        """The learned table of positions, where the model has one."""
        rows = self.positions
        if self.spec is not None or not rows:
            return None
        vocabulary = self.model.get_input_embeddings()
        tables = [
            m
            for m in self.model.modules()
            if isinstance(m, nn.Embedding) and m is not vocabulary and rows <= m.num_embeddings <= rows + 8
        ]
        return tables[0] if tables else None

    @property
    def positions(self) -> int:
        """How many positions the config says there are; 0 where it does not."""
        config = self.text_config.to_dict()
        room = config.get("max_position_embeddings") or config.get("n_positions")
        return room if isinstance(room, int) else 0

    # -- texts -----------------------------------------------------------------------------------------------------

    @cached_property
    def _words(self) -> Tensor:
        """Tokens that mean no image and no end, and whose embedding is not zero: that of padding often is, and shows no
        turn."""
        special = special_tokens(self.model.config)
        table = self.model.get_input_embeddings().weight
        size = min(len(table), getattr(self.text_config, "vocab_size", len(table)))
        there = table[:size].detach().abs().amax(-1).tolist()
        return torch.tensor([n for n in range(size) if n not in special and there[n] != 0] or [0])

    def tokens(self, count: int, seed: int = 0) -> Tensor:
        """Random tokens: 1 L."""
        drawn = torch.randint(len(self._words), (1, count), generator=torch.Generator().manual_seed(seed))
        return self._words[drawn].to(self.device)

    @cached_property
    def length(self) -> int:
        """Tokens of the text: a number that is no number of heads, so that axes can be told apart."""
        return self.odd(min(23, self.room - 8))

    @property
    def room(self) -> int:
        """Tokens that the model can take at all."""
        return self.table.num_embeddings if self.table is not None else 1 << 20

    def odd(self, count: int) -> int:
        """The next number that is no number of heads."""
        heads = {
            getattr(self.text_config, name, None)
            for name in ("num_attention_heads", "num_key_value_heads", "num_kv_heads", "n_head")
        }
        while count in heads or count < 2:
            count += 1
        return count

    @cached_property
    def text(self) -> Tensor:
        return self.tokens(self.length)

    @cached_property
    def source(self) -> Tensor:
        """What an encoder reads, while the decoder reads the text."""
        return self.tokens(13, seed=7)

    # -- runs ------------------------------------------------------------------------------------------------------

    def run(self, ids: Tensor, **more: Any) -> Any:
        """One call of the model. position_ids come with a mask of ones: without, jumps would mean packed texts."""
        if "position_ids" in more and "attention_mask" not in more:
            more["attention_mask"] = torch.ones_like(ids)
        if self.both:
            more = {"input_ids": self.source, "decoder_input_ids": ids, **more}
        else:
            more = {"input_ids": ids, **more}
        with torch.no_grad():
            return self.model(**more)

    def logits(self, ids: Tensor, **more: Any) -> Tensor:
        """The logits in float64; hidden states for a model without a head."""
        with unchanged(self.model):
            return logits_of(self.run(ids, **more))

    def continued(self, prompts: Sequence[Tensor], forced: Tensor) -> Tensor:
        """The logits B K V of transformers' own generate, which is made to say the tokens ``forced`` (B K); shorter
        prompts padded on the left."""
        from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

        longest = max(p.shape[1] for p in prompts)
        ids = torch.cat(
            [torch.cat([p.new_full((1, longest - p.shape[1]), int(self._words[0])), p], 1) for p in prompts]
        )
        mask = torch.cat([torch.cat([p.new_zeros(1, longest - p.shape[1]), torch.ones_like(p)], 1) for p in prompts])
        before = 1 if self.both else longest

        class Force(LogitsProcessor):
            def __call__(self, said: Tensor, scores: Tensor) -> Tensor:
                return torch.full_like(scores, -1e9).scatter(1, forced[:, said.shape[1] - before, None], 0.0)

        how = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=forced.shape[1],
            do_sample=False,
            num_beams=1,
            use_cache=True,
            return_dict_in_generate=True,
            output_logits=True,
            pad_token_id=int(self._words[0]),
            eos_token_id=None,
            decoder_start_token_id=self.start if self.both else None,
        )
        with unchanged(self.model), torch.no_grad():
            out = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=how,
                logits_processor=LogitsProcessorList([Force()]),
            )
        return torch.stack(out.logits, 1).double()

    @property
    def start(self) -> int:
        """The token that a decoder starts from."""
        start = getattr(self.model.config, "decoder_start_token_id", None)
        return int(start) if start is not None else int(self._words[0])

    # -- rounding --------------------------------------------------------------------------------------------------

    @cached_property
    def rounding(self) -> float:
        """How far the logits of the text are from the same in float64 (of a float64 model: in float32, which some of
        its steps are in anyway).

        For a model too large for that: how far noise in its embeddings moves them.
        """
        return self.rounding_of(lambda: self.logits(self.text))

    def rounding_of(self, way: Callable[[], Tensor]) -> float:
        """The same of another way to run the model, which gives its logits."""
        own = way()
        if sum(p.numel() for p in self.model.parameters()) <= WHOLE:
            with unchanged(self.model), other_precision(self.model):
                exact = way()
        else:
            draw, size = torch.Generator().manual_seed(0), float(self.eps * self.layers**0.5)

            def shake(_: Any, __: Any, out: Tensor) -> Tensor:
                return out * (1 + size * torch.randn(out.shape, generator=draw).to(out))

            with hooked(self.model.get_input_embeddings().register_forward_hook(shake)):
                exact = way()
        return max(apart(own, exact), self.eps * float(own.abs().max()))

    @property
    def tolerance(self) -> float:
        return DOUBT * self.rounding

    @property
    def layers(self) -> int:
        return int(getattr(self.text_config, "num_hidden_layers", 1))

    def judge_logits(
        self, name: str, measured: float, right: str, wrong: str, way: Callable[[], Tensor] | None = None
    ) -> Check:
        """A check by logits that may differ by rounding alone; its control is what other positions do to them.

        ``way`` gives the logits that are compared with those of one pass, where they come of something else.
        """
        allowed = self.tolerance
        if way is not None and allowed < measured:
            allowed = max(allowed, DOUBT * self.rounding_of(way))
        return judged(Check(name, "PASS", right, measured, allowed, self.shuffled, "logits"), wrong, BLIND)

    @cached_property
    def shuffled(self) -> float:
        """What other positions do to the logits: the control of every check by logits."""
        if self.takes_positions:
            back = torch.arange(self.length - 1, -1, -1, device=self.device)[None]
            return apart(self.logits(self.text, position_ids=back), self.logits(self.text))
        with without_bias(self.model):
            without = self.logits(self.text)
        return apart(without, self.logits(self.text))


def special_tokens(config: Any) -> set[int]:
    """The tokens that a config of transformers gives a meaning: ends, padding, images."""
    values = [
        value
        for part in (config, config.get_text_config())
        for name, value in part.to_dict().items()
        if name.endswith(("_token_id", "_token_index"))
    ]
    several = [token for value in values if isinstance(value, list) for token in value]
    return {token for token in (*values, *several) if isinstance(token, int)}


def logits_of(out: Any) -> Tensor:
    """The logits in float64; hidden states for a model without a head."""
    logits: Tensor = out.logits if "logits" in out else out.last_hidden_state
    return logits.double()


def read_spec(config: dict[str, Any]) -> tuple[RopeSpec | None, str]:
    """The rotary positions that a config asks for; or None, and why."""
    try:
        return RopeSpec.from_config(config, allow_unknown=True), ""
    except ConfigError as error:
        kind = str(config.get("model_type"))
        if kind in NOT_ROTARY or kind in NOT_HELD or "no rotary positions" in str(error):
            return None, str(error)
        raise


def depends_on_length(spec: RopeSpec) -> bool:
    """Whether a text's length decides about its frequencies."""
    return any(rope.scaling is not None and rope.scaling.length_dependent for rope in spec.ropes().values())


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Buffers, and what modules remember besides, are afterwards what they were: some rotary modules change themselves
    while they run."""
    before = [
        (m, dict(m._buffers), {k: v for k, v in m.__dict__.items() if isinstance(v, int | float | str | Tensor)})
        for m in model.modules()
    ]
    try:
        yield
    finally:
        for module, buffers, plain in before:
            module._buffers.clear()
            module._buffers.update(buffers)
            for name in [k for k, v in module.__dict__.items() if isinstance(v, Tensor) and k not in plain]:
                del module.__dict__[name]
            module.__dict__.update(plain)


def other_precision(model: Any) -> contextlib.AbstractContextManager[None]:
    """The same weights in float64; those of a float64 model in float32, in which some of its steps are anyway."""
    tensors = [t for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
    dtype = torch.float32 if tensors[0].dtype == torch.float64 else torch.float64
    changes: list[tuple[Any, str, Any]] = [(t, "data", t.data.to(dtype)) for t in tensors]
    config = model.config.get_text_config() if hasattr(model, "config") else None
    if getattr(config, "_experts_implementation", None) is not None:
        changes.append((config, "_experts_implementation", "eager"))  # the others have no float64
    return patched(*changes)


@contextlib.contextmanager
def without_bias(model: Any) -> Iterator[None]:
    """The model with no bias at all: what a check by logits must be able to see."""
    tables = [getattr(part, "relative_attention_bias", None) for part in model.modules()]
    builders = ("build_mpt_alibi_tensor", "build_alibi_tensor", "_get_alibi_slopes")
    owners = [*model.modules(), sys.modules.get(type(model).__module__)]
    silent = [
        (owner, name, _zeros(getattr(owner, name))) for owner in owners for name in builders if hasattr(owner, name)
    ]
    with (
        patched(*silent),
        hooked(*(table.register_forward_hook(zero_output) for table in tables if isinstance(table, nn.Embedding))),
    ):
        yield


def _zeros(function: Any) -> Callable[..., Tensor]:
    """A function that gives zeros in the shape of another's result."""
    return lambda *args, **kwargs: torch.zeros_like(function(*args, **kwargs))


def zero_output(module: Any, given: Any, out: Tensor) -> Tensor:
    """A forward hook after which a module gives zeros."""
    return torch.zeros_like(out)
