"""Study files: read, checked, and what they define.

- `file.StudyFile`: a checked study; `StudyFile.read` reads a file, `StudyFile.spec_at` gives the job of a trial.
- `file_model.FileReader`: how a file with sections and keys is read, with the line of each fault; `file_model.Rule`: a
  rule between parts. Designs share both.
- `rules`: the keys of a study (`StudyTerms`), its unchecked parts (`Draft`) and the rules for them.
- `space`: what is searched (`Choices`, `Range`) and the job at a point (`make_spec`).
- `objectives`: the metrics that a study can optimise or bound, and their faults.
- `quality.Quality`: the metric that models are judged by, and what is known of it before any run.
"""
