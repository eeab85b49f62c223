"""What is said in words of a job that has ended: verdicts on what it learnt, and the note that its run shows.

Public modules: `rates` (how a learning rate stands to the usual one), `verdicts`, `job_note`.
"""
