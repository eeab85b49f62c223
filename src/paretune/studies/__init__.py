"""Studies: searches for the configurations that are worth their cost.

definition      the file of a study, read and checked
proposal        a study without a file, proposed from a data set or a script
sampler         paretune's own sampler, which any Optuna study may use
search          the loop that asks for trials, runs their jobs, records their dollars and stops
results         the answer that follows from ended trials, its tables and its page
run             a study from its file to its answer, and the Python functions for it
recorded_front  `front`: the Pareto front of a recorded study or of any runs; `log_study`: Optuna's studies in MLflow
"""
