"""The command `doctor`: checks machine, account and server; real jobs show whether AWS behaves as expected.

command        DoctorRequest: the cluster to check, and whether to run the paid checks
run            makes the checks, each independent of the others, and prints them
checks         Python environment, PyTorch's device, what is left of shared budgets, the MLflow store; credentials,
               role, bucket, quotas
paid           what each paid check settles, and the jobs that settle it; large_output/ is the script of one of them
"""
