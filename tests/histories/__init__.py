"""Whole histories of drivers in one process: virtual time, faults and kills drawn from one seed, and oracles.

world       time, processes, faults, and the seams of AWS, MLflow and the ledger
training    AWS training jobs that live, fail, stop and are billed by themselves
store       an MLflow store in memory
history     one history from its seed, and what must hold at its end
defects     defects of earlier versions, put back to check the oracles

`python -m tests.histories --count 1000` draws fresh seeds; `--seed N` plays one history again.
"""
