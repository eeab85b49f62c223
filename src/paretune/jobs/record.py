"""The MLflow run of a job from its first tag until the job ends: parameters, price, names of attempts, curves.

`outcome` writes the rest of the run when the job has ended.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from paretune.core.errors import Interrupted, LostContact, ParetuneError, TrackingUnavailable, first_line
from paretune.core.reading import absolute
from paretune.core.shell import command_line
from paretune.jobs.artifacts import CODE, code_of, records_of
from paretune.jobs.plan import PLAN, recorded_plan
from paretune.jobs.run_names import run_name
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job
from paretune.launchers.processes import is_alive, process_text
from paretune.specification import metrics
from paretune.specification.container import Event
from paretune.specification.ending import JobState
from paretune.specification.identity import JobIdentity
from paretune.specification.order import job_name, job_of
from paretune.specification.parallelism import BatchPlan
from paretune.specification.plan import Plan
from paretune.tracking import schema
from paretune.tracking.data_sets import dataset_input
from paretune.tracking.recorded_run import RecordedRun, price_tags
from paretune.tracking.run_writer import EndStatus, Run, trouble
from paretune.user_code.collection import collect, problem
from paretune.user_code.script_metrics import STORE

ENDED = {state.value for state in JobState if state.is_terminal}
"""Values of the state tag for a job that has ended."""
RESTORED = "it is restored, because its job is paid for, and may be deleted again once the job has ended"
_BEAT_S = 60.0  # seconds between two signs of life during an upload; `sync` waits CREATED_WITHIN_S for the next one


class JobRecord:
    """The MLflow run of one job, over all its attempts.

    By default, `run` is a new run. If `parent` is given, the new run is nested under the run with this id.
    """

    def __init__(
        self, plan: Plan, workplace: Workplace, *, run: Run | None = None, parent: str = "", owner: str = ""
    ) -> None:
        self.plan, self.workplace = plan, workplace
        below = {schema.PARENT: parent} if parent else {}
        self.run = run or workplace.tracking.create(
            run_name(plan.card, plan.offer.instance_type),
            opening_tags(plan.identity, plan.card.command_line, workplace) | below,
        )
        self.owner = owner or self.run.run_id  # the run that the job itself and its reservations name, see `owner_of`
        self.job = self.owner  # the part that the names of all its attempts share, see `job_name`
        self.former_metrics: Mapping[str, float] = {}  # recorded before the job ended: its estimate, facts of its data
        self.is_adopted = False  # whether an earlier process has started the job
        self.is_watched_elsewhere = False  # whether another process may be watching; then Ctrl-C here stops nothing
        self.was_concluded = False  # whether an earlier process has recorded the job's end
        self.has_gap_tag = False  # whether a tag marks the run of the finished job as incomplete
        self.is_uncollected = False  # whether the records of a user's own training could not be copied yet
        self._detail = ""
        self._has_price = False  # whether an earlier process has recorded the price
        self._beaten, self._beating = workplace.clock.monotonic(), Lock()

    def describe(self, plan: Plan) -> None:
        """Record the plan of a job that is about to start: parameters, price, data, estimate and warnings."""
        self.plan, card, launcher = plan, plan.card, self.workplace.launcher
        is_unseen = launcher.jobs_outlive_submitter and not (card.is_simulated or plan.owner.study)
        self.former_metrics = {**card.facts, **card.estimates}
        with self.run.later():  # written together with the job's name
            self._write_plan()
            warnings = {schema.WARNINGS: "; ".join(card.warnings) or None}
            self.run.set_tags(
                {schema.UNSEEN: "true" if is_unseen else None, **warnings, **schema.given_tag(plan.identity.given)}
            )
            inputs = [dataset_input(each.source, each.context, each.digest, each.rows) for each in card.inputs]
            self.run.log_inputs(inputs)
            self.run.log_facts(self.former_metrics)
        self.run.log_text(json.dumps(plan.as_json(), indent=2), PLAN)
        code = None if plan.inputs is None else plan.inputs.code
        if code is not None and launcher.origin == "measured":
            self.run.log_texts(code_of(code, self.workplace.environment), CODE)

    def _write_plan(self) -> None:
        """Record location, owner, price, budget and parameters, and the hash by which the same command finds the job.

        The time limit of a trial is a tag: its study chooses the limit, and MLflow compares runs by params.
        """
        plan, launcher = self.plan, self.workplace.launcher
        params = dict(plan.card.params)
        minutes = params.pop("max_runtime_minutes", None) if plan.owner.study else None
        place_and_owner = {**launcher.location_tags(), **plan.owner.named()}
        budget = plan.limits.budget
        self.run.set_tags(
            {
                schema.ORIGIN: launcher.origin,
                **plan.card.tags,
                schema.MODEL_REVISION: plan.revision,
                **{f"{schema.PREFIX}{name}": text for name, text in place_and_owner.items()},
                **({} if self._has_price else price_tags(plan.offer.price)),
                schema.MAX_RUNTIME_MINUTES: minutes,
                schema.BUDGET: absolute(budget) if budget and launcher.traits.is_billed else None,
                **schema.settings_tag(plan.place),
            }
        )
        if plan.is_whole or not plan.card.is_users:  # a plan that is not whole does not know which parameters it gets
            self.run.log_params(params)

    @property
    def data_facts(self) -> dict[str, float]:
        """Counts and baselines of the data; empty for a user's own training."""
        return {} if self.plan.card.is_users else dict(self.plan.card.facts)

    def adopt(self) -> None:
        """Continue the record of an earlier process, which may have died before it wrote the plan.

        If the run was deleted in MLflow, it is restored, because a job that runs is paid for.

        Raises LostContact if MLflow does not answer: only the run's tags name its job, and under another name, a second
        job would be created.
        """
        self.restore()
        tags = tags_in(self.run)
        self.former_metrics = self.run.metrics()
        self.is_adopted = True
        self.owner = owner_of(self.run.run_id, tags, self.workplace)
        self.job = job_of(first_job_of(self.run.run_id, tags))
        watched_by = tags.get(schema.WATCHED_BY, "")
        self.is_watched_elsewhere = watched_by not in ("", process_text()) and is_alive(watched_by) is not False
        self.was_concluded = tags.get(schema.STATE) in ENDED
        self.has_gap_tag = tags.get(schema.GAP) == "true"
        self._has_price = schema.PRICE_USD_PER_HOUR in tags
        with self.run.later():
            self._write_plan()
            self.watch()

    def watch(self) -> None:
        """Record that this process watches the job, unless another one does."""
        if not self.is_watched_elsewhere:
            self.run.set_tags({schema.WATCHED_BY: process_text()})

    def leave(self) -> None:
        """Record that this process no longer watches the job; the job continues, and its run stays open."""
        if self.run.has_gap or self.run.tags().get(schema.WATCHED_BY) in {None, "", process_text()}:
            self.run.set_tags({schema.WATCHED_BY: ""})  # else another process has taken over

    def beat(self) -> None:
        """Record, at most once a minute, that the job is still being created, so that `sync` waits for it."""
        now = self.workplace.clock.monotonic()
        if now - self._beaten >= _BEAT_S and self._beating.acquire(blocking=False):  # uploads have several threads
            self._beaten = now
            self.run.set_tags({schema.CLAIMED_AT: _now(self.workplace)})
            self._beating.release()

    def has_ended_meanwhile(self) -> bool:
        """Return whether the run says that its job has ended, such as after `paretune stop` in another process."""
        return self.was_concluded or self.run.tags().get(schema.STATE) in ENDED

    def restore(self) -> None:
        """Restore the run if it was deleted in MLflow."""
        if self.run.undelete():
            self.workplace.say(f"run {self.run.run_id} was deleted in MLflow: {RESTORED}")

    def take_over(self, removed: str) -> None:
        """Record, from now on, the job of the run with the id `removed`, which was removed from MLflow for good.

        Another process may still watch that job, so Ctrl-C does not stop it.
        """
        self.owner, self.is_adopted, self.is_watched_elsewhere = removed, True, True
        self.run.set_tags({schema.CONTINUES: removed, schema.WATCHED_BY: ""})

    def begin_again(self) -> None:
        """Reopen the run of a job that was never created; `sync` may have closed it."""
        self.run.reopen()
        self.run.delete_tags(schema.FAILURE_REASON, schema.CAUSE)

    def claim(self) -> None:
        """Record the name of the job that this process will create, so that other launchers of the run follow it."""
        self.name_attempt(job_name(self.job, 1))
        self.watch()

    def name_attempt(self, name: str) -> None:
        """Record the name of a job before it is created, so that any later process can find it."""
        claimed = None if self.is_adopted else _now(self.workplace)
        state = JobState.RUNNING.value
        self.run.set_tags({schema.JOB_NAME: name, schema.STATE: state, schema.CLAIMED_AT: claimed})

    def log_progress(self, job: Job, events: list[Event], cost_usd: float | None = None) -> None:
        """Record new events of a running job, its cost so far, and its phase in the launcher's words."""
        with self.run.later():
            self.run.log_events(events)
            if cost_usd is not None:
                self.run.log_events([events[-1].model_copy(update={"metrics": {metrics.COST_USD: cost_usd}})])
            if job.detail() != self._detail:
                self._detail = job.detail()
                self.run.set_tags({schema.SECONDARY_STATUS: self._detail})
        if self.workplace.launcher.origin == "measured":  # a simulated job is over in milliseconds
            self.run.flush()

    def collect_results(self, job: Job, status: EndStatus) -> list[str]:
        """Copy the records of a user's own training into the run; return a sentence for each problem.

        `status` is the job's status. It also becomes the end status of MLflow runs that the training left open. The
        log, the command line and the versions of every job become artifacts of the run.
        """
        if self.workplace.launcher.origin != "measured":
            return []
        card, environment, remarks = self.plan.card, self.workplace.environment, list[str]()
        command = card.command_line
        try:
            if not card.is_users:
                self.run.log_texts(records_of(None, job, command, environment))
                return []
            with tempfile.TemporaryDirectory(prefix="paretune-") as folder:
                store = job.fetch_output(STORE, Path(folder))
                self.run.log_texts(records_of(store, job, command, environment))
                remarks = collect(store, self.run.run_id, status=status)
        except trouble(LostContact) as error:
            self.is_uncollected, remarks = True, [f"{problem(error)}; `{command_line('sync')}` tries again"]
        self.run.reread()
        self.former_metrics = self.run.metrics()  # now with the last points of the copied curves
        return remarks

    def log_attempt(self, plan: BatchPlan, tags: Mapping[str, str | None]) -> None:
        """Record the batch of an attempt that differs from the request, and `tags` that describe the difference."""
        batch, steps = str(plan.per_device_train_batch_size), str(plan.gradient_accumulation_steps)
        self.run.set_tags({**tags, schema.USED_BATCH: batch, schema.USED_ACCUMULATION: steps})


def tags_in(run: Run) -> dict[str, str]:
    """Return the tags of a job's run. Raises LostContact if MLflow does not answer: only they name the job."""
    if not (tags := run.tags()):  # the run of a job always has some
        sync = command_line("sync")
        raise LostContact(f"MLflow does not show which job run {run.run_id} has: `{sync}` follows it")
    return tags


def plan_in(run: Run, workplace: Workplace, asked: JobIdentity) -> Plan:
    """Return the recorded plan of the job that is `asked` for, which an earlier process has started.

    Raises LostContact if MLflow does not answer, or if the plan is that of another request.
    """
    recorded = RecordedRun(run.run_id, run.params(), tags_in(run), run.metrics())
    try:
        plan = recorded_plan(recorded, workplace)
    except TrackingUnavailable as error:
        raise LostContact(f"{error}: `{command_line('sync')}` follows the job of run {run.run_id}") from error
    if plan.identity.request != asked.request:
        rule = f"{PLAN} of run {run.run_id} must be that of this command, but somebody has changed it in MLflow"
        raise LostContact(f"{rule}: `{command_line('stop', {'run': run.run_id})}` ends its job if it runs")
    return plan


def opening_tags(asked: JobIdentity, command: str, workplace: Workplace) -> dict[str, str]:
    """Return the first tags of a job's run: enough for `sync` to close the run if this process dies at once.

    `command` is the line that repeats the job.
    """
    return {
        schema.STATE: JobState.RUNNING.value,
        schema.CLAIMED_AT: _now(workplace),
        schema.COMMAND: command,
        schema.LAUNCHER: workplace.launcher.traits.name,
        schema.WATCHED_BY: process_text(),
        **schema.given_tag(asked.given),
    }


def find_job(run_id: str, tags: Mapping[str, str], workplace: Workplace, within_s: float = 0.0) -> Job | None:
    """Find the first attempt of a run's job by the run's tags, retrying for `within_s` as `Launcher.find` does.

    Returns None if there is none, or if the job with this name belongs to another run.
    """
    job = workplace.launcher.find(first_job_of(run_id, tags), workplace.clock, within_s)
    return job if job is not None and job.run_id == owner_of(run_id, tags, workplace) else None


@contextmanager
def of_one_run(say: Callable[[str], None]) -> Iterator[None]:
    """Pass an error about one run to `say` as a sentence, so that the caller can continue with the other runs.

    Interrupted and TrackingUnavailable concern all runs, and are raised.
    """
    try:
        yield
    except (Interrupted, TrackingUnavailable):
        raise
    except ParetuneError as error:
        say(str(error))
    except Exception as error:
        say(f"its record cannot be read: {type(error).__name__}: {first_line(error)}")


def owner_of(run_id: str, tags: Mapping[str, str], workplace: Workplace) -> str:
    """Return the id of the run that a run's job and its reservations name.

    That is the run itself, or the run that it continues. The tag does not count while that other run exists: somebody
    has edited it.
    """
    continued = tags.get(schema.CONTINUES, "")
    is_gone = continued and workplace.tracking.recorded(continued, deleted=True) is None
    return continued if is_gone else run_id


def first_job_of(run_id: str, tags: Mapping[str, str]) -> str:
    """Return the name of a run's first attempt: the recorded one or, if none is recorded, one with the run's id."""
    recorded = tags.get(schema.JOB_NAME, "")
    return job_name(job_of(recorded) if recorded else tags.get(schema.CONTINUES) or run_id, 1)


def _now(workplace: Workplace) -> str:
    return f"{workplace.clock.now():.0f}"
