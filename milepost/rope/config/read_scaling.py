"""Reading the dictionary in which transformers, and those who follow it, write a scaling.

    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}  ->  yarn(factor=4.0, trained=32768)

Every key that a type has is in `KEYS`; another one is an error, because engines pass over what they do not know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from milepost.rope.config.keys import (
    ConfigError,
    ConfigKeys,
    Entry,
    agreed,
    as_config_error,
    or_default,
    pass_over,
    short,
)
from milepost.scaling import NTK, Dynamic, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN

COMMON = {
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved", "finetuned",
    "llama_4_scaling_beta", "max_position_embeddings", "xdrope_section",
}  # fmt: skip
ORIGINAL = "original_max_position_embeddings"
KEYS: dict[str, set[str]] = {
    "default": set(),
    "linear": {"factor"},
    "dynamic": {"factor", "alpha", "max_trained_positions"},
    "ntk": {"factor", "mixed_b"},
    "yarn": {
        "factor", ORIGINAL, "beta_fast", "beta_slow", "truncate", "attention_factor", "attn_factor", "mscale",
        "mscale_all_dim",
    },
    "llama3": {"factor", ORIGINAL, "low_freq_factor", "high_freq_factor"},
    "longrope": {"factor", ORIGINAL, "short_factor", "long_factor", "attention_factor", "short_mscale", "long_mscale"},
    "proportional": {"factor"},
}  # fmt: skip
OWN_NAMES = {"telechat3-yarn": ("yarn", "TeleChat3"), "xdrope": ("dynamic", "HunYuan-VL")}
"""Rope types that one model's own code named: what they are, and whose they are."""
ALIASES = {"su": "longrope", "mrope": "default", "deepseek_yarn": "yarn"} | {k: v for k, (v, _) in OWN_NAMES.items()}
"""Other names of rope types."""
TELECHAT3 = 0.07
"""TeleChat3's yarn has m = 0.07 ln(factor) + 1, where yarn has 0.1 ln(factor) + 1."""
SU = "su, an older name of longrope"
"""What a spec says of its rope type where it is named so: some engines stop at the name, whatever overrides say."""
BESIDE_ALPHA = {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}
"""Keys that Hunyuan's configs have beside alpha, and no code reads."""


def rope_type_of(keys: ConfigKeys) -> str:
    """The name of the scaling in a dictionary."""
    given = [entry for entry in (keys.text("rope_type"), keys.text("type")) if entry is not None]
    names = [ALIASES.get(entry.value, entry.value) for entry in given]
    if len(set(names)) > 1:  # "default" and "mrope" are one, as transformers saves Qwen2-VL
        agreed(*given)
    name = names[0] if names else "default"
    if name not in KEYS:
        raise ConfigError(f"{given[0].key} = {short(name)} is no rope type; there are {', '.join(KEYS)}")
    return name


@dataclass
class ScalingReader:
    """Reads one dictionary, ``keys``, for so many ``pairs``; ``scaling``, ``trained`` and the rest are what it reads.

    ``original`` is the trained length where it stands outside of the dictionary. ``notes`` of ``about_transformers``
    are true of transformers only.
    """

    keys: ConfigKeys
    pairs: int
    served: int | None
    original: Entry[int] | None
    allow_unknown: bool
    scaling: Scaling | None = None
    trained: int | None = None
    notes: list[str] = field(default_factory=list)
    about_transformers: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)

    def read(self) -> ScalingReader:
        """Read the dictionary."""
        name = rope_type_of(self.keys)
        fixed = name == "dynamic" and self.keys.has("alpha")
        self._check_names(name, BESIDE_ALPHA if fixed else set())
        if name == "dynamic" and not fixed:
            self._check_original()
        with as_config_error(self.keys.where):
            if fixed:
                self._alpha()
            else:
                getattr(self, f"_{name}")()
        if self.scaling is not None:
            self.sources["scaling"] = self.keys.where
            if "su" in (self.keys.config.get("type"), self.keys.config.get("rope_type")):
                self.sources["rope_type"] = SU
        return self

    def note(self, text: str) -> None:
        """Add a note that is true of transformers only."""
        self.notes.append(text)
        self.about_transformers.append(text)

    def _check_names(self, name: str, more: set[str]) -> None:
        known = COMMON | KEYS[name] | more
        for key, value in self.keys.config.items():
            if key in known or value is None:
                continue
            shown = f"{self.keys.path(short(key)[1:-1])} = {short(value)}"
            if key == ORIGINAL and name in ("dynamic", "linear", "default", "ntk"):
                if value == self.served:
                    self.notes.append(
                        f"{shown} has no meaning for {name}; it equals max_position_embeddings, which has, "
                        "so nothing changes"
                    )
                    continue
                problem = f"{shown} has no meaning for rope type {name}, which starts from {self._served()}"
            else:
                others = ", ".join(sorted(KEYS[name])) or "no keys of its own"
                problem = f"unknown key {shown} for rope type {name}; it has {others}"
            pass_over(problem, self.allow_unknown, self.notes)

    def _check_original(self) -> None:
        """A trained length beside the dictionary of dynamic, which starts from another one."""
        outside = self.original
        if outside is not None and outside.value != self.served and outside.key.endswith(ORIGINAL):
            problem = f"{outside.key} = {outside.value} has no meaning for rope type dynamic, which starts from"
            pass_over(f"{problem} {self._served()}", self.allow_unknown, self.notes)

    def _served(self) -> str:
        return f"max_position_embeddings = {self.served}"

    def _missing(self, name: str, key: str) -> ConfigError:
        return ConfigError(f"rope type {name} needs {self.keys.path(key)}, which is not there")

    def _factor(self) -> float | None:
        factor = self.keys.number("factor", above=0)
        if factor is not None and factor.value < 1:
            raise ConfigError(
                f"{factor.key} = {factor.value:g} would shrink the context; a factor above 1 means longer: "
                f"did you mean {1 / factor.value:g}?"
            )
        return or_default(factor, None)

    def _needed_factor(self, name: str) -> float:
        factor = self._factor()
        if factor is None:
            raise self._missing(name, "factor")
        return factor

    def _original(self) -> int:
        """The trained length: in the dictionary, beside it, or (as transformers has it) the served length."""
        original = agreed(self.keys.whole(ORIGINAL), self.original)
        if original is not None:
            self.sources["trained"] = original.key
            return original.value
        if self.served is None:
            raise ConfigError(
                f"{self.keys.where} has no {ORIGINAL}, and the config has no max_position_embeddings to take instead"
            )
        self.sources["trained"] = f"max_position_embeddings (there is no {ORIGINAL})"
        self.note(f"{self.keys.where} has no {ORIGINAL}: transformers takes {self._served()}")
        return self.served

    def _value(self, name: str, *, above: float | None = None, least: float | None = None) -> float | None:
        return or_default(self.keys.number(name, above=above, least=least), None)

    def _default(self) -> None:
        self.trained = self.served if self.original is None else self.original.value
        if self.original is not None:
            self.sources["trained"] = self.original.key

    def _linear(self) -> None:
        self.scaling, self.trained = Linear(self._needed_factor("linear")), self.served
        if self.served is not None:
            self.notes.append(f"linear has no key for the trained length: taken as {self._served()}")

    def _ntk(self) -> None:
        if self.keys.has("mixed_b"):
            mixed = f"{self.keys.path('mixed_b')} = {short(self.keys.config['mixed_b'])}"
            raise ConfigError(f"{mixed}: vLLM's mixed NTK is not one of our scalings")
        self.scaling, self.trained = NTK(self._needed_factor("ntk")), self.served
        self.note(
            "rope type ntk is not one of transformers'; read as base * factor^(d/(d-2)) "
            "(vLLM's ntk is another one: as_read_by('vllm', config))"
        )

    def _alpha(self) -> None:
        """Hunyuan's: called dynamic, with a fixed base. The other keys of its configs do nothing."""
        self.scaling, self.trained = NTK(self._value("alpha", least=1) or 1.0), self.served
        self.notes.append(
            f"{self.keys.path('alpha')} makes a fixed base, theta * alpha^(d/(d-2)); of the other keys nothing is read"
        )

    def _dynamic(self) -> None:
        factor = self._needed_factor("dynamic")
        own = self.keys.whole("max_trained_positions")
        trained = self.served if own is None or self.served is not None else own.value
        if trained is None:
            raise ConfigError("rope type dynamic starts from max_position_embeddings, which is not there")
        if own is not None and own.value != trained:
            self.note(
                f"{own.key} = {own.value} is vLLM's key; transformers passes over it, and starts from {self._served()}"
            )
        self.scaling, self.trained = Dynamic(trained, factor), trained

    def _yarn(self) -> None:
        keys, trained = self.keys, self._original()
        m, times_m = keys.number("attention_factor"), keys.number("attn_factor")
        factor = self._yarn_factor(trained)
        if m is not None and times_m is not None:
            raise ConfigError(
                f"contradictory keys: {m.key} = {m.value:g} is the factor itself (transformers), "
                f"{times_m.key} = {times_m.value:g} multiplies the default one (vLLM): keep one"
            )
        if times_m is not None:
            self.note(f"{times_m.key} = {times_m.value:g} is vLLM's and SGLang's key; transformers passes over it")
        own = "telechat3-yarn" in (keys.config.get("type"), keys.config.get("rope_type")) and m is None
        own_m = TELECHAT3 * math.log(factor) + 1.0 if own else None
        if own:
            self.notes.append(f"telechat3-yarn is yarn with m = {TELECHAT3} ln(factor) + 1 = {own_m:.4f}")
        fast, slow = (self._value(name, above=0) for name in ("beta_fast", "beta_slow"))
        truncate = keys.flag("truncate")
        self.scaling = YaRN(
            factor,
            trained,
            beta_fast=32.0 if fast is None else fast,
            beta_slow=1.0 if slow is None else slow,
            truncate=None if truncate is None or truncate.value else False,
            attention_factor=or_default(m, own_m),
            mscale=self._value("mscale", least=0),
            mscale_all_dim=self._value("mscale_all_dim", least=0),
            attn_factor=or_default(times_m, None),
        )
        self.trained = trained

    def _yarn_factor(self, trained: int) -> float:
        """The factor of yarn, beside what the lengths say."""
        factor, served, key = self._factor(), self.served, self.keys.path("factor")
        if factor is None:
            if served is None or served < trained:
                raise ConfigError(
                    f"rope type yarn needs {key}, which is not there, and {self._served()} gives none over {trained}"
                )
            factor = served / trained
            self.notes.append(
                f"{key} is not there: max_position_embeddings / {ORIGINAL} = {served} / {trained} = {factor:g}"
            )
        elif served is not None and served > 1.001 * factor * trained:
            problem = f"contradictory: {key} = {factor:g} times {ORIGINAL} = {trained} is less than {self._served()}"
            if not self.allow_unknown:
                raise ConfigError(
                    f"{problem}; set factor to {served / trained:g}, or max_position_embeddings to {factor * trained:g}"
                )
            self.notes.append(f"{problem} (the explicit factor is used)")
        elif served is not None and abs(served - factor * trained) > 0.001 * served:
            self.notes.append(
                f"{key} = {factor:g} makes {factor * trained:g} tokens of {trained}; {self._served()} is fewer"
            )
        return factor

    def _llama3(self) -> None:
        trained, factor = self._original(), self._factor()
        low, high = (self._value(name, above=0) for name in ("low_freq_factor", "high_freq_factor"))
        if factor is None or low is None or high is None:
            missing = "factor" if factor is None else "low_freq_factor" if low is None else "high_freq_factor"
            raise self._missing("llama3", missing)
        self.scaling, self.trained = Llama3(factor, trained, low, high), trained

    def _longrope(self) -> None:
        trained = self._original()
        short_list, long_list = (self._factors(name) for name in ("short_factor", "long_factor"))
        factor = self._factor()
        if factor is None:
            factor = max(1.0, self.served / trained) if self.served is not None else 1.0
            self.sources["factor"] = f"max_position_embeddings / {ORIGINAL}"
        m, short_m, long_m = (
            self._value(name, above=0) for name in ("attention_factor", "short_mscale", "long_mscale")
        )
        if short_m is not None or long_m is not None:
            if m is not None:
                raise ConfigError(
                    f"contradictory keys: {self.keys.path('attention_factor')} = {m:g} is for both lists, short_mscale "
                    "and long_mscale for one each: keep one"
                )
            self.note(
                "short_mscale and long_mscale are vLLM's keys (and Phi-3.5-MoE's own code's); "
                "transformers' longrope passes over them"
            )
        self.scaling = LongRoPE(
            short_list, long_list, trained, factor, attention_factor=m, short_m=short_m, long_m=long_m
        )
        self.trained = trained

    def _factors(self, name: str) -> tuple[float, ...]:
        """The list of factors under a name, one for each pair."""
        factors = self.keys.numbers(name)
        if factors is None:
            raise self._missing("longrope", name)
        if len(factors.value) != self.pairs:
            raise ConfigError(
                f"{factors.key} has {len(factors.value)} numbers, and there are {self.pairs} pairs to turn: "
                "it needs one for each"
            )
        return factors.value

    def _proportional(self) -> None:
        share = self._value("partial_rotary_factor", above=0)
        self.scaling = Proportional(1.0 if share is None else share, self._factor() or 1.0)
        self.trained = self.served
