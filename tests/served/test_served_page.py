"""The commands and the snippet of docs/served.md, run against servers of ours; `make served` runs llama.cpp's own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from small_server import serving
from typer.testing import CliRunner

from milepost.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "served.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```elsewhere\n(.*?)^```$", PAGE, flags=re.S | re.M)
SMALLER = {"1k,4k,16k": "32,64,128", "4k": "128", "16k": "448"}


@pytest.fixture
def book(small_words, windows, tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("\n".join(small_words.decode(row.tolist()) for row in np.tile(windows, (2, 1))))
    return text


def test_the_page_has_these():
    assert [len(body.splitlines()) for body in FENCES] == [4, 1, 7]
    words = shlex.split(FENCES[1])
    assert words[:2] == ["milepost", "recommend"] and "{port} {flags}" in words[-1]  # tests/served/real runs it


@pytest.mark.slow
def test_the_commands_of_the_page_run(small_model, small_folder, book):
    lines = FENCES[0].splitlines()
    assert [line.split()[1] for line in lines] == ["verify", "diagnose", "compare", "recommend"]
    for line in lines:
        with serving(small_model, "vllm") as first, serving(small_model, "sglang") as second:
            places = {
                "http://127.0.0.1:8000": first.url, "http://127.0.0.1:8001": second.url, "book.txt": str(book),
                "path/to/model": str(small_folder), **SMALLER,
            }  # fmt: skip
            words = [places.get(word, word) for word in shlex.split(line)[1:]]
            done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (line, done.output[-1500:])


@pytest.mark.slow
def test_the_snippet_of_the_page_runs(small_model, small_folder, book, capsys):
    with serving(small_model, "vllm") as server:
        code = FENCES[2].replace("http://127.0.0.1:8000", server.url).replace("path/to/model", str(small_folder))
        exec(code.replace("book.txt", str(book)).replace("[1024, 4096, 16384]", "[32, 64, 128]"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("vllm Abilities(ids=True, prompt=True") and len(said) == 2
