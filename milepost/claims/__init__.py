"""The claims of the notes, each with the experiment that decides it. One file for each group in groups/; `judge` runs them.

from milepost.claims.judge import judge
rows = judge(["rope-sign"])
rows[0]["verdict"], rows[0]["evidence"]
"""

from __future__ import annotations

GROUPS = {
    "order": "Order without positions",
    "tasks": "Tasks of place and order",
    "probes": "Where a state says which place it is",
    "codes": "First codes: integers and binary numbers",
    "sinusoids": "Sinusoids",
    "added": "Codes that are added, and learned tables",
    "added_trained": "Codes that are added, trained",
    "relative": "Relative schemes",
    "functions": "Functions of distance, trained",
    "alibi": "ALiBi",
    "alibi_trained": "ALiBi, trained",
    "rotation": "Rotation",
    "frequencies": "Frequencies",
    "rotary": "Rotary schemes",
    "pairs": "Pairs of trained models",
    "lengths": "Past the trained length",
    "scaling": "Stretching RoPE",
    "tuned": "Stretching RoPE, with training and without",
    "cost": "Time and memory",
    "space": "Space",
    "choosing": "Choosing and moving",
}
"""Every group: its file, and its title."""
