"""Bring MLflow up to date with jobs that nobody watches: adopt those that run, collect those that have ended."""

import itertools
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from paretune.core.clock import Clock
from paretune.core.errors import BadInput, JobFailed, LaunchRefused, LostContact
from paretune.core.interruption import Interruption
from paretune.jobs.launch import WATCH_INTERVAL_S
from paretune.jobs.recording import JobRunWriter, first_plan, job_name
from paretune.jobs.result import JobResult
from paretune.jobs.retrying_job import RetryingJob
from paretune.jobs.workplace import Workplace
from paretune.launchers.processes import is_watched
from paretune.spec.container import Event
from paretune.spec.job import JobSpec
from paretune.tracking import RecordedRun, Tracking


@dataclass(frozen=True, kw_only=True)
class Collected:
    """How one run was brought up to date: an outcome, or one sentence that says why there is none."""

    run_id: str
    outcome: JobResult | None = None
    remark: str = ""


@dataclass(frozen=True)
class _Followed:
    """A job under way, its record, and the clock it goes by."""

    job: RetryingJob
    writer: JobRunWriter
    clock: Clock


class Sync:
    """Follows every unfinished job to its end. The jobs are watched, not owned: an interruption leaves them running.

    Args:
        workplace_of: the workplace a specification belongs to; the same one for jobs of one place.
        tracking: where the runs are.
        interruption: ends the watching.
        on_events: called with the jobs' events.
    """

    def __init__(
        self,
        *,
        workplace_of: Callable[[JobSpec], Workplace],
        tracking: Tracking,
        interruption: Interruption,
        on_events: Callable[[list[Event]], None],
    ) -> None:
        self._workplace_of = workplace_of
        self._tracking = tracking
        self._interruption = interruption
        self._on_events = on_events
        self._under_way: dict[str, _Followed] = {}

    def run(self) -> list[Collected]:
        """Take up all unfinished runs and follow them; how each ended.

        Raises:
            Interrupted: somebody wants to stop; the jobs go on.
            TrackingUnavailable: MLflow does not answer; nothing was touched.
        """
        collected = []
        for run in self._tracking.unfinished():
            remark = self._take_up(run)
            if remark:
                collected.append(Collected(run_id=run.run_id, remark=remark))
        try:
            while self._under_way:
                for run_id, followed in list(self._under_way.items()):
                    found = _poll(followed)
                    if found is not None:
                        collected.append(found)
                        del self._under_way[run_id]
                self._interruption.check()
                for clock in {id(followed.clock): followed.clock for followed in self._under_way.values()}.values():
                    clock.sleep(WATCH_INTERVAL_S)
        finally:
            for followed in self._under_way.values():
                followed.writer.leave()
        return collected

    def _take_up(self, run: RecordedRun) -> str:
        """Begin to follow the job of a run; or why it is left as it is."""
        if is_watched(run.tags.get("paretune.watched_by", "")):
            return "another process on this machine is watching it"
        try:
            spec = spec_of(run)
        except (BadInput, ValueError) as error:
            return f"it cannot be read back: {error}"
        try:
            workplace = self._workplace_of(spec)
            begun = workplace.launcher.attach(job_name(run.run_id, 1))  # the next attempts follow from it
        except (BadInput, LaunchRefused) as error:
            return f"its job cannot be looked at: {error}"
        if begun is None:
            return f"its job was never created; to start it: {run.tags.get('paretune.command', '')}"
        writer = JobRunWriter(spec, workplace, run_id=run.run_id)
        writer.begin(None)
        job = RetryingJob(spec, workplace, writer, self._on_events, plan=first_plan(spec, run.tags))
        try:
            job.begin()
        except (LaunchRefused, LostContact) as error:
            writer.leave()
            return f"its job cannot be looked at: {error}"
        self._under_way[run.run_id] = _Followed(job, writer, workplace.clock)
        return ""


def spec_of(run: RecordedRun) -> JobSpec:
    """The specification a run was recorded with, at the place where its launcher found it to belong.

    Raises:
        BadInput: it was recorded by another version, with other parameters.
    """
    words = shlex.split(run.tags.get("paretune.command", ""))
    pairs = [word for flag, word in itertools.pairwise(words) if flag == "-P"]
    spec = JobSpec.from_text(dict(pair.split("=", 1) for pair in pairs))
    place = {name: run.tags[f"paretune.{name}"] for name in ("region", "bucket") if f"paretune.{name}" in run.tags}
    return spec.replace(**place) if spec.on_sagemaker else spec


def _poll(followed: _Followed) -> Collected | None:
    run_id = followed.writer.run.run_id
    try:
        return Collected(run_id=run_id, outcome=followed.job.outcome) if followed.job.poll() else None
    except JobFailed as error:
        return Collected(run_id=run_id, remark=str(error))
    except (LostContact, LaunchRefused, BadInput) as error:  # the last two of the next attempt: sync gives up no job
        followed.writer.leave()
        return Collected(run_id=run_id, remark=str(error))
