"""The command `doctor`: checks machine, account and server; a real job shows whether AWS behaves as expected.

command        DoctorRequest: the cluster to check, and whether to run a paid job
run            makes the checks, each independent of the others, and launches the paid job as every job is launched
checks         Python environment, PyTorch's device, what is left of shared budgets, the MLflow store; credentials,
               role, bucket, quotas
"""
