"""Jobs on SageMaker training clusters: the only door to AWS."""

from paretune.core.errors import refuse
from paretune.core.packages import missing

refuse([fault] if (fault := missing("sagemaker")) else [])  # every import of this folder passes here
