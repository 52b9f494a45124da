"""recommend: what to set for a longer text, tried on the text itself."""
