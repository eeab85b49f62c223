"""Reads and checks study files, and defines what they contain.

- `file`: `StudyFile`, the keys of a study; faults are reported with their lines. `StudyRequest`: one without a file
- `objectives`: the metrics that a study can optimize or constrain
- `space`: the key `search`, the values and ranges of parameters, and which combinations are valid jobs
- `points`: the rows of a designed experiment, and which effects they can show
"""
