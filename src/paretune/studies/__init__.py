"""Studies: searches for the configurations that are worth their cost, and designed experiments.

definition      reads and checks the file of a study
proposal        proposes a study to a user who has a data set or a script, but no study file
trial_status    how a trial ended, and whether its point is tried again
sampler         paretune's own sampler, which any Optuna study may use
search          the loop that asks for trials, runs their jobs, records their dollars and stops
results         the answer that follows from ended trials, its tables and its page
preview         checks a study before anything is launched, and shows what it would run
record          the MLflow run of a study, which one process drives at a time
run             runs a study from its file to its answer; also has the Python functions `study` and `run_study`
recorded_front  `front`: the Pareto front of a recorded study or of any runs; `log_study`: Optuna's studies in MLflow
"""
