"""The command `doctor`: checks machine, account and server; a real job shows whether AWS behaves as expected.

command        DoctorRequest: the cluster to check, and whether to run a paid job
run            makes the checks, each independent of the others, runs the paid job, writes its report
local_checks   Python environment, profile, home folder, what is left of shared budgets
cloud_checks   credentials, role, bucket, quotas, image, price
store_checks   whether the MLflow store can be used, and what to do if not
paid_job       launches the job and gathers what AWS, CloudWatch, S3 and MLflow show of it
expectations   expectations of a job in one table; `compare` checks an observed job against them
report         the result as a page to be posted, with account, names and addresses masked
"""
