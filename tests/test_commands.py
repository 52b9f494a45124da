"""The commands, as a user runs them: what they print, where, and with which exit code."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from milepost.cli import app
from milepost.encodings import NAMES, SPACE
from milepost.maps import NAMES as MAPS

TINY = ["--heads", "2", "--length", "64", "--head-dim", "16", "--rounds", "1"]
SMALL = ["--heads", "2", "--head-dim", "8", "--width", "8", "--length", "16"]
PLAIN = os.environ | {"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}

GOOD = """
    from __future__ import annotations
    from milepost import Encoding

    class Near(Encoding):
        def __init__(self, heads: int, slope: float = 0.5):
            super().__init__()
            self.heads, self.slope = heads, slope

        def bias(self, h, i, j):
            return -self.slope * (i - j).abs() + 0 * h

    class Memory(Near):
        '''Counts places in memory.'''

        def bias(self, h, i, j):
            return -self.slope * (i.shape[-2] - j).abs().sqrt() + 0 * h

    class NotAnEncoding:
        pass
"""


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`milepost ...` in a process of its own."""
    command = [sys.executable, "-m", "milepost.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=PLAIN, check=False)


def quick(*words: str):
    """The same without a process; for commands that leave nothing behind."""
    return CliRunner().invoke(app, list(words), env={"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "stranger_near.py").write_text(textwrap.dedent(GOOD))
    return tmp_path


# -- help ---------------------------------------------------------------------------------------------------------


def commands(group: object = None, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    import typer

    group = group or typer.main.get_command(app)
    found = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        found += commands(command, (*path, name)) if hasattr(command, "commands") else [(*path, name)]
    return found


def test_the_commands_are_there():
    assert {("list",), ("show",), ("check",), ("bench", "rope")} <= set(commands())


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_s_help_has_an_example_that_names_it(command):
    done = quick(*command, "--help")
    assert done.exit_code == 0
    assert "Example" in done.stdout
    assert f"milepost {' '.join(command)}" in " ".join(done.stdout.split())


def test_help_lists_every_command():
    done = run("--help")
    assert done.returncode == 0 and not done.stderr
    assert all(word in done.stdout for word in ("list", "show", "check", "bench"))


def test_the_installed_script_is_the_same_command():
    script = Path(sys.executable).with_name("milepost")
    done = subprocess.run([script, "list", "nope", "--json"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)[0]["name"] == "nope"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["no-such-command"],
        ["list", "--no-such-option"],
        ["bench"],
        ["bench", "no-such"],
        ["check", "rope", "--heads", "many"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_two(words):
    assert quick(*words).exit_code == 2


# -- list ---------------------------------------------------------------------------------------------------------


def test_list_prints_json_alone_with_every_encoding():
    done = run("list", "--json")
    assert done.returncode == 0 and not done.stderr
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == [*NAMES, *SPACE, *MAPS]
    for row in rows:
        assert {"name", "points", "properties", "reference"} <= set(row)
        assert isinstance(row["points"], list) and isinstance(row["properties"], dict)
        assert all(isinstance(value, bool) for value in row["properties"].values())


def test_list_with_names_gives_those_in_that_order():
    done = run("list", "rope", "alibi", "--json")
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == ["rope", "alibi"]
    assert rows[0]["points"] == ["query", "key"] and rows[0]["properties"]["rotation"]
    assert rows[1]["points"] == ["bias"] and "2108.12409" in rows[1]["reference"]


def test_list_prints_a_table_of_every_encoding():
    done = quick("list")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in NAMES | SPACE)


def test_list_sets_encodings_side_by_side():
    done = quick("list", "sinusoidal", "rope")
    assert done.exit_code == 0
    assert all(word in done.stdout for word in ("mechanism", "information", "prior", "used by", "RoPE", "Sinusoidal"))


def test_list_teaches_on_a_misspelt_name():
    done = run("list", "rop")
    assert done.returncode == 2 and not done.stdout
    assert "unknown encoding 'rop'" in done.stderr and "did you mean 'rope'" in done.stderr
    assert "Traceback" not in done.stderr


# -- show ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_show_writes_one_self_contained_page(tmp_path):
    out = tmp_path / "deep" / "rope.html"
    done = run("show", "rope(base=500000.0)", "--out", str(out), *SMALL)
    assert done.returncode == 0, done.stderr
    assert not done.stdout and "rope.html" in done.stderr
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "rope(head_dim=8, base=500000.0)" in page
    assert not re.search(r"<(script|link|img|iframe)[^>]*\b(src|href)\s*=\s*[\"']?(https?:)?//", page)
    assert "<script" in page and page.count('role="img"') >= 2 and len(page) < 400_000
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.slow
def test_show_prints_json_of_what_it_drew(tmp_path):
    out = tmp_path / "some.html"
    done = quick("show", "rope + alibi", "t5", "fire", "--out", str(out), "--json", *SMALL)
    assert done.exit_code == 0, done.output
    drawn = json.loads(done.stdout)
    assert drawn["file"] == str(out) and out.exists()
    assert [picture["encoding"] for picture in drawn["pictures"]] == [
        "rope(head_dim=8) + alibi(heads=2)",
        "t5(heads=2)",
        "fire(heads=2)",
    ]
    assert all(picture["panels"] for picture in drawn["pictures"])


def test_show_draws_all_encodings_on_one_page(tmp_path):
    out = tmp_path / "all.html"
    done = quick("show", "--all", "--out", str(out), *SMALL)
    assert done.exit_code == 0, done.output
    assert out.read_text(encoding="utf-8").count("<section ") == len(NAMES) + len(SPACE) + len(MAPS)


@pytest.mark.parametrize("name", NAMES | SPACE)
def test_show_draws_every_encoding_with_numbers_only(name, tmp_path):
    done = quick("show", name, "--out", str(tmp_path / "one.html"), "--json", *SMALL)
    assert done.exit_code == 0, done.output
    (picture,) = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))["pictures"]
    for panel in picture["panels"]:
        assert panel["title"] and panel["x"]
        assert (panel["kind"] == "heat") == (panel["z"] is not None) != (panel["lines"] is not None)
        for values in (panel["lines"] or {}).values():
            assert len(values) == len(panel["x"])


@pytest.mark.parametrize(("ending", "start"), [(".png", rb"\x89PNG\r\n\x1a\n"), (".svg", rb"<svg[\s>]")])
def test_show_draws_a_png_and_an_svg(ending, start, tmp_path):
    out = tmp_path / f"alibi{ending}"
    done = quick("show", "alibi", "--out", str(out), *SMALL)
    assert done.exit_code == 0, done.output
    assert re.match(start, out.read_bytes())


@pytest.mark.parametrize("out", ["picture.pdf", "picture", "picture.HTML5", ".html.bak"])
def test_show_refuses_an_ending_that_it_can_not_draw(out, tmp_path):
    done = quick("show", "rope", "--out", str(tmp_path / out))
    assert done.exit_code == 2
    assert all(word in done.stderr for word in (out, ".html", ".png", ".svg"))
    assert not list(tmp_path.iterdir())


def test_show_refuses_several_encodings_in_one_png(tmp_path):
    done = quick("show", "rope", "alibi", "--out", str(tmp_path / "two.png"))
    assert done.exit_code == 2 and "2 were asked for" in done.stderr and ".html" in done.stderr


def test_show_refuses_a_folder_that_it_can_not_write(tmp_path):
    (tmp_path / "file").write_text("")
    done = quick("show", "rope", "--out", str(tmp_path / "file" / "rope.html"), *SMALL)
    assert done.exit_code == 2 and "milepost:" in done.stderr


@pytest.mark.parametrize("command", ["show", "check"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name at least one"),
        (["rope", "--all"], "not both"),
        (["rop"], "did you mean 'rope'"),
        (["rope(bas=1)"], "did you mean 'base'"),
    ],
)
def test_show_and_check_teach_on_wrong_names(command, words, said):
    done = quick(command, *words)
    assert done.exit_code == 2 and said in done.stderr and not done.stdout


@pytest.mark.parametrize(
    "words", [["rope", "--head-dim", "7"], ["alibi", "--heads", "0"], ["rope", "--length", "1"]], ids=" ".join
)
def test_show_teaches_on_wrong_sizes(words, tmp_path):
    done = quick("show", *words, "--out", str(tmp_path / "x.html"))
    assert done.exit_code == 2 and words[-1] in done.stderr and "Traceback" not in done.output


# -- check --------------------------------------------------------------------------------------------------------


def test_check_passes_an_encoding_of_ours_and_says_so():
    done = quick("check", "nope")
    assert done.exit_code == 0, done.output
    assert "PASS" in done.stdout and "FAIL" not in done.stdout and "cached" in done.stdout


def test_check_passes_a_strangers_class_from_the_current_folder_and_prints_json_alone(folder):
    done = run("check", "stranger_near:Near", "--json", cwd=folder)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr
    (found,) = json.loads(done.stdout)
    assert found["ok"] is True and found["encoding"] == "stranger_near:Near(heads=4)"
    assert {law["result"] for law in found["laws"]} <= {"PASS", "excused"}
    assert {"law", "sentence", "result", "detail"} == set(found["laws"][0])


def test_check_fails_a_strangers_mistake_with_one_and_names_the_law(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    done = quick("check", "stranger_near:Memory(slope=0.25)")
    assert done.exit_code == 1
    assert re.search(r"FAIL\s+cached", done.stdout)
    assert "1 of 1 broke a law" in done.stderr


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no_such_module_here:Thing", ("can't import 'no_such_module_here'", "as python would import it")),
        ("stranger_near:NoSuchClass", ("stranger_near:NoSuchClass", "not a subclass")),
        ("stranger_near:NotAnEncoding", ("stranger_near:NotAnEncoding", "not a subclass")),
        ("stranger_near:Near(slop=1.0)", ("'slop'", "did you mean 'slope'")),
    ],
)
def test_check_teaches_on_a_strangers_wrong_name(spec, words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    done = quick("check", spec)
    assert done.exit_code == 2 and not done.stdout
    assert all(word in done.stderr for word in words), done.stderr


def test_a_strangers_module_that_raises_is_told_in_a_sentence(tmp_path):
    (tmp_path / "stranger_broken.py").write_text("1 / 0\n")
    done = run("check", "stranger_broken:Thing", cwd=tmp_path)
    assert done.returncode == 2
    assert "stranger_broken" in done.stderr and "division by zero" in done.stderr
    assert "Traceback" not in done.stderr


# -- bench --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_bench_rope_prints_rows_of_ratios():
    done = quick("bench", "rope", *TINY)
    assert done.exit_code == 0, done.output
    assert "milepost" in done.stdout and "clone" in done.stdout and "eager" in done.stdout


def test_bench_rope_prints_json_alone():
    done = run("bench", "rope", "--json", *TINY)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    by_name = {(row["implementation"], row["mode"]): row for row in rows}
    assert ("milepost", "eager") in by_name and ("clone", "eager") in by_name
    assert by_name["clone", "eager"]["ratio"] == 1 and by_name["milepost", "eager"]["times_ours"] == 1
    assert all(row["seconds"] > 0 and row["ratio"] > 0 for row in rows)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "words", [["--rounds", "0"], ["--heads", "0"], ["--head-dim", "7"], ["--device", "abacus"]], ids=" ".join
)
def test_bench_rope_teaches_on_wrong_sizes(words):
    done = quick("bench", "rope", *TINY, *words)
    assert done.exit_code == 2, done.output
    assert words[1] in done.stderr and "Traceback" not in done.output
