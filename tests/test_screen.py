"""What strangers' files say is shown, and never obeyed: no markup, no escape sequence, in words, tables, notes and errors."""

import io
import json

import pytest
from rich.text import Text
from typer.testing import CliRunner

from milepost.cli import app
from milepost.draw.screen import Screen, visible
from milepost.draw.table import Table
from milepost.draw.terminal import table

EVIL = "a\x1b[2J\x1b]0;owned\x07b\x9b31mc\u202ed"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07b\x9b31mc\u202ed"


def printed(*objects: object, **how: object) -> str:
    out = io.StringIO()
    Screen(file=out, width=200, **how).print(*objects)
    return out.getvalue()


def test_control_characters_are_shown_as_codes():
    assert visible(EVIL) == SHOWN and visible("tab\tline\nemoji 🙂 中文") == "tab\tline\nemoji 🙂 中文"
    for shown in (printed(EVIL), printed(Text(EVIL)), printed(table(Table(["head " + EVIL], [[EVIL]])))):
        assert not any(character in shown for character in "\x1b\x07\x9b\u202e")
        assert r"a\x1b[2J\x1b]0;owned" in shown and r"b\x9b31mc\u202ed" in shown


@pytest.mark.parametrize("name", ["ro[v2]t", "x[/y].txt", "[bold]a[/bold]", ":smile:", "[link=http://a]b"])
def test_nothing_is_taken_for_markup(name):
    assert name in printed(f"open runs/{name}/report.html", soft_wrap=True)


def test_colours_of_our_own_still_work():
    assert "\x1b[" in printed(Text("PASS", "green"), force_terminal=True, color_system="standard")


def test_an_error_about_a_foreign_key_shows_it(tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "rope_scaling": {"type": EVIL, "factor": 2.0},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = CliRunner().invoke(app, ["spec", str(tmp_path)])
    assert done.exit_code == 2 and "\x1b" not in done.output and r"\x1b[2J" in done.output


def test_a_folder_whose_name_looks_like_markup_is_named_as_it_is(tmp_path):
    out = tmp_path / "ro[v2]t" / "rope[x].html"
    out.parent.mkdir()
    done = CliRunner().invoke(app, ["show", "rope(head_dim=8)", "--out", str(out)])
    assert done.exit_code == 0 and str(out) in done.output.replace("\n", "") and out.is_file()
