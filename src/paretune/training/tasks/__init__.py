"""Labels, losses and metrics of each task: classification, regression, several labels per row, and language models.

targets.read_targets    labels of a data set as arrays; reports all their faults at once
losses                  losses that do not grow with accumulation, and numbers in units that a head can learn
evaluation              metrics of an evaluation, and scores that trivial models and TF-IDF reach on the same rows
"""
