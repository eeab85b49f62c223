"""A user who types commands for one account, each as if in its own process."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mlflow import MlflowClient

from paretune.core.clock import SystemClock
from paretune.jobs.attempts import Attempts
from paretune.jobs.launch import begin_job, run_job
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.plan import plan
from paretune.jobs.record import JobRecord
from paretune.jobs.workplace import Workplace
from paretune.specification.job import JobSpec
from paretune.tracking.store import Tracking
from tests.support.fake_clock import FakeClock
from tests.support.scripted_jobs import DONE, SMALL, ScriptedLauncher
from tests.support.tags import tags_of
from tests.support.workplaces import make_workplace


class User:
    """A user who types commands for one account. Each command behaves as if it ran in its own process."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "train.py"  # a job with its own script has nothing to prepare
        self.script.touch()
        self.clock = FakeClock()
        self.launcher = ScriptedLauncher([DONE, DONE])
        self.client = MlflowClient()
        self.messages: list[str] = []

    def spec(self, **changes: Any) -> JobSpec:
        """Return the job that the user types."""
        return JobSpec(**{"instance_type": SMALL, "entry_script": str(self.script), **changes})

    def type(self, opened: str = "", **changes: Any) -> JobOutcome:
        """Run the command to its end. `opened` is the id of the run that `mlflow run` has opened for it, if any."""
        environment = {"MLFLOW_RUN_ID": opened} if opened else {}
        return run_job(self.spec(**changes), self.place(environment))

    def place(self, environment: Mapping[str, str] = MappingProxyType({})) -> Workplace:
        """Return the workplace of a new process, which finds all jobs of the user."""
        tracking = Tracking(environment, SystemClock())
        return make_workplace(launcher=self.launcher, tracking=tracking, clock=self.clock, messages=self.messages)

    def is_killed(self, *, before_creation: bool = False, watched_by: str = "", **changes: Any) -> str:
        """Simulate a command that is killed while its job runs, or before job creation. Return the id of its run."""
        spec, workplace = self.spec(**changes), self.place()
        if before_creation:
            made = plan(spec, workplace)
            record = JobRecord(made, workplace)
            record.describe(made)
            record.name_attempt(Attempts(record).order.job_name)
        else:
            record = begin_job(spec, workplace).record
        record.run.set_tags({"paretune.watched_by": watched_by})
        record.run.flush()
        self.messages.clear()
        return record.run.run_id

    def job_of(self, run_id: str) -> str:
        """Return the job name that a run has recorded."""
        return tags_of(self.client.get_run(run_id))["paretune.job_name"]
