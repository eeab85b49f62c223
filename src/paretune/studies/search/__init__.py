"""The search of a study: asks for trials, runs their jobs, records their dollars, and stops.

driver        runs the loop and the job of each trial, takes over jobs of an earlier process, releases warm pools
next_job      proposes the next job: from a sampler, from a list of points, or as a repeat of a recommended point
table         reads and writes the trials of a study in Optuna's storage
ended_trials  decides which jobs of ended trials are retried, and whether a study should end early
money         sets time limits, and reserves the worst cases of jobs in dollars
"""
