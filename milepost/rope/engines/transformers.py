"""transformers: reads config.json of version 4 and 5 alike; writes either.

    v5    rope_parameters: {rope_type, rope_theta, ...}, one for all layers or one for each kind of layer
    v4    rope_theta beside rope_scaling: {rope_type or type, ...}; older names before that

Nothing is filled in silently: `RopeSpec.sources` names the key of every value, or says that it is the model type's own.
"""

from __future__ import annotations

from milepost.rope.config.config_json import TEXT, parse, read
from milepost.rope.engines.transformers_written import shape, write

__all__ = ["TEXT", "parse", "read", "shape", "write"]
