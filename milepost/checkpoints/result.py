"""What a command found or did: a dataclass of plain data, which a notebook shows as the command's own document."""

from __future__ import annotations

from typing import Any, ClassVar

from milepost.draw import Document
from milepost.measure.results import plain_fields


class CommandResult:
    """``document`` builds the report of `to_json`, in which ``leading`` names stand before the fields."""

    schema: ClassVar[int] = 1
    leading: ClassVar[tuple[str, ...]] = ()
    document: ClassVar[staticmethod[[dict[str, Any]], Document]]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**{name: getattr(self, name) for name in self.leading}, **plain_fields(self)}

    def _repr_html_(self) -> str:
        return type(self).document(self.to_json()).fragment()


class CheckedResult(CommandResult):
    """A result that is made of checks, each with a name and a verdict."""

    checks: tuple[Any, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that failed."""
        return tuple(check.name for check in self.checks if check.verdict == "FAIL")

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failed
