"""Jobs on SageMaker training clusters: the only door to AWS.

launcher        SageMakerLauncher: checks, prices, submits and finds jobs of our training and of projects' commands
training_jobs   jobs created with CreateTrainingJob and found by name; `Submission`, its interface
queue           the same through an AWS Batch queue
jobs            SageMakerJob: one training job as a `Job`, and its warm pool
results         what a training job leaves in S3: our report, or a project's output
training_plans  instances that were paid for in advance
packaging       from a job document to a request: uploads, channels, environment, checkpoints
request         one CreateTrainingJob request, made by the SageMaker Python SDK
images          the training image, and why it cannot run a job
staging         uploads to S3 under the hash of their content; claims on keys
s3_download     objects in S3 that a user names, downloaded to this machine
account         the AWS identity: session, region, role, bucket, clients
preflight       checks of credentials, role, bucket and quotas before a job costs anything
network         what the subnets of a job can reach
polling         asks about all jobs of a process, within a limited number of calls a minute
logs            reads a job's log in CloudWatch, each line once
price_list      AWS's price list of today
aws_errors      AWS's errors and failure reasons as sentences with a next step
"""

from paretune.core.errors import refuse
from paretune.core.packages import sagemaker_is_missing

refuse([fault] if (fault := sagemaker_is_missing()) else [])  # every import of this folder passes here
