"""Benchmarks: contestants interleaved in one run, as ratios. Machines are shared and noisy; ratios stay the same."""
