"""The files of studies and designs: read, checked, and what they define.

- `file.StudyFile`: a study, checked; `StudyFile.read` reads it, `StudyFile.spec_at` gives the job of a trial.
- `file.study_help`: one line of help for each key of a study that can be typed.
- `space.Choices`, `space.Range`: the values of a searched parameter; `space.make_spec` makes a job of a point.
- `rules.StudyTerms`: the keys of a study that are one value each.
- `objectives.OBJECTIVES`: the metrics that a study can optimise or bound.
- `design.DesignFile`: a design, checked; `design_reading.read_design` reads it, `DesignFile.job_at` gives a row's job.
- `design_rows.RowTerms`: what a row of a design may say beside parameters of a job.
- `reading.FileReading`: what both kinds of files have in common; `study_reading`, `design_reading`: what is their own.
"""
