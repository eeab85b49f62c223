"""SageMaker jobs whose role and bucket are known, so that no account is asked about them."""

from collections.abc import Mapping
from typing import Any

from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.place import place_of
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from tests.support.stand_ins.aws import BUCKET, ROLE


def job_of(**changes: Any) -> JobSpec:
    """Return a job with a role and a bucket."""
    return JobSpec(**{"instance_type": "ml.m5.large", "role": ROLE, "sagemaker.s3_bucket": BUCKET, **changes})


def placed(launcher: SageMakerLauncher, spec: JobSpec, inputs: JobInputs | None = None) -> Mapping[str, Any]:
    """Return the place of a job with its own role and bucket, which are not asked for in the account."""
    place = place_of(spec, launcher.account, launcher._environment, is_sound=False)
    own = {"role": spec.role, "s3_bucket": spec.sagemaker.s3_bucket}
    return launcher.fit(spec, {**place, **own}, inputs or JobInputs())
