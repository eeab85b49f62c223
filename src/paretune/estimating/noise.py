"""How much two equal runs differ: what is assumed of seconds and F1 where no repeats have shown it.

Measured on the runs of aws-samples/amazon-sagemaker-huggingface-benchmark (data/processed/experiment_results.csv,
2021): eight pairs of SageMaker jobs that differ in nothing. Their seconds differ by 1.4 % (median; 6.2 % at most),
their F1 by 0.0005 (median; 0.0052 at most). Two equal runs differ by 2 ** 0.5 standard deviations of one run times a
standard normal number, whose median size is 0.6745.
"""

import math

SECONDS_NOISE = 0.014 / (0.6745 * math.sqrt(2))
"""Standard deviation of the seconds of one run, relative: 0.0147. Dollars go with seconds."""
SECONDS_NOISE_OF_OTHER_DATA = 0.03
"""The same of what a time model fitted to other data sets says of a cluster; there the median difference is 2.9 %."""
F1_NOISE = 0.004
"""Standard deviation of F1 of one run, absolute, and of the evaluation loss: the largest difference of those pairs
taken for one standard deviation of a difference, 0.0052 / 2 ** 0.5 = 0.0037, rounded up. Rather too large than too
small, for it decides which values cannot be told apart; repeats replace it as soon as there are some."""
F1_DEGREES = 2
"""Degrees of freedom with which F1_NOISE is known of a model and data that have shown no repeats. Few, for those pairs
themselves lie between 0.0001 and 0.0037, and other data scatter more: with two, the deviation of one run lies between
0.0026 and 0.0123 with a probability of 80 %, and two repeats weigh as much as all that is assumed."""
SECONDS_DEGREES = 4
"""The same of SECONDS_NOISE, whose pairs agree better with each other."""
