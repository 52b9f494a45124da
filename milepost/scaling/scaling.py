"""Scaling: a map from spectrum to spectrum, as a value."""

from __future__ import annotations

from dataclasses import MISSING, fields

from milepost.checks import check_choice
from milepost.shown import html
from milepost.spectrum import Spectrum

MOST = 1e6
"""The largest m that is taken for one, and one over the smallest: its square multiplies logits."""


class Scaling:
    """Base of all scalings: frozen dataclasses that are called with a `Spectrum` and return one."""

    length_dependent = False
    check_choice = staticmethod(check_choice)

    def __call__(self, plain: Spectrum) -> Spectrum:
        """The scaled spectrum."""
        raise ValueError(f"{self!r} depends on the length of the text: use .at(length) first")

    def at(self, length: int) -> Scaling | None:
        """The plain scaling for a text of this length (None: no scaling); itself unless ``length_dependent``."""
        return self

    def check_factor(self, name: str, factor: float) -> None:
        """Refuse a factor that would shrink the context, or is no number."""
        if not 1 <= factor < float("inf"):
            hint = f" ({factor:g} is the inverse of {1 / factor:g})" if 0 < factor < 1 else ""
            raise ValueError(
                f"{name} of {self._name()} must be a finite number of at least 1, which means a longer context, got "
                f"{factor}{hint}"
            )

    def check_range(self, least: float, *names: str) -> None:
        """Refuse fields that are set (not None) and not from ``least`` to `MOST`."""
        for name in names:
            value = getattr(self, name)
            if value is not None and not least <= value <= MOST:
                raise ValueError(f"{name} of {self._name()} must be a number from {least:g} to {MOST:g}, got {value}")

    def check_length(self, name: str, length: int) -> None:
        """Refuse what is no number of tokens."""
        if not isinstance(length, int) or length < 1:
            raise ValueError(f"{name} of {self._name()} is a whole number of tokens, at least 1, got {length}")

    def _name(self) -> str:
        module = type(self).__module__
        return (
            module.rsplit(".", 1)[-1]
            if module.startswith("milepost.scaling.")
            else f"{module}:{type(self).__qualname__}"
        )

    def _repr_html_(self) -> str:
        """How it looks in a notebook."""
        return html(self)

    def __repr__(self) -> str:
        own = fields(self)  # type: ignore[arg-type]
        shown = [f for f in own if f.default is MISSING or getattr(self, f.name) != f.default]
        return f"{self._name()}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"


def check_fixed(scaling: Scaling | None) -> None:
    """Refuse what is no scaling, and one that depends on the length of the text."""
    if scaling is not None and (not isinstance(scaling, Scaling) or scaling.length_dependent):
        raise ValueError(
            "scaling must be one of milepost.scaling that does not depend on the length, such as yarn(...), "
            f"got {scaling!r}"
        )
