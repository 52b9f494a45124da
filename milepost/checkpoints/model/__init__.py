"""A checkpoint in memory: loading it, its text and tokenizer, its attention, and training it a little more."""
