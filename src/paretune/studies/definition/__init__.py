"""Study files: read, checked, and what they define.

- `file.StudyFile`: a checked study; `StudyFile.read` reads a file, `StudyFile.spec_at` gives the job of a trial.
- `points.Design`: the rows of a designed experiment.
- `space`: what is searched (`Choices`, `Range`) and the job at a point (`make_spec`).
- `objectives`: the metrics that a study can optimise or bound, what is known of them, and their faults.
"""
