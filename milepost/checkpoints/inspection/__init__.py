"""inspect: where position enters a checkpoint, layer by layer, and what its lengths are."""
