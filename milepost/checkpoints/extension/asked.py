"""What is asked of an extension: words that go together, and the method that auto stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from milepost.checkpoints.files.source import SourceFiles
from milepost.checkpoints.model.tune import Tuning
from milepost.rope.config.keys import ConfigError
from milepost.rope.engines.written import Refused


def asked(
    target: int,
    method: str,
    factor: float | None,
    text: Any,
    steps: int | None,
    length: int | None,
    rate: float,
    seed: int,
    link: bool,
    resume: bool,
) -> Tuning | None:
    """How to tune, if that is asked for; refuses words that contradict each other."""
    if isinstance(target, bool) or not isinstance(target, int) or target < 1:
        raise ConfigError(f"the target length is a number of tokens, at least 1, got {target!r}")
    if method == "auto" and text is None:
        raise ConfigError(
            "method auto measures every method on a text of yours: give one (--text PATH), or name a method, such as yarn"
        )
    if method == "auto" and factor is not None:
        raise ConfigError(f"method auto chooses the factor too, got {factor:g}: leave it out, or name a method")
    if steps is None:
        if resume or length is not None:
            raise ConfigError(
                f"{'--resume goes on with' if resume else '--tune-length is for'} a tune: say its steps (--tune STEPS)"
            )
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


def chosen(
    source: SourceFiles,
    target: int,
    text: Any,
    resumed: Mapping[str, Any] | None,
    device: str,
    dtype: str,
    tell: Callable[[str], None],
) -> tuple[str, float | None, dict[str, Any]]:
    """The method and the factor that lose least on the text; those of a training that is resumed."""
    if resumed is not None:
        factor = None if resumed["method"] == "dynamic" else float(resumed["factor"])
        return str(resumed["method"]), factor, {"from": "the training that is resumed"}
    if source.sidecar is not None:
        was = source.sidecar.get("source", {}).get("name", "the model that it was made from")
        raise ConfigError(
            f"method auto measures models as they were trained, and {source.name} was extended before: give {was} instead, or name a method"
        )
    from milepost.checkpoints.recommendation.recommend import recommend

    heard = ""

    def once(words: str, *_: Any) -> None:
        nonlocal heard
        if words != heard:
            heard = words
            tell(f"measuring {words}")

    found = recommend(source.folder, target_length=target, text=text, device=device, dtype=dtype, tell=once)
    if found.best is None:
        raise Refused(
            f"no method was found to help at {target} tokens on this text, so nothing is written; `milepost recommend` shows what was measured"
        )
    return found.best, None if found.best == "dynamic" else found.factor, found.to_json()
