"""Lanes: texts that go on one token at a time, with nothing looked up twice.

A lane serves the tokens of a stretch that are alike. `KVCache.decode` opens one after a token that it can serve, and
asks it first from then on. Each has `serves` (may it be opened?), `fits` (is this the next token?) and `token`.
"""
