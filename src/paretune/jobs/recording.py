"""What one job leaves in MLflow: parameters and price before it starts, everything it measured and cost at its end."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.core.commands import command_line, options
from paretune.core.errors import BadInput, Interrupted, JobFailed, LaunchRefused, LostContact, OutOfMemory
from paretune.core.tags import Attribution
from paretune.core.untrusted import absolute, parse_json, printable
from paretune.estimating.time_estimate import TimeEstimate
from paretune.jobs.notes.job_note import job_note
from paretune.jobs.notes.verdicts import verdicts
from paretune.jobs.priced import price_tags
from paretune.jobs.result import JobResult
from paretune.jobs.warm_pools import KEPT, Retention, retained, tell_follower
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job, JobState
from paretune.launchers.processes import this_process
from paretune.launchers.shared import group_of
from paretune.models import FinishedJob, record_model
from paretune.pricing.budget import cost_usd
from paretune.projects.collection import Collector
from paretune.specification import metrics
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import (
    PROFILE,
    PROFILE_JSON,
    Event,
    FailureKind,
    JobDocument,
    JobInputs,
    JobReport,
)
from paretune.specification.job import BUNDLED, PROJECT, JobSpec
from paretune.specification.parameters import spell
from paretune.tracking import Run, RunStatus, schema, ui_view
from paretune.tracking.figures import classification_report, confusion_figure, label_table, prediction_figure

if TYPE_CHECKING:
    from paretune.ledger.budget_ledger import BudgetRequest, BudgetStatus


def script_remarks(spec: JobSpec, report: JobReport | None) -> list[str]:
    """What a script of the user's own has not left for the record, and how Hugging Face's examples are told to."""
    if spec.project is not None and report is not None and not report.metrics:
        return [
            "the command has left no metric: it may log them to MLflow, write numbers into a metrics.json or "
            "all_results.json, or print lines such as accuracy=0.9"
        ]
    if spec.entry_script is None or spec.runs_project or report is None:
        return []
    found, script = report.metrics, Path(spec.entry_script).name
    evaluated = any(name == metrics.F1 or name.startswith(("eval_", "test_", "predict_")) for name in found)
    lacking = [switch for switch, is_there in (("do_train", found), ("do_eval", evaluated)) if not is_there]
    if not lacking:
        return []
    what = "train_results.json, eval_results.json and all_results.json" if not found else "results of an evaluation"
    switches = json.dumps(dict.fromkeys(lacking, True))
    return [
        f"{script} has left no {what} in its output_dir, so nothing of them is recorded: a script has to save its "
        "metrics there (Trainer.save_metrics); Hugging Face's examples do only with "
        f"{options(training_arguments=switches)}"
    ]


def failure_message(job: Job, spec: JobSpec) -> str:
    """Why the job did not end well, and what to do; empty when it did, or was stopped as asked."""
    failure = job.failure()
    if failure is None:
        return ""
    kind, reason = failure
    if spec.runs_project:
        return reason
    if kind is FailureKind.OUT_OF_MEMORY:
        return (
            "out of memory, with the smallest per-device batch that could be tried: lower max_seq_length, set "
            f"fine_tuning to lora, qlora or head, or use a larger instance ({reason})"
        )
    if kind is FailureKind.DIVERGED:
        return f"{reason}: lower learning_rate, warm up (training_arguments), or take precision bf16 or fp32"
    if kind is FailureKind.CAPACITY:
        return (
            f"AWS has no capacity for {' or '.join(spec.instance_types())}: set capacity_wait_minutes to go on asking, "
            f"fallback_instance_types to try others, or another region ({reason})"
        )
    if kind is FailureKind.DISK_FULL and spec.on_sagemaker:
        return f"{reason}: give the instances a larger volume with volume_gib (model, data and checkpoints lie on it)"
    if kind is FailureKind.DISK_FULL:
        return f"{reason}: make room, or set PARETUNE_HOME to another disk; the same command continues the training"
    return reason


_VERSIONS = ("python", "torch", "transformers", "accelerate")
"""Facts of a report that are versions of what trained."""
_MOST_ARNS = 30  # of a run, the newest: a tag of MLflow takes 8,000 characters, an ARN has at most 256
_PATIENCE_S = 120.0  # how long a finished job waits for a tracking server that has gone away
RUN_STATUS = {
    JobState.COMPLETED: RunStatus.FINISHED,
    JobState.FAILED: RunStatus.FAILED,
    JobState.STOPPED: RunStatus.KILLED,
}


def collect_nothing(job: Job, run_id: str) -> list[str]:
    """For a job that records nothing itself, or records it where its run is."""
    return []


class JobRunWriter:
    """What goes into the run of one job, over all its attempts.

    Args:
        run: the run; by default the one of this command, or a new one.
        collect: called with job and run id when the job has ended, before its run is closed: takes over what the job
            has recorded itself, and returns a sentence for each part that it could not. By default done for a project.
        study: name of the study, the design or the recurring training that it is part of.
    """

    def __init__(
        self,
        spec: JobSpec,
        workplace: Workplace,
        *,
        run: Run | None = None,
        collect: Callable[[Job, str], list[str]] | None = None,
        study: str = "",
    ) -> None:
        self.spec = spec
        self.workplace = workplace
        self.attribution = Attribution.of(spec.user, spec.tags, workplace.environment, study)
        """Whose job it is; of one that an earlier process has recorded, what that has recorded."""
        self.run = run or workplace.tracking.begin(run_name(spec), opening_tags(spec, workplace))
        self.remarks: list[str] = []
        """What is to be known of the job that has ended, in sentences."""
        self.verdicts: list[str] = []
        """What is to be said of the model that it returned, in sentences."""
        self.job_seconds = 0.0
        self.billable_seconds = 0.0
        self.cost_usd: float | None = 0.0
        """Dollars of all attempts that have ended; None where a price is unknown."""
        self.plan_share_usd: float | None = 0.0
        """Dollars of a training plan's upfront fee that these attempts have used up; None where that is not known."""
        self.ran = spec
        """The job as its last attempt ran, on the instances that it got."""
        self.pool: Retention | None = None
        """Instances kept after the attempts that have ended, as they were seen then; None where there are none."""
        self._attempts: list[Job] = []  # that have ended
        self._arns: list[str] = []  # of training jobs that a queue has named
        self._closed = False
        self._launcher = workplace.launcher
        by_default = collect_nothing if spec.project is None else Collector(workplace.clock)
        self._collect = collect or by_default
        self._is_adopted = False  # an earlier process has begun the run
        self._known: Mapping[str, float] = {}  # metrics written by an earlier process
        self._price = workplace.launcher.price(spec)
        self._facts: Mapping[str, float] = {}
        self._detail = ""
        self._events: list[Event] = []
        self._profile: Mapping[str, bytes] = {}
        self._retries = 0
        self._model_uri = ""  # of the finished job's model in MLflow

    def begin(
        self,
        inputs: JobInputs | None,
        *,
        plan: BatchPlan | None = None,
        estimate: TimeEstimate | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        """Parameters, tags, what is known of the data alone, what the job was predicted to take, and warnings.

        `inputs` is None where an earlier launcher has recorded all this; `plan` is the batch of the first attempt,
        recorded where it is not the one that was asked for.
        """
        spec = self.spec
        if inputs is None:
            self._keep_attribution()
        with self.run.later():  # written with the job's name
            self._tag_location()
            self.run.set_tags({schema.SPEC_HASH: spec.spec_hash(), schema.COMMAND: spec.command()})
            self.run.log_params(params_of(spec))
            self.run.set_tags({schema.WARNINGS: "; ".join(warnings) or None})
            if plan is not None and plan != spec.plan():
                self._tag_plan(plan, ("first", "used"))
            if estimate is not None:
                self.run.log_metrics(estimate.as_metrics())
                self.run.set_tags({schema.ESTIMATE_BASIS: estimate.basis})
            if inputs is None:
                self._is_adopted = True
                self._known = self.run.metrics()
                self._facts = {name: value for name, value in self._known.items() if name.startswith("baseline_")}
            elif inputs.dataset is not None:
                self._facts = inputs.dataset.facts
                judged_on = inputs.dataset.validation_rows or None
                self.run.set_tags({schema.DATASET_KEY: inputs.dataset.key, schema.VALIDATION_ROWS: judged_on})
                rows = {"training": "train_rows", "validation": "validation_rows"}
                told = {context: self._facts[name] for context, name in rows.items() if name in self._facts}
                self.run.log_dataset(spec.dataset, inputs.dataset.key, spec.dataset, told)
                self.run.log_metrics(self._facts)

    def begin_project(self, tags: Mapping[str, str]) -> None:
        """Where the job of an MLflow project runs, and at which price; the run's parameters are the project's own.

        `tags` are what else is known of it; none where an earlier process has recorded it.
        """
        count = str(self.spec.instance_count)
        if not tags:
            self._keep_attribution()
        with self.run.later():  # written with the job's name
            self._tag_location()
            self.run.set_tags({schema.INSTANCE_TYPE: self.spec.instance_type, schema.INSTANCE_COUNT: count, **tags})
        self._is_adopted = not tags
        self._known = self.run.metrics()

    def reserve(self) -> None:
        """Reserve the job's worst case against the budgets that it counts against, unless that is done.

        Raises:
            BudgetRefused: some budget does not cover it; nothing was launched.
            LaunchRefused: the storage of the budgets does not answer; nothing was launched.
        """
        ledger = self.workplace.budget_ledger(self.spec.budget)
        if ledger is None:
            return
        request = budget_request(self.spec, self.workplace, self.attribution, self.run.run_id)
        try:
            ledger.reserve(replace(request, run_id=self.run.run_id))
        except LostContact as error:
            raise LaunchRefused(f"{error}; nothing was launched") from error

    def watch(self) -> None:
        """Say that this process watches the job."""
        self.run.set_tags({schema.WATCHED_BY: this_process()})

    def begin_attempt(self, document: JobDocument) -> None:
        """Name the job before it is created, so that whoever comes later can find it."""
        claimed = None if self._is_adopted else _now(self.workplace)
        state = JobState.RUNNING.value
        self.run.set_tags({schema.JOB_NAME: document.job_name, schema.STATE: state, schema.CLAIMED_AT: claimed})

    def follow(self, job: Job, events: list[Event]) -> None:
        """Record what a running job tells. One that writes to MLflow itself is only listened to."""
        with self.run.later():
            if self._launcher.is_direct:
                self._events += events
            else:
                self.run.log_events(events)
            if job.detail() != self._detail:
                self._detail = job.detail()
                self.run.set_tags({schema.SECONDARY_STATUS: self._detail, **self._place_of(job)})
        if self._launcher.origin == "measured":  # a simulated job is over in milliseconds
            self.run.flush()

    def _place_of(self, job: Job) -> dict[str, str]:
        """Tags by which AWS knows a job of another name than its own, whoever has forgotten it by then."""
        facts = job.facts()
        arn = facts.get("job_arn", "")
        if arn and arn.rpartition("/")[2] != group_of(job.name)[0] and arn not in self._arns:
            recorded = self.run.tags().get(schema.JOB_ARNS, "").split()
            self._arns = list(dict.fromkeys([*recorded, *self._arns, arn]))[-_MOST_ARNS:]
        tags = {f"{schema.PREFIX}{name}": facts[name] for name in ("job_arn", "service_job") if name in facts}
        return tags | ({schema.JOB_ARNS: " ".join(self._arns)} if self._arns else {})

    def book(self, job: Job, document: JobDocument) -> None:
        """Add what an ended attempt took and cost."""
        self._attempts.append(job)
        self.run.set_tags(self._place_of(job))
        self._look_at_pool()
        self.job_seconds += job.seconds()
        self.billable_seconds += job.billable_seconds()
        cost = cost_usd(self._launcher.price(document.spec), document.spec, job.billable_seconds())
        self.cost_usd = None if cost is None or self.cost_usd is None else self.cost_usd + cost
        share = self._launcher.prepaid_usd(document.spec, job.billable_seconds())
        if document.spec.training_plan is not None:
            self.plan_share_usd = None if share is None or self.plan_share_usd is None else self.plan_share_usd + share

    def retry(self, document: JobDocument) -> str:
        """Record that the job runs again with less memory; the sentence that tells the user."""
        plan = document.plan
        self._retries += 1
        self.run.set_tags({schema.OUT_OF_MEMORY_RETRIES: str(self._retries)})
        self._tag_plan(plan, ("used",))
        return (
            f"out of memory: again with per-device batch {plan.per_device_train_batch_size} x "
            f"{plan.gradient_accumulation_steps} accumulation steps (global batch size stays {plan.global_batch_size})"
        )

    def change_type(self, document: JobDocument) -> None:
        """Record on which instances the job runs, where they are others than were asked for, or were left open."""
        self.ran = document.spec
        self._price = self._launcher.price(document.spec)
        used = {
            schema.USED_INSTANCE_TYPE: document.spec.instance_type,
            schema.USED_INSTANCE_COUNT: str(document.spec.instance_count),
        }
        self.run.set_tags(price_tags(self._price) | used)
        self._tag_plan(document.plan, ("used",))

    def finish(self, job: Job) -> JobResult:
        """Record how the job ended, waiting a while for a tracking server that is away; raise if the job failed."""
        report, state, reason = job.report(), job.state(), failure_message(job, self.spec)
        with self.run.later():
            self.run.log_events(self._events)
        self.remarks = [
            *self._take_over(job),
            *script_remarks(self.spec, report),
            *self._read_profile(job),
        ]
        self.verdicts = self._verdicts(report, state)
        measured = self._write(report, state, reason, job)
        patience = self.workplace.clock.monotonic() + _PATIENCE_S
        while self.run.has_gap and self.workplace.clock.monotonic() < patience:
            self.workplace.clock.sleep(_PATIENCE_S / 24)
            self.run.has_gap = False
            self._write(report, state, reason, job)
        if state is not JobState.COMPLETED:
            failure = job.failure()
            kind = OutOfMemory if failure is not None and failure[0] is FailureKind.OUT_OF_MEMORY else JobFailed
            is_full = failure is not None and failure[0] is FailureKind.DISK_FULL  # its log says nothing more
            log = [] if is_full else job.log_tail()
            raise kind(job.name, reason or "it was stopped from outside", log, job.log_location())
        is_shown = self.spec.entry_script != PROJECT  # else `mlflow run` says where
        return JobResult(
            run_id=self.run.run_id,
            job_name=job.name,
            spec=self.spec,
            params=params_of(self.spec),
            metrics=measured | dict(self._facts),
            price=self._price,
            open_command=self._open_command() if is_shown else "",
            model=job.model_location(),
            model_uri=self._model_uri,
            has_gap=self.run.has_gap,
            origin=self._launcher.origin,
            basis=job.facts().get("basis", ""),
            remarks=(*self.remarks, *self.verdicts),
        )

    def _open_command(self) -> str:
        """Where to look; a project's run is where its own commands say."""
        tracking = self.workplace.tracking
        return "" if self.spec.runs_project else tracking.open_command(self.run.run_id, ui_view.ALL_RUNS)

    def give_up(self, error: BaseException, job: Job | None) -> None:
        """Close the run of a command that ends early; what its job has cost is booked, and a result it has is kept."""
        if self._closed:
            return
        self.remarks = self._take_over(job) if job is not None else []
        if job is not None and job.state() is JobState.COMPLETED:
            self.remarks += self._read_profile(job)
            self.verdicts = self._verdicts(job.report(), JobState.COMPLETED)
            self._write(job.report(), JobState.COMPLETED, "", job)
        else:
            ended = JobState.STOPPED if isinstance(error, Interrupted | KeyboardInterrupt) else JobState.FAILED
            self._write(None, ended, str(error), job)

    def _take_over(self, job: Job) -> list[str]:
        """Copy what the command has recorded itself; sentences on what could not be."""
        remarks = self._collect(job, self.run.run_id)
        if self.spec.project is not None:
            self._known = self.run.metrics()  # its curves have their last points
        return remarks

    def _verdicts(self, report: JobReport | None, state: JobState) -> list[str]:
        """What there is to say of the model; a simulated job has no loss curve of its own."""
        if report is None or state is not JobState.COMPLETED:
            return []
        is_real = self._launcher.origin == "measured" and not self.spec.runs_own_training
        loss = [value for _, value in sorted(self.run.curve("train/loss").items())] if is_real else []
        return verdicts(self.spec, {**self._facts, **report.metrics}, report, loss)

    def _note(self, measured: Mapping[str, float], state: JobState, reason: str, job: Job | None) -> str | None:
        """The note of the run; None for the run of another project, which is not ours to describe."""
        if self.spec.runs_project or self.spec.entry_script == PROJECT:
            return None
        return job_note(
            self.spec,
            {**self._facts, **measured},
            state=state.value,
            reason=reason,
            origin=self._launcher.origin,
            price=self._price,
            model=job.model_location() if job is not None and state is JobState.COMPLETED else "",
            verdicts=self.verdicts,
            ran=self.ran,
        )

    def _read_profile(self, job: Job) -> list[str]:
        """Take over the job's profile; its one-line summary, or why there is none."""
        if self.spec.profile_steps is None or job.state() is not JobState.COMPLETED:
            return []
        try:
            files = job.profile()
            summary = printable(str(parse_json(files[PROFILE_JSON])["summary"]))
        except LostContact as error:
            return [f"the profile is not recorded: {error}"]
        except (KeyError, TypeError, ValueError):
            return ["the job has left no profile: it went on from a checkpoint at its end, or its log says why"]
        self._profile = files
        return [f"profile: {summary}; more in {PROFILE}/profile.md of the run"]

    def totals(self) -> dict[str, float]:
        """Seconds and dollars of all attempts that have ended; dollars only where the price is known.

        Those of instances kept after the last one are in it once they are no longer kept.
        """
        found = {metrics.JOB_SECONDS: self.job_seconds, metrics.BILLABLE_SECONDS: self.billable_seconds}
        billed = self.billed_usd()
        if self.pool is not None and not self.pool.is_kept:
            found[metrics.WARM_POOL_SECONDS] = self.pool.seconds
        if billed is not None and self._price is not None:
            found[metrics.COST_USD] = billed
        if self.plan_share_usd:
            found[metrics.PLAN_SHARE_USD] = self.plan_share_usd
        return found

    def billed_usd(self) -> float | None:
        """Dollars of all attempts that have ended and of instances that are no longer kept; None without a price."""
        if self.pool is None or self.pool.is_kept or self.cost_usd is None:
            return self.cost_usd
        return self.cost_usd + (cost_usd(self._price, self.ran, self.pool.seconds) or 0.0)

    def promised_usd(self) -> float | None:
        """The most that the instances kept after the job can cost; None where none are kept, or without a price."""
        if self.pool is None or not self.pool.is_kept:
            return None
        return cost_usd(self._price, self.ran, self.pool.most_seconds)

    def release(self) -> list[str]:
        """Give back the instances kept after the attempts that have ended; why some could not be."""
        said = []
        for job in self._attempts:
            try:
                job.release()
            except LostContact as error:
                said.append(str(error))
        self._look_at_pool()
        return said

    def _look_at_pool(self) -> None:
        try:
            self.pool = retained(self._attempts)
        except LostContact:  # AWS does not tell: what was asked for counts as kept, until `sync` can ask
            most_seconds = 60 * self.spec.keep_alive_minutes
            unseen = Retention(status=KEPT, is_kept=True, seconds=0.0, most_seconds=most_seconds, reused_by="")
            self.pool = self.pool or (unseen if most_seconds else None)

    def leave(self) -> None:
        """Record that this process no longer follows the job; it goes on, and its run stays open."""
        self.run.set_tags({schema.WATCHED_BY: ""})

    def _write(self, report: JobReport | None, state: JobState, reason: str, job: Job | None) -> dict[str, float]:
        """Everything that is known at the end; writing it twice changes nothing."""
        measured = _headlines_first((dict(report.metrics) if report is not None else {}) | self.totals())
        where = {f"{schema.PREFIX}{name}": text for name, text in job.facts().items()} if job is not None else {}
        self._book()
        with self.run.later():
            self.run.log_metrics({name: value for name, value in measured.items() if self._known.get(name) != value})
            if report is not None:
                self._artifacts(report)
            if self._profile:
                self.run.log_files(self._profile, PROFILE)
            if report is not None and job is not None and state is JobState.COMPLETED:
                self._model_uri = self._record_model(job, report, measured)
            self.run.set_tags(
                {
                    schema.STATE: state.value,
                    schema.FAILURE_REASON: reason or None,
                    schema.REMARKS: "; ".join(self.remarks) or None,
                    schema.VERDICT: "; ".join(self.verdicts) or None,
                    schema.NOTE: self._note(measured, state, reason, job),
                    schema.WATCHED_BY: "",
                    schema.WARM_POOL: self.pool.status if self.pool is not None else None,
                    **where,
                }
            )
        self.run.flush()
        self.run.end(RUN_STATUS[state])
        if self.pool is not None and job is not None:
            tell_follower(self.workplace.tracking, self.pool, job.name)
        self._closed = True
        return measured

    def _book(self) -> None:
        """Book the job's cost against its budgets: before its run is closed, so that `sync` does it after a kill."""
        if not self._launcher.is_billed:
            return
        try:
            ledger, usd = self.workplace.budget_ledger(self.spec.budget), self.billed_usd()
            if ledger is None or ledger.book(self.run.run_id, usd, self.promised_usd()) or not usd:
                return
            said = (
                f"its {usd:.4g} USD are in no budget of {ledger.file.path}: {ledger.shown_address} has no reservation "
                "of it; set PARETUNE_STORAGE as it was when it was launched"
            )
        except (BadInput, LostContact) as error:
            said = f"its worst case stays reserved in its budgets until `{command_line('sync')}` books it: {error}"
        self.remarks += [] if said in self.remarks else [said]

    def _keep_attribution(self) -> None:
        """Take over whose job it is from the run, as an earlier process has recorded it."""
        tags = self.run.tags()
        if schema.USER in tags or schema.STUDY in tags:
            names = {"study": schema.STUDY, "user": schema.USER, "team": schema.TEAM}
            self.attribution = Attribution(**{name: tags.get(tag, "") for name, tag in names.items()})

    def _record_model(self, job: Job, report: JobReport, measured: Mapping[str, float]) -> str:
        """Have MLflow list the model of the finished job; its address there, empty where it has none."""
        if self._launcher.origin != "measured":
            return ""
        self.run.flush()  # the model shows figures that the run has
        finished = FinishedJob(
            name=run_name(self.spec),
            run_id=self.run.run_id,
            job_name=job.name,
            spec=self.spec,
            report=report,
            place=job.model_location(),
            data_hash=self.run.tags().get(schema.DATASET_KEY, ""),
            metrics={**self._facts, **measured},
            price=self._price,
            origin=self._launcher.origin,
        )
        return record_model(self.run, finished)

    def _tag_plan(self, plan: BatchPlan, which: tuple[str, ...]) -> None:
        names = ("per_device_train_batch_size", "gradient_accumulation_steps")
        said = {f"{schema.PREFIX}{word}_{name}": str(getattr(plan, name)) for word in which for name in names}
        self.run.set_tags(said)

    def _tag_location(self) -> None:
        """Where the job runs, who watches it, and what an hour of it costs."""
        launcher = self._launcher
        self.run.set_tags(
            {
                schema.ORIGIN: launcher.origin,
                schema.LAUNCHER: launcher.name,
                schema.WATCHED_BY: this_process(),
                **{f"{schema.PREFIX}{name}": text for name, text in launcher.location_tags().items()},
                **price_tags(self._price),
                **{f"{schema.PREFIX}{name}": text for name, text in self.attribution.named().items()},
                schema.BUDGET: absolute(self.spec.budget) if self.spec.budget and launcher.is_billed else None,
            }
        )

    def _artifacts(self, report: JobReport) -> None:
        self.run.log_text(report.to_json(), "report.json")
        if report.confusion_matrix:
            self.run.log_figure(confusion_figure(report), "confusion_matrix.png")
            self.run.log_text(classification_report(report), "classification_report.txt")
        if report.label_counts:
            self.run.log_text(label_table(report), "label_report.csv")
        if report.predictions:
            self.run.log_figure(prediction_figure(report), "predictions.png")
        used = {name: str(report.facts[name]) for name in ("precision", "device") if name in report.facts}
        self.run.set_tags({f"{schema.PREFIX}used_{name}": text for name, text in used.items()})
        versions = [f"{name} {report.facts[name]}" for name in _VERSIONS if name in report.facts]
        self.run.set_tags({schema.USED_VERSIONS: ", ".join(versions) or None})


def _headlines_first(found: Mapping[str, float]) -> dict[str, float]:
    """The metrics in the order in which a run's page shows them: that in which they are recorded for the first time."""
    first = (metrics.F1, metrics.PERPLEXITY, metrics.COST_USD, metrics.THROUGHPUT_SAMPLES, metrics.JOB_SECONDS)
    return {name: found[name] for name in first if name in found} | dict(found)


def params_of(spec: JobSpec) -> dict[str, str]:
    """The parameters of a run: every field of its specification, and what of batch and rate was derived.

    Of a project's job only what was set, and each of the command's own as `project_parameters.NAME`: the command may
    record any other name itself.
    """
    if spec.project is not None:
        texts = spec.as_text()
        names = dict.fromkeys(["instance_type", "instance_count", "entry_point", *spec.changed()])
        own = {f"project_parameters.{name}": spell(value) for name, value in spec.project_parameters.items()}
        return {name: texts[name] for name in names} | own
    plan = spec.plan()
    return spec.as_text() | {
        "learning_rate": spell(spec.unscaled_learning_rate),
        "per_device_train_batch_size": str(plan.per_device_train_batch_size),
        "gradient_accumulation_steps": str(plan.gradient_accumulation_steps),
        "global_batch_size": str(plan.global_batch_size),
        "scaled_learning_rate": repr(plan.learning_rate),
    }


def opening_tags(spec: JobSpec, workplace: Workplace) -> dict[str, str]:
    """What a run says before anything else: enough for `sync` to close it if its launcher dies at once."""
    return {
        schema.STATE: JobState.RUNNING.value,
        schema.CLAIMED_AT: _now(workplace),
        schema.COMMAND: spec.command(),
        schema.LAUNCHER: workplace.launcher.name,
        schema.WATCHED_BY: this_process(),
    }


def budget_request(spec: JobSpec, workplace: Workplace, whose: Attribution, job: str = "") -> "BudgetRequest":
    """What a job asks of its budgets: its worst case on the dearest of its instance types.

    Raises:
        BudgetRefused: that is above max_cost_usd.
    """
    from paretune.ledger.budget_ledger import BudgetRequest  # only now: few jobs have budgets

    launcher = workplace.launcher
    worst_usd = launcher.most_usd(spec)
    return BudgetRequest.of(spec, whose, worst_usd, job=job, origin=launcher.origin, now=workplace.clock.now())


def check_budgets(spec: JobSpec, workplace: Workplace, study: str = "") -> "list[BudgetStatus]":
    """The budgets that a job, such as one of a `study`, counts against; nothing is reserved.

    Raises:
        BudgetRefused: some budget does not cover its worst case, or its price is not known.
        BadInput: the file of the budgets has faults, or its storage does not answer.
    """
    ledger = workplace.budget_ledger(spec.budget)
    if ledger is None:
        return []
    whose = Attribution.of(spec.user, spec.tags, workplace.environment, study)
    try:
        return ledger.check(budget_request(spec, workplace, whose))
    except LostContact as error:
        raise LaunchRefused(str(error)) from error


def _now(workplace: Workplace) -> str:
    return f"{workplace.clock.now():.0f}"


def run_name(spec: JobSpec) -> str:
    """What a run is called in the list of runs: batch, learning rate, model; of a project its parameters."""
    if spec.project is not None:
        given = " ".join(f"{name}={spell(value)}" for name, value in spec.project_parameters.items())
        return f"{Path(spec.project.rstrip('/')).name or spec.project} {spec.entry_point} {given}".strip()[:200]
    what = spec.entry_script or spec.model
    plan = spec.plan()
    simulated = "simulated " if spec.is_simulated else ""  # first: the list of runs cuts long names
    return f"{simulated}b{plan.global_batch_size} lr{plan.learning_rate:g} {Path(what).name.removeprefix(BUNDLED)}"
