"""One job, from its specification to its recorded run, and found again.

launch.launch              prepares, launches, watches and records one job
workplace.Workplace(s)     launcher, store, clock and home folder that jobs share
preparation.inputs_of      the prepared rows and the model that a job reads
retrying_job.RetryingJob   a job over all its attempts: begin, poll, stop, abandon
recording.JobRunWriter     writes the run of a job, of our training or of a project's command
sync.Sync                  follows and collects jobs whose launcher has ended; closes runs whose job was never created
doctor                     what is wrong with machine, account and server; one paid job against what is expected
warm_pools.KeptPool        the instances kept after a recorded job, until they are booked
estimates                  the command `estimate`
importing.import_runs      a table of published runs as MLflow runs
"""
