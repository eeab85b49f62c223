"""Jobs on SageMaker training clusters: the only door to AWS.

launcher        SageMakerLauncher: checks, prices, submits and finds jobs of our training and of projects' commands;
                from a job document to a request: uploads, channels, environment, checkpoints
training_jobs   jobs created with CreateTrainingJob and found by name
jobs            SageMakerJob: one training job as a `Job`, and its warm pool
results         what a training job leaves in S3: our report, or a project's output
request         one CreateTrainingJob request, made by the SageMaker Python SDK
images          the training image, and why it cannot run a job
staging         uploads to S3 under the hash of their content; claims on keys
s3_download     objects in S3 that a user names, downloaded to this machine
account         the AWS identity: session, region, role, bucket, clients
permissions     what launcher and job role may do, asked of IAM; the tables are the documented policies
preflight       checks of credentials, role, bucket, network and quotas before a job costs anything
polling         asks about all jobs of a process, within a limited number of calls a minute, and reads their logs
aws_errors      AWS's errors as sentences with a next step
failures        the cause in a failure reason or a refusal, and the next step; failures.toml has the rules
"""

from paretune.core.errors import refuse
from paretune.core.packages import sagemaker_is_missing

refuse([fault] if (fault := sagemaker_is_missing()) else [])  # every import of this folder passes here
