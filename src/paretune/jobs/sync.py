"""Bring MLflow up to date with jobs that nobody watches: adopt those that run, collect those that have ended."""

import itertools
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.core.clock import Clock
from paretune.core.errors import BadInput, JobFailed, LaunchRefused, LostContact
from paretune.core.interruption import Interruption
from paretune.jobs.attempts import RetryingJob
from paretune.jobs.launch import WATCH_INTERVAL_S, inputs_of
from paretune.jobs.recording import JobRunWriter, Outcome, first_plan, job_name
from paretune.launchers.base import Launcher
from paretune.launchers.processes import is_watched
from paretune.spec.container import Event, JobInputs
from paretune.spec.job import JobSpec
from paretune.tracking import RecordedRun, Tracking


@dataclass(frozen=True, kw_only=True)
class Collected:
    """How one run was brought up to date: an outcome, or one sentence that says why there is none."""

    run_id: str
    outcome: Outcome | None = None
    remark: str = ""


@dataclass(frozen=True)
class _Followed:
    """A job under way, and the clock it goes by."""

    attempts: RetryingJob
    recording: JobRunWriter
    clock: Clock


class Sync:
    """Follows every unfinished job to its end. The jobs are watched, not owned: an interruption leaves them running.

    Args:
        launcher_of: the launcher a specification belongs to; the same one for jobs of one place.
        tracking: where the runs are.
        home: where prepared data lie, should a job be tried again with a smaller batch.
        clock_of: the clock of that launcher, for pauses.
        environment: for preparing data.
        interruption: ends the watching.
        on_events: told what the jobs tell.
    """

    def __init__(
        self,
        *,
        launcher_of: Callable[[JobSpec], Launcher],
        tracking: Tracking,
        home: Path,
        clock_of: Callable[[JobSpec], Clock],
        environment: Mapping[str, str],
        interruption: Interruption,
        on_events: Callable[[list[Event]], None],
    ) -> None:
        self._launcher_of = launcher_of
        self._tracking = tracking
        self._home = home
        self._clock_of = clock_of
        self._environment = environment
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
                    found = _look(followed)
                    if found is not None:
                        collected.append(found)
                        del self._under_way[run_id]
                self._interruption.check()
                for clock in {id(followed.clock): followed.clock for followed in self._under_way.values()}.values():
                    clock.sleep(WATCH_INTERVAL_S)
        finally:
            for followed in self._under_way.values():
                followed.recording.leave()
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
            launcher, clock = self._launcher_of(spec), self._clock_of(spec)
            begun = launcher.attach(job_name(run.run_id, 1))  # the next attempts follow from it
        except (BadInput, LaunchRefused) as error:
            return f"its job cannot be looked at: {error}"
        if begun is None:
            return f"its job was never created; to start it: {run.tags.get('paretune.command', '')}"
        recording = JobRunWriter(spec, launcher, self._tracking, run_id=run.run_id)
        recording.begin(None)
        attempts = RetryingJob(
            spec,
            launcher=launcher,
            recording=recording,
            inputs=lambda: self._prepare(spec, launcher),
            clock=clock,
            on_events=self._on_events,
            plan=first_plan(spec, run.tags),
        )
        try:
            attempts.begin()
        except (LaunchRefused, LostContact) as error:
            recording.leave()
            return f"its job cannot be looked at: {error}"
        self._under_way[run.run_id] = _Followed(attempts, recording, clock)
        return ""

    def _prepare(self, spec: JobSpec, launcher: Launcher) -> JobInputs:
        return inputs_of(
            spec,
            launcher,
            home=self._home,
            clock=self._clock_of(spec),
            environment=self._environment,
            interruption=self._interruption,
        )


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


def _look(followed: _Followed) -> Collected | None:
    attempts, recording = followed.attempts, followed.recording
    run_id = recording.run.run_id
    try:
        return Collected(run_id=run_id, outcome=attempts.outcome) if attempts.look() else None
    except JobFailed as error:
        return Collected(run_id=run_id, remark=str(error))
    except (LostContact, LaunchRefused, BadInput) as error:  # the last two of the next attempt: sync gives up no job
        recording.leave()
        return Collected(run_id=run_id, remark=str(error))
