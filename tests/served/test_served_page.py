"""The commands of docs/served.md, run against servers of ours."""

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


@pytest.mark.slow
def test_the_commands_of_the_page_run(small_model, small_folder, small_words, windows, tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("\n".join(small_words.decode(row.tolist()) for row in np.tile(windows, (2, 1))))
    lines = FENCES[0].splitlines()
    assert [line.split()[1] for line in lines] == ["diagnose", "verify", "compare", "recommend"]
    for line in lines:
        with serving(small_model, "vllm") as first, serving(small_model, "sglang") as second:
            places = {
                "http://127.0.0.1:8000": first.url, "http://127.0.0.1:8001": second.url, "book.txt": str(text),
                "path/to/model": str(small_folder), **SMALLER,
            }  # fmt: skip
            words = [places.get(word, word) for word in shlex.split(line)[1:]]
            more = ["--tokenizer", str(small_folder)] if words[0] == "verify" else []
            done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 0, (line, done.output[-1500:])
    assert "{port}" in FENCES[1] and "{flags}" in FENCES[1]
