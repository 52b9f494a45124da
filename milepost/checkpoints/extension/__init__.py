"""extend: a checkpoint for longer texts, in a folder that other tools load."""
