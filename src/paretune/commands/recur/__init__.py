"""A training that recurs every night: which point tonight's run takes, so that nights become cheaper and stay good.

`policy` and `model` are pure: what has been seen goes in, a choice comes out. `night` runs it; `file` reads it.
"""
