"""paretune's own Optuna sampler: short probes show how long jobs take, and cheap jobs show what quality they reach.

sampler     `SplitSampler`, the sampler itself
decision    chooses the next job from the outcomes of earlier ones, or decides that the search is over
candidates  the jobs to choose from, the outcomes of earlier jobs, and the model of seconds
quality     the model of quality, and of runs that collapse
opinion     a plain Gaussian process over all searched parameters, consulted when the other models expect no more gain
"""
