"""The sweep: all trials of a plan, in processes of this machine, on Ray, or under `accelerate launch`."""
