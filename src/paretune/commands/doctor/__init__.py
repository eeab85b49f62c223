"""What is wrong with machine, account and server, and one real job that shows whether AWS is as expected.

request.DoctorRequest     what to check, and whether to pay for a job
local_checks              Python environment, profile, home folder, MLflow
cloud_checks              credentials, role, bucket, quotas, image, price
budget_checks             what is left of budgets beyond one study
examination.examine       all checks; each is made, whatever the others find
paid_job.observe          launches the job and gathers what AWS, CloudWatch, S3 and MLflow say of it
expectations              what a job is expected to look like: one table; `compare` holds an observed job against it
report                    the same as a page to be posted: account, names and addresses are masked
"""
