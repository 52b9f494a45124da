"""The sweep: all trials of a plan, in processes of this machine, on Ray, or under `accelerate launch`."""

from milepost.lab.sweep.driver import sweep

__all__ = ["sweep"]
