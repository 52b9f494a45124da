"""`make engines`: what is missing is run, what is there is compared, a run goes on, and the rest goes on without one.

The engine here is a script that gives Megatron's measured numbers back; environments, pip and processes are real.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools" / "engines"
sys.path.insert(0, str(TOOLS))

import collect  # noqa: E402 (the tools are on the path now)
import run as tool  # noqa: E402

SHIPPED = ROOT / "milepost" / "rope" / "engines" / "measured"
FEW = ("llama default flat", "qwen2 default flat", "gemma default flat")
DRIVER = """
import json, sys
from pathlib import Path
job, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
held = json.loads(Path({numbers!r}).read_text())
done = {{json.loads(line)["id"] for line in out.read_text().splitlines()}} if out.exists() else set()
for case in job["cases"]:
    if case["id"] not in done:
        with out.open("a") as file:
            file.write(json.dumps({{"id": case["id"], "of": case["of"], **held[case["id"]]}}) + "\\n")
"""


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of measured files with three configs, and none of Megatron."""
    folder = tmp_path / "measured"
    folder.mkdir()
    configs = json.loads((SHIPPED / "configs.json").read_text())
    (folder / "configs.json").write_text(json.dumps({name: configs[name] for name in FEW}))
    monkeypatch.setattr(tool, "MEASURED", folder)
    return folder


def engine(tmp_path: Path, **change: Any) -> tool.Run:
    """An engine that says what was measured with Megatron, but for ``change``, keys of the first case's first rope."""
    lines = collect.held_lines(SHIPPED / "megatron-0.16.1.json")
    for line in lines.values():
        for rope in line.get("ropes", []):
            rope["positions"] = [rope["positions"]]
    lines["export llama default flat | as it is"]["ropes"][0] |= change
    numbers, driver = tmp_path / "numbers.json", tmp_path / "driver.py"
    numbers.write_text(json.dumps({name: {k: v for k, v in line.items() if k != "of"} for name, line in lines.items()}))
    driver.write_text(DRIVER.format(numbers=str(numbers)))
    return tool.Run("megatron", "0.16.1", str(driver), (), torch=False)


def test_what_is_missing_is_run_and_what_is_there_compared(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "engines"
    here = engine(tmp_path)
    assert tool.run_all([here], folder, 3, again="") == 0
    said = capsys.readouterr().out
    made = json.loads((measured / "megatron-0.16.1.json").read_text())
    ran = [name for name, case in made["exports"].items() if "refused" not in case]
    whole = json.loads((SHIPPED / "megatron-0.16.1.json").read_text())["exports"]
    assert len(ran) > 5 and made["exports"].keys() == {name for name in whole if name.partition(" | ")[0] in FEW}
    assert made["when"] and f"megatron 0.16.1: {len(ran)} cases ran here, 0 of them again" in said
    assert said.endswith(f"In all 1 of 1 versions were run: {len(ran)} cases ran here, 0 of them again (0 otherwise "
                         "than in the files); 0 more are in the files. Not run: none.\n")  # fmt: skip

    before = (measured / "megatron-0.16.1.json").read_bytes()
    assert tool.run_all([here], folder, 3, again="") == 0  # all is there: some of it is run again
    assert f"{len(ran[:: len(ran) // 3])} of them again, all as in the file" in capsys.readouterr().out
    assert (measured / "megatron-0.16.1.json").read_bytes() == before

    assert tool.run_all([engine(tmp_path, m=0.5)], folder, 3, again="") == 1  # another number than in the file
    assert "  otherwise than in the file: export llama default flat | as it is" in capsys.readouterr().out


def test_a_config_that_changed_is_run_again(measured: Path, tmp_path: Path) -> None:
    """Its file has a digest of what was run: another config, or other words of an export, are not in it."""
    cases = [{"id": "a", "of": "1", "lengths": [8]}, {"id": "b", "of": "2", "lengths": [8]}]
    lines = {name: {"stops": "ValueError: no"} for name in "ab"}
    path = tmp_path / "x.json"
    collect.write(path, {"engine": "x"}, lines, cases, {"c": "no words"})
    held = collect.held_lines(path)
    assert {name: line["of"] for name, line in held.items()} == {"a": "1", "b": "2"}
    here, answer = engine(tmp_path), tool.Ran("")
    here.driver and Path(here.driver).write_text("raise SystemExit('nothing else may be run')")
    folder = tmp_path / "engines"
    folder.mkdir()
    assert tool._due(here, Path(sys.executable), folder, "", cases, held, 0, "", answer) == {}
    with pytest.raises(RuntimeError, match=r"ended with 1 and no case; the last lines are in "):
        tool._due(here, Path(sys.executable), folder, "", [cases[0] | {"of": "3"}], held, 0, "", answer)


def test_an_engine_that_can_not_be_run_is_named_and_the_rest_goes_on(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = engine(tmp_path)
    gone = tool.Run("vllm", "0.32.0", "on_vllm.py", (["--no-index", "a-wheel-that-is-gone==9.9"],), torch=False)
    driver = tmp_path / "imports.py"
    driver.write_text("import a_stand_in_that_is_missing")
    broken = tool.Run("torchtitan", "0.3.0", str(driver), (), torch=False)
    assert tool.run_all([gone, broken, here], tmp_path / "engines", 3, again="") == 1
    said = capsys.readouterr().out
    assert "vllm 0.32.0: not run: it can't be installed: ERROR: No matching distribution found for a-wheel-that" in said
    assert (
        "a package or a stand-in is missing: ModuleNotFoundError: No module named 'a_stand_in_that_is_missing'" in said
    )
    assert "megatron 0.16.1: " in said and said.rstrip().endswith("Not run: vllm@0.32.0, torchtitan@0.3.0.")
    held = json.loads((measured / "not_run.json").read_text())
    assert set(held) == {"vllm@0.32.0", "torchtitan@0.3.0"} and "a-wheel-that-is-gone==9.9" in held["vllm@0.32.0"]


def test_an_unknown_engine_or_version_is_refused() -> None:
    with pytest.raises(SystemExit, match="there is no engine vlm; did you mean vllm"):
        tool._refuse_unknown("vlm")
    with pytest.raises(
        SystemExit, match=r"vllm 1.0 can't be run here; the nearest that can are 0.32.0, 0.30.0, 0.29.0"
    ):
        tool._refuse_unknown("vllm@1.0")
    with pytest.raises(SystemExit, match=r"nearest that can are 0.5.9, 0.5.23"):
        tool._refuse_unknown("sglang@0.5.10")


def test_a_driver_goes_on_after_a_case_that_ended_its_process(tmp_path: Path) -> None:
    """The case is noted, and those after it are run; a case that stops the engine is an answer."""
    driver, job, out = tmp_path / "driver.py", tmp_path / "job.json", tmp_path / "out.jsonl"
    driver.write_text("import os\nfrom probe import Layer, NotMeasured, run\n\ndef measure(case):\n"
                      "    if case['id'] == 'ends':\n        os._exit(7)\n"
                      "    if case['id'] == 'stops':\n        raise KeyError('beta_fast')\n"
                      "    return [Layer(None)]\n\nrun(measure)\n")  # fmt: skip
    names = ("plain", "ends", "stops", "last")
    job.write_text(json.dumps({"cases": [{"id": name, "of": name[0]} for name in names]}))
    codes = []
    for _ in range(3):
        command = [sys.executable, str(driver), str(job), str(out)]
        codes.append(subprocess.run(command, env={"PYTHONPATH": str(TOOLS)}, check=False).returncode)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert codes == [7, 0, 0] and [line["id"] for line in lines] == list(names)
    assert lines[1]["not_measured"] == "the engine's process ended" and lines[2]["stops"] == "KeyError: 'beta_fast'"


@pytest.mark.parametrize("change", [{"m": 1.001}, {"pairing": "interleaved"}, {"rotary": 2}, {"window": 5}])
def test_a_number_that_moved_is_seen(change: dict[str, Any]) -> None:
    line = next(line for line in collect.held_lines(SHIPPED / "mlx-lm-0.32.2.json").values() if line.get("ropes"))
    other = {**line, "ropes": [{**line["ropes"][0], **change}, *line["ropes"][1:]]}
    assert collect.agree(line, line) and not collect.agree(line, other)
    assert not collect.agree(line, {"stops": "KeyError: 'factor'"})
    assert not collect.agree({"stops": "KeyError: 'factor'"}, {"stops": "ValueError: no"})
    table = {length: [w * (1 + 1e-5) for w in row] for length, row in line["ropes"][0]["tables"].items()}
    assert not collect.agree(line, {**line, "ropes": [{**line["ropes"][0], "tables": table}, *line["ropes"][1:]]})


def test_snippets_about_engines_are_of_versions_that_are_run() -> None:
    """Every fence `elsewhere` of docs/others.md names a run, and says what it prints."""
    from snippets import FENCE, PAGE, promised, run_snippets, snippets

    names = {f"{run.engine}@{run.version}" for run in tool.RUNS}
    about = [name for name, _ in FENCE.findall(PAGE.read_text(encoding="utf-8"))]
    assert len(about) == PAGE.read_text(encoding="utf-8").count("```elsewhere") >= 7 and set(about) <= names
    assert all(promised(body) for name in about for body in snippets(name))
    count, wrong = run_snippets(about[0], Path(sys.executable))  # which has no engine
    assert count == 1 and wrong[0].startswith("a snippet of docs/others.md prints [], not [")
