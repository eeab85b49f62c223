"""The command `estimate`: seconds, dollars and memory of jobs before they are paid for.

command   which jobs to estimate, read and checked
estimate  the estimates of paretune's own training, and of a user's own from its earlier runs
table     the table as text, CSV and picture
"""
