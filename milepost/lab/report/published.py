"""Published: perplexity by length of four encodings, to be set beside a lab run.

Press, Smith and Lewis, "Train Short, Test Long", 2022, arXiv:2108.12409, table 2: WikiText-103, 247 M parameters,
trained at 512, windows without overlap. What can be compared is the pattern, as perplexity over perplexity at the
trained length.
"""

from __future__ import annotations

TRAINED = 512
TABLE: dict[str, dict[int, float]] = {
    "sinusoidal": {512: 20.05, 712: 24.86, 1012: 43.54, 1512: 76.23, 2512: 132.41, 3512: 178.97, 8512: 305.65},
    "rope": {512: 20.07, 712: 19.79, 1012: 21.37, 1512: 25.99, 2512: 31.58, 3512: 35.54, 8512: 54.98},
    "t5": {512: 19.65, 712: 19.10, 1012: 18.79, 1512: 18.91, 2512: 20.41, 3512: 22.91, 8512: 43.08},
    "alibi": {512: 19.73, 712: 19.14, 1012: 18.73, 1512: 18.52, 2512: 18.41, 3512: 18.40, 8512: 18.34},
}
SHOWN = (1012, 2512, 3512)
"""The lengths that a table shows; the figure has all."""
