"""Simulated jobs: the same commands, states, events and bills as on SageMaker, on a virtual clock."""
