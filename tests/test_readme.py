"""The README's snippets and commands run as they stand; long commands at their smallest sizes."""

import contextlib
import json
import re
import shutil
from pathlib import Path

import pytest
from furnished import furnish
from in_process import run_command, run_snippet, trials_here

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.S | re.M)
FENCES = FENCE.findall(README)
SNIPPETS = [body for language, body in FENCES if language == "python"]


def commands(text):
    """The lines of plain fences that call milepost, in their order."""
    return [
        line.split("#")[0].strip()
        for language, body in FENCE.findall(text)
        if not language
        for line in body.splitlines()
        if line.startswith("milepost ")
    ]


COMMANDS = commands(README)
PAGES = {
    name: (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("tour.md", "checkpoints.md", "migration.md", "space.md")
}
SMALLEST = {
    "milepost bench rope": "--heads 2 --length 64 --head-dim 16 --rounds 1",
    "milepost bench attention": "--lengths 128 --rounds 1 --heads 2 --head-dim 16 --schemes rope,alibi,t5 --pass "
    "forward",
    "milepost bench decode": "--length 256 --tokens 4 --rounds 1 --heads 2 --head-dim 16",
    "milepost explore": "--json",
    "milepost lab": "--profile tiny",
    "milepost diagnose": "--tokenizer bytes --lengths 128,256 --windows 2",
    "milepost migrate": "--steps 2 --batch 2",
    "milepost recommend": "--tokenizer bytes --trained-length 64 --target-length 128 --windows 4",
}


@pytest.fixture(scope="module")
def furnished(tmp_path_factory):
    return furnish(tmp_path_factory.mktemp("readme"))


@pytest.fixture
def here(furnished, tmp_path):
    """Work goes on in a folder of its own, with the small checkpoints and the text that the pages speak of."""
    shutil.copytree(furnished, tmp_path, dirs_exist_ok=True)
    with contextlib.chdir(tmp_path), trials_here():
        yield


def test_there_are_snippets_and_commands():
    assert len(SNIPPETS) >= 1 and len(COMMANDS) >= 10
    assert "make demo" in README and "make test" in README


@pytest.mark.slow
@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: s.splitlines()[1][:40])
def test_a_snippet_runs(snippet, here):
    run_snippet(snippet)


@pytest.mark.slow
@pytest.mark.parametrize("text", [README, *PAGES.values()], ids=["README", *PAGES])
def test_the_commands_run_in_their_order(here, text):
    for command in commands(text):
        run_command(command, SMALLEST)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_snippets_of_a_page_run(here, name):
    snippets = [body for language, body in FENCE.findall(PAGES[name]) if language == "python"]
    assert snippets
    for snippet in snippets:
        run_snippet(snippet)


def test_the_chinese_readme_has_the_same_snippets_and_commands():
    chinese = FENCE.findall((ROOT / "README.zh.md").read_text(encoding="utf-8"))

    def bare(body):
        return [line.split("#")[0].strip() for line in body.splitlines()]

    theirs = [bare(body) for _, body in chinese]
    for language, body in FENCES:
        if language == "python" or body.startswith(("milepost ", "make ")):
            assert bare(body) in theirs


def test_every_file_that_the_readme_links_to_is_there():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_figures_in_both_readmes_are_those_of_the_benchmark_that_is_shipped():
    from milepost.bench.report import summary

    result = json.loads((ROOT / "docs" / "bench" / "bench.json").read_text(encoding="utf-8"))
    assert result == json.loads((ROOT / "milepost" / "measured" / "bench.json").read_text(encoding="utf-8"))
    measured = rows(summary(result))
    for name in ("README.md", "README.zh.md"):
        shown = rows((ROOT / name).read_text(encoding="utf-8"))
        assert {"rope", "alibi", "t5"} <= set(shown)
        for scheme in ("rope", "alibi", "t5"):
            assert shown[scheme] == measured[scheme][:4], (name, scheme)


def rows(text):
    """The numbers of each row of a table whose first cell is a scheme."""
    lines = (re.match(r"\| `(\w+)` \|(.*)\|", line) for line in text.splitlines())
    return {m[1]: [cell.strip() for cell in m[2].split("|")] for m in lines if m and re.search(r"\d\.\d\d", m[2])}


def test_the_first_page_is_short():
    for name in ("README.md", "README.zh.md"):
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= 130
