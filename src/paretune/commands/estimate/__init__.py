"""The command `estimate`: seconds, dollars and memory of jobs before they are paid for.

command        which jobs to estimate, read and checked
estimate       estimates of paretune's own training, as a table
own_trainings  estimates of a user's own script or project, from its earlier runs
probing        short paid jobs on clusters that were never measured
tracing        memory of a training step, traced in a process with PyTorch
table          the table as text, CSV and picture
"""
