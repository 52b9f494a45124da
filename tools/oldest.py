"""`make oldest` ends here: the lower bounds of pyproject.toml, installed in an environment of its own, pass the tests.

Every `name>=version` of the dependencies and extras becomes `name==version`. The tests are the quick ones, those of
`make check`. Versions that can't be had are in `INSTEAD`, each with its reason. The environment is in .oldest/.
"""

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

CLONE = Path(__file__).resolve().parent.parent
PLACE = CLONE / ".oldest"
BOUND = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?>=([0-9][^,;\s]*)")
INSTEAD = {
    "torch": ("2.13.0", "Linux wheels of older versions on PyPI are CUDA builds alone, of several GB"),
}
LEFT_OUT = {"ruff", "mypy", "build"}
"""Tools that no test uses."""


def bounds() -> dict[str, str]:
    """The lowest version of each dependency that pyproject.toml names, whatever extra asks for it."""
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    lowest: dict[str, str] = {}
    for line in asked:
        if line.startswith("milepost["):
            continue
        matched = BOUND.match(line)
        if matched is None:
            sys.exit(f"pyproject.toml asks for {line!r}, which has no lower bound that could be tried")
        name, version = matched[1].lower().replace("_", "-"), matched[2]
        if lowest.setdefault(name, version) != version:
            sys.exit(f"pyproject.toml has two lower bounds of {name}: {lowest[name]} and {version}")
    return lowest


def pinned() -> dict[str, str]:
    """What is installed: the lowest versions, but for those that can't be had."""
    return {
        name: INSTEAD[name][0] if name in INSTEAD else version
        for name, version in bounds().items()
        if name not in LEFT_OUT
    }


def run(*words: str) -> int:
    """Run the environment's Python in this clone."""
    known = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env = {**known, "OMP_NUM_THREADS": "1"}
    return subprocess.run([PLACE / "bin/python", *words], cwd=CLONE, env=env, check=False).returncode


def install(*words: str) -> None:
    if run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words):
        sys.exit(f"`pip install {' '.join(words)}` failed")


def main() -> None:
    """Install, say what was installed, and run the tests."""
    versions = pinned()
    if not (PLACE / "bin/python").exists():
        venv.create(PLACE, with_pip=True)
    held = PLACE / "oldest.txt"
    held.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
    install(f"torch=={versions['torch']}")  # first and alone: asked for by another package it would bring a CUDA build
    install("-c", str(held), *(f"{name}=={version}" for name, version in versions.items()))
    install("--no-deps", "--editable", str(CLONE))
    for name, (version, reason) in INSTEAD.items():
        print(f"{name} {version} is tried in place of {bounds()[name]}: {reason}")
    print("tried:", ", ".join(f"{name} {version}" for name, version in versions.items()), flush=True)
    sys.exit(run("-m", "pytest", "-m", "not slow and not real and not served", *sys.argv[1:]))


if __name__ == "__main__":
    main()
