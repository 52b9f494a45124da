"""Reading what a checkpoint says of its rotary positions: config.json, params.json, GGUF headers. No torch."""
