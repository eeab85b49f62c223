"""Simulated jobs, with the commands, states, events and bills of SageMaker, on a virtual clock."""
