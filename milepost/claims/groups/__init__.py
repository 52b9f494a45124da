"""The claims themselves, one file for each group of `milepost.claims.table`.

frame, heads, moved and sight hold the longer experiments.
"""
