"""The end of a job in MLflow: its outcome is gathered, booked, and written into the run that closes with it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paretune.core.commands import options
from paretune.core.errors import Interrupted, LostContact
from paretune.core.untrusted import parse_json, printable
from paretune.jobs.bill import Bill
from paretune.jobs.model import record_model
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.record import JobRecord
from paretune.jobs.verdicts import verdicts
from paretune.launchers.base import Job, JobState
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
_LONGEST_TAG = 5_000  # characters that MLflow's servers take


def conclude(
    record: JobRecord,
    bill: Bill,
    job: Job | None,
    *,
    error: BaseException | None = None,
    why_not_smaller: str = "",
) -> JobOutcome:
    """Book the cost of an ended job, record how it ended and close its run.

    `error` closes the run of a job that ends early because of it, and `job` is None if none was created; the result of
    a job that completed all the same is kept. What a tracking server that is away does not take, `sync` records.
    """
    bill.recorded_usd = record.recorded_usd()
    if error is not None and job is not None and job.state() is JobState.COMPLETED:
        error = None
    outcome = _outcome(record, bill, job, error, why_not_smaller)
    profile: Mapping[str, bytes] = {}
    if record.spec.profile_steps is not None and outcome.has_completed and job is not None:
        profile, remark = _profile(job)
        outcome = replace(outcome, remarks=(*outcome.remarks, remark))
    # Booked before the run is closed, so that `sync` books it if this process is killed in between.
    budgets = record.workplace.budgets(record.spec, record.attribution)
    if problem := budgets.book(record.run.run_id, bill.cost_usd, outcome.kept_usd):
        outcome = replace(outcome, remarks=(*outcome.remarks, problem))
    written = record_end(record, outcome, profile)
    if written.has_completed or error is not None or job is None:
        return written
    is_full = written.failure is not None and written.failure[0] is FailureKind.DISK_FULL  # the log says nothing more
    log, reason = ([] if is_full else job.log_tail()), written.reason or "it was stopped from outside"
    return replace(written, reason=reason, log=log, log_location=job.log_location())


def _outcome(
    record: JobRecord, bill: Bill, job: Job | None, error: BaseException | None, why_not_smaller: str
) -> JobOutcome:
    """Everything that is known of the ended job before it is written."""
    spec, workplace, run_id = record.spec, record.workplace, record.run.run_id
    is_stopped = isinstance(error, Interrupted | KeyboardInterrupt)
    state, report, failure = JobState.STOPPED if is_stopped else JobState.FAILED, None, None
    if job is not None and error is None:
        state, report, failure = job.state(), job.report(), job.failure()
    has_completed = state is JobState.COMPLETED
    remarks = [*([] if job is None else record.collect_results(job)), *script_remarks(spec, report)]
    over_bound_usd = _over_bound_usd(record, bill)
    if over_bound_usd:
        remarks.append(
            f"it cost {bill.cost_usd:.4g} USD, {over_bound_usd:.4g} USD more than its worst case: stopping or "
            "uploading has taken longer than that counts with; it is booked in full"
        )
    values = ({} if report is None else dict(report.metrics)) | bill.metrics()
    return JobOutcome(
        run_id=run_id,
        job_name="" if job is None else job.name,
        state=state,
        metrics=record.data_facts | values,
        price=bill.price,
        spec=spec,
        ran=bill.ran,
        origin=workplace.launcher.origin,
        reason=failure_message(spec, failure, why_not_smaller) if error is None else str(error),
        failure=failure,
        report=report,
        facts={} if job is None else job.facts(),
        model=job.model_location() if job is not None and has_completed else "",
        # The run of a project is where its own commands say.
        open_command="" if spec.project else workplace.tracking.open_command(run_id),
        pool=bill.pool,
        kept_usd=bill.kept_usd,
        over_bound_usd=over_bound_usd,
        remarks=tuple(remarks),
        verdicts=tuple(verdicts(spec, {**record.data_facts, **report.metrics})) if report and has_completed else (),
    )


def record_end(record: JobRecord, outcome: JobOutcome, profile: Mapping[str, bytes]) -> JobOutcome:
    """Fill and close the run, tagged if MLflow lacks some; returns the outcome with its model's address in MLflow."""
    run, report, model_uri = record.run, outcome.report, ""
    run.has_gap = False  # what a server that was away did not take still waits, and is written below
    is_closed = run.end(RUN_STATUS[outcome.state])  # first: `sync` comes back to a run as long as its state is Running
    with run.later():
        former = record.former_metrics
        run.log_metrics({name: value for name, value in outcome.metrics.items() if former.get(name) != value})
        if report is not None:
            _write_report(run, report)
        if profile:
            run.log_files(profile, PROFILE)
        if report is not None and outcome.has_completed and outcome.origin == "measured":
            run.flush()  # the model shows figures that the run has
            model_uri = record_model(run, outcome)
        has_gap = outcome.has_completed and (run.has_gap or record.is_uncollected)
        run.set_tags(
            {
                schema.STATE: outcome.state.value if is_closed else None,
                schema.GAP: "true" if has_gap else "" if record.has_gap_tag else None,
                schema.FAILURE_REASON: outcome.reason or None,
                schema.OVER_BOUND_USD: f"{outcome.over_bound_usd:.6g}" if outcome.over_bound_usd else None,
                schema.REMARKS: "; ".join(outcome.remarks) or None,
                schema.VERDICT: "; ".join(outcome.verdicts) or None,
                schema.WATCHED_BY: "",
                schema.WARM_POOL: None if outcome.pool is None else outcome.pool.status,
                **{f"{schema.PREFIX}{name}": text for name, text in outcome.facts.items()},
                # The run of another project is not ours to describe.
                schema.NOTE: None if record.spec.project else outcome.note(),
            }
        )
    run.flush()
    return replace(outcome, model_uri=model_uri, has_gap=run.has_gap or record.is_uncollected)


def _over_bound_usd(record: JobRecord, bill: Bill) -> float:
    """Dollars that a billed job has cost beyond its worst case; 0 if it was within, or its price is unknown."""
    launcher, cost_usd = record.workplace.launcher, bill.cost_usd
    worst_usd = launcher.worst_case_usd(record.spec.replace(max_cost_usd=None))
    if not launcher.is_billed or worst_usd is None or cost_usd is None or bill.price is None:
        return 0.0
    over_usd = cost_usd - worst_usd
    return over_usd if over_usd > ROUNDING_USD else 0.0


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
    if kind is FailureKind.OUT_OF_MEMORY and spec.project is None:
        kinds = {"full": "set fine_tuning to lora, qlora or head, ", "lora": "set fine_tuning to qlora, "}
        other = kinds.get(spec.fine_tuning, "") if spec.entry_script is None else ""
        return f"out of memory, {why_not_smaller}: lower max_seq_length, {other}or use a larger instance ({reason})"
    remedies = {
        FailureKind.CAPACITY: f"AWS has no capacity for {' or '.join(spec.instance_types())}: set "
        "fallback_instance_types to try others, or another region",
        FailureKind.OUT_OF_MEMORY: "use a larger instance, or let the command need less memory",
        FailureKind.DISK_FULL: "model, data and checkpoints lie on the volume: set a larger sagemaker.volume_size_in_gb"
        if spec.on_sagemaker
        else "make room, or set PARETUNE_HOME to another disk",
        FailureKind.DIVERGED: "lower learning_rate, warm up (training_arguments), or take precision bf16 or fp32",
    }
    return f"{reason}: {remedies[kind]}" if kind in remedies else reason


def script_remarks(spec: JobSpec, report: JobReport | None) -> list[str]:
    """Sentences on results that a user's own script or project did not leave, and how to make it leave them."""
    if report is None or not spec.runs_own_training:
        return []
    if spec.project is not None:
        no_metric = (
            "the command has left no metric: it may log them to MLflow, write numbers into a metrics.json or "
            "all_results.json, or print lines such as accuracy=0.9"
        )
        return [] if report.metrics else [no_metric]
    if any(name == metrics.F1 or name.startswith(("eval_", "test_", "predict_")) for name in report.metrics):
        return []
    script = Path(str(spec.entry_script)).name
    lacks = "results of an evaluation" if report.metrics else "metrics"
    switches = json.dumps({"do_train": True, "do_eval": True})
    return [
        f"{script} has left no {lacks} in its output_dir, so nothing of them is recorded: a script has to save its "
        "metrics there (Trainer.save_metrics); Hugging Face's examples do only with "
        f"{options(training_arguments=switches)}"
    ]
