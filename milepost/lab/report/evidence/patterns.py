"""Patterns: does a lab run show what papers found? One line each: PASS, FAIL or "not comparable". From results.json.

A pattern is a statement about the order or the shape of losses, not about their size: sizes do not carry over. Losses
are of the same last tokens, means over seeds. A length counts as broken where the loss is 5% above that at the trained
length: RoPE's rise between 512 and 1012 tokens in the ALiBi paper is 2%, and sinusoidal codes' 26%.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from milepost.lab.report.runs import Results, base, by_name, lengths, mean_loss, texts, trained

EQUAL, FLAT, BROKEN = 0.06, 0.05, 0.05
PASS, FAIL, UNKNOWN = "PASS", "FAIL", "not comparable"
POSITIONED = ("sinusoidal", "learned", "t5", "alibi", "rope")
SCALINGS = ("linear", "ntk", "dynamic", "yarn")
"""Strategies that a model's config can name."""
ALIBI, LENGTHS_PAPER, HAVIV = "arXiv:2108.12409", "arXiv:2305.19466", "arXiv:2203.16634"


@dataclass(frozen=True)
class Pattern:
    """A published statement, what this run shows of it, and the verdict."""

    statement: str
    reference: str
    status: str
    shown: str


class _Losses:
    """Mean losses of a run by name and length."""

    def __init__(self, results: Results):
        self.runs = by_name(texts(results))
        self.trained, self.short, self.lengths = trained(results), base(results), lengths(results)

    def at(self, name: str, length: int) -> float | None:
        return mean_loss(self.runs[name], length) if name in self.runs else None

    def rise(self, name: str, length: int) -> float | None:
        first, then = self.at(name, self.short), self.at(name, length)
        return None if first is None or then is None else then / first - 1

    def times(self, factor: float) -> int | None:
        """The tested length of so many times the trained one."""
        return next((n for n in self.lengths if n == factor * self.trained), None)


def patterns(results: Results) -> list[Pattern]:
    """A verdict on each published pattern."""
    losses = _Losses(results)
    return [Pattern(statement, reference, *check(losses)) for statement, reference, check in STATEMENTS]


def missed(results: Results) -> list[Pattern]:
    """The patterns that this run does not show."""
    return [pattern for pattern in patterns(results) if pattern.status == FAIL]


def _verdict(holds: bool, shown: str) -> tuple[str, str]:
    return PASS if holds else FAIL, shown


def _not_tested(what: str) -> tuple[str, str]:
    return UNKNOWN, f"{what} not tested here"


def _equal_at_trained_length(losses: _Losses) -> tuple[str, str]:
    known = {name: loss for name in POSITIONED if (loss := losses.at(name, losses.trained)) is not None}
    if len(known) < 2:
        return _not_tested("two of these encodings at the trained length were")
    low, high = min(known, key=lambda name: known[name]), max(known, key=lambda name: known[name])
    apart = known[high] / known[low] - 1
    return _verdict(apart <= EQUAL, f"{low} {known[low]:.3f} to {high} {known[high]:.3f}, {apart:.1%} apart")


def _sinusoidal_breaks(losses: _Losses) -> tuple[str, str]:
    return _breaks(losses, "sinusoidal", 1.5)


def _rope_breaks(losses: _Losses) -> tuple[str, str]:
    return _breaks(losses, "rope", 1.5)


def _breaks(losses: _Losses, name: str, by: float) -> tuple[str, str]:
    """Broken by so many times the trained length."""
    length = losses.times(by)
    rise = None if length is None else losses.rise(name, length)
    if rise is None:
        return _not_tested(f"{name} at {by:g}x was")
    first = next((n for n in losses.lengths if (losses.rise(name, n) or 0.0) > BROKEN), None)
    where = "nowhere" if first is None else f"first at {first / losses.trained:g}x"
    return _verdict(rise > BROKEN, f"{rise:+.1%} at {by:g}x; above {BROKEN:.0%} {where}")


def _alibi_flat(losses: _Losses) -> tuple[str, str]:
    longest = losses.lengths[-1]
    rise = losses.rise("alibi", longest)
    if rise is None or longest <= losses.trained:
        return _not_tested("alibi beyond the trained length was")
    return _verdict(rise <= FLAT, f"{rise:+.1%} at {longest / losses.trained:g}x")


def _t5_between(losses: _Losses) -> tuple[str, str]:
    longest = losses.lengths[-1]
    rises = [losses.rise(name, longest) for name in ("alibi", "t5", "rope")]
    alibi, t5, rope = rises
    if alibi is None or t5 is None or rope is None or longest <= losses.trained:
        return _not_tested("alibi, t5 and rope beyond the trained length were")
    shown = f"alibi {alibi:+.0%}, t5 {t5:+.0%}, rope {rope:+.0%} at {longest / losses.trained:g}x"
    return _verdict(alibi < t5 < rope, shown)


def _nope_behind(losses: _Losses) -> tuple[str, str]:
    nope = losses.at("nope", losses.trained)
    others = {name: loss for name in POSITIONED if (loss := losses.at(name, losses.trained)) is not None}
    if nope is None or not others:
        return _not_tested("nope beside an encoding at the trained length was")
    worst = max(others, key=lambda name: others[name])
    return _verdict(nope > others[worst], f"nope {nope:.3f}, {worst} {others[worst]:.3f}")


def _yarn_best(losses: _Losses) -> tuple[str, str]:
    length = losses.times(4) or losses.times(2)
    known = {
        name: loss
        for name in SCALINGS
        if length is not None and (loss := losses.at(f"rope, {name}", length)) is not None
    }
    if "yarn" not in known or len(known) < 2 or length is None:
        return _not_tested("yarn beside another scaling at 2x or 4x was")
    shown = ", ".join(f"{name} {loss:.3f}" for name, loss in sorted(known.items(), key=lambda item: item[1]))
    return _verdict(min(known, key=lambda name: known[name]) == "yarn", f"{shown} at {length / losses.trained:g}x")


def _linear_and_ntk(losses: _Losses) -> tuple[str, str]:
    parts = []
    for length in losses.lengths:
        linear, ntk = (losses.at(f"rope, {name}", length) for name in ("linear", "ntk"))
        if length > losses.trained and linear is not None and ntk is not None:
            parts.append(f"{length / losses.trained:g}x: linear {linear:.3f}, ntk {ntk:.3f}")
    return UNKNOWN, "; ".join(parts) or "not tested here"


def _closer_with_size(losses: _Losses) -> tuple[str, str]:
    return UNKNOWN, "one size was trained"


STATEMENTS: tuple[tuple[str, str, Callable[[_Losses], tuple[str, str]]], ...] = (
    (f"Encodings are equal at the trained length (within {EQUAL:.0%})", ALIBI, _equal_at_trained_length),
    ("Sinusoidal codes break at once: by 1.5x", ALIBI, _sinusoidal_breaks),
    ("RoPE breaks by 1.5x (by 1.2x to 1.4x where it was looked at)", LENGTHS_PAPER, _rope_breaks),
    (f"ALiBi stays flat (within {FLAT:.0%}) at the longest length", ALIBI, _alibi_flat),
    ("T5's biases rise more than ALiBi and less than RoPE", ALIBI, _t5_between),
    ("No positions are behind every encoding at the trained length", HAVIV, _nope_behind),
    ("No positions come closer with the size of the model", HAVIV, _closer_with_size),
    ("YaRN is the best scaling that a config can name, without tuning", "arXiv:2402.17463", _yarn_best),
    ("PI against NTK without tuning: papers disagree", "arXiv:2402.17463, 2309.10400", _linear_and_ntk),
)
