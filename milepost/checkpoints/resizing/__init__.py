"""resize: a checkpoint whose table of positions is for another grid, or another length."""
