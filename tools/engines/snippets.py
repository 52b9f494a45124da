"""The snippets of docs/others.md that show an engine's own defects, run in that engine's environment.

They stand in fences of the language `elsewhere`, with the engine and its version in the first line. Each call of print
has a comment with what it prints.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "others.md"
FENCE = re.compile(r"^```elsewhere\n# (\S+@\S+)\n(.*?)^```", re.M | re.S)


def snippets(name: str) -> list[str]:
    """The snippets about an engine in a version, ENGINE@VERSION."""
    return [body for about, body in FENCE.findall(PAGE.read_text(encoding="utf-8")) if about == name]


def promised(body: str) -> list[str]:
    """What the comments of a snippet say that it prints."""
    return re.findall(r"^print\(.*\)  # (.*)$", body, re.M)


def run_snippets(name: str, python: Path) -> tuple[int, list[str]]:
    """Run the snippets about an engine; how many there are, and what those print that say something else."""
    bodies = snippets(name)
    wrong = []
    for body in bodies:
        done = subprocess.run([python, "-c", body], capture_output=True, text=True, check=False)
        if (printed := done.stdout.splitlines()) != promised(body):
            why = (done.stderr.splitlines() or [""])[-1]
            wrong.append(f"a snippet of docs/others.md prints {printed}, not {promised(body)} {why}")
    return len(bodies), wrong
