"""The public names of milepost. Each is listed here once; `milepost.public` imports it when it is first used."""

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
from milepost.encodings.fope import FoPE as FoPE
from milepost.encodings.grid import Grid as Grid
from milepost.encodings.integer import Integer as Integer
from milepost.encodings.kerple import KERPLE as KERPLE
from milepost.encodings.learned import Learned as Learned
from milepost.encodings.learned_spectrum import LearnedSpectrum as LearnedSpectrum
from milepost.encodings.mixed import Mixed as Mixed
from milepost.encodings.mrope import MRoPE as MRoPE
from milepost.encodings.nope import NoPE as NoPE
from milepost.encodings.resize_table import resize_table as resize_table
from milepost.encodings.rope import RoPE as RoPE
from milepost.encodings.sandwich import Sandwich as Sandwich
from milepost.encodings.shaw import Shaw as Shaw
from milepost.encodings.sinusoidal import Sinusoidal as Sinusoidal
from milepost.encodings.sinusoidal_nd import SinusoidalND as SinusoidalND
from milepost.encodings.ssmax import SSMax as SSMax
from milepost.encodings.swin import Swin as Swin
from milepost.encodings.swin_v2 import SwinV2 as SwinV2
from milepost.encodings.t5 import T5 as T5
from milepost.encodings.temperature import Temperature as Temperature
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
from milepost.stack import Stack as Stack

__version__: str
