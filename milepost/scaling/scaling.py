"""Scaling: a map from spectrum to spectrum, as a value."""

from __future__ import annotations

from dataclasses import MISSING, fields

from milepost.spectrum import Spectrum


class Scaling:
    """Base of all scalings: frozen dataclasses that are called with a `Spectrum` and return one."""

    length_dependent = False

    def __call__(self, plain: Spectrum) -> Spectrum:
        """The scaled spectrum."""
        raise ValueError(f"{self!r} depends on the length of the text: use .at(length) first")

    def at(self, length: int) -> Scaling | None:
        """The plain scaling for a text of this length (None: no scaling); itself unless ``length_dependent``."""
        return self

    def __repr__(self) -> str:
        module = type(self).__module__
        name = module.rsplit(".", 1)[-1] if module.startswith("milepost.scaling.") else f"{module}:{type(self).__qualname__}"
        shown = [f for f in fields(self) if f.default is MISSING or getattr(self, f.name) != f.default]  # type: ignore[arg-type]
        return f"{name}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"
