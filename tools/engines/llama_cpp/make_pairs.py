"""Pairs of a folder and the GGUF file that llama.cpp's own converter makes of it: python make_pairs.py JOB.json FOLDER

JOB has configs by name. In FOLDER, NAME/ is the checkpoint and NAME.gguf the file; a pair that is there is left alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from on_llama_cpp import fitted
from to_gguf import convert, save

if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[2])
    for name, config in json.loads(Path(sys.argv[1]).read_text()).items():
        file = place / f"{name}.gguf"
        if not file.exists():
            save(fitted(config), place / name)
            convert(place / name, file)
