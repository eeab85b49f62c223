"""The command `main`: one job."""

from paretune.jobs.launch import launch_here
from paretune.jobs.result import JobPreview, JobResult
from paretune.spec.job import JobSpec


def run(spec: JobSpec) -> JobResult | JobPreview:
    """Train, measure, price and record one job; with dry_run only what it would be."""
    return launch_here(spec)
