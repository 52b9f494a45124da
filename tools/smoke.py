"""`make dist` ends here: the wheel and the sdist in dist/ are installed and used outside of this clone.

A virtual environment in a temporary folder gets torch (the version of constraints.txt), then the wheel with no extras.
The sdist is installed over it last. Any command that fails ends the script with its output.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

CLONE = Path(__file__).resolve().parent.parent
CONSTRAINTS = CLONE / "constraints.txt"
HOME = "import milepost, pathlib; print(pathlib.Path(milepost.__file__).parent)"


def only(pattern: str) -> Path:
    files = list((CLONE / "dist").glob(pattern))
    if len(files) != 1:
        sys.exit(f"dist/ must hold exactly one {pattern}, and holds {len(files)}: run `make dist`")
    return files[0]


def run(place: Path, *words: str | Path) -> str:
    """Run a program of the new environment, in ``place``, without what this process knows of the clone."""
    known = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    program = place / "venv/bin" / words[0]
    done = subprocess.run([program, *words[1:]], cwd=place, env=known, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"`{' '.join(map(str, words))}` ended with exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def install(place: Path, *what: str | Path) -> None:
    print(f"installing {' '.join(Path(word).name for word in what)}", flush=True)
    run(place, "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", CONSTRAINTS, *what)


def use(place: Path, version: str) -> None:
    """What a newcomer does first: import, list, check, show, and a report of the runs that come with the package."""
    home = Path(run(place, "python", "-c", HOME).strip())
    assert place in home.parents, f"milepost is imported from {home}, not from the new environment"
    assert run(place, "milepost", "--version") == f"milepost {version}\n"
    names = [row["name"] for row in json.loads(run(place, "milepost", "list", "--json"))]
    assert {"rope", "alibi", "sinusoidal", "self_extend"} <= set(names), names
    run(place, "milepost", "check", "rope", "alibi")
    run(place, "milepost", "show", "rope", "--out", "rope.html")
    (place / "run").mkdir(exist_ok=True)
    shutil.copy(home / "measured/lab.json", place / "run/results.json")
    run(place, "milepost", "report", "run")
    for page in ("rope.html", "run/report.html", "run/report.md"):
        assert (place / page).stat().st_size > 1000, f"{page} is nearly empty"
        (place / page).unlink()
    print(f"milepost {version} from {home}: import, list, check, show and report work")


def main() -> None:
    wheel, sdist = only("*.whl"), only("*.tar.gz")
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory(prefix="milepost-smoke-") as folder:
        place = Path(folder).resolve()
        venv.create(place / "venv", with_pip=True)
        torch = next(line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("torch=="))
        install(place, torch)
        install(place, wheel)
        use(place, version)
        home = Path(run(place, "python", "-c", HOME).strip())
        missing = [name for name in zipfile.ZipFile(wheel).namelist() if not (home.parent / name).exists()]
        assert not missing, f"not installed: {missing}"
        install(place, "--force-reinstall", "--no-deps", sdist)
        use(place, version)


if __name__ == "__main__":
    main()
