"""milepost: where is this token, and does the model know?

    from milepost import Layout, RoPE, attend
    enc = RoPE(head_dim=64)
    at = Layout.dense(1024)
    y = attend(q, k, v, enc, at=at)

The public names are imported when they are first used, so that `import milepost` needs no torch.
"""

from __future__ import annotations

from typing import Any

from milepost.public import public_names as _public_names
from milepost.renamed import CLASSES as _CLASSES
from milepost.renamed import install as _install
from milepost.shown import built_by as _built_by

_install()

__version__ = "0.2.0"
__all__, __getattr__ = _public_names(__name__, __file__, _CLASSES)


def _document(thing: Any) -> Any:
    from milepost.portrait.notebook import document

    return document(thing)


for _name in ("milepost.encoding.Encoding", "milepost.scaling.scaling.Scaling", "milepost.rope.spec.RopeSpec"):
    _built_by(_name, _document)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
