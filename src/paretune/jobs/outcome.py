"""Ends a job: gathers its outcome, records its cost, judges its model, and fills and closes its run.

Verdicts are warnings about the model. They are printed when the job ends, and its run has them in the tag
`paretune.verdict` and in its note. A study prints the verdicts on the jobs that it recommends.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, Interrupted, JobFailed, LostContact, OutOfMemory
from paretune.core.noise import binomial_error
from paretune.core.reading import parse_json
from paretune.core.result import Result, Row, as_json, value_of
from paretune.core.secrets import code_span, markdown, printable
from paretune.core.shell import command_line, options
from paretune.jobs.bill import Bill
from paretune.jobs.model import record_model
from paretune.jobs.record import RESTORED, JobRecord
from paretune.jobs.run_names import new_name, run_name
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job
from paretune.presentation.text import duration, plain, usd
from paretune.pricing import ROUNDING_USD
from paretune.specification import metrics
from paretune.specification.container import GPU_IDLE_SHARE, MOST_CLASSES_IN_MATRIX, PROFILE, PROFILE_JSON, JobReport
from paretune.specification.ending import STOPPED, Cause, Ending, JobState, failed
from paretune.specification.order import Offer
from paretune.specification.plan import Card, Plan
from paretune.tracking import schema
from paretune.tracking.figures import classification_report, confusion_figure, label_table
from paretune.tracking.run_writer import EndStatus, Run, name_for_mlflow
from paretune.user_code.binding import ADD_A_METRIC
from paretune.user_code.model_files import FOLDER as MODELS
from paretune.user_code.model_files import LARGEST as LARGEST_MODELS
from paretune.user_code.script_metrics import LOGGERS

_DEFINITION = """such as --metric_definitions '[{"Name": "accuracy", "Regex": "acc ([0-9.]+)"}]'"""
RUN_STATUS: Mapping[JobState, EndStatus] = {
    JobState.COMPLETED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.STOPPED: "KILLED",
}
_VERSIONS = ("python", "torch", "transformers", "accelerate")  # software versions in a report
_IDLE = 1 / 3  # share of the time in which the GPUs may be idle without a word about it
_READ_LINES, _SHOWN_LINES = 200, 15  # lines read and lines shown of a failed job's log


@dataclass(frozen=True, kw_only=True)
class JobOutcome(Result):
    """An ended job: its metrics and cost, the run that records it, and the reason if it failed."""

    run_id: str
    job_name: str  # the launcher's name for the last attempt, such as SageMaker's; empty if that does not exist
    ending: Ending
    metrics: Mapping[str, float]  # name in MLflow to value; metrics that were not measured are absent
    card: Card
    offer: Offer  # the cluster of the last attempt, with the price of one instance
    origin: str = "measured"
    reason: str = ""  # why it has no result, and what to do: for people only; empty if it has one
    report: JobReport | None = None
    facts: Mapping[str, str] = field(default_factory=dict)  # from the launcher, such as the `basis` of simulated jobs
    model: str = ""  # where the files of the model are: a folder, or an S3 URI
    model_uri: str = ""  # address from which MLflow loads it; empty if MLflow has none
    open_command: str = ""
    kept_usd: float | None = None  # most that kept instances can still cost; None if none are kept or if unknown
    ended_at: float | None = None  # in seconds since the epoch; None if unknown
    has_gap: bool = False  # whether its run is incomplete; the job's own files are complete
    remarks: Sequence[str] = ()  # sentences on what the record lacks and why
    verdicts: Sequence[str] = ()  # sentences on the model
    log: Sequence[str] = ()  # the last lines that a failed job printed; the whole log is at `log_location`
    log_location: str = ""

    @property
    def state(self) -> JobState:
        """The state in which the job ended."""
        return self.ending.state

    @property
    def has_completed(self) -> bool:
        """Whether the job has a result."""
        return self.ending.has_completed

    def result(self) -> "JobOutcome":
        """Return the job if it completed. Otherwise raise JobFailed or OutOfMemory; the run has the reason."""
        if not self.has_completed:
            raise self.error()
        return self

    def error(self) -> JobFailed:
        """Return the error with the reason why the job has no result."""
        error = OutOfMemory if self.ending.cause is Cause.OUT_OF_MEMORY else JobFailed
        cause = "" if self.ending.cause is None else self.ending.cause.value
        return error(self.job_name, self.reason, list(self.log), self.log_location, cause=cause)

    @property
    def title(self) -> str:
        """`job NAME` or `simulated job NAME`, with a remark if the job uses experimental features."""
        remark = self.card.experimental
        kind = "job" if self.origin == "measured" else f"{self.origin} job"
        return f"{kind} {self.job_name}{f' ({remark})' * bool(remark)}"

    def rows(self) -> list[Row]:
        """Return one row with ids, the parameters as in MLflow, and all metrics."""
        return [
            {"run_id": self.run_id, "job_name": self.job_name, "origin": self.origin, **self._params, **self.metrics}
        ]

    @property
    def _params(self) -> Row:
        return {name: value_of(text) for name, text in self.card.params.items()}

    def to_dict(self) -> dict[str, object]:
        """Return ids, params, metrics, the price, where the model is, and remarks."""
        plain = ("run_id", "job_name", "origin", "kept_usd", "model", "open_command", "has_gap")
        return {name: getattr(self, name) for name in plain} | {
            "basis": self.facts.get("basis"),
            "params": self._params,
            "metrics": as_json(self.metrics),
            "price": as_json(asdict(self.offer.price)) if self.offer.price is not None else None,
            "model_uri": self.model_uri or None,
            "remarks": [*self.remarks, *self.verdicts],
        }

    def notes(self) -> list[str]:
        """Return the command that opens the run, a note on gaps in its record, remarks, and verdicts on the model."""
        gap = (
            "MLflow did not store everything: this run's record has gaps, but the job's own files are complete; "
            f"`{command_line('sync')}` fills the gaps"
        )
        return [*filter(None, [self.open_command, gap if self.has_gap else ""]), *self.remarks, *self.verdicts]

    def summary(self) -> dict[str, str]:
        """Summarize quality next to its baselines, speed, seconds and cost; a user's own metrics come first."""
        logged = self.report.metrics if self.report is not None and self.card.is_users else {}
        own = {name: logged[name] for name in logged if name not in metrics.SHOWN or name in metrics.OF_MODELS}
        others = {name: value for name, value in self.metrics.items() if name not in own}
        rows = {name: f"{value:.6g}" for name, value in own.items()}
        rows |= _metrics_in_words({metrics.COST_USD: 0.0, **others}, self.card.task)
        price = self.offer.price
        rows["cost"] = "unknown: no price" if price is None else "unknown"
        if price is not None and metrics.COST_USD in self.metrics:
            rows["cost"] = f"{usd(self.metrics[metrics.COST_USD])} ({price.doubt}{price.plain_source}, {price.stated})"
        idle = 0.0 if self.report is None else float(self.report.facts.get(GPU_IDLE_SHARE, 0.0))
        if idle > _IDLE:
            rows["GPU"] = f"idle {idle:.0%} of the time: the input or the host is slow; --profile_steps 10 shows which"
        where = {self.origin: self.facts.get("basis", ""), "model": self.model.removeprefix(f"{Path.cwd()}/")}
        where["model in MLflow"] = self.model_uri if self.model_uri != self.model else ""
        return rows | {name: text for name, text in where.items() if text}

    def in_one_line(self) -> str:
        """Summarize in one line: the job's name, where it ran, how it ended, its quality, its cost and its speed."""
        offer, kind = self.offer, "" if self.origin == "measured" else f", {self.origin}"
        # The run name of paretune's own training includes the cluster.
        lacks_cluster = self.card.is_users and offer.has_instances
        where = f" on {offer.instance_count} x {offer.instance_type}" if lacks_cluster else ""
        reason = f": {self.reason}" if self.reason else ""
        parts = [
            f"{run_name(self.card, offer.instance_type)}{where} ({self.job_name}{kind}) {self.state.value}{reason}"
        ]
        f1, perplexity, cost_usd = map(self.metrics.get, (metrics.F1, metrics.PERPLEXITY, metrics.COST_USD))
        if f1 is not None:
            rows = int(self.metrics.get("validation_rows", 0))
            error = f" ± {binomial_error(f1, rows):.3f} on {rows:,} validation rows" if rows else ""
            parts.append(f"F1 {f1:.3f}{error}")
        elif perplexity is not None:
            parts.append(f"perplexity {perplexity:.2f}")
        parts += [] if cost_usd is None else [usd(cost_usd)]
        rate = self.metrics.get(metrics.THROUGHPUT_SAMPLES)
        return "; ".join(parts if rate is None else [*parts, f"{plain(rate, 3)} samples/s"])

    def note(self) -> str:
        """Return the note of the run, as Markdown: a first line as in `in_one_line`, figures, verdicts, the command."""
        figures = "\n".join(f"- {markdown(f'{name}: {text}')}" for name, text in self.summary().items())
        verdicts = [markdown(f"> **{sentence}**") for sentence in self.verdicts]
        # The command is not a code block, because that does not wrap and widens MLflow's page.
        again = f"Again: {code_span(self.card.command_line)}"
        return "\n\n".join([markdown(f"**{self.in_one_line()}**"), figures, *verdicts, again])


def end_job(
    record: JobRecord,
    bill: Bill,
    job: Job | None,
    *,
    error: BaseException | None = None,
    why_not_smaller: str = "",
) -> JobOutcome:
    """Record how a job ended and what it cost, close its run, and return the outcome. Every job ends here.

    `job` is the last attempt; it is None if that was not created, or no longer exists. `error` is the reason for an
    early end; if the job has completed anyway, its result is kept. `why_not_smaller` is passed to `failure_message`. If
    MLflow does not answer, `sync` writes the missing parts later.
    """
    plan, workplace, run_id = record.plan, record.workplace, record.run.run_id
    card = plan.card
    if card.kind != "project" and record.was_concluded:  # a project's command may log a cost_usd of its own
        bill.recorded_usd = record.run.metrics().get(metrics.COST_USD)
    if error is not None and job is not None and job.state() is JobState.COMPLETED:
        error = None
    status = None if job is None else job.status()
    if error is not None or status is None or status.ending is None:
        ending, report = _ended_early(error), None
    else:
        ending, report = status.ending, status.report
    if status is not None and report is None:
        report = status.partial
    report = _with_names_of_mlflow(report) if card.is_users else report
    report, impossible = without_impossible_seconds(card, report, bill.seconds)
    has_completed = ending.has_completed
    profile, profiled = _profile(job) if card.is_profiled and has_completed and job is not None else ({}, "")
    remarks = [
        *([] if job is None else record.collect_results(job, RUN_STATUS[ending.state])),
        *script_remarks(card, report if has_completed else None),
        *impossible,
    ]
    remarks += filter(None, [profiled])
    tags = {schema.WARM_POOL: bill.pool_tag}
    if job is None and bill.attempts_usd is not None:  # so that no other run's job is mistaken for this one by its name
        tags[schema.JOB_NAME] = bill.last_job
    if over_usd := _above_worst_case(plan, bill, workplace):
        tags[schema.OVER_BOUND_USD] = f"{over_usd:.6g}"
        longer = "stopping or uploading took longer than the worst case allows for; the whole cost is recorded"
        remarks.append(f"it cost {usd(bill.cost_usd or 0.0)}, {usd(over_usd)} more than its worst case: {longer}")
    # The cost is recorded while the run is still open. If this process is killed before that, `sync` records the cost.
    unrecorded = workplace.record_cost(plan.limits.budget, record.owner, bill.cost_usd, bill.kept_usd)
    still_reserved = [unrecorded.sentence] if unrecorded is not None and unrecorded.is_reserved else []
    tags[schema.RESERVED] = "".join(still_reserved) or None
    if unrecorded is not None and not still_reserved:
        remarks.append(unrecorded.sentence)
    outcome = JobOutcome(
        run_id=run_id,
        job_name="" if job is None else job.name,
        ending=ending,
        metrics={**record.data_facts, **({} if report is None else report.metrics), **bill.metrics()},
        card=card,
        offer=bill.offer,
        origin=workplace.launcher.origin,
        reason=failure_message(card, ending, why_not_smaller) if error is None else str(error),
        report=report,
        facts={} if status is None else status.facts,
        model=status.model if status is not None and has_completed else "",
        # A project's run is in the store that its own commands use.
        open_command="" if card.kind == "project" else workplace.tracking.open_command(run_id),
        kept_usd=bill.kept_usd,
        ended_at=None if status is None else status.ended_at,
        remarks=tuple(remarks),
        verdicts=tuple(_verdicts(card, record.data_facts, report)) if report and has_completed else (),
    )
    outcome = close_run(record, outcome, profile, tags)
    outcome = replace(outcome, remarks=(*outcome.remarks, *still_reserved))  # in the run, it has a tag of its own
    return outcome if outcome.has_completed or error is not None or job is None else _with_log(outcome, job)


def _with_names_of_mlflow(report: JobReport | None) -> JobReport | None:
    """Return the report of a user's training with the names that MLflow shows: a name may have any character."""
    if report is None:
        return None
    own = {name_for_mlflow(name): value for name, value in report.metrics.items()}
    lost = tuple(map(name_for_mlflow, report.not_finite))
    return report.model_copy(update={"metrics": own, "not_finite": lost})


def without_impossible_seconds(
    card: Card, report: JobReport | None, job_seconds: float
) -> tuple[JobReport | None, list[str]]:
    """Return a report without `train_seconds` if a user's training claims more than its job took, and a remark."""
    said = None if report is None or not card.is_users else report.metrics.get(metrics.TRAIN_SECONDS)
    if report is None or said is None or said <= job_seconds:
        return report, []
    kept = {name: value for name, value in report.metrics.items() if name != metrics.TRAIN_SECONDS}
    why = f"its training reports {duration(said)}, but the whole job took {duration(job_seconds)}"
    return report.model_copy(update={"metrics": kept}), [f"{why}: train_seconds is not recorded"]


def _metrics_in_words(values: Mapping[str, float], task: str) -> dict[str, str]:
    """Format the values of the metrics in `metrics.SHOWN`, and return them by their labels for this task."""
    writers: dict[str, Callable[[float], str]] = {"s": duration, "USD": usd}
    replaced = metrics.RENAMED.get(task, ("", ""))
    return {
        words.replace(*replaced): writers.get(form, form.format)(values[name])
        for name, (words, form) in metrics.SHOWN.items()
        if name in values
    }


def _ended_early(error: BaseException | None) -> Ending:
    """Return the ending of a job that its own process ended because of `error`, or of one that was never created."""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return STOPPED
    return failed(Cause.BAD_INPUT if isinstance(error, BadInput) else Cause.ERROR, str(error or ""))


def _above_worst_case(plan: Plan, bill: Bill, workplace: Workplace) -> float:
    """Return how many dollars a billed job cost beyond its worst case; 0 if none, or if a price is unknown."""
    worst_usd = plan.limits.worst_usd
    over_usd = 0.0 if worst_usd is None else (bill.cost_usd or 0.0) - worst_usd
    return over_usd if workplace.launcher.traits.is_billed and over_usd > ROUNDING_USD else 0.0


def _with_log(outcome: JobOutcome, job: Job) -> JobOutcome:
    """Return the outcome with the log lines that led to a failure, without those that torchrun prints after them."""
    ending = outcome.ending
    log = [] if ending.cause is Cause.DISK_FULL else job.log_tail(_READ_LINES)  # the log would show nothing more
    with_reason = (number for number, line in enumerate(log, 1) if ending.sentence and ending.sentence in line)
    end = max(with_reason, default=len(log))
    reason = outcome.reason or "it was stopped from outside"
    return replace(outcome, reason=reason, log=log[:end][-_SHOWN_LINES:], log_location=job.log_location())


def close_run(
    record: JobRecord, outcome: JobOutcome, profile: Mapping[str, bytes], tags: Mapping[str, str | None]
) -> JobOutcome:
    """Close and fill the run, and return the outcome with the model's address in MLflow.

    If the record of a completed job has gaps, a tag of the run says so.
    """
    run, report, model_uri = record.run, outcome.report, ""
    run.has_gap = False  # writes that failed earlier are still waiting and are sent below
    # The run is ended before its state is set. If this process is killed in between, the state is still Running, and
    # `sync` returns to the run.
    is_closed = run.end(RUN_STATUS[outcome.state], outcome.ended_at)
    if not is_closed and run.undelete():
        outcome = replace(outcome, remarks=(*outcome.remarks, f"its run was deleted in MLflow: {RESTORED}"))
        run.has_gap = False
        is_closed = run.end(RUN_STATUS[outcome.state], outcome.ended_at)
    recorded = run.tags()
    values, card, kind = metrics.to_known_digits(outcome.metrics), outcome.card, outcome.offer.instance_type
    name = new_name(recorded, card, kind, record.former_metrics, values)
    if not outcome.reason and schema.FAILURE_REASON in recorded:
        if outcome.state is JobState.STOPPED and recorded.get(schema.STATE) == JobState.STOPPED.value:
            outcome = replace(outcome, reason=recorded[schema.FAILURE_REASON])  # of the process that stopped the job
        else:  # of an earlier command that wrote this run
            run.delete_tags(schema.FAILURE_REASON, schema.CAUSE)
    with run.later():
        if card.is_users:  # its own metrics may have the names of our facts
            run.log_metrics(values)
        else:
            run.log_results(values)
        if report is not None:
            _write_report(run, report)
        if profile:
            run.log_files(profile, PROFILE)
        if report is not None and outcome.has_completed and outcome.origin == "measured":
            run.flush()  # so that the run has the figures that the model shows
            model_uri = record_model(run, card, kind, report, outcome.model)
        has_gap = outcome.has_completed and (run.has_gap or record.is_uncollected)
        run.set_tags(
            {
                schema.STATE: outcome.state.value if is_closed else None,
                schema.RUN_NAME: name,
                schema.GAP: "true" if has_gap else "" if record.has_gap_tag else None,
                schema.FAILURE_REASON: outcome.reason or None,
                schema.CAUSE: None if outcome.ending.cause is None else outcome.ending.cause.value,
                schema.REMARKS: "; ".join(outcome.remarks) or ("" if schema.REMARKS in recorded else None),
                schema.VERDICT: "; ".join(outcome.verdicts) or None,
                schema.WATCHED_BY: "",
                **tags,
                **{f"{schema.PREFIX}{name}": text for name, text in outcome.facts.items()},
                # A project may have written a note of its own.
                schema.NOTE: None if card.kind == "project" and recorded.get(schema.NOTE) else outcome.note(),
            }
        )
    run.flush()
    return replace(outcome, model_uri=model_uri, has_gap=run.has_gap or record.is_uncollected)


def _profile(job: Job) -> tuple[Mapping[str, bytes], str]:
    """Return the files of the job's profile, and a one-line summary or the reason why there is none."""
    try:
        files = job.profile()
        summary = printable(str(parse_json(files[PROFILE_JSON], lax=True)["summary"]))
    except LostContact as error:
        return {}, f"the profile is not recorded: {error}"
    except (KeyError, TypeError, ValueError):
        return {}, "the job wrote no profile: it continued from a checkpoint near its end, or its log shows why"
    return files, f"profile: {summary}; more in {PROFILE}/profile.md of the run"


def _write_report(run: Run, report: JobReport) -> None:
    run.log_text(report.model_dump_json(indent=2), "report.json")
    if report.confusion_matrix:
        run.log_figure(confusion_figure(report), "confusion_matrix.png")
        run.log_text(classification_report(report), "classification_report.txt")
    elif len(report.labels) > MOST_CLASSES_IN_MATRIX and not report.label_counts:
        rule = f"There is no confusion matrix for more than {MOST_CLASSES_IN_MATRIX:,} classes, and no report per class"
        run.log_text(f"{rule}: this job has {len(report.labels):,} classes.\n", "classification_report.txt")
    if report.label_counts:
        run.log_text(label_table(report), "label_report.csv")
    used = {name: str(report.facts[name]) for name in ("precision", "device") if name in report.facts}
    versions = [f"{name} {report.facts[name]}" for name in _VERSIONS if name in report.facts]
    run.set_tags({f"{schema.PREFIX}used_{name}": text for name, text in used.items()})
    sources = sources_without_bill(str(report.facts.get("metrics_from", "")))
    run.set_tags({schema.USED_VERSIONS: ", ".join(versions) or None, schema.METRICS_FROM: sources or None})


def sources_without_bill(sources: str) -> str:
    """Remove metrics of the bill, which no script knows, from a text like `MLflow: f1, cost_usd; printed: loss`."""
    parts = (part.partition(": ") for part in sources.split("; "))
    kept = [
        (source, [name for name in names.split(", ") if metrics.may_be_of_a_job(name)]) for source, _, names in parts
    ]
    return "; ".join(f"{source}: {', '.join(names)}" for source, names in kept if any(names))


def failure_message(card: Card, ending: Ending, why_not_smaller: str) -> str:
    """Return why a job failed and what to do about it; "" if it completed or was stopped on request.

    `why_not_smaller` names the per-device batch that ran out of memory, and the reason why no smaller one is tried.
    """
    cause, reason = ending.cause, ending.sentence
    if cause is None or (advice := card.advice.get(cause)) is None:
        return reason
    if cause is Cause.OUT_OF_MEMORY and card.kind != "project":
        after = f", {why_not_smaller}" if why_not_smaller else ""
        return f"out of memory{after}: {advice} ({reason})"
    return f"{reason}{' without printing anything' * (cause is Cause.SILENT)}: {advice}"


def script_remarks(card: Card, report: JobReport | None) -> list[str]:
    """Return remarks on a user's own training: which metrics are NaN or infinite, and how to report missing ones."""
    if report is None or not card.is_users:
        return []
    lost = ", ".join(report.not_finite)
    remarks = []
    if lost:
        remedy = "if the training has diverged, lower its learning rate; otherwise check how it computes the metric"
        remarks.append(f"not recorded, because the last value was NaN or infinite: {lost}; {remedy}")
    if own := sorted(set(re.findall(r"\bparetune\.[^\s,;]+", str(report.facts.get("metrics_from", ""))))):
        remarks.append(
            f"not recorded, because names that begin with paretune. are its own: {', '.join(own)}; rename them"
        )
    remarks.extend(_about_models(report.facts))
    if thinned := str(report.facts.get("thinned", "")):
        remarks.append(f"too many values for a curve, so that only every second one or fewer are recorded: {thinned}")
    if left_out := int(report.facts.get("names_left_out", 0)):
        kept = "names that differ from others only in numbers are left out first; metric_definitions keeps a name"
        remarks.append(
            f"{left_out:,} more names of printed numbers are not recorded, because there are too many: {kept}"
        )
    if card.kind == "project":
        no_metric = f"the command has reported no metric: {ADD_A_METRIC}, {_DEFINITION} (looked in {LOGGERS})"
        return remarks if report.metrics or lost else [*remarks, no_metric]
    evaluated, of_training = ("eval", "val_", "valid", "test"), ("train_", "throughput_")
    names = [*report.metrics, *report.not_finite]
    others = (name for name in names if "loss" not in name or name.startswith(evaluated))
    if any(not name.startswith(of_training) for name in others):
        return remarks
    looked = f"(looked in {LOGGERS})"
    if "train_runtime" in names:  # of Hugging Face's Trainer
        switches = options(training_arguments=json.dumps({"do_train": True, "do_eval": True}))
        advice = f"Hugging Face's examples evaluate with {switches}; for any other metric, {ADD_A_METRIC}"
    else:
        advice = f"{ADD_A_METRIC}, {_DEFINITION}"
    kind = "metric of an evaluation" if names else "metric"
    return [*remarks, f"{card.code} has reported no {kind}: {advice} {looked}"]


def _about_models(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield which model files of a user's training are in its run, and why others are not."""
    off = options(keep_models="false")
    kept, large, shared, fault = (str(facts.get(f"models{end}", "")) for end in ("", "_left_out", "_shared", "_fault"))
    if kept:
        yield f"its model files are in the run, in {MODELS}/: {kept} ({off} keeps none)"
    if large:
        limit = f"the model files of a run may have {LARGEST_MODELS // 2**20} MiB"
        yield f"not kept, because {limit}: {large}; the next job may overwrite them"
    if shared:
        remedy = "let each job save into a folder of its own, or run them one after another"
        yield f"not kept, because another job that ran at the same time may have written it: {shared}; {remedy}"
    if fault:
        yield f"its model files could not be kept ({fault})"
    if fault := str(facts.get("metrics_fault", "")):
        yield f"its metrics could not be read ({fault})"


def _verdicts(card: Card, data_facts: Mapping[str, float], report: JobReport) -> list[str]:
    """Return what to know of the model, or of the metric that a user's training has reported in several passes."""
    if passes := str(report.facts.get("passes", "")) if card.is_users else "":
        return [f"{passes} over its steps (folds, ranks or restarts); the last value counts"]
    return verdicts(card, {**data_facts, **report.metrics})


def verdicts(card: Card, values: Mapping[str, float]) -> list[str]:
    """Return a warning if a completed job's model is no better than a constant answer, or worse than a simple baseline.

    `values` has the job's metrics and the baselines of its data. The simple baseline is logistic regression on TF-IDF
    or, for token classification, the most frequent label of each word. If F1 is below this baseline by less than the
    standard error of F1 on the validation rows, the warning says that it is unknown whether the model is better.
    Scripts and projects are not judged, because they compute F1 themselves.
    """
    if (judge := card.judge) is None or (measured := values.get(judge.quality)) is None:
        return []
    counted, trivial = (values.get(name or "") for name in (judge.baseline, judge.trivial))
    rows = int(values.get("validation_rows", 0))
    if trivial is not None and measured <= trivial:
        name, baseline, meaning = judge.trivial, trivial, "the model has learned nothing"
    elif counted is not None and measured < counted:
        name, baseline, meaning = judge.baseline, counted, "the model is no better than a simple baseline"
        if rows > 0 and counted - measured < binomial_error(measured, rows):
            meaning = "it is unknown whether the model is better than a simple baseline"
    else:
        return []
    (words,) = _metrics_in_words({str(name): baseline}, card.task)
    comparison = f"no better than {baseline:.4f} on the same rows ({words})"
    return [f"F1 {measured:.4f} is {comparison}: {meaning}; try {', '.join(judge.remedies)}"]
