"""All claims, group by group."""

from __future__ import annotations

from milepost.claims.claim import Claim
from milepost.claims.groups.absolute import added, added_trained, codes, order, probes, sinusoids, tasks
from milepost.claims.groups.practice import choosing, cost, lengths, scaling, space, tuned
from milepost.claims.groups.relative import (
    alibi,
    alibi_trained,
    frequencies,
    functions,
    pairs,
    relative,
    rotary,
    rotation,
)
from milepost.claims.needs import Need

GROUPS: dict[str, tuple[str, tuple[Claim, ...]]] = {
    "order": ("Order without positions", order.CLAIMS),
    "tasks": ("Tasks of place and order", tasks.CLAIMS),
    "probes": ("Reading the position from a state", probes.CLAIMS),
    "codes": ("First codes: integers and binary numbers", codes.CLAIMS),
    "sinusoids": ("Sinusoids", sinusoids.CLAIMS),
    "added": ("Added codes and learned tables", added.CLAIMS),
    "added_trained": ("Added codes, trained", added_trained.CLAIMS),
    "relative": ("Relative schemes", relative.CLAIMS),
    "functions": ("Functions of distance, trained", functions.CLAIMS),
    "alibi": ("ALiBi", alibi.CLAIMS),
    "alibi_trained": ("ALiBi, trained", alibi_trained.CLAIMS),
    "rotation": ("Rotation", rotation.CLAIMS),
    "frequencies": ("Frequencies", frequencies.CLAIMS),
    "rotary": ("Rotary schemes", rotary.CLAIMS),
    "pairs": ("Pairs of trained models", pairs.CLAIMS),
    "lengths": ("Past the trained length", lengths.CLAIMS),
    "scaling": ("Stretching RoPE", scaling.CLAIMS),
    "tuned": ("Stretching RoPE, with training and without", tuned.CLAIMS),
    "cost": ("Time and memory", cost.CLAIMS),
    "space": ("Space", space.CLAIMS),
    "choosing": ("Choosing and moving", choosing.CLAIMS),
}
"""Every group by the name of its file: its title and its claims."""
CLAIMS: dict[str, Claim] = {claim.id: claim for _, claims in GROUPS.values() for claim in claims}
"""All claims by id."""
NEEDS: tuple[Need, ...] = tuple(need for claim in CLAIMS.values() for need in claim.needs)
"""All that any claim needs trained."""
