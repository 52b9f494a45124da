"""Claims about order, and about codes that are added to the tokens."""
