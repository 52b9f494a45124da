"""The question of a lab run, and its answer in two sentences. From results.json alone."""

from __future__ import annotations

from milepost.lab.report.evidence.learning import unsettled
from milepost.lab.report.evidence.patterns import missed
from milepost.lab.report.read import differing
from milepost.lab.report.runs import (
    Results,
    Run,
    base,
    by_name,
    ends,
    helped,
    lengths,
    lost,
    mean_by_file,
    mean_loss,
    plain,
    trained,
    whose,
    without,
)

CONTROL = " as large as "
"""What the name of a control has between its encoding and the one that it is a control of."""
NAMED = 8
"""The most encodings that a note names."""
QUESTION = "Does a model still know where its tokens are, in texts longer than those it was trained on?"


def answer(results: Results) -> str:
    """The answer in two sentences: who holds and who does not, and what helps."""
    short, longest = base(results), lengths(results)[-1]
    groups = _competing(results)
    if not groups:
        return "No trial has been finished yet."
    if short == longest:
        return f"{_at_one_length(results, longest)} Longer texts were not tested."
    change = {}
    for label, runs in groups.items():
        first, last = mean_loss(runs, short), mean_loss(runs, longest)
        if first and last:
            change[label] = last / first - 1
    ended = [label for label, runs in groups.items() if ends(runs, longest)]
    return f"{_who_holds(results, change, ended)} {_what_helps(results) or _lowest(results)}"


def _who_holds(results: Results, change: dict[str, float], ended: list[str]) -> str:
    times = f"{lengths(results)[-1] / trained(results):g} times the trained {trained(results)} tokens"
    over = (
        f"; {listed(ended)} can't read so far, because {'its table ends' if len(ended) == 1 else 'their tables end'}"
        if ended
        else ""
    )
    if not change:
        return f"At {times} nothing could be measured{over}."
    ordered = sorted(change, key=lambda label: change[label])
    best, worst = ordered[0], ordered[-1]
    against = f"against a text of {base(results)}"
    if best == worst:
        return f"At {times}, the loss of {best} {_moves(change[best])} {against}{over}."
    if not _apart(results, best, worst):
        return (
            f"At {times}, no encoding can be told from another: their losses change by {change[best]:+.1%} to "
            f"{change[worst]:+.1%} {against}, and the interval of the difference holds 0{over}."
        )
    return (
        f"At {times}, {best} holds best (its loss {_moves(change[best])} {against}) and {worst} worst "
        f"({change[worst]:+.1%}){over}."
    )


def _apart(results: Results, best: str, worst: str) -> bool:
    """Whether the rise of one is clearly more than that of the other, on the same tokens of the same seeds.

    True where results hold no losses of single windows, so that it can't be asked.
    """
    short, longest = str(base(results)), str(lengths(results)[-1])
    groups, gaps = by_name(plain(results)), []
    for steady in groups[best]:
        for broken in groups[worst]:
            a, b = (run.get("loss_by_window", {}) for run in (steady, broken))
            if steady["seed"] == broken["seed"] and all(length in a and length in b for length in (short, longest)):
                rises = [[then - first for first, then in zip(one[short], one[longest], strict=True)] for one in (a, b)]
                gaps += [
                    (file, much - little) for file, little, much in zip(steady["window_files"], *rises, strict=True)
                ]
    gap = mean_by_file(gaps)
    return gap is None or gap["low"] > 0


def _what_helps(results: Results) -> str:
    """What test-time strategies do at the longest length; "" where none was tried."""
    longest = lengths(results)[-1]
    tried = []
    for runs in by_name(helped(results)).values():
        before, after = mean_loss(without(runs[0], results), longest), mean_loss(runs, longest)
        if before is not None and after is not None and not runs[0].get("tuned_steps"):
            tried.append((after, before, whose(runs[0]), runs[0]["strategy"]))
    if not tried:
        return ""
    after, before, encoding, strategy = min(tried)
    if after >= before:
        return (
            f"Nothing that was done to {encoding} without more training helps it there: {after:.3f} nats a token at "
            f"best, and {before:.3f} as it is."
        )
    return (
        f"Of what can be done to {encoding} without more training, {strategy} helps most there: {after:.3f} nats a "
        f"token instead of {before:.3f}."
    )


def _lowest(results: Results) -> str:
    losses = _losses(results, lengths(results)[-1])
    return f"The lowest loss there is {losses[0][1]}'s: {losses[0][0]:.3f} nats a token." if losses else ""


def _at_one_length(results: Results, length: int) -> str:
    losses = _losses(results, length)
    if not losses:
        return f"At {length} tokens nothing could be measured."
    return (
        f"At {length} tokens {losses[0][1]} has the lowest loss ({losses[0][0]:.3f} nats a token) and "
        f"{losses[-1][1]} the highest ({losses[-1][0]:.3f})."
    )


def _losses(results: Results, length: int) -> list[tuple[float, str]]:
    losses = [(mean_loss(runs, length), label) for label, runs in _competing(results).items()]
    return sorted((loss, label) for loss, label in losses if loss is not None)


def _competing(results: Results) -> dict[str, list[Run]]:
    """The encodings that are compared. A control, a wider model beside an encoding, has more parameters than they."""
    return by_name(run for run in plain(results) if CONTROL not in run["encoding"])


def _moves(change: float) -> str:
    if abs(change) < 0.0005:
        return "stays the same"
    return f"rises by {change:.1%}" if change >= 0 else f"falls by {-change:.1%}"


def listed(words: list[str]) -> str:
    """``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _first(words: list[str]) -> list[str]:
    """The words, or where they are many the first of them and how many more there are."""
    return words if len(words) <= NAMED else [*words[: NAMED - 1], f"{len(words) - NAMED + 1} more"]


def unfinished(results: Results) -> list[str]:
    """A sentence on trials without numbers, where there are any."""
    gone = lost(results)
    missing = sum(1 for _, why in gone if why == "not run yet")
    parts = [
        f"{count} {words}" for count, words in ((len(gone) - missing, "failed"), (missing, "not run yet")) if count
    ]
    return [f"Trials without numbers: {listed(parts)}. The end of this page names them."] if parts else []


def notes(results: Results) -> list[str]:
    """What a reader must know before believing the answer."""
    known = [f"Not as published: {pattern.statement}. Here: {pattern.shown}." for pattern in missed(results)]
    known += unfinished(results)
    told = results["provenance"]["protocol"]["plan"].get("told", "index")
    if told != "index":
        known.append(
            f"In training texts were told {told} positions, up to the longest tested length, and not their index."
        )
    if plain(results) and len({run["seed"] for run in plain(results)}) == 1:
        known.append("One seed: a second one may order encodings that are close the other way round.")
    at_trained = {label: loss for loss, label in _losses(results, base(results))} if plain(results) else {}
    if open_yet := unsettled(plain(results), at_trained):
        known.append(
            f"Still learning: doubling the tokens would take more from {listed(_first(open_yet))} than the best is "
            f"ahead at {base(results)} tokens, so the order there is not settled."
        )
    return known + _repeated(results) + differing(results)


def _repeated(results: Results) -> list[str]:
    """How often the text was read, where it is shorter than the training."""
    protocol = results["provenance"]["protocol"]
    plan, available = protocol["plan"], protocol["text"]["train_tokens"]
    read = plan["steps"] * plan["rows"] * plan["shape"]["length"]
    if read <= available or not plain(results):
        return []
    return [
        f"Training read {read:,} tokens of a text that has {available:,}: each was read {read / available:.1f} times."
    ]
