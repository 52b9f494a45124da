"""Claims about longer texts, cost, space, and the choice of an encoding."""
