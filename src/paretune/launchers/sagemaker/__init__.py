"""Jobs on SageMaker training clusters: the only door to AWS.

launcher        SageMakerLauncher: checks, prices, submits and finds jobs of our training and of projects' commands
request         from a job document to a CreateTrainingJob request: uploads, channels, environment, checkpoints
start_job       what a container does before the job's command (start_job.sh and start_job.py travel with the code)
jobs            SageMakerJob: one training job as a `Job`, and its warm pool
logs            the log of a job in CloudWatch
images          the training image, and why it cannot run a job
storage         uploads to S3 under the hash of their content, and what a training job leaves there
s3_download     objects in S3 that a user names, downloaded to this machine
account         the AWS identity: session, region, role, bucket, clients
checks          checks of credentials, role, bucket and quotas before a job costs anything
aws_errors      AWS's errors and the reasons of failed jobs as sentences with a next step
"""

from paretune.core.errors import refuse
from paretune.core.packages import sagemaker_is_missing

refuse([fault] if (fault := sagemaker_is_missing()) else [])  # every import of this folder passes here
