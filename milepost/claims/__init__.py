"""The claims of the notes, each with the experiment that decides it: groups/ holds them, `judge` runs them.

from milepost.claims.judge import judge
rows = judge(["rope-sign"])
rows[0]["verdict"], rows[0]["evidence"]
"""
