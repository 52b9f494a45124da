"""The arrows between modules, read from their imports: who may know whom, who may import what, and what stays without
torch."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import milepost

HOME = Path(milepost.__file__).parent
FORMULAS = {"checks", "positions", "layout", "spectrum", "angles", "rotation", "encoding"}
LIBRARY = FORMULAS | {"scaling", "encodings", "pages", "spec", "stack"}

ARROWS: dict[str, set[str]] = {
    # formulas
    "checks": set(),
    "hooks": set(),
    "positions": set(),
    "rotation": set(),
    "spectrum": set(),
    "angles": {"positions"},
    "layout": {"positions"},
    "encoding": {"checks", "hooks", "positions", "layout", "shown"},
    "scaling": {"checks", "spectrum", "shown"},
    "encodings": set(),  # the list of names; the pages are beside it
    "pages": FORMULAS | {"scaling"},
    "resize_table": set(),
    "maps": FORMULAS | {"pages"},
    "stack": {"encoding", "hooks"},
    "spec": {"checks", "encoding", "encodings", "pages", "scaling", "maps", "stack"},
    # what is built on them
    "attention": LIBRARY,
    "testing": LIBRARY | {"attention", "draw"},
    "portrait": LIBRARY | {"attention", "draw", "analysis", "rope", "maps", "catalogue", "report"},
    "bench": LIBRARY | {"attention", "results", "lab", "measure"},
    "rope": {"pages", "rotation", "scaling", "spectrum", "draw", "shown"},
    "analysis": {"rope", "scaling", "spectrum", "report"},
    "checkpoints": LIBRARY
    | {
        "resize_table",
        "attention",
        "results",
        "rope",
        "analysis",
        "catalogue",
        "draw",
        "report",
        "measure",
        "maps",
        "lab",
        "testing",
        "public",
    },
    "served": LIBRARY | {"checkpoints", "measure", "results", "rope", "report", "draw", "public"},
    "measure": LIBRARY | {"attention", "results"},
    "lab": LIBRARY | {"attention", "measure", "results", "maps", "resize_table", "portrait", "report", "public"},
    "claims": LIBRARY
    | {
        "resize_table",
        "attention",
        "testing",
        "results",
        "catalogue",
        "measure",
        "lab",
        "maps",
        "bench",
        "choose",
        "rope",
        "checkpoints",
    }
    | {"report"},
    # without torch
    "results": set(),
    "catalogue": {"checks", "hooks", "encodings", "maps", "draw"},
    "draw": {"results"},
    "report": {"draw", "results"},  # every report, beside the results that it shows
    "choose": {"results", "catalogue", "report"},
    # the page
    "explore": LIBRARY
    | {"attention", "testing", "portrait", "rope", "analysis", "lab", "maps", "catalogue", "results", "draw"},
    # the command line and the public names
    "cli": {
        "spec",
        "stack",
        "encodings",
        "catalogue",
        "portrait",
        "testing",
        "bench",
        "checkpoints",
        "served",
        "report",
        "results",
        "rope",
        "analysis",
        "lab",
        "maps",
    }
    | {"choose", "claims", "draw", "explore", "milepost"},
    "public": set(),
    "renamed": set(),
    "shown": set(),
    "milepost": LIBRARY | {"attention", "maps", "portrait", "resize_table", "rope", "public", "renamed", "shown"},
}
"""Which part of milepost may import which others, by folder or file ("pages": the files of encodings/; APART). A new
folder needs a line here. A report is part of "report", whatever folder it is in."""

APART = {
    "milepost.rope.analysis": "analysis",
    "milepost.lab.choose": "choose",
    "milepost.encodings.catalogue": "catalogue",
    "milepost.encodings.resize_table": "resize_table",
    "milepost.measure.results": "results",
    "milepost.measure.folder": "results",
}
"""Files that are parts of their own, apart from the folder that they are in."""

PACKAGES: dict[str, set[str]] = {
    **{
        part: {"torch"}
        for part in (*FORMULAS, "resize_table", "pages", "spec", "stack", "attention", "testing", "portrait")
    },
    "scaling": {"torch"},
    "encodings": set(),
    "hooks": set(),
    "maps": {"torch"},
    "rope": {"huggingface_hub"},
    "analysis": set(),
    "measure": {"torch", "numpy", "scipy"},
    "lab": {"torch", "numpy", "accelerate", "safetensors", "tokenizers", "ray", "sklearn", "PIL"},
    "bench": {"torch", "numpy", "psutil", "transformers", "x_transformers", "rotary_embedding_torch"},
    "checkpoints": {"torch", "numpy", "transformers", "safetensors", "accelerate", "huggingface_hub", "peft", "gguf"},
    "served": {"torch", "numpy"},
    "claims": {"torch", "numpy"},
    "results": set(),
    "catalogue": set(),
    "draw": {"rich", "jinja2", "resvg_py"},
    "report": set(),
    "choose": set(),
    "explore": {"torch"},
    "cli": {"typer", "rich"},
    "public": set(),
    "renamed": set(),
    "shown": set(),
    "milepost": set(),
}
"""Which packages each part may import, besides Python's own."""

LATE = {
    "ray",
    "tokenizers",
    "transformers",
    "huggingface_hub",
    "safetensors",
    "accelerate",
    "x_transformers",
    "rotary_embedding_torch",
    "psutil",
    "jinja2",
    "resvg_py",
    "peft",
    "gguf",
    "sklearn",
    "scipy",
    "PIL",
}
"""Packages that are imported inside functions only: not everybody has them, or they are slow."""


@dataclass(frozen=True)
class Import:
    """One import statement's target, with where it stands."""

    file: Path
    part: str
    line: int
    target: str
    module_level: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(HOME.parent)}:{self.line} imports {self.target}"


def part_of(dotted: str) -> str:
    """The part of milepost that a module belongs to: ``milepost.encodings.rope`` is one of the pages."""
    if dotted in APART:
        return APART[dotted]
    pieces = dotted.split(".")
    if len(pieces) == 1:
        return "milepost"
    if any(piece.startswith("report") for piece in pieces):
        return "report"
    return "pages" if pieces[1] == "encodings" and len(pieces) > 2 else pieces[1]


def dotted_name(file: Path) -> str:
    pieces = file.relative_to(HOME.parent).with_suffix("").parts
    return ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)


def targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = node.module or ""
    assert node.level == 0, "imports are absolute here"
    inside = HOME.parent.joinpath(*module.split("."))
    return [
        f"{module}.{a.name}" if module.startswith("milepost") and _is_module(inside / a.name) else module
        for a in node.names
    ]


def _is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def walk(node: ast.AST, module_level: bool = True) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import below ``node`` that runs: what stands under ``if TYPE_CHECKING`` does not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, module_level
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from walk(other, module_level)
        else:
            yield from walk(
                child, module_level and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            )


def computed(tree: ast.AST, file: Path) -> Iterator[tuple[int, str]]:
    """The modules that a file with ``import_module(...)`` names in its texts, with the lines of those texts.

    ``f"milepost.scaling.{name}"`` names every file of that folder, ``f"{page.__name__}.{name}"`` those of every folder
    that the file imports. A table that is looked up inside of such a text (``f"milepost.{HOME[name]}"``) is in the same
    file, and its own texts are seen; an ``__init__.py`` may write them without the package's name.
    """
    nodes = list(ast.walk(tree))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    if not any(getattr(func, "attr", getattr(func, "id", "")) == "import_module" for func in called):
        return
    package = f"({re.escape(dotted_name(file))}[.])?" if file.stem == "__init__" else ""
    folders = "|".join(re.escape(name) for statement, _ in walk(tree) for name in targets(statement))

    def pattern(node: ast.AST) -> str:
        if isinstance(node, ast.Constant):
            return re.escape(str(node.value))
        return f"({folders})" if ast.unparse(node).endswith(".__name__}") else "[^.]+"

    for node in nodes:
        if isinstance(node, ast.Constant):
            texts, named = pattern(node), MODULES
        elif isinstance(node, ast.JoinedStr) and not any(isinstance(part, ast.Subscript) for part in ast.walk(node)):
            texts, named = "".join(map(pattern, node.values)), [name for name in MODULES if name not in APART]
        else:
            continue
        yield from ((node.lineno, name) for name in named if "." in name and re.fullmatch(package + texts, name))


FILES = sorted(HOME.rglob("*.py"))
MODULES = [dotted_name(file) for file in FILES]
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}
STUBS = {file.with_suffix(".py"): ast.parse(file.read_text(encoding="utf-8")) for file in sorted(HOME.rglob("*.pyi"))}
"""The names that a package imports when they are first used: see milepost/public.py."""
IMPORTS = [
    Import(file, part_of(dotted_name(file)), node.lineno, target, level and trees is TREES)
    for trees in (TREES, STUBS)
    for file, tree in trees.items()
    for node, level in walk(tree)
    for target in targets(node)
] + [
    Import(file, part_of(dotted_name(file)), line, target, False)
    for file, tree in TREES.items()
    for line, target in computed(tree, file)
]


def test_every_folder_and_file_has_its_line_in_the_tables():
    found = {part_of(dotted_name(file)) for file in FILES}
    assert found == set(ARROWS) == set(PACKAGES)


def test_the_tables_have_no_circles():
    order = list(TopologicalSorter(ARROWS).static_order())
    assert (
        order.index("positions")
        < order.index("encoding")
        < order.index("spec")
        < order.index("attention")
        < order.index("testing")
        < order.index("cli")
    )


@pytest.mark.parametrize("part", sorted(ARROWS))
def test_a_part_knows_only_the_parts_below_it(part):
    inner = [i for i in IMPORTS if i.part == part and i.target.split(".")[0] == "milepost"]
    wrong = [str(i) for i in inner if part_of(i.target) not in ARROWS[part] | {part}]
    assert not wrong


@pytest.mark.parametrize("part", sorted(PACKAGES))
def test_a_part_imports_only_the_packages_it_needs(part):
    outer = [
        i
        for i in IMPORTS
        if i.part == part and (top := i.target.split(".")[0]) != "milepost" and top not in sys.stdlib_module_names
    ]
    wrong = [str(i) for i in outer if i.target.split(".")[0] not in PACKAGES[part]]
    assert not wrong


def test_no_module_imports_one_that_imports_it_not_even_inside_of_functions():
    graph: dict[str, set[str]] = {}
    for i in IMPORTS:
        if i.target.split(".")[0] == "milepost":
            graph.setdefault(dotted_name(i.file), set()).add(i.target)
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail("imports in a circle: " + " is imported by ".join(error.args[1]))


@pytest.mark.parametrize(
    ("file", "code", "expected"),
    [
        ("scaling/linear.py", 'import_module("milepost.portrait.notebook")', ["milepost.portrait.notebook"]),
        ("spec.py", 'import importlib\nimportlib.import_module(f"milepost.maps.{name}")', "maps"),
        ("maps/__init__.py", 'HOME = {"ReRoPE": "rerope"}\nimport_module(f"{__name__}.{HOME[name]}")', ["rerope"]),
        ("spec.py", "from milepost import maps\nimport_module(f'{maps.__name__}.{name}')", "maps"),
        ("spec.py", 'print("milepost.portrait.notebook")', []),
    ],
)
def test_imports_by_name_are_seen(file, code, expected):
    seen = [name for _, name in computed(ast.parse(code), HOME / file)]
    if expected == "maps":
        expected = [name for name in MODULES if name.startswith("milepost.maps.")]
    assert [name.split(".")[-1] for name in seen] == [name.split(".")[-1] for name in expected]


@pytest.mark.parametrize(
    ("folder", "below"),
    [
        ("files", set()),
        ("inspection", {"files", "result", "families"}),  # a type that no list knows is measured, inside of a function
        ("model", {"files", "inspection"}),
    ],
)
def test_what_checkpoint_commands_share_knows_no_command(folder, below):
    """Files are below reading them without torch (inspection), and that is below loading (model). What all results
    of commands have in common (result) is below them all."""
    home = "milepost.checkpoints."
    inner = [i for i in IMPORTS if dotted_name(i.file).startswith(f"{home}{folder}.") and i.target.startswith(home)]
    wrong = [str(i) for i in inner if i.target.removeprefix(home).split(".")[0] not in below | {folder}]
    assert inner and not wrong


def test_pages_do_not_know_each_other():
    wrong = [str(i) for i in IMPORTS if i.part == "pages" and part_of(i.target) == "pages"]
    assert not wrong


def test_slow_or_optional_packages_are_imported_inside_functions():
    wrong = [str(i) for i in IMPORTS if i.module_level and i.target.split(".")[0] in LATE]
    assert not wrong


def test_the_command_line_imports_nothing_of_ours_until_a_command_runs():
    early = [i for i in IMPORTS if i.part == "cli" and i.module_level and part_of(i.target) != "cli"]
    wrong = [str(i) for i in early if i.target.split(".")[0] not in {"typer", *sys.stdlib_module_names}]
    assert not wrong


def test_no_module_is_a_drawer_for_odds_and_ends():
    drawers = {"util", "utils", "common", "helper", "helpers", "misc", "manager", "managers", "registry"}
    wrong = [
        str(file)
        for file in HOME.rglob("*")
        if file.stem.strip("_") in drawers or file.stem.endswith(("_utils", "_manager", "_registry"))
    ]
    assert not wrong


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "module",
    [
        "milepost",
        "milepost.encodings",
        "milepost.measure.results",
        "milepost.encodings.catalogue",
        "milepost.draw.document",
        "milepost.cli",
        "milepost.rope",
        "milepost.rope.analysis",
        "milepost.lab.choose",
        "milepost.checkpoints",
    ],
)
def test_importing_it_imports_no_torch(module):
    done = run(f"import sys, {module}; sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'jinja2')))")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", [dotted_name(file) for file in FILES if part_of(dotted_name(file)) == "report"])
def test_a_report_imports_no_torch(module):
    done = run(f"import sys, {module}; sys.exit('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_the_catalogue_is_read_without_torch():
    done = run(
        "import sys; from milepost.encodings.catalogue import pages; assert len(pages()) > 10; "
        "sys.exit('torch' in sys.modules)"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["list"],
        ["list", "rope", "alibi", "--json"],
        ["check", "--help"],
        ["show", "--help"],
        ["bench", "--help"],
    ],
    ids=" ".join,
)
def test_a_command_that_only_tells_imports_no_torch(words):
    code = f"""
import sys
from milepost.cli import app
try:
    app({words!r})
except SystemExit as end:
    assert not end.code, end.code
sys.exit(3 if "torch" in sys.modules else 0)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_public_names_come_when_they_are_asked_for():
    code = """
import sys, milepost
assert "torch" not in sys.modules
names = dir(milepost)
assert {"build", "Layout", "attend", "Encoding", "RoPE", "ALiBi"} <= set(names)
assert "torch" not in sys.modules
for name in milepost.__all__:
    assert getattr(milepost, name) is not None
try:
    milepost.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
else:
    sys.exit(4)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
