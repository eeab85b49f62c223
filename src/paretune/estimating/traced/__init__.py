"""Memory of a training step as the model's own code takes it.

step   what was traced, and the peak that follows from it for a batch and a division of devices
cache  the traced steps that a home folder keeps
"""
