"""Studies: which configuration to pay for, found with few jobs.

definition what a study is: its file, read and checked sampler the paretune's own sampler, which any Optuna study may
use results the answer from ended trials, its tables and its page search the loop that asks for trials, runs their jobs,
records their dollars and stops run a study from its file to its answer, and its Python functions recorded_front
`front`: the Pareto front of a recorded study, or of any runs; `log_study`: Optuna's studies in MLflow
"""
