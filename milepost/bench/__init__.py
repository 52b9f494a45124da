"""Benchmarks: contestants side by side in one run, interleaved, as ratios. Machines are shared and noisy; ratios last."""
