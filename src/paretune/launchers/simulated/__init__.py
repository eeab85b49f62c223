"""Simulated jobs: the same commands, states, events and bills as on SageMaker, on a virtual clock; nothing is trained.

launcher        SimulatedLauncher; SimulatedJob, the state of a job at the virtual time, from its timeline; VirtualClock
timeline        phases, events and result of a job, from recorded runs or an estimate, with simulated failures
recorded_runs   RunTable: tables of recorded runs, from which jobs are answered
"""
