"""The words of a recommendation: what was found, what a config says in each engine, and what can't be done for models that do not turn."""

from __future__ import annotations

from typing import Any

from milepost.checkpoints.model.load import Loaded
from milepost.rope import RopeSpec, export
from milepost.rope.engines.written import Refused

Row = dict[str, Any]
ASKED = ("transformers", "vllm", "sglang", "llama.cpp")


def exports(subject: Loaded, spec: RopeSpec | None) -> dict[str, dict[str, Any]]:
    """The setting for each engine, ready to paste, or why it has no words for it."""
    if spec is None:
        return {}
    if subject.form == "lab":
        return {"milepost": {"text": repr(spec.main.encoding()), "notes": []}}
    found: dict[str, dict[str, Any]] = {}
    for engine in ASKED:
        try:
            written = export(spec, engine)
            found[engine] = {"text": written.text, "notes": list(written.notes)}
        except Refused as refusal:
            found[engine] = {"refused": str(refusal)}
    return found


def advice(subject: Loaded, trained: int, target: int) -> list[str]:
    """What can and can't be done for a model without rotary positions, and what every reader should know."""
    schemes = {word for layer in subject.inspection.layers for word in layer.scheme.split(" + ")}
    said = []
    if subject.end is not None and target > subject.end:
        said.append(
            f"its table has {subject.end} rows, and position {subject.end} has none: no setting reads more. New rows have to be made and trained "
            "(interpolated or tiled), or the positions replaced by rotary or ALiBi ones and the model tuned"
        )
    elif subject.end is not None and subject.spec is None:
        said.append(
            f"its table has {subject.end} rows: whether those past {trained} were trained is measured here, and nothing can be set about them"
        )
    if "alibi" in schemes:
        said.append("ALiBi has nothing to set: it goes on in a straight line. What is measured is whether this model still reads there; if not, "
                    "keep texts shorter, or serve with a window of the trained length")  # fmt: skip
    if "t5" in schemes:
        said.append("T5's buckets have nothing to set: all far distances share the last one")
    if subject.spec is not None and any(rope.scaling is not None for rope in subject.spec.ropes().values()):
        said.append(
            "the checkpoint has a scaling already, which is `none` here; the others replace it, and start from the trained length"
        )
    return said


def verdict(rows: list[Row], top: Row, best: Row | None, trained: int, target: int, subject: Loaded) -> list[str]:
    """The answer in sentences."""
    none = next(row for row in rows if row["method"] == "none")
    if none["loss_by_length"][-1]["length"] != target:
        return [f"{target} tokens can't be read: its table ends at {subject.end}."]
    before = _at(none, trained)
    if top is none and len(rows) == 1:
        said = f"There is nothing to set for this kind of positions; at {target} tokens it loses {_n(_at(none, target))} nats, at {trained} {_n(before)}"
        return [f"{said}: {'it reads them' if none['reaches'] else 'it does not read them well'}."]
    if top is none:
        lost = f"At {target} it loses {_n(_at(none, target))} nats, at {trained} {_n(before)}."
        tail = "it reads them as it is." if none["reaches"] else f"nothing works without training. {lost}"
        return [f"Leave it as it is: no method gains at {target} tokens, and {tail}"]
    losses = f"it loses {_n(_at(top, target))} nats, where the model as it is loses {_n(_at(none, target))} (at {trained}: {_n(before)})"
    answer = [f"Set {_word(top)}: at {target} tokens {losses}."]
    if top["reaches"]:
        answer.append(
            f"The target is reached: the longer context does not hurt. Short texts pay {_n(top['cost']['value'])} nats for it."
        )
    else:
        answer.append(
            f"The target is not reached without training: it is still {_n(top['gap']['value'])} nats worse than the model at {trained} tokens. "
            "Tune it at the target length, or ask for less."
        )
    forgets = [
        row
        for row in rows
        if not row["whole"] and row["gain"]["value"] is not None and row["gain"]["value"] > top["gain"]["value"]
    ]
    if forgets:
        lost = _n(_at(forgets[0], target))
        answer.append(
            f"{forgets[0]['method'].capitalize()} loses less, {lost} nats, and forgets all but the last tokens ({forgets[0]['setting']})."
        )
    if best is None:
        answer.append("No config can say it: it needs an engine that does, such as milepost's.")
    elif best is not top:
        answer.append(
            f"No config can say that; the best that one can say is {_word(best)}, {_n(_at(best, target))} nats."
        )
    return answer


def _at(row: Row, length: int) -> float | None:
    return next((one["loss"] for one in row["loss_by_length"] if one["length"] == length), None)


def _word(row: Row) -> str:
    return str(row["method"] if row["factor"] is None else f"{row['method']} with factor {row['factor']:g}") + (
        "" if row["config"] else f" ({row['setting']})"
    )


def _n(value: float | None) -> str:
    return "no number of" if value is None else f"{0.0 if abs(value) < 5e-4 else value:.3f}"
