"""The name of milepost.rope in version 0.1: importing it names the new one."""

raise ImportError("milepost.dialects is milepost.rope now: from milepost.rope import export")
