"""What an encoding looks like (`figures`); what a notebook shows of it, of a scaling and of a RopeSpec (`notebook`).

from milepost.portrait import portrait
portrait(RoPE(head_dim=64)).figures
"""

from milepost.portrait.figures import Portrait, document, portrait, relations, save

__all__ = ["Portrait", "document", "portrait", "relations", "save"]
