"""A GGUF file against the checkpoint that it was converted from: what the conversion lost."""
