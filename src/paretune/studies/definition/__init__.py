"""Reads and checks study files, and defines what they contain.

- `file`: `StudyFile`, the keys of a study; faults are reported with their lines. `StudyRequest`: one without a file
- `objectives`: the metrics that a study can optimize or constrain
- `spending`: what a study spends: dollars or, where nobody bills, the time of its jobs
- `space`: the key `search`, the values and ranges of parameters, and which combinations are valid jobs
- `points`: the rows of a designed experiment, and which effects they can show
"""
