"""The handbook is true: its snippets print what they say, its commands run, its numbers are those of the results, its questions are all there.

Snippets and commands run in this process, in the order of their page, in one folder for all pages; a command that several pages have runs once. Plain fences
hold commands, `python` snippets; `cluster` and `elsewhere` hold what needs a cluster or another program: of the first the words are parsed.
"""

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import sys
import types
import warnings
from pathlib import Path

import pytest

from milepost.encodings import NAMES, SPACE
from milepost.maps import NAMES as MAPS
from milepost.scaling import NAMES as SCALINGS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools" / "handbook"))

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.S | re.M)
ELSEWHERE = {"checkpoints.md", "migration.md", "space.md"}
"""Pages whose commands tests/test_readme.py runs."""
PAGES = sorted(str(path.relative_to(DOCS)) for path in [*DOCS.glob("*.md"), *DOCS.glob("questions/*.md")] if path.name not in ELSEWHERE)
SMALLEST = {
    "milepost bench rope": "--heads 2 --length 64 --head-dim 16 --rounds 1",
    "milepost bench attention": "--lengths 128 --rounds 1 --heads 2 --head-dim 16",
    "milepost bench decode": "--length 256 --tokens 4 --rounds 1 --heads 2 --head-dim 16",
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
COUNT = itertools.count()


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def commands(body):
    """The commands of a fence: their words, and the exit code that the page says."""
    lines = [line for line in body.splitlines() if line.startswith("milepost ")]
    return [(line.split("     #")[0].rstrip(), 1 if line.endswith("# exit code 1") else 0) for line in lines]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with the small checkpoints and the text that the pages speak of."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, ViTConfig, ViTModel

    from milepost.checkpoints.migrate_folder import byte_tokenizer

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("handbook")
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 256}
    LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.3)).save_pretrained(folder / "model")
    small = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "image_size": 32, "patch_size": 8}
    ViTModel(ViTConfig(**small)).save_pretrained(folder / "vit")
    tiny = {"n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 32, "vocab_size": 256, "bos_token_id": None, "eos_token_id": None}
    GPT2LMHeadModel(GPT2Config(**tiny)).save_pretrained(folder / "gpt2")
    (folder / "gpt2" / "tokenizer.json").write_text(json.dumps(byte_tokenizer()), encoding="utf-8")
    (folder / "gpt2" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}), encoding="utf-8")
    (folder / "book.txt").write_text("\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "milepost").rglob("*.py"))[:40]))
    with contextlib.chdir(folder):
        yield folder


def run_snippet(body):
    """Run a snippet as a module of its own; what it printed."""
    for long, short in SMALLER.items():
        body = body.replace(long, short)
    module = types.ModuleType(f"handbook_snippet_{next(COUNT)}")
    sys.modules[module.__name__] = module
    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("default")
        exec(compile(body, module.__name__, "exec"), module.__dict__)
    return said.getvalue().splitlines()


def promised(body):
    """What a snippet's comments say that it prints."""
    return [line.rsplit("  # ", 1)[1] for line in body.splitlines() if line.lstrip().startswith("print(") and "  # " in line]


RAN = set()
"""Commands that have run; a page that has one again need not wait for it."""


def run_command(line, code):
    from typer.testing import CliRunner

    from milepost.cli import app

    if line in RAN:
        return
    RAN.add(line)
    more = next((extra for start, extra in SMALLEST.items() if line.startswith(start)), "")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(app, [*shlex.split(line)[1:], *shlex.split(more)])
    assert done.exit_code == code, f"{line}: {done.output[-2000:]} {done.exception!r}"


def test_pages_hold_snippets_and_commands():
    assert {"walk.md", "tutorial.md", "recipes.md", "others.md", "lengths.md", "cost.md", "choosing.md", "questions/rope.md"} <= set(PAGES)
    fences = [found for name in PAGES for found in FENCE.findall(read(name))]
    assert {language for language, _ in fences} <= {"", "python", "text", "cluster", "elsewhere"}
    for language, body in fences:  # a plain fence holds commands alone, so that none is passed over
        assert language or all(line.startswith("milepost ") for line in body.splitlines()), body


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_says_to_run_runs(here, name):
    for language, body in FENCE.findall(read(name)):
        if language == "python":
            said = run_snippet(body)
            if promised(body):
                assert said == promised(body), body
        for line, code in commands(body) if not language else []:
            run_command(line, code)


def test_what_needs_a_cluster_is_a_command_that_is_understood():
    import typer

    from milepost.cli import app

    found = [line for name in PAGES for language, body in FENCE.findall(read(name)) if language == "cluster" for line, _ in commands(body)]
    assert found
    for line in found:
        words = shlex.split(line)[1:]
        command = typer.main.get_command(app).get_command(None, words[0])
        assert command.make_context(words[0], words[1:]).params["engine"] == "ray"


def test_a_snippet_that_printed_something_else_would_be_seen():
    assert run_snippet("print(1 + 1)") == ["2"]
    assert promised("print(1 + 1)  # 3\nx = 1  # not printed") == ["3"]


def kinds(cell):
    """What a cell showed: printed words, pictures."""
    return {kind for output in cell.get("outputs", []) for kind in output.get("data", [output.get("name", "")]) if kind != "text/plain"}


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
        NotebookClient(book, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [kinds(cell) for cell in book.cells] == before


# -- numbers -------------------------------------------------------------------------------------------------------------


def prose(name):
    """A page without its fences."""
    return FENCE.sub("", read(name))


def measured():
    """Every loss of the standard run, its change, and what short texts pay for a strategy, as pages write them."""
    import lab

    losses, changes, costs = set(), set(), set()
    first = lab.lengths()[0]
    for encoding, strategy in {(run["encoding"], run["strategy"]) for run in lab.results()["runs"]}:
        start = lab.loss(encoding, first, strategy)
        for length in lab.lengths():
            value = lab.loss(encoding, length, strategy)
            if value is not None:
                losses.add(f"{value:.3f}")
                changes.add(f"{value / start - 1:+.1%}")
        fixed = [row["loss"] for run in lab.runs(encoding, strategy) for row in run.get("fixed", []) if row["length"] == first]
        if fixed:
            costs.add(f"{sum(fixed) / len(fixed) - start:.3f}")
    return losses, changes, costs


@pytest.mark.parametrize("name", PAGES)
def test_numbers_of_a_page_are_those_of_the_standard_run(name):
    losses, changes, costs = measured()
    text = prose(name)
    wrong = [word for word in re.findall(r"(?<![\d.,/])\d\.\d{3}(?!\d)", text) if word not in losses | costs]
    wrong += [word for word in re.findall(r"[+]\d+\.\d%", text) if word not in changes]
    wrong += [word for word in re.findall(r"by (\d+\.\d%)", text) if f"+{word}" not in changes]
    assert not wrong


def test_the_table_of_lengths_is_that_of_the_standard_run():
    import lab

    rows = re.findall(r"^\| `([^`]+)` \| ([\d.]+) \| ([\d.]+) \| (\S+) \|$", read("lengths.md"), flags=re.M)
    assert len(rows) >= 9
    for encoding, short, long, change in rows:
        a, b = lab.loss(encoding, 128), lab.loss(encoding, 1024)
        assert (short, long, change) == (f"{a:.3f}", f"{b:.3f}", f"{b / a - 1:+.1%}")


def test_costs_are_those_of_the_benchmark():
    result = json.loads((DOCS / "bench" / "bench.json").read_text(encoding="utf-8"))
    ours = {(r["scheme"], r["implementation"], r["length"]): r for r in result["rows"] if r["pass"] == "forward"}
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+)( \(transformers, eager\))? \| (\d+) MB \| (\d+) MB \|$", read("cost.md"), flags=re.M)
    assert len(rows) == 10
    for scheme, ratio, plain, eager, extra, much in rows:
        mine, theirs = ours[scheme, "milepost", 4096], ours[scheme, "transformers eager" if eager else "materialised", 4096]
        assert (ratio, plain) == (f"{mine['ratio']:.2f}", f"{theirs['ratio']:.2f}")
        assert (extra, much) == (f"{mine['peak_mb']:.0f}", f"{theirs['peak_mb']:.0f}")


def test_what_the_walk_says_of_a_recurrent_network_is_what_its_figure_found():
    import exact

    found = {name.split(", R2 = ")[0]: name.split(" = ")[1] for name in exact.recurrent()[1].lines if "R2" in name}
    words = " ".join(read("walk.md").split())
    assert f"R² is {found['GRU']} for a straight line, against {found['attention without position, 3 layers']} for three causal layers" in words


# -- questions -----------------------------------------------------------------------------------------------------------

ASKED = re.findall(
    r"\S+",
    """1.1 1.2 1.3 1.4 2. 2.1 3.1 3.2 3.2.1 3.2.2 3.2.3 3.3 4.1 4.1.1 4.2 4.2.1 4.3 4.3.1 4.4 4.4.1 4.4.2 4.5
    5.1 5.2 5.3 5.3.1 5.3.2 5.3.3 5.3.4 5.3.5 5.4 6. 6.1 6.2 7. 7.1""",
)
"""The numbers of the questions, in the order of the notes."""


def sections():
    """Each question's heading and what follows it, page after page."""
    for name in ("basics", "absolute", "relative", "rope", "choosing", "more"):
        for part in re.split(r"^## ", read(f"questions/{name}.md"), flags=re.M)[1:]:
            yield part.partition("\n")[::2]


def test_every_question_is_there_in_its_order():
    numbered = [title.split()[0] for title, _ in sections() if title[0].isdigit()]
    assert numbered == ASKED
    assert sum(1 for title, _ in sections() if not title[0].isdigit()) >= 4


@pytest.mark.parametrize(("title", "body"), list(sections()), ids=lambda value: value.split()[0])
def test_a_question_has_its_original_an_answer_a_command_and_a_figure(title, body):
    assert re.search(r"^\*[^*]*[\u4e00-\u9fff][^*]*\*$", body.split("\n\n")[0].strip() or body.split("\n\n")[1], flags=re.M), "the Chinese original"
    assert any(language in ("", "python") for language, _ in FENCE.findall(body)), "a command or a snippet"
    figures = re.findall(r"!\[([^\]]+)\]\(\.\./([\w/.-]+)\)", body)
    assert figures and all(words for words, _ in figures)
    words = re.sub(r"!\[.*|^\*.*", "", FENCE.sub("", body), flags=re.M)
    assert 15 < len(words.split()) < 160, "a few sentences"


# -- what is made --------------------------------------------------------------------------------------------------------


def test_every_figure_that_a_page_shows_is_made():
    import portraits
    from figures import FIGURES

    known = set(FIGURES) | {f"encoding-{n}" for n in NAMES | SPACE} | {f"map-{n}" for n in MAPS} | {f"scaling-{n}" for n in SCALINGS}
    shown = {name for page in PAGES for name in re.findall(r"figures/([\w-]+)\.svg", read(page))}
    assert shown <= known
    assert set(FIGURES) <= shown, "a figure that no page shows"
    assert set(portraits.all_portraits()) == known - set(FIGURES)


def test_a_page_of_an_encoding_is_its_docstring():
    import pages

    from milepost.catalogue import page

    made = pages.all_pages()
    for name in (*NAMES, *SPACE):
        text = made[f"encodings/{name}.md"]
        about = page(name)
        assert about.formula.splitlines()[0] in text and f"figures/encoding-{name}.svg" in text and f"milepost check {name}" in text
        for line in about.facts:
            assert f"| {line} |" in text
    assert len(made) == 1 + len(NAMES | SPACE) + len(SCALINGS) + len(MAPS)
    for name in SCALINGS:
        assert f"figures/scaling-{name}.svg" in made[f"scalings/{name}.md"]


def test_commands_on_made_pages_run(here):
    import pages

    found = [line for text in pages.all_pages().values() for _, body in FENCE.findall(text) for line, _ in commands(body)]
    assert len(found) > 60
    for line in found:  # `milepost check` is what tests/test_laws.py does to each of them
        if not line.startswith("milepost check"):
            run_command(line, 0)


def test_nothing_of_a_workplace_is_in_the_handbook():
    for path in [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"), *(ROOT / "tools" / "handbook").glob("*.py"), ROOT / "mkdocs.yml"]:
        assert not re.search(r"/(work|home|root|tmp)/", path.read_text(encoding="utf-8")), path
    assert os.sep == "/"
