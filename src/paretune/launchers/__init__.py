"""The places where jobs run.

A new launcher is a folder here, a branch of `jobs.workplace.Workplaces`, a choice of `JobSpec.launcher` and a fixture
of the contract suite (tests/launcher_contract.py). What differs on AWS asks `JobSpec.on_sagemaker`, or `has_instances`
for its catalogue and prices: grep for both, for the prefix `ml.`, and for `"sagemaker"` (rules, profile, study files,
doctor). Its packages are an extra, checked in `core.packages`; `pyproject.toml` says which folder may import them.
"""
