"""The command `main`: one job."""

from collections.abc import Mapping

from paretune.core.result import Result
from paretune.specification.command import Command, read_with_profile
from paretune.specification.job import JobSpec


def _read(texts: Mapping[str, str], faults: list[str]) -> JobSpec:
    return read_with_profile(JobSpec.from_text, texts, faults)


def _run(spec: JobSpec) -> Result:
    from paretune.jobs.launch import launch_here  # MLflow takes a second to import

    return launch_here(spec)


COMMAND = Command(read=_read, run=_run, takes_jobs=True)
