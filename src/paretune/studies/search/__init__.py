"""The search of a study: asks for trials, runs their jobs, records their dollars, stops.

driver      the loop and the job of one trial; takes over what an earlier process has left, gives back warm pools
next_job    what suggests jobs: `sampler: split`, Optuna's samplers, each point in turn, and repeats in the end
table       the trials of a study in Optuna's storage
history     the ended trials of a study: which of their jobs are tried again, why it ends early
money       limits, worst cases, the reservations of a study
"""
