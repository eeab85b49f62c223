"""The command `train`: one job."""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from paretune.commands.command import Command, imported_later, read_with_profile
from paretune.core.errors import refuse
from paretune.specification.data_files import data_faults
from paretune.specification.inputs import IN_S3, INPUT_FILES, missing_files
from paretune.specification.job import JobSpec


def _read(values: Mapping[str, Any]) -> JobSpec:
    """The job, its files looked at before anything heavy is imported."""
    spec = JobSpec.read(values)
    refuse(missing_files(spec.as_text()) or data_faults(spec) or _faults_in_s3(spec))
    return spec


def _faults_in_s3(spec: JobSpec) -> list[str]:
    addresses = {name: text for name in INPUT_FILES if (text := getattr(spec, name) or "").startswith(IN_S3)}
    if not addresses or spec.is_simulated or spec.runs_own_training:
        return []
    from paretune.launchers.sagemaker.s3_download import unreadable  # boto3 takes half a second to import

    return unreadable(addresses, spec.region, os.environ)


COMMAND = Command(
    read=partial(read_with_profile, _read), run=imported_later("paretune.jobs.launch:launch_here"), takes_jobs=True
)
