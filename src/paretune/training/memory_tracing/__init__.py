"""The memory that a training step needs, found without weights, data or a GPU.

`python -m paretune.training.memory_tracing` reads a JSON list of StepSettings and writes one line for each.

step    two steps on fake tensors, and the memory in use after each of their operations
"""
