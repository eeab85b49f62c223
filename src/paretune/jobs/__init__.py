"""One job, from its specification to its recorded run, and adopted again.

A billed second is followed through attempts (an attempt ended), bill (seconds become dollars) and outcome (dollars
become `cost_usd` in MLflow).

launch         prepares, launches, watches and records one job, or follows the same one of an earlier command
workplace      launcher, store, clock, home folder and budgets that the jobs of a command share
preparation    the prepared rows and the model that a job reads
preview        a job before it is paid for: what is known of it, warnings, and the dry run with its worst case
attempts       follows a job over all its attempts: begin, poll, stop, abandon; what follows a failure
record         the run of a job from its first tag until the job ends
bill           seconds and dollars of a job, and of instances kept after it
outcome        the end of a job: gathered, booked, written, judged and shown
model          the model of a finished job: card, record in MLflow, registered version
standing       the jobs of a store that run now: dollars so far and at worst, logs, an end
leftovers      what jobs have left in S3, what it costs a month, and what may be removed
sync           follows jobs whose launcher has ended, or collects them
progress       progress of jobs on standard error
"""
