"""The end of a job in MLflow: metrics, bill, remarks, verdicts, artifacts and the model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paretune.core.commands import options
from paretune.core.errors import Interrupted, JobFailed, LostContact, OutOfMemory
from paretune.core.untrusted import parse_json, printable
from paretune.jobs.bill import JobBill
from paretune.jobs.record import JobRecord, params_of, run_name
from paretune.jobs.result import JobResult, job_note
from paretune.jobs.verdicts import verdicts
from paretune.jobs.warm_pools import tag_reusing_job
from paretune.launchers.base import Job, JobState
from paretune.models import FinishedJob, record_model
from paretune.pricing.budget import ROUNDING_USD
from paretune.specification import metrics
from paretune.specification.container import PROFILE, PROFILE_JSON, FailureKind, JobReport
from paretune.specification.job import JobSpec
from paretune.tracking import Run, RunStatus, schema
from paretune.tracking.figures import classification_report, confusion_figure, label_table

RUN_STATUS = {
    JobState.COMPLETED: RunStatus.FINISHED,
    JobState.FAILED: RunStatus.FAILED,
    JobState.STOPPED: RunStatus.KILLED,
}
_VERSIONS = ("python", "torch", "transformers", "accelerate")  # facts of a report that are versions of what trained
_PATIENCE_S = 120.0  # how long a finished job waits for a tracking server that has gone away
_LONGEST_TAG = 5_000  # characters that MLflow's servers take
_QUALITIES = (metrics.F1, metrics.PERPLEXITY)


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """The end of a job, as its run has it; its cost is booked."""

    job_name: str
    state: JobState
    reason: str  # why it has no result; empty if it completed
    metrics: Mapping[str, float]  # everything that was measured, baselines, and seconds and dollars of all attempts
    failure: tuple[FailureKind, str] | None = None  # kind and reason, as `Job.failure` has them
    remarks: Sequence[str] = ()  # what the record lacks and why, in sentences
    verdicts: Sequence[str] = ()  # what to know about the model, in sentences
    completed: JobResult | None = None  # the finished job; None if it has no result
    log: Sequence[str] = ()  # the last lines that a failed job printed
    log_location: str = ""  # where all of its log is

    def result(self) -> JobResult:
        """The finished job; raises JobFailed or OutOfMemory if it failed, and then its run says why."""
        if self.completed is None:
            raise self.error()
        return self.completed

    def error(self) -> JobFailed:
        """The error that says why the job has no result."""
        is_out_of_memory = self.failure is not None and self.failure[0] is FailureKind.OUT_OF_MEMORY
        error = OutOfMemory if is_out_of_memory else JobFailed
        return error(self.job_name, self.reason, list(self.log), self.log_location)


def record_end(
    record: JobRecord, bill: JobBill, job: Job, why_not_smaller: str, *, patience_s: float = _PATIENCE_S
) -> JobEnd:
    """Record how a job ended and book its cost; waits `patience_s` for a tracking server that is away."""
    bill.recorded_usd = record.recorded_usd()
    state, report, failure = job.state(), job.report(), job.failure()
    ending = _ending_of(job, state, report, failure_message(record.spec, failure, why_not_smaller), record, bill)
    model_uri = ending.write_patiently(record, bill, 0.0 if record.has_gap_tag else patience_s)
    end = JobEnd(
        job_name=job.name,
        state=state,
        reason=ending.reason,
        metrics=_all_metrics(report, bill) | record.data_facts,
        failure=failure,
        remarks=ending.remarks,
        verdicts=ending.verdicts,
    )
    if state is JobState.COMPLETED:
        return replace(end, completed=_result(record, bill, job, end, model_uri))
    is_full = failure is not None and failure[0] is FailureKind.DISK_FULL  # then the log says nothing more
    log = [] if is_full else job.log_tail()
    reason = end.reason or "it was stopped from outside"
    return replace(end, reason=reason, log=log, log_location=job.log_location())


def _ending_of(
    job: Job, state: JobState, report: JobReport | None, reason: str, record: JobRecord, bill: JobBill
) -> "_Ending":
    has_completed = state is JobState.COMPLETED
    remarks = [*record.collect_results(job), *script_remarks(record.spec, report)]
    profile: Mapping[str, bytes] = {}
    if record.spec.profile_steps is not None and has_completed:
        profile, remark = _profile(job)
        remarks.append(remark)
    over_bound_usd = _over_bound_usd(record, bill)
    if over_bound_usd:
        remarks.append(
            f"it cost {bill.cost_usd:.4g} USD, {over_bound_usd:.4g} USD more than its worst case: stopping or "
            "uploading has taken longer than that counts with; it is booked in full"
        )
    return _Ending(
        job=job,
        state=state,
        reason=reason,
        report=report,
        over_bound_usd=over_bound_usd,
        remarks=[*remarks, *_book(record, bill)],
        verdicts=_verdicts(record, report) if report is not None and has_completed else [],
        profile=profile,
    )


def _result(record: JobRecord, bill: JobBill, job: Job, end: JobEnd, model_uri: str) -> JobResult:
    spec, workplace, run_id = record.spec, record.workplace, record.run.run_id
    # The run of a project is where its own commands say.
    open_command = "" if spec.runs_project else workplace.tracking.open_command(run_id)
    return JobResult(
        run_id=run_id,
        job_name=job.name,
        spec=spec,
        params=params_of(spec),
        metrics=end.metrics,
        price=bill.price,
        kept_usd=bill.kept_usd,
        open_command=open_command,
        model=job.model_location(),
        model_uri=model_uri,
        has_gap=record.run.has_gap or record.is_uncollected,
        origin=workplace.launcher.origin,
        basis=job.facts().get("basis", ""),
        remarks=(*end.remarks, *end.verdicts),
    )


def record_abandoned(record: JobRecord, bill: JobBill, error: BaseException, job: Job | None) -> JobEnd:
    """Close the run of a job that ends early because of `error`; `job` is None if none was created.

    What the job has cost is booked, and the result of a job that completed all the same is kept.
    """
    if job is not None and job.state() is JobState.COMPLETED:
        return record_end(record, bill, job, "", patience_s=0.0)
    bill.recorded_usd = record.recorded_usd()
    is_stopped = isinstance(error, Interrupted | KeyboardInterrupt)
    state = JobState.STOPPED if is_stopped else JobState.FAILED
    remarks = [*(record.collect_results(job) if job is not None else []), *_book(record, bill)]
    ending = _Ending(job=job, state=state, reason=str(error), remarks=remarks)
    ending.write(record, bill)
    name = "" if job is None else job.name
    return JobEnd(job_name=name, state=state, reason=str(error), metrics=_all_metrics(None, bill), remarks=remarks)


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """Everything that is written at the end of a job, except its bill. Writing it twice changes nothing."""

    job: Job | None
    state: JobState
    reason: str
    report: JobReport | None = None
    remarks: Sequence[str] = ()
    verdicts: Sequence[str] = ()
    over_bound_usd: float = 0.0
    profile: Mapping[str, bytes] = field(default_factory=dict)

    def write_patiently(self, record: JobRecord, bill: JobBill, patience_s: float) -> str:
        """Like `write`; repeated for so many seconds while the tracking server does not answer."""
        model_uri = self.write(record, bill)
        clock = record.workplace.clock
        patience = clock.monotonic() + patience_s
        while record.run.has_gap and clock.monotonic() < patience:
            clock.sleep(_PATIENCE_S / 24)
            record.run.has_gap = False
            model_uri = self.write(record, bill)
        return model_uri

    def write(self, record: JobRecord, bill: JobBill) -> str:
        """Fill and close the run, tagged if MLflow lacks some; returns its model's address in MLflow, or no text."""
        run, job, report, model_uri = record.run, self.job, self.report, ""
        values = _all_metrics(report, bill)
        facts = {} if job is None else job.facts()
        is_closed = run.end(RUN_STATUS[self.state])  # first: `sync` comes back to a run as long as its state is Running
        with run.later():
            all_values = values | {name: value for name, value in record.known_before.items() if name not in values}
            run.log_metrics(
                {name: value for name, value in all_values.items() if record.former_metrics.get(name) != value}
            )
            if report is not None:
                _write_report(run, report)
            if self.profile:
                run.log_files(self.profile, PROFILE)
            if report is not None and job is not None and self.state is JobState.COMPLETED:
                model_uri = _record_model(record, bill, job, report, values)
            has_gap = self.state is JobState.COMPLETED and (run.has_gap or record.is_uncollected)
            gap_tag = "true" if has_gap else "" if record.has_gap_tag else None
            record.has_gap_tag = has_gap
            run.set_tags(
                {
                    schema.STATE: self.state.value if is_closed else None,
                    schema.GAP: gap_tag,
                    schema.FAILURE_REASON: self.reason or None,
                    schema.OVER_BOUND_USD: f"{self.over_bound_usd:.6g}" if self.over_bound_usd else None,
                    schema.REMARKS: "; ".join(self.remarks) or None,
                    schema.VERDICT: "; ".join(self.verdicts) or None,
                    **record.workplace.watches.release(run.run_id),
                    schema.WARM_POOL: bill.pool.status if bill.pool is not None else None,
                    **{f"{schema.PREFIX}{name}": text for name, text in facts.items()},
                }
            )
            if not record.spec.runs_project:  # the run of another project is not ours to describe
                run.set_tags({schema.NOTE: self._note(record, bill, values)})
        run.flush()
        if bill.pool is not None and job is not None:
            tag_reusing_job(record.workplace.tracking, bill.pool, job.name)
        return model_uri

    def _note(self, record: JobRecord, bill: JobBill, values: Mapping[str, float]) -> str:
        model = self.job.model_location() if self.job is not None and self.state is JobState.COMPLETED else ""
        return job_note(
            record.spec,
            {**record.data_facts, **values},
            state=self.state.value,
            reason=self.reason,
            origin=record.workplace.launcher.origin,
            price=bill.price,
            model=model,
            verdicts=self.verdicts,
            over_bound_usd=self.over_bound_usd,
            ran=bill.ran,
            metrics_from="" if self.report is None else str(self.report.facts.get("metrics_from", "")),
        )


def _over_bound_usd(record: JobRecord, bill: JobBill) -> float:
    """Dollars that a billed job has cost beyond its worst case; 0 if it was within, or its price is unknown."""
    launcher = record.workplace.launcher
    spec = record.spec.replace(max_cost_usd=None)
    worst_usd, cost_usd = launcher.worst_case_usd(spec), bill.cost_usd
    if not launcher.is_billed or worst_usd is None or cost_usd is None or bill.price is None:
        return 0.0
    over_usd = cost_usd - worst_usd
    return over_usd if over_usd > ROUNDING_USD else 0.0


def _all_metrics(report: JobReport | None, bill: JobBill) -> dict[str, float]:
    """The measurements and the bill of the job, in the order of first recording, in which a run's page shows them."""
    values = ({} if report is None else dict(report.metrics)) | bill.metrics()
    first = (*_QUALITIES, metrics.COST_USD, metrics.THROUGHPUT_SAMPLES, metrics.JOB_SECONDS)
    return {name: values[name] for name in first if name in values} | values


def _book(record: JobRecord, bill: JobBill) -> list[str]:
    """Book the cost before the run is closed, so that `sync` books it if this process is killed in between."""
    budgets = record.workplace.budgets(record.spec, record.attribution)
    problem = budgets.book(record.run.run_id, bill.cost_usd, bill.kept_usd)
    return [problem] if problem else []


def _verdicts(record: JobRecord, report: JobReport) -> list[str]:
    # A simulated job has no loss curve of its own.
    has_curve = record.workplace.launcher.origin == "measured" and not record.spec.runs_own_training
    loss = [value for _, value in sorted(record.run.curve("train/loss").items())] if has_curve else []
    return verdicts(record.spec, {**record.data_facts, **report.metrics}, report, loss)


def _profile(job: Job) -> tuple[Mapping[str, bytes], str]:
    """The files of the job's profile, and its one-line summary or why there is none."""
    try:
        files = job.profile()
        summary = printable(str(parse_json(files[PROFILE_JSON])["summary"]))
    except LostContact as error:
        return {}, f"the profile is not recorded: {error}"
    except (KeyError, TypeError, ValueError):
        return {}, "the job has left no profile: it went on from a checkpoint at its end, or its log says why"
    return files, f"profile: {summary}; more in {PROFILE}/profile.md of the run"


def _record_model(record: JobRecord, bill: JobBill, job: Job, report: JobReport, values: Mapping[str, float]) -> str:
    """Have MLflow list the model of the finished job; returns its address there, or an empty text if it has none."""
    if record.workplace.launcher.origin != "measured":
        return ""
    record.run.flush()  # the model shows figures that the run has
    finished = FinishedJob(
        name=run_name(record.spec),
        run_id=record.run.run_id,
        job_name=job.name,
        spec=record.spec,
        report=report,
        location=job.model_location(),
        data_hash=record.run.tags().get(schema.DATASET_KEY, ""),
        metrics={**record.data_facts, **values},
        price=bill.price,
    )
    return record_model(record.run, finished)


def _write_report(run: Run, report: JobReport) -> None:
    run.log_text(report.to_json(), "report.json")
    if report.confusion_matrix:
        run.log_figure(confusion_figure(report), "confusion_matrix.png")
        run.log_text(classification_report(report), "classification_report.txt")
    if report.label_counts:
        run.log_text(label_table(report), "label_report.csv")
    used = {name: str(report.facts[name]) for name in ("precision", "device") if name in report.facts}
    versions = [f"{name} {report.facts[name]}" for name in _VERSIONS if name in report.facts]
    run.set_tags({f"{schema.PREFIX}used_{name}": text for name, text in used.items()})
    sources = str(report.facts.get("metrics_from", ""))[:_LONGEST_TAG]
    run.set_tags({schema.USED_VERSIONS: ", ".join(versions) or None, schema.METRICS_FROM: sources or None})


def failure_message(spec: JobSpec, failure: tuple[FailureKind, str] | None, why_not_smaller: str) -> str:
    """The reason why a job did not end well and what to do about it; empty if it completed or was stopped as asked.

    `why_not_smaller` has the per-device batch with which it ran out of memory, and why no smaller one follows.
    """
    if failure is None:
        return ""
    kind, reason = failure
    if spec.runs_project and kind is FailureKind.OUT_OF_MEMORY:
        return f"{reason}: use a larger instance, or let the command need less memory"
    if spec.runs_project and kind not in (FailureKind.CAPACITY, FailureKind.DISK_FULL):
        return reason
    if kind is FailureKind.OUT_OF_MEMORY:
        kinds = {"full": "set fine_tuning to lora, qlora or head, ", "lora": "set fine_tuning to qlora, "}
        other = kinds.get(spec.fine_tuning, "") if spec.entry_script is None else ""
        return f"out of memory, {why_not_smaller}: lower max_seq_length, {other}or use a larger instance ({reason})"
    if kind is FailureKind.DIVERGED:
        return f"{reason}: lower learning_rate, warm up (training_arguments), or take precision bf16 or fp32"
    if kind is FailureKind.CAPACITY:
        return (
            f"AWS has no capacity for {' or '.join(spec.instance_types())}: set "
            f"fallback_instance_types to try others, or another region ({reason})"
        )
    if kind is FailureKind.DISK_FULL and spec.on_sagemaker:
        return f"{reason}: model, data and checkpoints lie on the volume: set a larger sagemaker.volume_size_in_gb"
    if kind is FailureKind.DISK_FULL:
        return f"{reason}: make room, or set PARETUNE_HOME to another disk"
    return reason


def script_remarks(spec: JobSpec, report: JobReport | None) -> list[str]:
    """Sentences on results that a user's own script or project did not leave, and how to make it leave them."""
    if report is None or (spec.project is None and (spec.entry_script is None or spec.runs_project)):
        return []
    if spec.project is not None:
        return (
            []
            if report.metrics
            else [
                "the command has left no metric: it may log them to MLflow, write numbers into a metrics.json or "
                "all_results.json, or print lines such as accuracy=0.9"
            ]
        )
    script = Path(str(spec.entry_script)).name
    evaluated = any(name == metrics.F1 or name.startswith(("eval_", "test_", "predict_")) for name in report.metrics)
    missing = [switch for switch, is_there in (("do_train", report.metrics), ("do_eval", evaluated)) if not is_there]
    if not missing:
        return []
    files = "train_results.json, eval_results.json and all_results.json"
    lacks = "results of an evaluation" if report.metrics else files
    switches = json.dumps(dict.fromkeys(missing, True))
    return [
        f"{script} has left no {lacks} in its output_dir, so nothing of them is recorded: a script has to save its "
        "metrics there (Trainer.save_metrics); Hugging Face's examples do only with "
        f"{options(training_arguments=switches)}"
    ]
