"""How much code the package is, in statements (`ast.stmt` nodes), folder by folder; and how much it was.

python tools/statements.py                      # now
python tools/statements.py --against c828406    # and at a commit, with the difference

A statement is what a reader has to understand; lines depend on the formatter. Folders that moved since the commit have
two rows.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "milepost"
DEPTH = 3
"""Parts of a path that name a folder, the package's own among them."""


def count(sources: dict[str, str]) -> Counter[str]:
    """Statements by folder, of sources by path."""
    counts: Counter[str] = Counter()
    for path, source in sources.items():
        folder = "/".join(Path(path).parent.parts[:DEPTH])
        counts[folder] += sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(source)))
    return counts


def sources_now() -> dict[str, str]:
    """The package's files as they are."""
    return {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in (ROOT / PACKAGE).rglob("*.py")}


def sources_at(commit: str) -> dict[str, str]:
    """The package's files as they were."""
    packed = subprocess.run(["git", "archive", commit, PACKAGE], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = [entry for entry in archive.getmembers() if entry.name.endswith(".py")]
        return {entry.name: archive.extractfile(entry).read().decode() for entry in files}  # type: ignore[union-attr]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="a commit to compare with")
    commit = parser.parse_args().against
    now, before = count(sources_now()), Counter[str]() if commit is None else count(sources_at(commit))
    for folder in sorted(now | before):
        print(_row(folder, now[folder], before[folder], commit))
    print(_row("all", now.total(), before.total(), commit))


def _row(name: str, now: int, before: int, commit: str | None) -> str:
    then = "" if commit is None else f"{before:8,}{now - before:+8,}"
    return f"{name:48}{now:8,}{then}"


if __name__ == "__main__":
    main()
