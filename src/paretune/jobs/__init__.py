"""One job, from its specification to its recorded run, and adopted again.

A billed second is followed through attempts (an attempt ended), bill (seconds become dollars) and ending (dollars
become `cost_usd` in MLflow).

launch         prepares, launches, watches and records one job
workplace      launcher, store, clock, home folder and budgets that the jobs of a command share
preparation    the prepared rows and the model that a job reads
advice         warnings about a job before it is paid for
attempts       follows a job over all its attempts: begin, poll, stop, abandon; what follows a failure
record         the run of a job from its first tag until the job ends
bill           seconds and dollars of a job, and of instances kept after it
outcome        how a job ended: everything that is recorded and shown of it
ending         gathers, books and writes the outcome
model          the model of a finished job: card, record in MLflow, registered version
verdicts       sentences about the model of a finished job
progress       progress of jobs on standard error
adoption       jobs of earlier commands: identical ones, and those in other accounts and regions
warm_pools     instances kept after recorded jobs, until their cost is booked
"""
