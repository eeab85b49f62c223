"""paretune's own Optuna sampler: it runs the job with the largest expected gain per dollar.

sampler     `SplitSampler`, the sampler itself
decision    chooses the next job from the outcomes of earlier ones, or decides that the search is over
candidates  the jobs to choose from, and the outcomes of earlier jobs
seconds     the model of seconds
quality     the models of quality, of runs that collapse, and of failures; the study's answer uses them, too
process     the Gaussian process that all models are
"""
