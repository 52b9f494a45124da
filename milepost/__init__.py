"""milepost: where is this token, and does the model know?

    from milepost import Layout, RoPE, attend
    enc = RoPE(head_dim=64)
    at = Layout.dense(1024)
    y = attend(q, k, v, enc, at=at)

The public names are imported when they are first used, so that `import milepost` needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from milepost.draw.shown import built_by as _built_by
from milepost.encodings import NAMES as _PAGES
from milepost.encodings import SPACE as _SPACE
from milepost.renamed import install as _install

_install()

__version__ = "0.2.0"

_HOME = {
    "Attended": "attention",
    "Attention": "attention",
    "KVCache": "attention",
    "DualChunk": "maps.dual_chunk",
    "Encoding": "encoding",
    "Layout": "layout",
    "ReRoPE": "maps.rerope",
    "RopeSpec": "rope",
    "SelfExtend": "maps.self_extend",
    "Spectrum": "spectrum",
    "Streaming": "maps.streaming",
    "Sum": "encoding",
    "attend": "attention",
    "build": "spec",
    "resize_table": "encodings.resize_table",
    **{cls: f"encodings.{page}" for page, cls in (_PAGES | _SPACE).items()},
}

__all__ = sorted(_HOME)  # noqa: PLE0605

if TYPE_CHECKING:
    from milepost.attention import Attended as Attended
    from milepost.attention import Attention as Attention
    from milepost.attention import KVCache as KVCache
    from milepost.attention import attend as attend
    from milepost.encoding import Encoding as Encoding
    from milepost.encoding import Sum as Sum
    from milepost.encodings.alibi import ALiBi as ALiBi
    from milepost.encodings.alibi_2d import ALiBi2D as ALiBi2D
    from milepost.encodings.axial import Axial as Axial
    from milepost.encodings.binary import Binary as Binary
    from milepost.encodings.cope import CoPE as CoPE
    from milepost.encodings.deberta import DeBERTa as DeBERTa
    from milepost.encodings.fire import FIRE as FIRE
    from milepost.encodings.grid import Grid as Grid
    from milepost.encodings.integer import Integer as Integer
    from milepost.encodings.kerple import KERPLE as KERPLE
    from milepost.encodings.learned import Learned as Learned
    from milepost.encodings.logn import LogN as LogN
    from milepost.encodings.mixed import Mixed as Mixed
    from milepost.encodings.mrope import MRoPE as MRoPE
    from milepost.encodings.nope import NoPE as NoPE
    from milepost.encodings.resize_table import resize_table as resize_table
    from milepost.encodings.rope import RoPE as RoPE
    from milepost.encodings.sandwich import Sandwich as Sandwich
    from milepost.encodings.shaw import Shaw as Shaw
    from milepost.encodings.sinusoidal import Sinusoidal as Sinusoidal
    from milepost.encodings.sinusoidal_nd import SinusoidalND as SinusoidalND
    from milepost.encodings.swin import Swin as Swin
    from milepost.encodings.swin_v2 import SwinV2 as SwinV2
    from milepost.encodings.t5 import T5 as T5
    from milepost.encodings.transformer_xl import TransformerXL as TransformerXL
    from milepost.encodings.xpos import XPos as XPos
    from milepost.layout import Layout as Layout
    from milepost.maps.dual_chunk import DualChunk as DualChunk
    from milepost.maps.rerope import ReRoPE as ReRoPE
    from milepost.maps.self_extend import SelfExtend as SelfExtend
    from milepost.maps.streaming import Streaming as Streaming
    from milepost.rope import RopeSpec as RopeSpec
    from milepost.spec import build as build
    from milepost.spectrum import Spectrum as Spectrum


def _document(thing: Any) -> Any:
    from milepost.notebook import document

    return document(thing)


for _name in ("milepost.encoding.Encoding", "milepost.scaling.scaling.Scaling", "milepost.rope.spec.RopeSpec"):
    _built_by(_name, _document)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'milepost' has no attribute {name!r}")
    return getattr(importlib.import_module(f"milepost.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
