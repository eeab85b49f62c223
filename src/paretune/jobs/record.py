"""The MLflow run of a job from its first tag until the job ends: parameters, price, names of attempts, curves.

`outcome` writes the rest of the run when the job has ended.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from paretune.core.errors import Interrupted, LostContact, ParetuneError, TrackingUnavailable, first_line
from paretune.core.reading import absolute
from paretune.core.shell import command_line
from paretune.core.tags import Attribution
from paretune.jobs.artifacts import CODE, code_of, records_of
from paretune.jobs.bill import price_tags, recorded_price
from paretune.jobs.preview import Admitted
from paretune.jobs.run_names import run_name
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job, JobSetup
from paretune.launchers.processes import is_alive, process_text
from paretune.specification import metrics
from paretune.specification.container import Command, Event
from paretune.specification.declaration import spell
from paretune.specification.ending import Cause, JobState
from paretune.specification.job import JobSpec
from paretune.specification.order import job_name, job_of
from paretune.specification.parallelism import OF_THE_BATCH, BatchPlan
from paretune.specification.price import Price
from paretune.tracking import schema
from paretune.tracking.data_sets import data_sets_of
from paretune.tracking.run_writer import EndStatus, Run, trouble
from paretune.user_code.collection import collect, problem
from paretune.user_code.script_metrics import STORE

ENDED = {state.value for state in JobState if state.is_terminal}
"""Values of the state tag for a job that has ended."""
RESTORED = "it is restored, because its job is paid for, and may be deleted again once the job has ended"
_ALWAYS = ("model", "dataset", "task", "num_train_epochs", "max_seq_length", "seed", "instance_type", "instance_count")
"""Parameters that are recorded even if they have their defaults, because people compare jobs by them."""
_BEAT_S = 60.0  # seconds between two signs of life during an upload; `sync` waits CREATED_WITHIN_S for the next one
_OWNER = {"study": schema.STUDY, "user": schema.USER, "team": schema.TEAM}


class JobRecord:
    """The MLflow run of one job, over all its attempts.

    By default, `run` is a new run. If `parent` is given, the new run is nested under the run with this id. `study` is
    the name of the study if the job is a trial.
    """

    def __init__(
        self,
        spec: JobSpec,
        workplace: Workplace,
        *,
        run: Run | None = None,
        parent: str = "",
        study: str = "",
        owner: str = "",
        command: Command | None = None,
    ) -> None:
        self.spec, self.workplace = spec, workplace
        self.command = command  # the user's own training, bound; None for an adopted job
        below, takes_seed = {schema.PARENT: parent} if parent else {}, command is None or command.takes_seed
        self.run = run or workplace.tracking.create(
            run_name(spec, takes_seed=takes_seed), opening_tags(spec, workplace) | below
        )
        self.owner = owner or self.run.run_id  # the run that the job itself and its reservations name, see `owner_of`
        self.job = self.owner  # the part that the names of all its attempts share, see `job_name`
        self.attribution = workplace.attribution(spec, study)  # for an adopted job, as recorded in the tags of its run
        self.settings: Mapping[str, Any] = {}  # `JobSetup.recorded`
        self.prices: dict[str, Price | None] = {}  # today's prices by instance type, each once it has been looked up
        self.former_metrics: Mapping[str, float] = {}  # recorded before the job ended: its estimate, facts of its data
        self.revision: str | None = None  # commit on the Hub of the model that the first attempt trains
        self.chosen_batch: int | None = None  # per-device batch that was chosen because the default might not fit
        self.retries = frozenset(Cause)  # causes after which another attempt is allowed
        self.is_adopted = False  # whether an earlier process has started the job
        self.is_watched_elsewhere = False  # whether another process may be watching; then Ctrl-C here stops nothing
        self.was_concluded = False  # whether an earlier process has recorded the job's end
        self.has_gap_tag = False  # whether a tag marks the run of the finished job as incomplete
        self.is_uncollected = False  # whether the records of a user's own training could not be copied yet
        self._detail = ""
        self._adopted_tags: Mapping[str, str] = {}  # tags that an earlier process has recorded
        self._beaten, self._beating = workplace.clock.monotonic(), Lock()

    def describe(self, job: Admitted) -> None:
        """Record parameters, price, data, estimate and warnings of a job that is about to start."""
        inputs, estimate, warnings = job.inputs, job.estimate, "; ".join(job.warnings)
        self.command = job.command
        self.revision, self.prices[self.spec.instance_type] = inputs.revision, job.price
        self.chosen_batch = None if job.plan == self.spec.plan() else job.plan.per_device_train_batch_size
        with self.run.later():  # written together with the job's name
            self._describe_request(self.spec)
            self.log_setup(job.setup)
            described = {schema.WARNINGS: warnings or None, schema.MODEL_REVISION: self.revision}
            described[schema.CHOSEN_BATCH] = None if self.chosen_batch is None else str(self.chosen_batch)
            described[schema.CODE_KEY] = job.identity.code_key
            described[schema.ACCUMULATES] = "true" if self.command is not None and self.command.accumulates else None
            launcher = self.workplace.launcher
            may_end_unseen = launcher.jobs_outlive_submitter and not (
                launcher.traits.is_simulated or self.attribution.study
            )
            described[schema.UNSEEN] = "true" if may_end_unseen else None
            # Not in `_describe_request`, because an adopted job keeps the parameters that were typed for it.
            self.run.set_tags(described | schema.given_tag(self.spec.given()))
            if estimate is not None:
                self.former_metrics = metrics.to_known_digits(estimate.as_metrics())
                self.run.set_tags({schema.ESTIMATE_BASIS: estimate.basis})
            if (dataset := inputs.dataset) is not None:
                self.former_metrics = {**dataset.facts, **self.former_metrics}
                self.run.set_tags({schema.DATASET_KEY: dataset.key})
                self.run.log_inputs(data_sets_of(self.spec, dataset))
            self.run.log_facts(self.former_metrics)
        if inputs.code is not None and self.workplace.launcher.origin == "measured":
            self.run.log_texts(code_of(inputs.code, self.workplace.environment), CODE)

    @property
    def plan(self) -> BatchPlan:
        """The batch plan of the first attempt."""
        plan = self.spec.plan()
        return plan if self.chosen_batch is None else plan.in_parts(self.chosen_batch)

    @property
    def accumulates(self) -> bool:
        """Whether the job can be tried again with smaller batches and more accumulation steps."""
        if self.command is not None:
            return self.command.accumulates
        return not self.spec.runs_user_code or self.run.tags().get(schema.ACCUMULATES) == "true"

    @property
    def runs_user_code(self) -> bool:
        """Whether the job runs a script or a project of the user."""
        return self.spec.runs_user_code

    @property
    def takes_seed(self) -> bool:
        """Whether the training gets the job's seed; an adopted job does if its run has the seed as a parameter."""
        if not self.spec.runs_user_code or self.command is not None:
            return self.command is None or self.command.takes_seed
        return not self.is_adopted or "seed" in self.run.params()

    @property
    def takes_batch(self) -> bool:
        """Whether a user's own training gets the batch of its plan, even if it was not given."""
        return self.runs_user_code and (self.accumulates if self.command is None else self.command.takes_batch)

    @property
    def data_facts(self) -> dict[str, float]:
        """Counts and baselines of the data, without the estimate; empty for a user's own training."""
        if self.spec.runs_user_code:
            return {}
        facts = {name: value for name, value in self.former_metrics.items() if "/" not in name}
        no_facts = metrics.OF_THE_BILL  # the run of a running job has its cost so far
        return {name: facts[name] for name in facts if name not in no_facts and not name.startswith("estimated_")}

    def adopt(self) -> None:
        """Continue the record of an earlier process, which may have died before it wrote the parameters.

        If the run was deleted in MLflow, it is restored, because a job that runs is paid for.

        Raises LostContact if MLflow does not answer: only the run's tags name its job, and under another name, a second
        job would be created.
        """
        self.restore()
        if not (tags := self.run.tags()):  # the run of a job always has some
            sync = command_line("sync")
            raise LostContact(f"MLflow does not show which job run {self.run.run_id} has: `{sync}` follows it")
        self._adopted_tags = tags
        self.is_adopted, self.revision = True, tags.get(schema.MODEL_REVISION)
        self.owner = owner_of(self.run.run_id, tags, self.workplace)
        self.job = job_of(first_job_of(self.run.run_id, tags))
        watched_by = tags.get(schema.WATCHED_BY, "")
        self.is_watched_elsewhere = watched_by not in ("", process_text()) and is_alive(watched_by) is not False
        self.was_concluded = tags.get(schema.STATE) in ENDED
        self.has_gap_tag = tags.get(schema.GAP) == "true"
        self.settings = schema.settings_by(tags)
        self.chosen_batch = int(rows) if (rows := tags.get(schema.CHOSEN_BATCH, "")).isdigit() else None
        if (recorded := tags.get(schema.RETRIES)) is not None:
            self.retries = frozenset(cause for cause in Cause if cause.value in recorded.split(", "))
        if schema.SPEC_HASH in tags:  # written together with the owner's tags, which may be absent
            self.attribution = Attribution(**{name: tags.get(tag, "") for name, tag in _OWNER.items()})
        given = schema.given_by(tags)
        with self.run.later():
            self._describe_request(self.spec if given is None else JobSpec.read(given))
            self.watch()
        self.former_metrics = self.run.metrics()

    def price(self, spec: JobSpec) -> Price | None:
        """Return the price of one instance; None if unknown.

        For the instance type that an adopted job used, this is the recorded price. For any other, it is today's price.
        """
        if spec.instance_type not in self.prices:
            self.prices[spec.instance_type] = self.workplace.launcher.price(spec)
        today, tags = self.prices[spec.instance_type], self._adopted_tags
        if spec.instance_type != tags.get(schema.USED_INSTANCE_TYPE, self.spec.instance_type):
            return today
        return recorded_price(tags, today) or today

    def _describe_request(self, requested: JobSpec) -> None:
        """Record location, owner, price, budget and parameters, and the hash by which the same command finds the job.

        The run's params are those of `requested`, the job as it was requested, without looked-up values such as its
        region. The time limit of a trial is a tag: its study chooses the limit, and MLflow compares runs by params.
        """
        launcher, spec = self.workplace.launcher, self.spec
        params, is_trial = params_of(requested, self.command, self.plan), bool(self.attribution.study)
        minutes = params.pop("max_runtime_minutes", None) if is_trial else None
        place_and_owner = {**launcher.location_tags(), **self.attribution.named()}
        self.run.set_tags(
            {
                schema.ORIGIN: launcher.origin,
                schema.SPEC_HASH: spec.spec_hash(),
                **{f"{schema.PREFIX}{name}": text for name, text in place_and_owner.items()},
                **({} if schema.PRICE_USD_PER_HOUR in self._adopted_tags else price_tags(self.price(spec))),
                schema.MAX_RUNTIME_MINUTES: minutes,
                schema.BUDGET: absolute(spec.budget) if spec.budget and launcher.traits.is_billed else None,
            }
        )
        if not (self.spec.runs_user_code and self.is_adopted):  # only its command says which parameters it gets
            self.run.log_params(params)

    def log_setup(self, setup: JobSetup) -> None:
        """Record the part of a job's setup that later attempts and `clean` need."""
        self.settings = setup.recorded
        self.run.set_tags({schema.SETTINGS: json.dumps(setup.recorded) if setup.recorded else None})

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
        command, environment, remarks = self.spec.command(), self.workplace.environment, list[str]()
        try:
            if not self.spec.runs_user_code:
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


def params_of(spec: JobSpec, command: Command | None = None, plan: BatchPlan | None = None) -> dict[str, str]:
    """Return the parameters of a job's run: those given, those in _ALWAYS, and the derived batch and learning rate.

    `plan` is the batch plan of the first attempt, by default the one that the parameters imply.

    A user's own training may have different defaults. Its run therefore has the given parameters, the cluster, a
    project's entry point, and every value that its `command` gets. A seed that the command does not get is left out.
    """
    if spec.runs_user_code:
        cluster = {"instance_type": spec.instance_type, "instance_count": str(spec.instance_count)}
        given = spec.given_text()
        if command is not None and not command.takes_seed:
            given.pop("seed", None)
        used = {} if command is None else dict(command.recorded)
        return cluster | ({"entry_point": spec.entry_point} if spec.project else {}) | given | used
    plan = plan or spec.plan()
    texts = spec.as_text()
    return (
        {name: texts[name] for name in _ALWAYS}
        | spec.given_text()
        | {
            "learning_rate": spell(spec.unscaled_learning_rate),
            **{name: str(getattr(plan, name)) for name in OF_THE_BATCH},
            "scaled_learning_rate": repr(plan.learning_rate),
        }
    )


def opening_tags(spec: JobSpec, workplace: Workplace) -> dict[str, str]:
    """Return the first tags of a job's run: enough for `sync` to close the run if this process dies at once."""
    return {
        schema.STATE: JobState.RUNNING.value,
        schema.CLAIMED_AT: _now(workplace),
        schema.COMMAND: spec.command(),
        schema.LAUNCHER: workplace.launcher.traits.name,
        schema.WATCHED_BY: process_text(),
        **schema.given_tag(spec.given()),
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
