"""The command `doctor`: checks machine, account and server; a real job shows whether AWS behaves as expected.

command        DoctorRequest: the cluster to check, and whether to run a paid job
run            makes the checks, each independent of the others, and launches the paid job as every job is launched
local_checks   Python environment, profile, home folder, what is left of shared budgets, the MLflow store
cloud_checks   credentials, role, bucket, quotas, image, price
"""
