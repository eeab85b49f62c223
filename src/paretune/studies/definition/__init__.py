"""Study files: how they are read and checked, and what they define.

file `StudyFile`: the keys of a study, and their faults with lines objectives the metrics that a study can optimize or
bound space `search`: values and ranges of parameters, and which of them make a job points `points`: the rows of a
designed experiment, and what they can show
"""
