"""Models that run behind a server: measured through the engine that serves them.

    subject = milepost.served.connect("http://127.0.0.1:8000", tokenizer="path/to/model")

servers/ has a file for each server. The commands are `diagnose`, `verify`, `compare` and `recommend`, given an address.
"""

from __future__ import annotations

from milepost.public import public_names

__all__, __getattr__ = public_names(__name__, __file__)
