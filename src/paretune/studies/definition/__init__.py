"""A study's file: read, checked, and what it defines.

- `file.StudyFile`: the study, checked; `StudyFile.read` reads it, `StudyFile.spec_at` gives the job of a trial.
- `file.study_help`: one line of help for each key of a study that can be typed.
- `space.Choices`, `space.Range`: the values of a searched parameter; `space.make_spec` makes a job of a point.
- `rules.StudyTerms`: the keys of a study that are one value each.
- `objectives.OBJECTIVES`: the metrics that a study can optimise or bound.
"""
