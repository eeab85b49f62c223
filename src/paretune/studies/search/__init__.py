"""The search of a study: from the first trial to the written answer.

- `driver.Driver`: one step after the other, it begins, polls, books and stops the jobs of a study.
- `table.StudyTable`: the trials, all of them in Optuna's storage. Only it and the samplers import Optuna.
- `history.History`: what follows from the trials that have ended.
- `split.Split`, `points.Points`: what begins the next job; `verification.Verification` begins repeats.
- `admission.Admission`: reserves worst cases in the budget of the study and in shared ones.
- `worst_case.WorstCase`: the most that a job can cost, with its runtime limited.
- `trial_job.TrialJob`: the job of one trial; `kept_pools.KeptPools`: warm pools that jobs leave.
- `code_errors.code_error`: the error of the code that every further job would repeat.
- `default_job.default_point`, `default_job.default_trial`: the baseline that the search has to beat.
- `study_run.StudyRunWriter`: the study's MLflow run, and its lines in the terminal.
"""
