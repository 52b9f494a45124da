"""The files of a checkpoint: read, linked or copied, and written whole or not at all."""
