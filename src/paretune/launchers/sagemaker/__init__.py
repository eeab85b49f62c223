"""Jobs on SageMaker training clusters. Only this folder imports boto3."""

from paretune.core.errors import refuse
from paretune.core.packages import missing

refuse([fault] if (fault := missing("sagemaker")) else [])  # this runs before any module of this folder is imported
