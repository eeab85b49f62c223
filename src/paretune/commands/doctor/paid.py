"""The paid checks of `doctor`: what no emulator can settle about AWS, read from real jobs.

Each job is launched as every job is. docs/evidence/runs.md has the same checks with the commands of their jobs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paretune.core.errors import Interrupted, JobFailed, ParetuneError
from paretune.jobs.launch import launch_here
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.workplace import Workplace, Workplaces
from paretune.launchers.base import parse_job_name
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import affecting
from paretune.tracking import RecordedRun, schema

LIMIT_USD = 0.50  # of all checks together
_HOST = {"instance_type": "ml.m5.large", "max_runtime_minutes": 15}
_TRAINING: Mapping[str, Any] = {
    **_HOST,
    "max_train_samples": 64,
    "max_eval_samples": 32,
    "max_seq_length": 32,
    "per_device_train_batch_size": 8,
    "precision": "fp32",
    "training_arguments": {"logging_steps": 1},
}
_INHERITED = {*affecting(JobSpec, "ownership", without=("stopping",))} - {"keep_alive_minutes"}
_OF_TRAININGS = {"model", "dataset", "dataset_config_name", "text_column", "label_column"}


class PaidCheck(NamedTuple):
    """A check by jobs with these parameters, one after the other, whose runs show metrics or tags."""

    name: str
    settles: str
    meaning: str  # of jobs that have completed
    shows: tuple[str, ...]
    jobs: tuple[Mapping[str, Any], ...]

    def specs(self, request: JobSpec) -> list[JobSpec]:
        """Its jobs in the account of the request; a training has its model and data, too."""
        return [
            JobSpec.read({name: value for name, value in request.given().items() if name in inherited} | {**job})
            for job in self.jobs
            for inherited in [_INHERITED if "entry_script" in job else _INHERITED | _OF_TRAININGS]
        ]

    def verdict(self, runs: Sequence[RecordedRun]) -> str:
        """Return the meaning of the completed jobs, with the tags and metrics of their runs that show it."""
        values = [{**run.tags, **{name: f"{value:.0f}" for name, value in run.metrics.items()}} for run in runs]
        proofs = [
            ", ".join(f"{name} {recorded[name]}" for name in self.shows if name in recorded) for recorded in values
        ]
        return f"{self.meaning}: {'; then '.join(proofs)}"


CHECKS = (  # the cheapest first
    PaidCheck(
        "job",
        "a job ends as it does in the emulator",
        "it completed",
        ("starting_seconds", "downloading_seconds", "train_seconds", "uploading_seconds", "billable_seconds"),
        (_TRAINING,),
    ),
    PaidCheck(
        "output",
        "where output that is not compressed lies, and its rate of upload",
        "it was found, and 250 MB took",
        ("uploading_seconds",),
        ({**_HOST, "entry_script": str(Path(__file__).parent / "large_output" / "train.py")},),
    ),
    PaidCheck(
        "warm pool",
        "the next job starts on a warm pool, and a pool needs a volume of the same size",
        "the first pool is Reused if jobs share one, the second if volumes may differ",
        ("starting_seconds", schema.WARM_POOL),
        (
            {**_TRAINING, "keep_alive_minutes": 5},
            {**_TRAINING, "keep_alive_minutes": 5, "seed": 1},
            {**_TRAINING, "seed": 2, "sagemaker.volume_size_in_gb": 50},
        ),
    ),
    PaidCheck(
        "EFA",
        "the security group of sagemaker.subnets lets EFA through",
        "steps on two instances passed",
        ("train_seconds",),
        ({**_TRAINING, "instance_type": "ml.p4d.24xlarge", "instance_count": 2, "probe_steps": 20},),
    ),
)


def run_checks(request: JobSpec) -> Iterator[dict[str, Any]]:
    """Run the checks in the account of `request` as long as their worst cases together fit into LIMIT_USD.

    Yields the JSON document of each: what it settles, whether it did, the verdict, dollars and runs.

    Raises:
        BadInput: a parameter of the request does not fit a job.
        Interrupted: the job that ran was stopped.
    """
    left_usd = LIMIT_USD
    for check in CHECKS:
        specs = check.specs(request)
        workplace = Workplaces.of_process().of(specs[0])
        worst_cases = [workplace.launcher.worst_case_usd(spec) for spec in specs]
        worst_usd = sum(math.inf if worst is None else worst for worst in worst_cases)
        left_usd -= worst_usd
        runs, failure = list[RecordedRun](), f"not run, its worst case is {worst_usd:.2f} USD: {specs[0].command()}"
        if left_usd >= 0:
            runs, failure = _run(specs, workplace)
        yield {
            "name": check.name,
            "settles": check.settles,
            "is_settled": not failure,
            "text": failure or check.verdict(runs),
            "cost_usd": sum(run.metrics.get(metrics.COST_USD, 0.0) for run in runs),
            "run_ids": [run.run_id for run in runs],
        }


def _run(specs: Sequence[JobSpec], workplace: Workplace) -> tuple[list[RecordedRun], str]:
    """The runs of these jobs, launched one after the other, and why one has failed."""
    run_ids, failure = list[str](), ""
    try:
        for spec in specs:
            outcome = launch_here(spec)
            assert isinstance(outcome, JobOutcome)  # none is a dry run
            run_ids.append(outcome.run_id)
    except Interrupted:
        raise
    except ParetuneError as error:
        failure = str(error)
        if isinstance(error, JobFailed) and (name := parse_job_name(error.job_name)) is not None:
            run_ids.append(name[0])
    return [run for each in run_ids for run in workplace.tracking.runs(f"attributes.run_id = '{each}'")], failure
