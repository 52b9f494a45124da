"""The golden files: they obey their schema, are what the script writes, and milepost and transformers mean the same by
each config."""

import ast
import importlib
import importlib.util
import inspect
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import milepost
from milepost.angles import cos_sin
from milepost.rope import ConfigError, RopeSpec

FOLDER = Path(milepost.__file__).parent / "rope" / "golden"
SCRIPT = Path(milepost.__file__).parent.parent / "tools" / "golden.py"
FILES = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(FOLDER.glob("*.json"))
    if path.stem != "schema"
}
SCHEMA = json.loads((FOLDER / "schema.json").read_text(encoding="utf-8"))
EPS = 2.0**-53

every_file = pytest.mark.parametrize("name", sorted(FILES))


# --- the schema

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
KEYWORDS = {
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "minItems",
    "const",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
}


def is_type(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def faults(value: Any, rule: dict[str, Any], where: str = "") -> list[str]:
    """What is wrong with a value, by the keywords that schema.json uses; a keyword not known here is an error."""
    assert set(rule) <= KEYWORDS, set(rule) - KEYWORDS
    if "$ref" in rule:
        rule = {
            **SCHEMA["$defs"][rule["$ref"].removeprefix("#/$defs/")],
            **{k: v for k, v in rule.items() if k != "$ref"},
        }
    said = rule.get("type", [])
    names = [said] if isinstance(said, str) else said
    if names and not any(is_type(value, name) for name in names):
        return [f"{where} is no {' or '.join(names)}"]
    number, wrong = is_type(value, "number"), []
    checks = {
        "const": lambda v: value == v,
        "enum": lambda v: value in v,
        "pattern": lambda v: re.search(v, value) is not None,
        "minItems": lambda v: len(value) >= v,
        "minimum": lambda v: not number or value >= v,
        "maximum": lambda v: not number or value <= v,
        "exclusiveMinimum": lambda v: not number or value > v,
        "required": lambda v: set(v) <= set(value),
        "additionalProperties": lambda v: v is not False or set(value) <= set(rule["properties"]),
    }
    wrong += [
        f"{where}: {word} {rule[word]}" for word, holds in checks.items() if word in rule and not holds(rule[word])
    ]
    if isinstance(value, dict):
        for key, inner in rule.get("properties", {}).items():
            if key in value:
                wrong += faults(value[key], inner, f"{where}.{key}")
    if isinstance(value, list) and "items" in rule:
        for i, item in enumerate(value):
            wrong += faults(item, rule["items"], f"{where}[{i}]")
    return wrong


@every_file
def test_a_file_obeys_the_schema(name):
    assert not faults(FILES[name], SCHEMA)


def test_the_validator_sees_what_is_wrong():
    good = FILES["llama-3.2-1b"]
    kind = good["kinds"][0]
    for bad in (
        {**good, "schema": 2},
        {**good, "more": 1},
        {**good, "name": "Llama 3"},
        {key: value for key, value in good.items() if key != "source"},
        {**good, "kinds": []},
        {**good, "kinds": [{**kind, "pairing": "neox"}]},
        {**good, "kinds": [{**kind, "rotary": True}]},
        {**good, "kinds": [{**kind, "base": 1}]},
        {**good, "without_rotation": [-1]},
        {
            **good,
            "kinds": [
                {**kind, "tables": [{**kind["tables"][0], "cos_sin": [{"position": 0, "cos": [1.5], "sin": [0.0]}]}]}
            ],
        },
    ):
        assert faults(bad, SCHEMA)


def test_there_are_enough_files_and_they_are_small():
    assert len(FILES) >= 30
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 3_000_000
    assert {kind["rope_type"] for file in FILES.values() for kind in file["kinds"]} == set(
        SCHEMA["$defs"]["kind"]["properties"]["rope_type"]["enum"]
    )


@every_file
def test_a_file_holds_together(name):
    file = FILES[name]
    assert file["name"] == name
    layers = file["without_rotation"] + [i for kind in file["kinds"] for i in kind["layers"]]
    assert sorted(layers) == list(range(len(layers)))
    for kind in file["kinds"]:
        count, L = kind["rotary"] // 2, kind["trained"]
        pairs = kind["pairs"]
        assert pairs == sorted(set(pairs)) and {0, 1, count - 1} <= set(pairs) <= set(range(count))
        assert count > 32 or len(pairs) == count
        assert [t["length"] for t in kind["tables"]] == (
            [L, L + 1, 4 * L] if kind["rope_type"] in ("dynamic", "longrope") else [None]
        )
        for table in kind["tables"]:
            assert len(table["inv_freq"]) == count
            assert [row["position"] for row in table["cos_sin"]] == sorted(
                {0, 1, 255, 256, 257, L - 1, L, L + 1, 4 * L, 131071, 1048575}
            )
            for row in table["cos_sin"]:
                assert len(row["cos"]) == len(row["sin"]) == len(pairs)
                assert all(abs(c * c + s * s - 1) < 4 * EPS for c, s in zip(row["cos"], row["sin"], strict=True))


# --- the script


def test_the_script_imports_only_python_and_mpmath():
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0}
    outside = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert outside == {"mpmath"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    assert not [
        node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in ("__import__", "exec", "eval")
    ]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("golden_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_writes_these_very_bytes(script, capsys):
    made = script.files()
    assert set(made) == {f"{name}.json" for name in FILES}
    for name, text in made.items():
        assert (FOLDER / name).read_bytes() == text.encode(), name
    assert script.main(["--check"]) == 0
    assert "files are right" in capsys.readouterr().out


def test_the_check_sees_another_byte(script, tmp_path, monkeypatch, capsys):
    for path in FOLDER.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    target = tmp_path / "llama-2-7b.json"
    target.write_bytes(target.read_bytes().replace(b"0.5403023058681398", b"0.5403023058681397", 1))
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    assert script.main(["--check"]) == 1
    assert capsys.readouterr().out == "llama-2-7b.json is not what tools/golden.py writes\n"


# --- numbers from elsewhere


@every_file
def test_the_fastest_pair_of_an_unscaled_table_is_the_cosine_of_the_position(name):
    """w_0 = 1 exactly, so Python's own cos, which is right to the last digit or the one before, is an oracle at
    1048575."""
    for kind in FILES[name]["kinds"]:
        for table in kind["tables"]:
            if table["inv_freq"][0] == 1:
                for row in table["cos_sin"]:
                    p = row["position"]
                    assert abs(row["cos"][0] - math.cos(p)) <= math.ulp(math.cos(p)) and abs(
                        row["sin"][0] - math.sin(p)
                    ) <= math.ulp(math.sin(p))


def ratios(name: str, length: int | None = None, kind: int = 0) -> list[float]:
    """Each frequency over what it was before scaling."""
    it = FILES[name]["kinds"][kind]
    w = next(t["inv_freq"] for t in it["tables"] if t["length"] == length)
    return [v * it["base"] ** (2 * i / it["rotary"]) for i, v in enumerate(w)]


def test_llama_3_2_keeps_15_pairs_blends_3_and_divides_the_rest_by_32():
    share = ratios("llama-3.2-1b")
    assert all(abs(r - 1) < 1e-14 for r in share[:15]) and all(abs(r * 32 - 1) < 1e-14 for r in share[18:])
    assert all(1 / 32 + 0.01 < r < 0.99 for r in share[15:18])


def test_llama_4_scout_has_a_step_and_no_blend():
    assert {round(r, 12) for r in ratios("llama-4-scout")} == {1.0, 0.0625}


def test_yarn_starts_and_ends_where_the_paper_s_code_does():
    """Bounds from c(r) = d ln(L / (2 pi r)) / (2 ln base), computed apart: Llama 2 20.9 and 45.0, Qwen 23.6 and 39.6,
    gpt-oss 8.09 and 17.40."""
    for name, first, last in (("yarn-llama-2-7b-64k", 20, 46), ("qwen2.5-7b-yarn", 23, 40), ("gpt-oss-20b", 8, 18)):
        share = ratios(name)
        factor = FILES[name]["config"]["rope_scaling"]["factor"]
        assert next(i for i, r in enumerate(share) if r < 1 - 1e-12) == first + 1
        assert next(i for i, r in enumerate(share) if r * factor < 1 + 1e-12) == last
    low, high = (64 * math.log(4096 / (2 * math.pi * r)) / (2 * math.log(150000)) for r in (32, 1))
    kept = 1 - (15 - low) / (high - low)
    assert abs(ratios("gpt-oss-20b")[15] - (kept + (1 - kept) / 32)) < 1e-14


def test_temperatures_by_hand():
    def of(name):
        return [t["temperature"] for kind in FILES[name]["kinds"] for t in kind["tables"]]

    assert of("llama-2-7b") == of("llama-3.1-8b") == of("ministral-3-3b") == [1.0]
    assert of("qwen2.5-7b-yarn") == pytest.approx([1.1386294361119891**2], rel=1e-15)
    assert of("deepseek-v3") == pytest.approx([(0.1 * math.log(40) + 1) ** 2], rel=1e-15)
    assert of("deepseek-v2-lite") == pytest.approx([(0.0707 * math.log(40) + 1) ** 2], rel=1e-15)
    assert of("phi-3.5-mini") == pytest.approx([1 + 5 / 12] * 3, rel=1e-15)  # ln 32 / ln 4096 = 5 / 12
    assert of("olmo-3.1-32b") == pytest.approx([(0.1 * math.log(8) + 1) ** 2, 1.0], rel=1e-15)


def test_longrope_switches_after_the_trained_length_and_dynamic_grows():
    short, long, longer = (t["inv_freq"] for t in FILES["phi-4-mini"]["kinds"][0]["tables"])
    assert max(abs(r - 1) for r in ratios("phi-4-mini", 4096)) < 1e-14
    assert long == longer and short[-1] / long[-1] == pytest.approx(47.77, rel=1e-14)
    grown = [ratios("internlm2.5-7b", n)[-1] for n in (32768, 32769, 131072)]
    assert grown[0] == pytest.approx(1, rel=1e-14) and grown[1] == pytest.approx(1 / (1 + 2 / 32768), rel=1e-13)
    assert grown[2] == pytest.approx(1 / 7, rel=1e-13)  # the slowest pair is slowed by the stretch itself: 2 * 4 - 1


# --- milepost

UNREAD: dict[str, str] = {}
"""Configs that milepost refuses for now, with a piece of what it says. Once it reads one, its line goes."""
SILENT = {"falcon-7b", "gemma-3-4b", "gemma-3-27b"}
"""Configs without any length, where the trained one is the family's."""


def ropes_of(file: dict[str, Any], spec: RopeSpec) -> dict[str, Any]:
    """milepost's rope for each of a file's kinds; where a file has one kind, all that milepost has must be equal."""
    ropes = spec.ropes()
    if [kind["kind"] for kind in file["kinds"]] == ["all"]:
        assert len(set(ropes.values())) == 1
        return {"all": next(iter(ropes.values()))}
    assert set(ropes) == {kind["kind"] for kind in file["kinds"]}
    return ropes


@every_file
def test_milepost_means_the_same(name):
    file = FILES[name]
    if name in UNREAD:
        with pytest.raises(ConfigError, match=re.escape(UNREAD[name])):
            RopeSpec.from_config(file["config"])
        return
    spec = RopeSpec.from_config(file["config"])
    ropes = ropes_of(file, spec)
    main = next((kind for kind in file["kinds"] if kind["kind"] == "full_attention"), file["kinds"][0])
    assert spec.trained == (None if name in SILENT else main["trained"])
    for kind in file["kinds"]:
        rope = ropes[kind["kind"]]
        assert (rope.head_dim, rope.rotary, rope.pairing, rope.base) == (
            kind["head_dim"],
            kind["rotary"],
            kind["pairing"],
            kind["base"],
        )
        assert list(rope.sections or []) == kind.get("sections", []) and rope.sections_interleaved == kind.get(
            "sections_interleaved", False
        )
        assert all(spec.layer(i) == rope for i in kind["layers"])
        for table in kind["tables"]:
            spectrum = rope.spectrum(table["length"])
            assert list(spectrum.frequencies) == pytest.approx(table["inv_freq"], rel=1e-12, abs=0)
            assert rope.temperature(table["length"]) == pytest.approx(table["temperature"], rel=1e-12)
            check_table(spectrum, kind, table)
    assert all(spec.layer(i) is None for i in file["without_rotation"])


def check_table(spectrum: Any, kind: dict[str, Any], table: dict[str, Any]) -> None:
    """milepost's cos and sin: off by no more than p times its frequency's error, the rounding of p w, and that of cos
    itself."""
    rows, pairs = table["cos_sin"], kind["pairs"]
    p = torch.tensor([row["position"] for row in rows], dtype=torch.float64)
    exact = torch.tensor(table["inv_freq"], dtype=torch.float64)[pairs]
    ours = cos_sin(torch.tensor([row["position"] for row in rows]), spectrum.tensor(), torch.float64)
    apart = (spectrum.tensor()[pairs] - exact).abs() + EPS * exact  # the golden frequency is itself rounded to a double
    allowed = p[:, None] * apart + p[:, None] * exact * EPS + 2 * EPS
    for mine, word in zip(ours, ("cos", "sin"), strict=True):
        golden = torch.tensor([row[word] for row in rows], dtype=torch.float64)
        assert ((mine[:, pairs] - golden).abs() <= allowed).all(), (word, kind["kind"])


# --- transformers

UNKNOWN = {"internlm2.5-7b", "kimi-k2"}
"""Models whose code is on the hub, not in transformers."""
REFUSED = {"phi-3-vision-128k": "original_max_position_embeddings"}
"""Configs that transformers 5 does not load: it reads su only where the trained length is in the dictionary."""
NO_MODULE = {"gpt-j-6b"}
"""Models of transformers that have no rotary module of their own."""


def hf_config(name: str) -> Any:
    from transformers import AutoConfig

    config = dict(FILES[name]["config"])
    return AutoConfig.for_model(config.pop("model_type"), **config).get_text_config()


def rotary_module(config: Any) -> Any:
    where = type(config).__module__.replace("configuration_", "modeling_")
    found = [
        value
        for word, value in inspect.getmembers(importlib.import_module(where), inspect.isclass)
        if word.endswith("RotaryEmbedding") and "Vision" not in word and value.__module__ == where
    ]
    assert len(found) == 1, found
    return found[0](config)


@pytest.mark.filterwarnings("ignore")
@every_file
def test_transformers_means_the_same(name):
    if name in UNKNOWN:
        with pytest.raises(ValueError, match="Unrecognized model identifier"):
            hf_config(name)
    elif name in REFUSED:
        with pytest.raises(KeyError, match=REFUSED[name]):
            hf_config(name)
    elif name in NO_MODULE:
        from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

        kind = FILES[name]["kinds"][0]
        sin_cos = create_sinusoidal_positions(2, hf_config(name).rotary_dim)[1]
        assert sin_cos[: len(kind["pairs"])].tolist() == pytest.approx(kind["tables"][0]["cos_sin"][1]["sin"], abs=1e-6)
    else:
        compare_with_transformers(FILES[name], hf_config(name))


def compare_with_transformers(file: dict[str, Any], config: Any) -> None:
    for kind in file["kinds"]:
        for table in kind["tables"]:
            module = rotary_module(config)
            if table["length"] is not None:
                module(torch.zeros(1, 1, 1), torch.tensor([[table["length"] - 1]]))
            prefix = "" if hasattr(module, "inv_freq") else f"{kind['kind']}_"
            assert getattr(module, prefix + "inv_freq").tolist() == pytest.approx(table["inv_freq"], rel=1e-6, abs=0)
            temperature = getattr(module, prefix + "attention_scaling") ** 2
            if file["config"]["model_type"].startswith("deepseek"):
                code = importlib.import_module(type(module).__module__)
                temperature *= code.yarn_apply_mscale(config.rope_parameters, 1.0)
            assert temperature == pytest.approx(table["temperature"], rel=1e-12)
