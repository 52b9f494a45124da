"""The reference of public names: `::: NAME` in docs/reference.md becomes the signature, docstring and methods of
milepost.NAME."""

from __future__ import annotations

import inspect
import re
from typing import Any

import milepost

MARK = re.compile(r"^::: (\w+)$", flags=re.M)


def filled(text: str) -> str:
    """The page with every mark replaced by what the package says."""
    return MARK.sub(lambda m: entry(m[1]), text)


def entry(name: str) -> str:
    """One public name as Markdown."""
    thing: Any = getattr(milepost, name)
    lines = [f"### `{name}`", "", f"```text\n{_call(name, thing)}\n```", "", _prose(thing)]
    if inspect.isclass(thing):
        for method, member in _methods(thing):
            lines += ["", f"**`{_call(method, member)}`** " + _prose(member)]
    return "\n".join(lines)


def _methods(cls: type) -> list[tuple[str, Any]]:
    """The public methods and properties that the class itself defines, in the order of its page."""
    own = [(name, member) for name, member in vars(cls).items() if not name.startswith("_")]
    own = [(name, member.__func__ if isinstance(member, staticmethod) else member) for name, member in own]
    return [(n, m) for n, m in own if (inspect.isfunction(m) or isinstance(m, property)) and inspect.getdoc(m)]


def _call(name: str, thing: Any) -> str:
    if isinstance(thing, property):
        return name
    try:
        signature = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return name
    signature = re.sub(r"'([^']*)'", r"\1", re.sub(r"\(self(, )?", "(", signature))
    return f"{name}{signature}"


def _prose(thing: Any) -> str:
    return inspect.getdoc(thing) or ""
