"""The search of a study: asks for trials, runs their jobs, records their dollars, and stops.

driver        the loop, and the job of one trial; takes over jobs of an earlier process and releases warm pools
next_job      proposes the next job: from a sampler, from a list of points, or as a repeat of a recommended point
table         the trials of a study in Optuna's storage
ended_trials  which jobs of ended trials are retried, and why a study ends early
money         time limits, worst cases, and the dollars that a study reserves
"""
