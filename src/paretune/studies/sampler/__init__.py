"""An Optuna sampler for fine-tuning jobs: seconds from short probes, quality from the cheapest cluster that fits.

sampler     SplitSampler        suggests the job with most expected hypervolume per dollar
candidates  Space, Job          the jobs to choose among, and what their quality and their seconds depend on
rows        Row                 what the trials of a study have shown
seconds     SecondsModel        seconds of a job, from those of other jobs
quality     QualityModel        quality of a training, and the probability that it collapses
gains       expected_improvement  hypervolume that a job may add
"""
