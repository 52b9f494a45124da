"""Real servers, and where the small model of the other tests is found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "checkpoints"))  # gguf_llama
sys.path.insert(0, str(Path(__file__).parents[1]))  # small_server
from started import ROOT, environment, process


@pytest.fixture(scope="session")
def llama_cpp():
    """llama.cpp's server with flags of its own."""

    def start(path, *flags, how=None):
        program = [environment("llama") / "python", ROOT / "tools/served/llama_cpp.py"]
        words = ["-m", path, "--port", "{port}", "-t", 1, "-np", 1, "--metrics", "--no-warmup"]
        return process([*program, *words, *flags], **(how or {}))

    return start
