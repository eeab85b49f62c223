"""Reads and checks study files, and defines what they contain.

- `file`: `StudyFile`, the keys of a study; faults are reported with their line numbers
- `objectives`: the metrics that a study can optimize or constrain
- `space`: the key `search`, the values and ranges of parameters, and which combinations are valid jobs
- `points`: the rows of a designed experiment, and which effects they can show
- `request`: the request for a study that has no file
"""
