"""GGUF files of families without rotary positions: their key-values in the words of config.json, so that one reader
serves both.

    gpt2.context_length, gpt2.block_count      ->  n_positions, n_layer
    t5.attention.relative_buckets_count        ->  relative_attention_num_buckets

A converter drops the rows that RoBERTa never uses, so that every "bert" table begins at its first row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from milepost.checkpoints.inspection.parts import Positions

COMMON = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
}
COMMON |= {"embedding_length": "hidden_size"}
KEYS: dict[str, tuple[str, dict[str, str]]] = {
    "gpt2": ("gpt2", COMMON),
    "starcoder": ("gpt_bigcode", COMMON),
    "bert": ("bert", COMMON),
    "bloom": ("bloom", COMMON | {"context_length": "seq_length"}),
    "mpt": ("mpt", COMMON | {"context_length": "max_seq_len"}),
    "t5": (
        "t5",
        COMMON
        | {"context_length": "n_positions", "block_count": "num_layers", "decoder_block_count": "num_decoder_layers"}
        | {"attention.relative_buckets_count": "relative_attention_num_buckets"},
    ),
}
"""An architecture's model type, and the keys of config.json for its own."""


def as_config(meta: Mapping[str, Any]) -> tuple[str, dict[str, Any], Callable[[Positions], Positions]] | None:
    """The model type, its config, and a function that puts the file's own words into what was read; None for other
    architectures."""
    arch = meta.get("general.architecture")
    if arch not in KEYS:
        return None
    name, keys = KEYS[arch]
    config: dict[str, Any] = {
        theirs: meta[f"{arch}.{ours}"] for ours, theirs in keys.items() if f"{arch}.{ours}" in meta
    }
    config["model_type"] = name
    words = {theirs: f"{arch}.{ours}" for ours, theirs in keys.items()}

    def renamed(text: str) -> str:
        for theirs, ours in words.items():
            text = text.replace(theirs, ours)
        return text

    def back(positions: Positions) -> Positions:
        lengths = {
            field: replace(getattr(positions, field), source=renamed(getattr(positions, field).source))
            for field in ("trained", "scaled", "served")
        }
        tables = tuple(replace(table, source=renamed(table.source)) for table in positions.tables)
        notes = tuple(
            renamed(note) for note in positions.notes if "transformers" not in note
        )  # what another engine does
        return replace(positions, tables=tables, notes=notes, **lengths)

    return name, config, back
