"""What people expect of a project: one version, a whole wheel, and tools that call the make targets."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import milepost
from milepost.cli import app
from tools import audit

ROOT = Path(__file__).resolve().parent.parent
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text())
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_version_is_one_number_in_one_place():
    assert SETUP["project"]["dynamic"] == ["version"] and "version" not in SETUP["project"]
    assert SETUP["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "milepost.__version__"}
    written = [file for file in (ROOT / "milepost").rglob("*.py") if milepost.__version__ in file.read_text()]
    assert written == [ROOT / "milepost/__init__.py"]
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_the_changelog_begins_with_the_version_that_is_installed():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest[1] == milepost.__version__ == metadata.version("milepost")


def test_the_command_prints_the_version():
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0 and done.stdout == f"milepost {milepost.__version__}\n"


def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    tree = tmp_path / "clone"
    shutil.copytree(ROOT / "milepost", tree / "milepost", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", code, tmp_path]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob(f"milepost-{milepost.__version__}-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("milepost/")}
    assert packed == {str(file.relative_to(tree)) for file in (tree / "milepost").rglob("*") if file.is_file()}


def test_the_workflow_calls_the_make_targets():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert steps == ["make check", "make test", "make audit", "make dist"]
    assert {step.removeprefix("make ") for step in steps} <= TARGETS


def test_an_audit_that_reached_no_advisories_is_not_a_clean_one():
    clean, skipped = {"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found on PyPI"}
    known = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
    assert audit.found([clean]) == []
    fault, unknown = audit.found([clean, known, skipped])
    assert fault == "c 2: CVE-1, mended in 3"
    assert unknown.startswith("1 of 3 packages could not be looked up (b), the first because: not found on PyPI")


def test_contributing_names_only_targets_that_exist():
    named = re.findall(r"make ([a-z]+)", (ROOT / "CONTRIBUTING.md").read_text() + (ROOT / "SECURITY.md").read_text())
    assert {"check", "test", "dist"} <= set(named) <= TARGETS


def test_the_hooks_before_a_commit_are_the_tools_of_this_environment():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    assert [hook["id"] for hook in local["hooks"]] == ["ruff", "ruff-format", "mypy"]
    assert all(hook["language"] == "system" and hook["entry"].startswith(".venv/bin/") for hook in local["hooks"])


@pytest.mark.parametrize("form", ["bug", "wrong-number", "feature"])
def test_an_issue_form_has_what_github_asks_of_it(form):
    made = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{form}.yml").read_text())
    assert made["name"] and made["description"] and made["body"]
    ids = [field["id"] for field in made["body"]]
    assert len(set(ids)) == len(ids)
    for field in made["body"]:
        assert field["type"] in ("input", "textarea") and field["attributes"]["label"]
    if form != "feature":
        text = (ROOT / f".github/ISSUE_TEMPLATE/{form}.yml").read_text()
        assert "milepost --version" in text and "config.json" in text and "numbers" in text


def test_the_citation_has_what_its_format_requires():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0" and cited["title"] == "milepost" and cited["message"]
    assert cited["authors"] == [{"name": author["name"]} for author in SETUP["project"]["authors"]]
    assert cited["license"] == SETUP["project"]["license"]


def test_names_that_docs_of_0_1_showed_say_their_new_ones():
    import importlib

    from milepost import Layout
    from milepost.renamed import CLASSES, MODULES

    for old, new in MODULES.items():
        with pytest.raises(ModuleNotFoundError, match=f"{old} was renamed: import {new} instead"):
            importlib.import_module(old)
        importlib.import_module(new)
    for old, new in CLASSES.items():
        with pytest.raises(
            AttributeError, match=f"milepost.{old} was renamed: write milepost.{re.escape(new)} instead"
        ):
            getattr(milepost, old)
        assert hasattr(milepost, new.partition("(")[0])
    with pytest.raises(AttributeError, match=r"use Layout\.with_positions"):
        Layout.dense(3).told  # noqa: B018


def test_the_walks_of_the_design_name_files_that_are_there():
    text = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    walks = text[text.index("## Four walks") : text.index("## Laws and oracles")]
    named = re.findall(r"`([\w/]+\.py)`", walks)
    there = [path.relative_to(ROOT / "milepost").as_posix() for path in (ROOT / "milepost").rglob("*.py")]
    assert len(named) > 30 and walks.count("1. ") == 4
    for name in named:
        assert any(path == name or path.endswith(f"/{name}") for path in there), name


def test_no_two_classes_of_the_package_have_one_name():
    places: dict[str, list[str]] = {}
    for path in (ROOT / "milepost").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    assert len(places) > 200
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
