"""Simulated jobs on a virtual clock, with the same commands, states, events and bills as on SageMaker."""
