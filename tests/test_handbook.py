"""The handbook runs: its snippets print what they say, its commands and notebooks run.

Snippets and commands run in this process, in the order of their page, in one folder for all pages; a command that
several pages have runs once. Plain fences hold commands, `python` snippets; `cluster` and `elsewhere` hold what needs a
cluster or a shell: of the first the words are parsed. `harness` holds commands of lm-evaluation-harness:
tests/test_handbook_harness.py.
"""

import ast
import contextlib
import shlex
import warnings

import pytest
from furnished import furnish
from handbook_pages import DOCS, FENCE, PAGES, commands, read
from in_process import run_command, run_snippet, trials_here

pytestmark = pytest.mark.slow

SMALLEST = {
    "milepost bench rope": "--heads 2 --length 64 --head-dim 16 --rounds 1",
    "milepost bench attention": "--lengths 128 --rounds 1 --heads 2 --head-dim 16",
    "milepost bench decode": "--length 256 --tokens 4 --rounds 1 --heads 2 --head-dim 16",
    "milepost bench train": "--profile tiny --rounds 1",
    "milepost explore": "--json",
    "milepost lab": "--profile tiny --strategies yarn --lengths 1x,2x",
    "milepost diagnose": "--lengths 128,256 --windows 2",
    "milepost recommend": "--trained-length 64 --target-length 128 --windows 2",
    "milepost migrate": "--steps 2 --batch 2",
    "milepost choose --trained-length 64": "--trained-length 16 --target-length 32",
}
"""What is added to a command so that it is quick: the same with smaller numbers."""
SMALLER = {"length, steps = 128, 400": "length, steps = 128, 4", 'make("quick", ': 'make("tiny", lengths="1x,2x", '}
"""The same for snippets and notebooks."""
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Work goes on in a folder with the small checkpoints and the text that the pages speak of. Gives the commands
    that have run there.
    """
    with contextlib.chdir(furnish(tmp_path_factory.mktemp("handbook"))), trials_here():
        yield set()


def run(body):
    """Run a snippet with smaller numbers; the lines that it printed."""
    for long, short in SMALLER.items():
        body = body.replace(long, short)
    return run_snippet(body)


def promised(body):
    """What a snippet's comments say that it prints: the comment at the end of each call of print."""
    calls = [node for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Call)]
    ends = sorted(call.end_lineno for call in calls if getattr(call.func, "id", "") == "print")
    lines = body.splitlines()
    return [lines[end - 1].rsplit("  # ", 1)[1] for end in ends if "  # " in lines[end - 1]]


def run_once(line, code, ran):
    """Run a command, once in a folder."""
    if line not in ran:
        ran.add(line)
        run_command(line, SMALLEST, code)


def test_pages_hold_snippets_and_commands():
    assert {
        "walk.md",
        "tutorial.md",
        "recipes.md",
        "others.md",
        "lengths.md",
        "cost.md",
        "choosing.md",
        "questions/rope.md",
    } <= set(PAGES)
    fences = [found for name in PAGES for found in FENCE.findall(read(name))]
    assert {language for language, _ in fences} <= {"", "python", "text", "cluster", "harness", "elsewhere"}
    for language, body in fences:  # a plain fence holds commands alone, so that none is passed over
        assert language or all(line.startswith("milepost ") for line in body.splitlines()), body


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_says_to_run_runs(here, name):
    for language, body in FENCE.findall(read(name)):
        if language == "python":
            said = run(body)
            if promised(body):
                assert said == promised(body), body
        for line, code in commands(body) if not language else []:
            run_once(line, code, here)


def test_what_needs_a_cluster_is_a_command_that_is_understood():
    import typer

    from milepost.cli import app

    found = [
        line
        for name in PAGES
        for language, body in FENCE.findall(read(name))
        if language == "cluster"
        for line, _ in commands(body)
    ]
    assert found
    for line in found:
        words = shlex.split(line)[1:]
        command = typer.main.get_command(app).get_command(None, words[0])
        assert command.make_context(words[0], words[1:]).params["engine"] == "ray"


def test_a_snippet_that_printed_something_else_would_be_seen():
    assert run_snippet("print(1 + 1)") == ["2"]
    assert promised("print(1 + 1)  # 3\nx = 1  # not printed") == ["3"]
    assert promised("print(\n    1 + 1\n)  # 3\nfor x in ():\n    print(x)  # 4") == ["3", "4"]


def kinds(cell):
    """What a cell showed: printed words, pictures."""
    return {
        kind
        for output in cell.get("outputs", [])
        for kind in output.get("data", [output.get("name", "")])
        if kind != "text/plain"
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_showed(path, tmp_path):
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    before = [kinds(cell) for cell in book.cells]
    assert any(before), "the notebook is kept with what it showed"
    assert path.stat().st_size < 300_000
    for cell in book.cells:
        for long, short in SMALLER.items():
            cell.source = cell.source.replace(long, short)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        NotebookClient(
            book, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    assert [kinds(cell) for cell in book.cells] == before


def test_commands_on_made_pages_run(here):
    """But for `milepost check`: tests/test_laws.py does that to every encoding; scalings and maps are held to all
    laws that are quick.
    """
    import pages

    from milepost import build
    from milepost.encodings import NAMES, SPACE
    from milepost.testing import LAWS, check_encoding

    found = [
        line for text in pages.all_pages().values() for _, body in FENCE.findall(text) for line, _ in commands(body)
    ]
    assert len(found) > 60
    for line in found:
        words = shlex.split(line)
        if words[1] != "check":
            run_once(line, 0, here)
        elif words[2] not in NAMES | SPACE:
            enc = build(words[2], head_dim=128 if "--head-dim" in words else 16)
            done = check_encoding(
                enc, [law for law in LAWS if law.__name__ not in ("compiles", "backends_agree", "gradients")]
            )
            assert done.ok, f"{line}: {done}"
