"""The ended trials of a study: which of their jobs are retried, and why the study ends early."""

import math
from collections.abc import Collection, Sequence
from functools import cached_property

from paretune.estimating.memory import Footprint
from paretune.specification.declaration import Value
from paretune.specification.ending import Cause, without_ids
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Trial
from paretune.studies.trial_status import TRIES, TrialStatus, is_final

MOST_REFUSED = 3  # refusals in a row, while no other job runs, after which a study ends
LIMIT_RETRY_S = 1800.0  # seconds until the launcher is asked again to run more jobs at a time than it has allowed
_REFUSED_PAUSE_S = 60.0  # seconds until the launcher is asked again after it refused a job while no other one ran
_FIRST_PAUSE_S = 300.0  # seconds until a refused job is retried; doubles with each try, except the first one

FEWEST_ALIKE = 2  # failures for the same reason after which a study ends if no trial has completed
FEWEST_WITHOUT = 2  # completed trials of the user's own code, all without the same metric, after which a study ends


class EndedTrials:
    """Decides from the ended trials of a study which jobs are retried, and whether the study should end.

    The trials in `assumed_fixed` had ended before this driver started: a user who starts a study again may have fixed
    what made them fail.

    The computation of a job is its `spec_hash`. Times are seconds since the epoch, by the launcher's clock.

    Attributes:
        trials: number to trial, in the order in which they were recorded, without those that were retried and cost
            nothing.
        final: computation of each job that is not run again, because its outcome is known or it failed too often, to
            the number of its last trial.
        failed: computations of jobs that failed and are not `assumed_fixed`: retried only if the sampler asks for it.
        retries: computation of each job that is to be retried, to its last trial and the earliest time of the retry.
        most_running: number of jobs that the launcher has allowed to run at the same time; infinite if it has refused
            none. More are tried at `asked_again_at`.
        refused: number of refusals in a row while no other job ran.
    """

    def __init__(
        self,
        file: StudyFile,
        ended: Sequence[Trial],
        running: Sequence[Trial] = (),
        assumed_fixed: Collection[int] = (),
    ) -> None:
        self._file, self._assumed_fixed = file, assumed_fixed
        self.trials = {trial.number: trial for trial in ended}
        self.final: dict[str, int] = {}
        self.failed = set[str]()
        self.retries: dict[str, tuple[Trial, float]] = {}
        of_jobs: dict[str, list[Trial]] = {}
        self.most_running, self.asked_again_at, self.refused = math.inf, 0.0, 0
        for trial in ended:
            of_jobs.setdefault(trial.computation, []).append(trial)
            if (others := trial.running_when_refused) is not None:
                if trial.number not in assumed_fixed:
                    self.most_running = others
                    self.asked_again_at = trial.ended_at + (LIMIT_RETRY_S if others else _REFUSED_PAUSE_S)
                self.refused += not others
            elif trial.cost_usd or trial.billed_s:  # its job was created, with or without a price
                self.refused = 0
        self._full = [Footprint.of(t.spec, t.plan) for t in ended if t.plan and t.status is TrialStatus.OUT_OF_MEMORY]
        under_way = {trial.computation for trial in running}
        for computation, trials in of_jobs.items():
            in_order = sorted(trials, key=lambda trial: trial.number)  # the clocks of two drivers may differ
            self._judge(computation, in_order, is_under_way=computation in under_way)

    def _judge(self, computation: str, trials: Sequence[Trial], *, is_under_way: bool) -> None:
        """Decide from all trials of a job, in order, whether it is final, has failed or is to be retried."""
        *earlier, last = trials
        for trial in earlier:
            if trial.status.is_retryable and not (trial.cost_usd or trial.billed_s):
                del self.trials[trial.number]
        # A job that was refused while others ran only has to wait for them, so the refusal does not count as a try.
        tries = sum(trial.status.is_retryable and not trial.running_when_refused for trial in trials)
        has_failed = tries > TRIES.refused or any(trial.status.is_retried_on_request for trial in trials)
        if has_failed and last.number not in self._assumed_fixed:
            self.failed.add(computation)
        if is_final((trial.status for trial in trials), tries):
            self.final[computation] = last.number
        elif last.status.is_retryable and tries <= TRIES.refused and not is_under_way:
            has_to_wait = last.status is TrialStatus.REFUSED and last.number not in self._assumed_fixed
            pause_s = _FIRST_PAUSE_S * 2 ** max(0, tries - 1) if has_to_wait else 0.0
            self.retries[computation] = last, last.ended_at + pause_s

    @property
    def counted(self) -> int:
        """Number of ended trials that count toward the study's n_trials."""
        return sum(trial.counts for trial in self.trials.values())

    def has_enough(self, under_way: int = 0) -> bool:
        """Return whether the ended trials and `under_way` more reach the study's n_trials."""
        return self._file.n_trials is not None and self.counted + under_way >= self._file.n_trials

    @cached_property
    def completed(self) -> list[Trial]:
        """The completed trials without repeats and probes."""
        return [trial for trial in self.trials.values() if trial.counts and trial.status is TrialStatus.COMPLETED]

    def cannot_fit(self, footprint: Footprint) -> bool:
        """Return whether a job that needs no more memory has run out of memory on devices that have no less."""
        return footprint.why_full(self._full) is not None

    def lacks_objective(self) -> str:
        """Explain why no trial will ever have all objectives and constraints; empty while one may.

        If the user's own training code has completed twice without logging a metric, it will not log that metric the
        next time either.
        """
        wanted = dict.fromkeys([*self._file.objectives, *self._file.constraints])
        absent = [name for name in wanted if not any(name in trial.values for trial in self.completed)]
        fresh = [trial for trial in self.completed if trial.number not in self._assumed_fixed]
        if len(fresh) < FEWEST_WITHOUT or not absent or not self._file.job.runs_user_code:
            return ""
        logged = ", ".join(sorted({name for trial in fresh for name in trial.measured} - wanted.keys())) or "nothing"
        again = "; then the command without once=true continues" if self._file.once else ""
        example = f"[{{Name: {absent[0]}, Regex: '{absent[0].replace('_', ' ')} +([0-9.]+)'}}]"
        return (
            f"{len(fresh)} jobs have completed and none has logged {' or '.join(absent)}, which this study needs (they "
            f"have logged {logged}): print it as a line such as `{absent[0]}: 0.8`, add a line to `job` that reads it "
            f"from their output, such as `metric_definitions: {example}`, or start a new study with another metric"
            f"{again}"
        )

    def hopeless(self) -> str:
        """Explain why no further job can complete, and what to change; empty while one may.

        The study is hopeless if no training run has completed, and several trials that are not `assumed_fixed` failed
        with the same error in the code, or were cut off at the time limit in the study's file. But if these trials
        share a value of a parameter that the study varies, jobs with other values may still complete. Likewise, a time
        limit that is too short on some instance types may suffice on others.
        """
        alike = dict[str, list[Trial]]()
        for trial in [] if self.completed else self.trials.values():
            most, reason = trial.spec.max_runtime_minutes, ""
            if trial.status is TrialStatus.FAILED and trial.cause is Cause.CODE:
                reason = without_ids(trial.reason)
            elif trial.status is not TrialStatus.CUT_OFF or trial.is_probe or most < self._file.job.max_runtime_minutes:
                continue
            if trial.number in self._assumed_fixed:
                continue
            alike.setdefault(reason, []).append(trial)
            if len(alike[reason]) < FEWEST_ALIKE or self._have_in_common(alike[reason]):
                continue
            if not reason and not self._has_every_type_run:
                continue
            *others, last = alike[reason]
            numbers = f"trials {', '.join(str(each.number) for each in others)} and {trial.number}"
            none = "and no trial has completed, so no more are started"
            if reason:
                fix = "correct the code, or add the missing package to its requirements.txt"
                return f"{numbers} failed with the same error in the code, {none}: {last.reason}; {fix}"
            fix = f"give them more, such as --max_runtime_minutes {4 * most:g}, or less work, such as fewer"
            return f"{numbers} were stopped at max_runtime_minutes {most:g}, {none}: {fix} max_train_samples"
        return ""

    @cached_property
    def _has_every_type_run(self) -> bool:
        """Whether a job has ended on each searched instance type."""
        types = self._file.search.get("instance_type")
        tried = {trial.point.get("instance_type") for trial in self.trials.values()}
        return types is None or {*types.corners} <= tried

    def _have_in_common(self, trials: Sequence[Trial]) -> bool:
        """Return whether these trials share the value of a parameter that has several values in the study."""
        values: dict[str, set[Value]] = {name: {*entry.corners} for name, entry in self._file.search.items()}
        for row in self._file.design.rows if self._file.design is not None else ():
            for name, value in row.items():
                values.setdefault(name, set()).add(value)
        varied = [name for name, each in values.items() if len(each) > 1]
        return any(len({trial.point.get(name) for trial in trials}) == 1 for name in varied)
