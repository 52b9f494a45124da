"""The pages of the handbook, as tests read them."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TOOLS = ROOT / "tools" / "handbook"
sys.path.insert(0, str(TOOLS))  # what makes pages and figures

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.S | re.M)
ELSEWHERE = {"tour.md", "checkpoints.md", "migration.md", "space.md"}
"""Pages whose commands tests/test_readme.py runs."""
PAGES = sorted(
    str(path.relative_to(DOCS))
    for path in [*DOCS.glob("*.md"), *DOCS.glob("questions/*.md")]
    if path.name not in ELSEWHERE
)


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def commands(body):
    """The commands of a fence: their words, and the exit code that the page says."""
    lines = [line for line in body.splitlines() if line.startswith("milepost ")]
    return [(line.split("     #")[0].rstrip(), 1 if line.endswith("# exit code 1") else 0) for line in lines]
