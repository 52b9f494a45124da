"""The request of an extension: options that go together, and the method that auto stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from milepost.checkpoints.files import SourceFiles
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.tune import Tuning
from milepost.checkpoints.recommendation.recommend import recommend
from milepost.rope import ConfigError
from milepost.rope.engines.written import Refused


def check_request(
    target: int, method: str, factor: float | None, text: Any, steps: int | None, length: int | None, rate: float,
    seed: int, link: bool, resume: bool,
) -> Tuning | None:  # fmt: skip
    """How to tune, if that is asked for; refuses options that contradict each other."""
    if isinstance(target, bool) or not isinstance(target, int) or target < 1:
        raise ConfigError(f"the target length is a number of tokens, at least 1, got {target!r}")
    if method == "auto" and text is None:
        raise ConfigError(
            "method auto measures every method on a text of yours: give one (--text PATH), or name a method, such as "
            "yarn"
        )
    if method == "auto" and factor is not None:
        raise ConfigError(f"method auto chooses the factor too, got {factor:g}: leave it out, or name a method")
    if steps is None:
        if resume or length is not None:
            option = "--resume goes on with" if resume else "--tune-length is for"
            raise ConfigError(f"{option} tuning: say how many steps (--tune STEPS)")
        return None
    if text is None:
        raise ConfigError("--tune trains on a text of yours: give one (--text PATH)")
    if link:
        raise ConfigError(
            "--link gives the source's weights a second name, and --tune makes new ones: leave one of them out"
        )
    if length is not None and length > target:
        raise ConfigError(f"--tune-length {length} is longer than the target length {target}: give at most that")
    return Tuning(steps, length or target, rate, seed)


def choose_method(
    source: SourceFiles, subject: Loaded, target: int, text: Any, resumed: Mapping[str, Any] | None,
    tell: Callable[[str], None],
) -> tuple[str, float | None, dict[str, Any]]:  # fmt: skip
    """The method and the factor with the lowest loss on the text; those of a training that is resumed."""
    if resumed is not None:
        return str(resumed["method"]), float(resumed["factor"]), {"from": "the training that is resumed"}
    if source.sidecar is not None:
        original = source.sidecar.get("source", {}).get("name", "the model that it was made from")
        raise ConfigError(
            f"method auto measures models as they were trained, and {source.name} was extended before: give {original} "
            "instead, or name a method"
        )
    last = ""

    def tell_once(words: str, share: float) -> None:
        nonlocal last
        if words != last:
            last = words
            tell(f"measuring {words}")

    recommendation = recommend(subject, target_length=target, text=text, tell=tell_once)
    if recommendation.best is None:
        raise Refused(
            f"no method was found to help at {target} tokens on this text, so nothing is written; `milepost recommend` "
            "shows what was measured"
        )
    return recommendation.best, recommendation.factor, recommendation.to_json()
