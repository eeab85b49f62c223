"""Simulated jobs: the same commands, states, events and bills as on SageMaker, on a virtual clock; nothing is trained.

launcher           SimulatedLauncher and SimulatedJob: the state of a job at the virtual time, from its timeline
timeline           phases, events and result of a job, from recorded runs or an estimate, with simulated failures
virtual_clock      time that advances only during `sleep`
"""
