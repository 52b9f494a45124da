"""diagnose: where a checkpoint breaks on a text, how sharply, and why."""
