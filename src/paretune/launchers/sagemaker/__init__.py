"""Jobs on SageMaker training clusters: the only door to AWS.

launcher.SageMakerLauncher      submits, finds and prices jobs, of our training or of projects' commands
queue.launcher.SageMakerLauncher    the same for jobs that wait their turn in an AWS Batch queue
jobs.SageMakerJob, ProjectJob   one training job as a `Job`, of the one or the other kind
account.Account                 the AWS identity: session, region, role, bucket, clients
preflight.account_faults        what credentials, role, bucket and quotas have against a job; each check as a finding
images.choose, faults           the training image, and why it cannot run a job
archive.package_files, project_files, pack   the code that travels
staging.Staging                 uploads to S3, content-addressed; claims on names
request.TrainingJobRequest, build   one CreateTrainingJob request, made by the SageMaker Python SDK
polling.Poller                  asks about all jobs of a process, within a fixed number of calls a minute
logs.LogReader                  what a job prints in CloudWatch, each line once
price_list                      AWS's price list, read anew
aws_errors.explain, classify    AWS's errors and failure reasons as sentences with a next step
"""

from paretune.core.errors import refuse
from paretune.core.packages import sagemaker_is_missing

refuse([why] if (why := sagemaker_is_missing()) else [])  # every import of this folder passes here
