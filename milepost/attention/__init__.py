"""attend(): attention in which position is a value. One function, several backends, the same numbers from each."""

from __future__ import annotations

from milepost.attention.attend import BACKENDS, Choice, attend, explain
from milepost.attention.backends.reference import Attended
from milepost.attention.cache import KVCache
from milepost.attention.layer import Attention
from milepost.attention.shards import attend_shards, places

__all__ = ["BACKENDS", "Attended", "Attention", "Choice", "KVCache", "attend", "attend_shards", "explain", "places"]
