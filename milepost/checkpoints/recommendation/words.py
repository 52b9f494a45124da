"""The words of a recommendation: the verdict, the settings for each engine, and what a reader should know first."""

from __future__ import annotations

from typing import Any

from milepost.checkpoints.model.loaded import Loaded
from milepost.rope import RopeSpec, export
from milepost.rope.engines.written import Refused

Row = dict[str, Any]
ENGINES = ("transformers", "vllm", "sglang", "llama.cpp")


def exports(subject: Loaded, spec: RopeSpec | None) -> dict[str, dict[str, Any]]:
    """The setting for each engine, ready to paste, or the reason why the engine can't have it."""
    if spec is None:
        return {}
    if subject.form == "lab":
        return {"milepost": {"text": repr(spec.main.encoding()), "notes": []}}
    texts: dict[str, dict[str, Any]] = {}
    for engine in ENGINES:
        try:
            written = export(spec, engine)
            texts[engine] = {"text": written.text, "notes": list(written.notes)}
        except Refused as refusal:
            texts[engine] = {"refused": str(refusal)}
    return texts


def advice(subject: Loaded, trained: int, target: int) -> list[str]:
    """What can and can't be done for a model without rotary positions, and what every reader should know."""
    schemes = {word for layer in subject.inspection.layers for word in layer.scheme.split(" + ")}
    notes = []
    if subject.end is not None and target > subject.end:
        notes.append(
            f"its table has {subject.end} rows, and position {subject.end} has none: no setting reads more. New rows "
            "have "
            "to be made and trained (interpolated or tiled), or the positions replaced by rotary or ALiBi ones and the "
            "model tuned (`milepost migrate`)"
        )
    elif subject.end is not None and subject.spec is None:
        notes.append(
            f"its table has {subject.end} rows: whether those past {trained} were trained is measured here, and "
            "nothing can be set about them"
        )
    if "alibi" in schemes:
        notes.append(
            "ALiBi has nothing to set: it goes on in a straight line. What is measured is whether this model still "
            "reads there; if not, keep texts shorter, or serve with a window of the trained length"
        )
    if "t5" in schemes:
        notes.append("T5's buckets have nothing to set: all far distances share the last bucket")
    if subject.spec is not None and any(rope.scaling is not None for rope in subject.spec.ropes().values()):
        notes.append(
            "the checkpoint has a scaling already, which is called `none` here; the others replace it, and start from "
            "the trained length"
        )
    return notes


def limits(rows: list[Row]) -> list[str]:
    """Which methods are at the end of what can be searched, and what is beyond it."""
    reasons = dict.fromkeys(row["limit"] for row in rows if row["limit"])
    names = [", ".join(_setting(row) for row in rows if row["limit"] == reason) for reason in reasons]
    return [f"at the end of the search: {name} ({reason})" for name, reason in zip(names, reasons, strict=True)]


def verdict(rows: list[Row], top: Row, best: Row | None, trained: int, target: int, subject: Loaded) -> list[str]:
    """The answer in sentences."""
    none = next(row for row in rows if row["method"] == "none")
    if none["loss_by_length"][-1]["length"] != target:
        return [f"{target} tokens can't be read: its table ends at {subject.end}."]
    short, long = _nats(_loss_at(none, trained)), _nats(_loss_at(none, target))
    as_it_is = f"its loss is {long} at {target} tokens and {short} at {trained}"
    if len(rows) == 1:
        reads = "it reads them" if none["reaches"] else "it does not read them well"
        return [f"There is nothing to set for this kind of positions; {as_it_is}: {reads}."]
    if top is none and none["reaches"]:
        return [f"Leave it as it is: no method gains at {target} tokens, and it reads them as it is."]
    if top is none:
        return [
            f"Leave it as it is: no method gains at {target} tokens, and nothing works without training: {as_it_is}."
        ]
    answer = [
        f"Set {_setting(top)}: at {target} tokens its loss is {_nats(_loss_at(top, target))}, where the model as it is "
        f"has {long} (at {trained}: {short})."
    ]
    if top["reaches"]:
        cost = _nats(top["cost"]["value"])
        answer.append(f"The target is reached: the longer context does not hurt. Short texts pay {cost} for it.")
    else:
        answer.append(
            f"The target is not reached without training: the loss is still {_nats(top['gap']['value'])} higher than "
            f"that of the model at {trained} tokens. Tune it at the target length, or ask for less."
        )
    if top["limit"]:
        answer.append(f"That is the end of the search: {top['limit']}.")
    forgetting = [row for row in rows if not row["whole"] and (row["gain"]["value"] or 0) > top["gain"]["value"]]
    if forgetting:
        name, lower = forgetting[0]["method"].capitalize(), _nats(_loss_at(forgetting[0], target))
        answer.append(
            f"{name} has a lower loss, {lower}, and forgets all but the last tokens ({forgetting[0]['setting']})."
        )
    if best is None:
        answer.append("No config can say it: it needs an engine that does, such as milepost's.")
    elif best is not top:
        loss = _nats(_loss_at(best, target))
        answer.append(f"No config can say that; the best that one can say is {_setting(best)}, with a loss of {loss}.")
    return answer


def _loss_at(row: Row, length: int) -> float | None:
    return next((at["loss"] for at in row["loss_by_length"] if at["length"] == length), None)


def _setting(row: Row) -> str:
    name = row["method"] if row["factor"] is None else f"{row['method']} with factor {row['factor']:g}"
    return str(name) if row["config"] else f"{name} ({row['setting']})"


def _nats(value: float | None) -> str:
    return "not a number" if value is None else f"{0.0 if abs(value) < 5e-4 else value:.3f} nats"
