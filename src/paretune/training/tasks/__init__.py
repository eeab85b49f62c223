"""Tasks whose labels are no classes: regression, and several labels a row.

targets.read_targets    labels of a data set as arrays, all faults of them at once
targets.strata          groups of rows that a split keeps in their proportions
judging                 metrics of an evaluation, and what single words tell of the same rows
losses                  losses that do not grow with accumulation, and labels in units that can be learnt
"""
