"""A model that is changed for a while: other attributes, hooks, and all as it was afterwards.

with patched((config, "_attn_implementation", "eager"), (module, "forward", other)): ...
with hooked(layer.register_forward_hook(note)): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any


@contextmanager
def patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Within it, each owner's attribute of a name has another value; a method of its class is uncovered again."""
    with ExitStack() as stack:
        for owner, name, value in changes:
            before = getattr(owner, name)
            if isinstance(before, MethodType) and name not in vars(owner):
                stack.callback(delattr, owner, name)
            else:
                stack.callback(setattr, owner, name, before)
            setattr(owner, name, value)
        yield


@contextmanager
def hooked(*hooks: Any) -> Iterator[None]:
    """Hooks of torch that are removed at the end."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
