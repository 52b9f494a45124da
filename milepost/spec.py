"""Text <-> objects: ``build("rope(base=5e5) + alibi", heads=8, head_dim=64)``.

A spec is a sum of calls with literal arguments: ``name(word=value, ...)``, where a value may itself be a scaling, a
tuple of scalings, or an encoding (``self_extend(rope=rope(base=5e5))``). It is parsed, never evaluated, and imports
nothing that is not ours. The size words heads, head_dim, width and length can be given beside the text, and fill what
it leaves open, inside such an encoding too; so can ``sides``, the places on each axis of a grid. ``repr`` of an
encoding is its spec, with sizes.

What a model does layer by layer is a pattern that repeats: ``layers(3 * rope in window(4096), temperature)``. A number
times an encoding is so many layers of it (a sum in brackets), ``in window(n)`` lets their queries see n tokens.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from milepost import encodings, maps
from milepost.checks import nearest
from milepost.encoding import Encoding, Sum
from milepost.scaling import SCALINGS, Scaling
from milepost.stack import Group, Stack

PAGES = {
    name: (f"{home.__name__}.{name}", cls)
    for home, names in ((encodings, encodings.NAMES), (encodings, encodings.SPACE), (maps, maps.NAMES))
    for name, cls in names.items()
}
"""Every name that a spec may use: the page, and its class."""
SIZES = ("heads", "head_dim", "width", "length")
LONGEST = 4096
MOST = {
    "heads": 1 << 14,
    "head_dim": 1 << 14,
    "size": 1 << 16,
    "width": 1 << 18,
    "hidden": 1 << 14,
    "buckets": 1 << 10,
    "clip": 1 << 16,
    "positions": 1 << 16,
    "extent": 1 << 20,
    "rank": 1 << 10,
    "axes": 1 << 4,
}
"""The largest number that a spec may give for a word."""
LARGEST = 1 << 40
"""The same for every other word."""
T = TypeVar("T")


def build(text: str, **sizes: int | tuple[int, ...] | None) -> Encoding:
    """The encoding that ``text`` names, e.g. ``build("t5(buckets=64)", heads=8)``.

    ``sizes`` are any of heads, head_dim, width, length, and sides (a tuple); each is given to the parts that have such
    an argument.
    ``package.module:Class(...)`` names a class of your own, from a module that you have imported.
    """
    if not isinstance(text, str):
        raise ValueError(f"a spec is a text such as 'rope(base=500000.0)', got {type(text).__name__}")
    for word, size in sizes.items():
        if word == "sides":
            continue  # the page checks it
        if word not in SIZES:
            raise ValueError(f"unknown size {word!r}{nearest(word, SIZES)}; the sizes are {', '.join(SIZES)}")
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ValueError(f"{word} must be a whole number of at least 1, got {size!r}")
    try:
        node = _parse(text)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "layers":
            return _stack(node, text, sizes)
        return _sum(node, text, sizes)
    except RecursionError:
        raise ValueError(f"the spec {_short(text)!r} has encodings inside encodings, too deep to read") from None


def find_class(name: str) -> type[Encoding]:
    """The class of an encoding by its name in specs, or ``package.module:Class`` from a module that is imported
    already.
    """
    if ":" in name:
        return _stranger(name, Encoding)
    if name not in PAGES:
        raise ValueError(f"unknown encoding {_short(repr(name))}{nearest(name, PAGES)}; known: {', '.join(PAGES)}")
    page, cls = PAGES[name]
    ours: type[Encoding] = getattr(importlib.import_module(page), cls)
    return ours


def _stranger(name: str, base: type[T]) -> type[T]:
    """A subclass of ``base`` named as ``package.module:Class``, from a module that is imported already."""
    module, _, attribute = name.partition(":")
    if module not in sys.modules:
        raise ValueError(
            f"module {module!r} of {name!r} is not imported; import it first (build never imports by itself)"
        )
    named = getattr(sys.modules[module], attribute, None)
    if not (isinstance(named, type) and issubclass(named, base)):
        raise ValueError(f"{name!r} is not a subclass of milepost's {base.__name__}, got {type(named).__name__}")
    return named


def _parse(text: str) -> ast.expr:
    if len(text) > LONGEST:
        raise ValueError(f"a spec has at most {LONGEST} characters, got {len(text)}")
    try:  # `module:Class` is no Python: write it as an attribute that no name of ours can have
        return ast.parse(text.strip().replace(":", ".__class__."), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"can't read the spec {_short(text)!r} ({type(error).__name__}); write it as 'rope(base=500000.0) + "
            "alibi(heads=8)'"
        ) from None


def terms_of(node: ast.expr) -> list[ast.expr]:
    """The terms of a sum, the first one first; of any other expression, itself."""
    terms: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        terms.append(node.right)
        node = node.left
    return [node, *reversed(terms)]


def _sum(node: ast.expr, text: str, sizes: Mapping[str, int | tuple[int, ...] | None]) -> Encoding:
    parts = [_encoding(term, text, sizes) for term in terms_of(node)]
    return parts[0] if len(parts) == 1 else Sum(*parts)


def _stack(call: ast.Call, text: str, sizes: Mapping[str, int | tuple[int, ...] | None]) -> Stack:
    """``layers(...)``: each argument is an encoding, or so many times one, in a window or not."""
    if call.keywords or not call.args:
        raise ValueError(
            "layers holds encodings with commas between, as in layers(3 * rope in window(4096), nope); got "
            f"{_short(text)!r}"
        )
    return Stack(*[_group(node, text, sizes) for node in call.args])


def _group(node: ast.expr, text: str, sizes: Mapping[str, int | tuple[int, ...] | None]) -> Group:
    count, window = 1, None
    if isinstance(node, ast.Compare):
        seen = node.comparators[0]
        named = isinstance(seen, ast.Call) and isinstance(seen.func, ast.Name) and seen.func.id == "window"
        if not (isinstance(seen, ast.Call) and named and len(seen.args) == len(node.ops) == 1) or (
            seen.keywords or not isinstance(node.ops[0], ast.In)
        ):
            raise ValueError(f"layers with a window are written 'rope in window(4096)'; can't read {_short(text)!r}")
        window, node = _value(seen.args[0], text, sizes), node.left
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        count, node = _value(node.left, text, sizes), node.right
    elif any(isinstance(term, ast.BinOp) for term in terms_of(node)):
        raise ValueError(f"so many layers of a sum are written '3 * (rope + alibi)'; can't read {_short(text)!r}")
    return Group(count, _sum(node, text, sizes), window)


def _encoding(node: ast.expr, text: str, sizes: Mapping[str, int | tuple[int, ...] | None]) -> Encoding:
    name, given = _call(node, text, sizes)
    name, fixed = encodings.RENAMED.get(name, (name, {}))
    cls = find_class(name)
    known = {word: parameter for word, parameter in _arguments(cls).items() if word not in fixed}
    for word in (*SIZES, "sides"):
        if word in known and word not in given and sizes.get(word) is not None:
            given[word] = sizes[word]
    made = _make(partial(cls, **fixed) if fixed else cls, name, known, given)
    assert isinstance(made, Encoding)
    return made


def _scaling(node: ast.expr, text: str) -> Scaling:
    name, given = _call(node, text, {})
    if ":" in name:
        cls = _stranger(name, Scaling)
    elif name in SCALINGS:
        cls = SCALINGS[name]
    else:
        raise ValueError(f"unknown scaling {name!r}{nearest(name, SCALINGS)}; known: {', '.join(SCALINGS)}")
    made = _make(cls, name, _arguments(cls), given)
    assert isinstance(made, Scaling)
    return made


def _call(node: ast.expr, text: str, sizes: Mapping[str, int | tuple[int, ...] | None]) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of one term."""
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if call.args or any(word.arg is None for word in call.keywords):
        raise ValueError(
            f"arguments are given by name in {_short(text)!r}: write rope(base=10000.0), not rope(10000.0)"
        )
    words = [word.arg or "" for word in call.keywords]
    if len(set(words)) < len(words):
        raise ValueError(f"an argument stands twice in {_short(text)!r}")
    return _name(call.func, text), {word.arg or "": _value(word.value, text, sizes) for word in call.keywords}


def _name(node: ast.expr, text: str) -> str:
    pieces: list[str] = []
    while isinstance(node, ast.Attribute):
        pieces.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueError(
            f"{_short(text)!r} is not a spec: a term must be a name such as rope or alibi, with arguments in brackets "
            "or none"
        )
    dotted = ".".join([node.id, *reversed(pieces)])
    return dotted.replace(".__class__.", ":")


def _value(node: ast.expr, text: str, sizes: Mapping[str, int | tuple[int, ...] | None]) -> Any:
    if isinstance(node, ast.Call):
        return _encoding(node, text, sizes) if _names_encoding(_name(node.func, text)) else _scaling(node, text)
    if isinstance(node, ast.Name) and _names_encoding(node.id):
        return _encoding(node, text, sizes)
    if isinstance(node, ast.Tuple | ast.List) and any(isinstance(item, ast.Call) for item in node.elts):
        return tuple(_value(item, text, sizes) for item in node.elts)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(
            f"an argument in {_short(text)!r} is not a plain value: a number, a text in quotes, True, False, None, a "
            "tuple, a scaling or an encoding"
        ) from None
    return tuple(value) if isinstance(value, list) else value


def _names_encoding(name: str) -> bool:
    """Whether a name inside a spec is an encoding's, ours or of an imported module; the others are scalings."""
    module, _, attribute = name.partition(":")
    named = getattr(sys.modules.get(module), attribute, None) if attribute else None
    return name in PAGES or name in encodings.RENAMED or (isinstance(named, type) and issubclass(named, Encoding))


def _arguments(cls: type) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(cls).parameters)
    return {k: v for k, v in parameters.items() if v.kind not in (v.VAR_POSITIONAL, v.VAR_KEYWORD)}


def _make(cls: Callable[..., Any], name: str, known: Mapping[str, inspect.Parameter], given: dict[str, Any]) -> Any:
    for word, value in given.items():
        if word not in known:
            raise ValueError(
                f"{name} has no argument {word!r}{nearest(word, known)}; it has: {', '.join(known) or 'none'}"
            )
        _check_type(name, word, value, known[word])
    missing = [word for word, p in known.items() if p.default is p.empty and word not in given]
    if missing:
        beside = f", or build({name!r}, {missing[0]}=...)" if missing[0] in SIZES else ""
        raise ValueError(
            f"{name} needs {', '.join(missing)}: write "
            f"{name}({missing[0]}={'rope(...)' if missing[0] == 'rope' else '...'}){beside}"
        )
    try:
        return cls(**given)
    except (
        RuntimeError,
        TypeError,
        ArithmeticError,
        MemoryError,
    ) as error:  # sizes that no machine holds, and the like
        asked = ", ".join(f"{word}={value!r}" for word, value in given.items())
        raise ValueError(
            f"can't make {name}({_short(asked)}): "
            f"{_short(str(error).splitlines()[0] if str(error) else type(error).__name__)}"
        ) from None


_PLAIN = {"int": int, "float": float, "bool": bool, "str": str}


def _check_type(name: str, word: str, value: Any, parameter: inspect.Parameter) -> None:
    """A value must be of the kind that the signature names; what the signature says otherwise is the class's to
    check.
    """
    annotation = parameter.annotation
    kinds = [
        kind.strip()
        for kind in (
            annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
        ).split("|")
    ]
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and value > MOST.get(word, LARGEST):
        raise ValueError(f"{word} of {name} is at most {MOST.get(word, LARGEST)}, got {_short(str(value))}")
    if isinstance(value, float) and not abs(value) < float("inf"):
        raise ValueError(f"{word} of {name} must be a finite number, got {value}")
    if not all(kind in _PLAIN or kind == "None" for kind in kinds):
        if isinstance(value, float | int) and not {"int", "float"} & set(kinds):
            raise ValueError(f"{word} of {name} must be {' | '.join(kinds)}, got {value!r}")
        return
    fits = any(
        (kind == "None" and value is None)
        or (kind == "bool" and isinstance(value, bool))
        or (kind == "int" and whole)
        or (kind == "float" and (whole or isinstance(value, float)))
        or (kind == "str" and isinstance(value, str))
        for kind in kinds
    )
    if not fits:
        raise ValueError(f"{word} of {name} must be {' or '.join(kinds)}, got {_short(repr(value))}")


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
