"""The command `sync`: collects jobs that have ended and follows jobs that still run.

command  registers the command
sync     Sync: adopts unfinished jobs, books warm pools and budgets, registers models
"""
