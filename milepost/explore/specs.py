"""Specs: a spec as the page may build it, and with some of its arguments moved.

The page sends a spec and what was moved; the new spec is made here, as text, and read by `milepost.build` like any
other. Sizes have limits on this page, each by itself and all together, which are checked in the text before anything is
built: a spec of a few letters can ask for gigabytes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence

from milepost.encoding import Encoding
from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import page
from milepost.explore.arguments import RANGES, SCALINGS, controls
from milepost.explore.view import Control, number
from milepost.spec import build, terms_of

SIZES = {"heads": 8, "head_dim": 64, "width": 64, "length": 256}
"""Where the spec leaves them open; ``length`` is that of tables."""
HELD = (
    "heads",
    "head_dim",
    "width",
    "length",
    "size",
    "buckets",
    "max_distance",
    "clip",
    "positions",
    "hidden",
    "span",
    "extent",
    "rank",
    "axes",
    "prefix",
    "bare",
    "offset",
)
"""Sizes whose range is a limit on this page; for the others the package itself says what is permitted."""
LONGEST, SIDE, TERMS, DIGITS = 300, 32, 4, 40
"""Characters of a spec, places on one side of a grid, terms of a sum, and digits of a number."""
MULTIPLIED = {"heads", "head_dim", "width", "length", "size", "clip", "positions", "hidden", "span", "rank"}
SIDES = {"grid": "sides", "swin": "sides", "swin_v2": "trained"}
"""Arguments that are the sides of a table; its rows are all places, or all offsets, of a grid."""
MOST = 1 << 22
"""Numbers that the tables of a spec may hold, by the product of its sizes."""


def built(spec: str, sizes: Mapping[str, int] = SIZES) -> Encoding:
    """The encoding of a spec, if its sizes are inside the limits of this page."""
    if len(spec) > LONGEST:
        raise ValueError(f"a spec has at most {LONGEST} characters on this page, got {len(spec)}")
    if ":" in spec:
        command = "`milepost show package.module:Class`"
        raise ValueError(f"classes of your own are for the command line ({command}), not for this page; got {spec!r}")
    tree = _tree(spec)
    if tree is not None:
        if len(terms_of(tree)) > TERMS:
            raise ValueError(f"a sum has at most {TERMS} terms on this page, got {len(terms_of(tree))}")
        _check_digits(tree)
        for word, value in _numbers(tree):
            high = RANGES[word][1] if word in RANGES else SIDE
            if value > high:
                raise ValueError(
                    f"{word} is at most {high:g} on this page, got {value:.12g}; `milepost show` draws larger ones"
                )
        count = sum(_count_numbers(name, given, sizes) for name, given in _calls(tree))
        if count > MOST:
            raise ValueError(
                f"the sizes of a spec multiply to at most {MOST} numbers on this page, got {count}; give smaller ones"
            )
    return build(spec, **sizes)


def _check_digits(tree: ast.expr) -> None:
    """Refuse numbers that no float can hold: Python's integers have no end, those of torch have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) >= 10**DIGITS:
            raise ValueError(f"a number has at most {DIGITS} digits on this page, got {len(str(abs(node.value)))}")


def _calls(tree: ast.expr) -> Iterator[tuple[str, dict[str | None, ast.expr]]]:
    """Every name in a spec with its arguments, those inside of others too."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    for call in calls:
        yield ast.unparse(call.func), {keyword.arg: keyword.value for keyword in call.keywords}
    named = {id(call.func) for call in calls}
    yield from ((n.id, {}) for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in named)


def _count_numbers(name: str, given: Mapping[str | None, ast.expr], sizes: Mapping[str, int]) -> int:
    """How many numbers the tables of an encoding have at most: the product of its sizes, given or default."""
    if name not in NAMES | SPACE:
        return 0
    product = 1
    for word, default in page(name).arguments.items():
        written = ast.unparse(given[word]) if word in given else default
        try:
            value = ast.literal_eval(written) if written else sizes.get(word)
        except (ValueError, SyntaxError):  # `build` will say what is wrong with it
            continue
        if word in MULTIPLIED and isinstance(value, int | float):
            product *= max(1, math.ceil(value))
        if word == SIDES.get(name) and isinstance(value, tuple | list):
            product *= math.prod(max(1, 2 * side - 1) for side in value if isinstance(side, int))
    return product


def moved(spec: str, changes: Mapping[str, str]) -> str:
    """The spec with some arguments changed: ``{"0.base": "500000.0", "0.scaling": "yarn"}``."""
    tree = _tree(spec)
    if tree is None or not changes:
        return spec
    enc = built(spec)
    known = {control.name: control for control in controls(enc)}
    terms = [term if isinstance(term, ast.Call) else ast.Call(term, [], []) for term in terms_of(tree)]
    for path, text in sorted(changes.items()):
        term, *words = path.split(".")
        if len(words) > 1 and ".".join((term, *words[:-1])) in changes:  # of a scaling that is replaced
            continue
        if path not in known:
            raise ValueError(f"{spec!r} has no argument {path!r} to set; it has {', '.join(known) or 'none'}")
        call = terms[int(term)]
        for word in words[:-1]:
            inner = next(keyword for keyword in call.keywords if keyword.arg == word)
            assert isinstance(inner.value, ast.Call)
            call = inner.value
        _put(call, words[-1], _literal(known[path], text))
    return " + ".join(_plain(term) for term in terms)


def _literal(control: Control, text: str) -> ast.expr:
    """What is typed for a control, as a piece of a spec."""
    if control.kind == "choice":
        value = control.read(text)
        if control.name.endswith(".scaling"):
            return ast.parse(SCALINGS.get(value, "None"), mode="eval").body
        return ast.Constant({"True": True, "False": False, "None": None}.get(value, value))
    name = control.name.rsplit(".", 1)[-1]
    value = number(name, text, whole=control.whole)
    return ast.parse(repr(value if control.whole else float(value)), mode="eval").body


def _put(call: ast.Call, word: str, value: ast.expr) -> None:
    for keyword in call.keywords:
        if keyword.arg == word:
            keyword.value = value
            return
    call.keywords.append(ast.keyword(word, value))


def _plain(call: ast.Call) -> str:
    return ast.unparse(call) if call.keywords else ast.unparse(call.func)


def _tree(spec: str) -> ast.expr | None:
    """The spec as Python reads it; None where it does not, and `build` will say why."""
    try:
        return ast.parse(spec.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _numbers(tree: ast.expr) -> Iterator[tuple[str, float]]:
    """Every number that is given for a size, at any depth; the sides of grids, too."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.keyword):
            continue
        if node.arg in HELD:
            yield from ((node.arg, number) for number in _constants([node.value]))
        if node.arg in ("sides", "trained", "sections") and isinstance(node.value, ast.Tuple | ast.List):
            yield from (("sides", number) for number in _constants(node.value.elts))


def _constants(nodes: Sequence[ast.expr]) -> list[float]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, int | float)]
