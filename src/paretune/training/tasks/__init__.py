"""Labels, losses and metrics of each task: classes, several labels per row, labels of words, and language models.

targets.read_targets    labels of a data set as arrays; reports all their faults at once
losses                  losses that do not grow with accumulation
evaluation              metrics of an evaluation, and scores that trivial models and TF-IDF reach on the same rows
"""
