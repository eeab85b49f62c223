"""The search of a study: asks for trials, runs their jobs, books their dollars, stops.

driver      the loop, one step at a time; takes over what an earlier process has left
next_job    what suggests jobs: `sampler: split`, Optuna's samplers, each point in turn, and repeats in the end
table       the trials of a study in Optuna's storage
trial_job   the job of one trial: started or adopted, polled, stopped; warm pools that jobs leave behind
history     the ended trials of a study: which of their jobs are tried again, why it ends early
money       limits, worst cases, the reservations of a study
study_run   the study's run in MLflow, and what it prints
"""
