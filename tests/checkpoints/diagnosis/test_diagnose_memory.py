"""Memory of diagnose grows with the length and not with its square: measured to 16k tokens, each in a process of its
own.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tiny_models import build

pytestmark = pytest.mark.slow

LENGTHS = (4096, 8192, 16384)
CODE = """
import os, sys
import torch
torch.set_num_threads(1)
from milepost.measure.memory import peak_mb
from milepost.checkpoints import diagnose
from milepost.checkpoints.model.load import load
folder, text, *lengths = sys.argv[1:]
subject = load(folder)
diagnose(subject, text, [64], windows=2)  # what is imported and made once
for length in map(int, lengths):
    if os.fork() == 0:
        print(peak_mb(lambda: diagnose(subject, text, [length], windows=2)), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"{length} tokens could not be read")
"""


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    small = {
        "vocab_size": 512,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
    }
    build("llama", **small).save_pretrained(folder / "model")
    np.save(folder / "ids.npy", np.random.default_rng(0).integers(3, 512, 2 * LENGTHS[-1] + 2))
    words = [sys.executable, "-c", CODE, str(folder / "model"), str(folder / "ids.npy"), *map(str, LENGTHS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(LENGTHS, map(float, done.stdout.split()), strict=True))


def test_memory_is_linear_in_the_length(peaks):
    """Of a + b L a doubling at most doubles (a tenth more for pages); one L x L tensor of bytes alone would be 16,
    64 and 256 MB: four times.
    """
    short, middle, long = (peaks[length] for length in LENGTHS)
    assert 0 < short < middle < long < LENGTHS[-1] ** 2 / 2**20, peaks
    assert middle <= 2.2 * short and long <= 2.2 * middle, peaks
