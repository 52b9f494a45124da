"""make families: every class of transformers whose config has rope keys, measured on a small random model, and compared
with the reader of configs.

    python -m tools.families            # resumable: runs/families/ has a file for each type
    python -m tools.families --types llama gemma3_text

Writes milepost/measured/families.json, which is shipped and which a quick test compares with the reader, and
docs/families.md, the table of all of them.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from pathlib import Path
from typing import Any

from milepost.checkpoints.families import CannotBuild, bounds, cache, watch
from milepost.checkpoints.families import measure as measuring
from milepost.checkpoints.families.compare import wrong
from milepost.checkpoints.families.measure import MeasuredFamily, main_layers, measure
from milepost.checkpoints.families.small import version
from milepost.checkpoints.model.quiet import quiet
from milepost.rope.config.families import FAMILIES, NOT_HELD, NOT_ROTARY

HOME = Path(__file__).parents[1]
DATA = HOME / "milepost" / "measured" / "families.json"
DOCS = HOME / "docs" / "families.md"
RUNS = HOME / "runs" / "families"
ROPE = ("rope", "rotary")
LAYERS = 12
"""Layers of a type's default config that are built: every pattern of kinds is shorter."""
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
KEPT = (
    *("rope", "rotary", "head", "layer", "window", "index", "position", "attn", "theta", "hidden_size", "n_embd"),
    *("model_type", "floor_scale", "qk_", "alibi", "text_config", "cross_attention", "attention_chunk", "seq_length"),
    *("d_model", "full_attention_interval", "block_types", "model_max_length", "attention_scale", "dim"),
)
"""What a key of a config has in its name, if a reader of positions may read it."""

DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [3, 7, 11]},
    "chameleon": {"vocabulary_map": {"<image>": 4}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": DEFAULT}},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense"] * 12, "num_experts_per_tok": 2, "num_hidden_layers": 12},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "glm4v_text": {"rope_parameters": {**DEFAULT, "mrope_section": [16, 24, 24]}},
    "glm_image_text": {"rope_parameters": {**DEFAULT, "mrope_section": [16, 24, 24]}},
    "granitemoehybrid": {
        "layer_types": ["mamba", "mamba", "attention", "mamba"] * 3, "num_hidden_layers": LAYERS,
        "position_embedding_type": "rope",
    },
    "hunyuan_vl_text": {"rope_parameters": {**DEFAULT, "mrope_section": [16, 16, 16, 16]}, "head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 3, "num_hidden_layers": LAYERS},
    "moonshine_streaming": {"num_key_value_heads": 2},
    "musicflamingo": {
        "audio_config": {"model_type": "audioflamingo3_encoder", "hidden_size": 128, "num_attention_heads": 2},
        "head_dim": 128,
    },
    "nemotron": {"num_key_value_heads": 8},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 32},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 64,
        "indexer_compress_ratio": 4,
    },
    "step3p5": {"sliding_window": 512},
    "t5_gemma_module": {"dropout_rate": 0.0},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "t5gemma2_text": {"dropout_rate": 0.0},
}  # fmt: skip
"""What a type's default config leaves open, and its class needs."""

NAMED: dict[str, str] = {
    "hrm_text": "its layers are of two modules, which run in turn: the config counts those of both as one",
    "t5gemma2_decoder": "its masks are made for text and encoder together, and windows are not seen in them",
}
"""Why a reading differs from what was measured, where it is no fault of the reader."""


def types() -> list[str]:
    """Model types whose default config has rope keys of its own."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    bearing = []
    for name in sorted(CONFIG_MAPPING.keys()):
        try:
            data = CONFIG_MAPPING[name]().to_dict()
        except Exception:  # a few have no default
            continue
        if any(word in key for key, value in data.items() if value is not None for word in ROPE):
            bearing.append(name)
    return bearing


def config_of(name: str) -> dict[str, Any]:
    """The default config of a type, of at most 12 layers."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    data = {**CONFIG_MAPPING[name]().to_dict(), "model_type": name, **copy.deepcopy(OWN.get(name, {}))}
    _shorten(data)
    return data


def _shorten(data: dict[str, Any]) -> None:
    for name in ("out_features", "out_indices", "stage_names"):  # they count layers too
        data.pop(name, None)
    for count in COUNTS:
        n = data.get(count)
        if not isinstance(n, int) or n <= LAYERS:
            continue
        data[count] = LAYERS
        for key, value in data.items():
            if isinstance(value, list) and len(value) == n:
                data[key] = value[:LAYERS]
            if key == "per_layer_config" and isinstance(value, dict):
                data[key] = {k: v for k, v in value.items() if int(k) < LAYERS}
    for value in data.values():
        if isinstance(value, dict):
            _shorten(value)


def kept(config: dict[str, Any]) -> dict[str, Any]:
    """The keys of a config that say something about positions."""
    return {k: v for k, v in config.items() if v is not None and any(word in k for word in KEPT)}


def run(name: str) -> dict[str, Any]:
    """One type: its config and what was measured, or why it was not."""
    file = RUNS / f"{name}.json"
    if file.is_file():
        data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return data
    data = {"config": None, "measured": None, "why": ""}
    try:
        with quiet():
            config = config_of(name)
            data["config"] = kept(config)
            data["measured"] = cache.to_json(measure(config))
    except CannotBuild as error:
        data["why"] = str(error)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(data), encoding="utf-8")
    os.replace(part, file)
    return data


def lift_bounds() -> None:
    """Let a class take its time and its room: these configs are transformers' own, and a stranger's are not."""
    for module in (bounds, measuring, watch):
        for name, value in (("SECONDS", 12.0), ("NUMBERS", 1 << 27), ("ROOM", 8 << 30)):
            if hasattr(module, name):
                setattr(module, name, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="*", help="these alone, and nothing is written to the package or docs")
    asked = parser.parse_args().types
    RUNS.mkdir(parents=True, exist_ok=True)
    lift_bounds()
    names = asked or types()
    results, started, fresh = {}, time.monotonic(), 0
    for n, name in enumerate(names):
        done = (RUNS / f"{name}.json").is_file()
        results[name] = run(name)
        fresh += not done
        left = (time.monotonic() - started) / max(1, fresh) * (len(names) - n - 1)
        word = results[name]["why"] or "measured"
        print(f"{n + 1}/{len(names)} {name}: {word[:100]} ({left / 60:.0f} min left)", flush=True)
    if asked:
        return
    before = json.loads(DATA.read_text(encoding="utf-8")).get("before", {}) if DATA.is_file() else {}
    DATA.write_text(
        json.dumps({"transformers": version(), "before": before, "types": results}, separators=(",", ":")) + "\n",
        encoding="utf-8",
    )
    DOCS.write_text(page(results, before), encoding="utf-8")


def page(results: dict[str, Any], before: dict[str, str]) -> str:
    """The table of all types, as Markdown."""
    rows, counts = [], {"measured": 0, "read": 0, "equal": 0, "named": 0}
    for name, data in results.items():
        measured = None if data["measured"] is None else cache.from_json(data["measured"])
        counts["measured" if measured else "read"] += 1
        words = "" if measured is None else verdict(name, data["config"], measured)
        counts["equal"] += words == "equal"
        counts["named"] += measured is not None and words != "equal"
        shown = f"not built: {data['why']}" if measured is None else describe(measured)
        rows.append(f"| {name} | {reading(name)} | {shown.replace('|', '/')} | {words} | {before.get(name, '')} |")
    unknown = [word for word in before.values() if word.startswith("unknown")]
    misread = sum(": " in word for word in unknown)
    known = sum(word.startswith("wrong") for word in before.values())
    head = f"""# Families, measured

What every model type of transformers {version()} whose config has rope keys does about positions: measured on a small
random model of its class (the layers and position keys of its default config, at most {LAYERS} layers, widths cut
down), and compared with what the reader of configs says of the same config. `make families` makes this page.

{len(results)} types: {counts["measured"]} were measured, {counts["read"]} can't be built here and are read from their
config (the row says why). Of those measured {counts["equal"]} are read as measured, and {counts["named"]} differ for a
reason that is named. Before this table was made {len(unknown)} types were unknown, of which {misread} were read wrongly
or refused, and {known} known ones were read wrongly: the last column.

| type | read from the config | measured: layers x what they do | equal | reading before |
|---|---|---|---|---|
"""
    return head + "\n".join(rows) + "\n"


def verdict(name: str, config: dict[str, Any], measured: MeasuredFamily) -> str:
    """Whether the reader says what was measured; the named reason where not."""
    faults = wrong(config, measured)
    if not faults:
        return "equal"
    return NAMED.get(name) or "DIFFERENT: " + "; ".join(faults)


def reading(name: str) -> str:
    """What the reader knows of a type."""
    if name in FAMILIES:
        family = FAMILIES[name]
        base = "its dictionary's base" if family.base is None else f"base {family.base:g}"
        return f"{family.pairing} pairs, {base} unless the config has another"
    if name in NOT_HELD:
        return f"no RopeSpec: {NOT_HELD[name]}"
    return f"no rope: {NOT_ROTARY[name]}" if name in NOT_ROTARY else "UNKNOWN"


def describe(measured: MeasuredFamily) -> str:
    """What was measured, in a cell: layers alike together."""
    groups: dict[str, int] = {}
    for layer in main_layers(measured):
        turn = layer.turn
        if not layer.attends:
            words = "no attention"
        elif turn is None:
            words = "no turn"
        elif turn.axes:
            words = f"{turn.size} of {turn.width} channels, {turn.pairing} pairs, by two axes"
        elif not turn.pairing:
            words = "changes with position, and is no turn of pairs"
        else:
            base = "scaled frequencies" if turn.base is None else f"base {turn.base:g}"
            place = f" from {turn.first} on" if turn.first else ""
            words = f"{turn.size} of {turn.width} channels{place}, {turn.pairing}, {base}"
            words += ", backwards" if turn.backwards else ""
            words += f", m {turn.m:g}" if abs(turn.m - 1) > 1e-6 else ""
        words += f", {layer.window}" if layer.window else ""
        words += f", query x {layer.temperature[-1][1]:g} at {layer.temperature[-1][0]}" if layer.temperature else ""
        words += ", values turn" if layer.values else ""
        words += f", indexer {layer.indexer.pairing}" if layer.indexer is not None else ""
        groups[words] = groups.get(words, 0) + 1
    tables = "".join(f"; table {name} of {rows} rows" for name, rows, _ in measured.tables)
    return f"{measured.name}: " + "; ".join(f"{n} x {words}" for words, n in groups.items()) + tables


if __name__ == "__main__":
    main()
