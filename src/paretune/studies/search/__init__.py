"""The search of a study: from the first trial to the written answer. Only `optuna_study` imports Optuna.

- `joint.search`, `split.search.search`: run a study to its end, by one of the two methods.
- `driver.Driver`: starts, polls, books and stops the jobs of a study; `driver.ConcurrencyLimit`: how many at a time.
- `ledger.Ledger`: dollars and drivers of a study, shared by all its drivers; `ledger.TrialNote`, `ledger.TrialEnd`.
- `migrations.migrate`: brings the ledger's tables to the newest version.
- `optuna_study.OptunaStudy`: the trials in Optuna: `ask`, `ask_for`, `report_outcome`.
- `trial_history.TrialHistory`: what the ledger says about the trials that have ended.
- `trial_job.TrialJob`: the job of one trial.
- `worst_case.WorstCase`: the most that a job can cost, with its runtime limited.
- `untried.UntriedPoints`: points for when the sampler has none that fit.
- `default_job.default_point`, `default_job.default_trial`: what the search has to beat.
- `early_stopping`: when a running job cannot reach the front; `stopping`: when a study has found enough.
- `parent_run.open_parent_run`: the MLflow run that those of the trials are nested under.
- `study_run.StudyRunWriter`: the study's MLflow run, and its lines in the terminal.
"""
