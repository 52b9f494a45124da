"""The recipe for lm-evaluation-harness: its own text is judged by the real harness, which finds what the model says
at four times its length.
"""

import json
import math
import os
import re
import shlex
import subprocess
import sys

import pytest
from furnished import furnish
from handbook_pages import FENCE, read

pytestmark = pytest.mark.slow

LENGTH = 8000
"""Bytes of the text: within the new length, and nearly four times the old."""


def harness():
    """The page's commands of the harness."""
    lines = [
        line
        for language, body in FENCE.findall(read("recipes.md"))
        if language == "harness"
        for line in body.splitlines()
    ]
    assert lines and all(line.startswith("lm_eval ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


def run(words, folder):
    """What the harness says, where no network may help."""
    about = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", *words],
        check=False,
        cwd=folder,
        env=about,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def expected(folder, text):
    """exp of the mean loss by byte, from logits of one forward pass in float64."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    tokens = torch.tensor([[0, *text.encode()]])  # the harness begins with the token that ends a text
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits
    return math.exp(torch.nn.functional.cross_entropy(logits[0], tokens[0, 1:]).item())


def test_a_text_of_ones_own_is_judged(tmp_path):
    from typer.testing import CliRunner

    from milepost.cli import app

    furnish(tmp_path)
    text = (tmp_path / "book.txt").read_text(encoding="utf-8").encode()[:LENGTH].decode(errors="ignore")
    done = CliRunner().invoke(
        app,
        [
            "extend",
            str(tmp_path / "model"),
            "--target-length",
            "8k",
            "--method",
            "yarn",
            "--out",
            str(tmp_path / "longer"),
        ],
    )
    assert done.exit_code == 0, done.output
    (tmp_path / "tasks").mkdir()
    (task,) = (
        body
        for language, body in FENCE.findall(read("recipes.md"))
        if language == "text" and body.startswith("task: mine")
    )
    (tmp_path / "tasks" / "mine.yaml").write_text(task)
    (tmp_path / "text.jsonl").write_text(json.dumps({"text": text}) + "\n")
    (words,) = (words for words in harness() if "mine" in words)
    said = float(re.search(r"byte_perplexity\|[^|]*\|\s*([\d.]+)\|", run(words, tmp_path)).group(1))
    assert said == pytest.approx(
        expected(tmp_path / "longer", text), rel=2**-12
    )  # as far as a float32 angle of 8,000 is off
    assert said != pytest.approx(expected(tmp_path / "model", text), rel=1e-2), "the scaling was not applied"


def test_tasks_of_the_hub_are_words_that_the_harness_understands(tmp_path, monkeypatch):
    from lm_eval._cli.harness import HarnessCLI

    parsed = []
    for words in (words for words in harness() if "mine" not in words):
        monkeypatch.setattr(sys, "argv", ["lm_eval", *words])
        parsed.append(HarnessCLI().parse_args())
    tasks = {task for found in parsed for task in found.tasks}
    assert tasks == {"wikitext", "ruler"} and all(found.model_args["max_length"] == 8192 for found in parsed)
    assert "valid" in run(["validate", "--tasks", ",".join(sorted(tasks))], tmp_path)
