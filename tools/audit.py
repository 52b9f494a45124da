"""`make audit` ends here: pip-audit asks PyPI's advisories about every package that is installed in .venv.

It runs in an environment of its own, in .audit/. Exit 1 on a known fault, and where a package could not be looked up:
an audit that reached no advisories is not a clean one.
"""

import json
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLONE = Path(__file__).resolve().parent.parent
PLACE = CLONE / ".audit"


def found(packages: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each known fault, and one for all packages that could not be looked up, of what pip-audit says."""
    lines = [
        f"{package['name']} {package['version']}: {fault['id']}, mended in {', '.join(fault['fix_versions']) or 'none'}"
        for package in packages
        for fault in package.get("vulns", ())
    ]
    skipped = [package for package in packages if "skip_reason" in package]
    if skipped:
        names = ", ".join(package["name"] for package in skipped[:5]) + (", ..." if len(skipped) > 5 else "")
        lines.append(
            f"{len(skipped)} of {len(packages)} packages could not be looked up ({names}), the first because: "
            f"{skipped[0]['skip_reason']}. Their faults are not known: run it where PyPI's advisories can be reached"
        )
    return lines


def main() -> None:
    """Install pip-audit, ask, and say what came of it."""
    audit = PLACE / "bin/pip-audit"
    if not audit.exists():
        venv.create(PLACE, with_pip=True)
        subprocess.run([PLACE / "bin/python", "-m", "pip", "install", "--quiet", "pip-audit"], check=True)
    installed = PLACE / "installed.txt"
    freeze = [CLONE / ".venv/bin/python", "-m", "pip", "freeze", "--exclude-editable"]
    installed.write_bytes(subprocess.run(freeze, check=True, stdout=subprocess.PIPE).stdout)
    how = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    ran = subprocess.run([audit, *how, "-r", installed], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(ran.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        sys.exit(f"pip-audit ended with {ran.returncode} and no answer: {ran.stderr.strip()[-600:]}")
    lines = found(packages)
    if lines:
        sys.exit("\n".join(lines))
    print(f"{len(packages)} packages, no known fault")


if __name__ == "__main__":
    main()
