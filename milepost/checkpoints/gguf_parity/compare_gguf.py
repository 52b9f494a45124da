"""compare_gguf: everything about positions in a GGUF file, against the folder that it was converted from.

    tables      every pair of every layer at the lengths that matter, and the temperature: keys and factor tensors
    lengths     context_length against max_position_embeddings, the trained length, the window of sliding layers
    rows        q and k, row by row: an engine that turns neighbours (2i, 2i + 1) needs the rows of a source that has
                halves (i, i + d/2) in another order, and a converter that forgets it, or does it twice, keeps every
                shape and every norm

The pairing of the two differs by design; the rows of q and k say whether the file has it right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from milepost.checkpoints.files import in_folder, in_gguf
from milepost.checkpoints.gguf_parity.rows import compare_rows
from milepost.rope import Config, ConfigError, RopeSpec, read
from milepost.rope.config.config_json import text_model
from milepost.rope.config.gguf import BASE
from milepost.rope.config.gguf_header import WANTED
from milepost.rope.config.keys import ConfigKeys
from milepost.rope.engines.parity import Difference, differences
from milepost.scaling import Llama3, LongRoPE, Proportional, YaRN

FREQS, LONG, SHORT = WANTED


@dataclass(frozen=True)
class GgufParity:
    """What differs, what of it the conversion ``lost`` in sentences, and ``notes`` on what was compared."""

    source: RopeSpec
    file: RopeSpec
    differences: tuple[Difference, ...]
    lost: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "same": self.same, "differences": [asdict(row) for row in self.differences], "lost": list(self.lost),
            "notes": list(self.notes), "source": self.source.to_json(), "file": self.file.to_json(),
        }  # fmt: skip


def compare_gguf(source: Config, file: Config) -> GgufParity:
    """What a conversion made of a checkpoint's positions; ``source`` is its config, beside which its weights are."""
    if file.format != "GGUF" or file.file is None or source.format == "GGUF" or source.file is None:
        raise ConfigError(
            "a GGUF file is compared with the folder that it was converted from: the folder, or its config.json, "
            "comes first, the .gguf file second"
        )
    mine, theirs = read(source), read(file)
    aligned = replace(theirs, kinds=tuple(_as_source(mine, kind, rope) for kind, rope in theirs.kinds))
    rows = [*differences(mine, aligned), *_lengths(mine, theirs, source, file.data)]
    lost = list(_lost(mine, aligned, file.data, rows))
    wrong, notes = _weights(source, mine, theirs, file.file)
    return GgufParity(mine, theirs, (*rows, *wrong), (*lost, *(row.sentence("source", "file") for row in wrong)), notes)


def _as_source(mine: RopeSpec, kind: str, rope: Any) -> tuple[str, Any]:
    """A rope of the file with the pairing of the source, which the rows of q and k answer for."""
    return kind, None if rope is None else replace(rope, pairing=mine.main.pairing)


def _lengths(mine: RopeSpec, theirs: RopeSpec, source: Config, meta: Mapping[str, Any]) -> list[Difference]:
    """The lengths and the window, where both say them."""
    arch = meta.get("general.architecture")
    keys, _ = text_model(ConfigKeys(source.data))
    slides = keys.config.get("use_sliding_window") is not False
    window = keys.config.get("sliding_window") if slides else None
    pairs = {
        "served length": (mine.served, theirs.served),
        "trained length": (mine.trained, theirs.trained),
        "window": (window, meta.get(f"{arch}.attention.sliding_window")),
    }
    return [
        Difference("all", what, str(a), str(b) if b else "not in the file")
        for what, (a, b) in pairs.items()
        if isinstance(a, int) and a != b
    ]


def _lost(mine: RopeSpec, theirs: RopeSpec, meta: Mapping[str, Any], rows: list[Difference]) -> list[str]:
    """The differences in words, by what a converter leaves out."""
    arch = meta.get("general.architecture")
    lost = []
    for kind, rope in mine.ropes().items():
        other = theirs.ropes().get(kind, theirs.main)
        if rope.base != other.base:
            silent = f"{arch}.rope.freq_base" not in meta
            how = f"the file says none, and llama.cpp takes {BASE:g}" if silent else f"the file has {other.base:.10g}"
            lost.append(f"the base {rope.base:.10g}: {how}")
        scaling = rope.scaling
        tensors = {Llama3: (FREQS,), Proportional: (FREQS,), LongRoPE: (LONG, SHORT)}.get(type(scaling), ())
        missing = [name for name in tensors if name not in meta]
        if missing:
            lost.append(f"{' and '.join(missing)}, the factors of {type(scaling).__name__.lower()}: not in the file")
        if isinstance(scaling, YaRN) and not isinstance(other.scaling, YaRN):
            extended = meta.get(f"{arch}.rope.scaling.yarn_ext_factor")
            why = "it has no yarn" if extended is None else f"its yarn_ext_factor is {extended:g}, which turns yarn off"
            lost.append(f"{scaling!r}: the file reads as {other.scaling!r}, {why}")
        elif isinstance(scaling, YaRN) and any(
            row.kind == kind and row.what == "temperature on logits" for row in rows
        ):
            lost.append(
                f"m = {rope.temperature(1) ** 0.5:.4f}: llama.cpp works out {other.temperature(1) ** 0.5:.4f} from the "
                "factor, and has no key for another"
            )
        elif scaling is not None and other.scaling is None and not missing:
            lost.append(f"{scaling!r}: the file has no scaling")
    what = ("served length", "trained length", "window")
    return [*dict.fromkeys(lost), *(row.sentence("source", "file") for row in rows if row.what in what)]


def _weights(source: Config, mine: RopeSpec, theirs: RopeSpec, file: Path) -> tuple[list[Difference], tuple[str, ...]]:
    """The rows of q and k."""
    assert source.file is not None
    tensors, reason = in_folder(source.file.parent)
    if not tensors:
        return [], (f"the rows of q and k were not compared: {reason}",)
    keys, _ = text_model(ConfigKeys(source.data))
    config = {"num_attention_heads": keys.config.get("n_head"), **keys.config}
    return compare_rows(SimpleNamespace(**config), mine, theirs, tensors, in_gguf(file))
