"""An Optuna sampler for fine-tuning jobs: seconds from short probes, quality from the cheapest cluster that fits.

sampler     `SplitSampler`: which job to run next, and what it would reach
candidates  the jobs to choose among, and what their quality and seconds depend on
rows        what has been measured, read from the trials of a study
quality     the model of quality, and of runs that collapse
seconds     the model of seconds
"""
