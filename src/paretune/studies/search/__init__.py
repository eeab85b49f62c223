"""The search of a study: from the first trial to the written answer. Only `optuna_study` imports Optuna.

- `joint.search`, `split.search.search`: run a study to its end, by one of the two methods.
- `driver.Driver`: starts, polls, books and stops the jobs of a study.
- `concurrency.ConcurrencyLimit`: how many jobs run at a time.
- `admission.Admission`: reserves worst cases in the budget of the study and in shared ones.
- `worst_case.WorstCase`: the most that a job can cost, with its runtime limited.
- `optuna_study.OptunaStudy`: the trials in Optuna: `ask`, `ask_for`, `report_outcome`.
- `trial_job.TrialJob`: the job of one trial; `kept_pools.KeptPools`: warm pools that jobs leave.
- `trial_history.TrialHistory`: the trials that have ended, as the ledger has them.
- `untried.UntriedPoints`: points for when the sampler has none that fit.
- `default_job.default_point`, `default_job.default_trial`: the baseline that the search has to beat.
- `stopping`: when a study ends.
- `parent_run.ParentRun`: the MLflow run of a study or design, which those of its trials are nested under.
- `study_run.StudyRunWriter`: the study's MLflow run, and its lines in the terminal.
"""
