"""Jobs on SageMaker training clusters: the only door to AWS.

launcher        SageMakerLauncher: checks, prices, submits and finds jobs of our training and of projects' commands; the
                CreateTrainingJob request: image, uploads, channels, environment, checkpoints
start_job       what a container does before the job's command (start_job.sh and start_job.py travel with the code)
jobs            SageMakerJob: one training job as a `Job`, its log in CloudWatch and its warm pool
storage         S3: uploads under the hash of their content, what a job leaves, and objects that a user names
account         the AWS identity (session, region, role, bucket, clients), and free checks of it and of quotas
aws_errors      AWS's errors and the reasons of failed jobs as sentences with a next step
"""

from paretune.core.errors import refuse
from paretune.core.packages import missing

refuse([fault] if (fault := missing("sagemaker")) else [])  # every import of this folder passes here
