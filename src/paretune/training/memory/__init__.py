"""What a training step holds in memory, found without weights, data or a GPU.

step       two steps on fake tensors, and what was held after each of their operations
likeness   operations as a GPU does them: attention that keeps no matrices, the formats of autocast
`python -m paretune.training.memory` reads a JSON list of StepSettings and writes a line for each
"""
