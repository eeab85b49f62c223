"""Study files: reading and checking them, and what they define.

- `file`: `StudyFile`, the keys of a study. Faults are reported with their line numbers.
- `objectives`: the metrics that a study can optimize or constrain
- `space`: `search`, the values and ranges of parameters, and which combinations are valid jobs
- `points`: the rows of a designed experiment, and which effects they can show
"""
