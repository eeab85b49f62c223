"""An Optuna sampler for fine-tuning jobs: seconds from short probes, quality from the cheapest cluster that fits.

sampler     `SplitSampler`: which job to run next, and what it would reach
candidates  the jobs to choose among, what has been measured of them, and the model of their seconds
quality     the model of quality, and of runs that collapse
opinion     a plain Gaussian process over all settings, which is asked when the model of quality sees nothing left
"""
