"""Claims about schemes that see distances: biases and rotations."""
