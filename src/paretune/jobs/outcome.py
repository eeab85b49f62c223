"""How a job has ended: everything that is recorded, billed and shown of it, and the note above its run in MLflow."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.core.commands import command_line
from paretune.core.errors import JobFailed, OutOfMemory
from paretune.core.result import Result, Row, as_json, value_of
from paretune.core.untrusted import code_span, markdown
from paretune.estimating.noise import binomial_error
from paretune.jobs.record import params_of, run_name
from paretune.launchers.base import JobState, WarmPoolStatus
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.container import FailureKind, JobReport
from paretune.specification.job import JobSpec

if TYPE_CHECKING:
    from pandas import DataFrame

# Columns that every job has; parameters that were set follow.
_COLUMNS = (
    *("instance_type", "instance_count", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("global_batch_size", "learning_rate", "scaled_learning_rate"),
)
_MOST_SHOWN = 8  # metrics of a user's own training in the printed table


@dataclass(frozen=True, kw_only=True)
class JobOutcome(Result):
    """A job that has ended: what it measured, what it cost, where it is recorded, and why it has no result.

    Attributes:
        job_name: its name for the launcher, SageMaker's for a job there; empty if none was created.
        metrics: name to value, named as in MLflow; a metric that was not measured is absent.
        price: price of one instance; None if it is unknown, and then cost_usd is absent.
        model: where the files of the model are: a folder, or an S3 URI.
        model_uri: address of the model in MLflow; empty if MLflow has none.
        kept_usd: the most that instances kept after it can still cost; None if none are kept, or the price is unknown.
        has_gap: MLflow did not take everything, so the run is incomplete; the job's own files are complete.
        remarks: sentences on what the record lacks and why.
        verdicts: sentences on the model.
        reason: why it has no result, in words; `failure` is the kind and the job's own reason.
        over_bound_usd: dollars that it cost beyond its worst case.
        ran: the job on the instances of its last attempt; None for those of `spec`.
        facts: what the launcher tells of a job, such as `basis`, where a simulated job's figures come from.
        log: the last lines that a failed job printed; all of its log is at `log_location`.
    """

    run_id: str
    job_name: str
    state: JobState
    metrics: Mapping[str, float]
    price: Price | None = None
    spec: JobSpec = field(default_factory=JobSpec)
    ran: JobSpec | None = None
    origin: str = "measured"
    reason: str = ""
    failure: tuple[FailureKind, str] | None = None
    report: JobReport | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    model_uri: str = ""
    open_command: str = ""
    pool: WarmPoolStatus | None = None
    kept_usd: float | None = None
    over_bound_usd: float = 0.0
    has_gap: bool = False
    remarks: Sequence[str] = ()
    verdicts: Sequence[str] = ()
    log: Sequence[str] = ()
    log_location: str = ""

    @property
    def has_completed(self) -> bool:
        """Whether the job has a result."""
        return self.state is JobState.COMPLETED

    def result(self) -> "JobOutcome":
        """The finished job; raises JobFailed or OutOfMemory if it has no result, and then its run says why."""
        if not self.has_completed:
            raise self.error()
        return self

    def error(self) -> JobFailed:
        """The error that says why the job has no result."""
        is_out_of_memory = self.failure is not None and self.failure[0] is FailureKind.OUT_OF_MEMORY
        error = OutOfMemory if is_out_of_memory else JobFailed
        return error(self.job_name, self.reason, list(self.log), self.log_location)

    @property
    def params(self) -> Mapping[str, str]:
        """The parameters of its run, as text."""
        return params_of(self.spec)

    @property
    def title(self) -> str:
        """`job NAME`, or `simulated job NAME`."""
        return f"{'job' if self.origin == 'measured' else f'{self.origin} job'} {self.job_name}"

    def rows(self) -> list[Row]:
        """One row: ids, cluster, batch and rate, every parameter that was set, every metric."""
        first = _COLUMNS if self.spec.project is None else (*_COLUMNS[:2], "entry_point")
        names = dict.fromkeys([*first, *self.spec.changed()])
        params = {name: value_of(self.params.get(name, "")) for name in names}
        return [{"run_id": self.run_id, "job_name": self.job_name, "origin": self.origin, **params, **self.metrics}]

    def to_dict(self) -> dict[str, object]:
        """Ids, params, metrics and the row of the price list."""
        return {
            "run_id": self.run_id,
            "job_name": self.job_name,
            "origin": self.origin,
            "basis": self.facts.get("basis"),
            "params": {name: value_of(text) for name, text in self.params.items()},
            "metrics": as_json(self.metrics),
            "price": as_json(asdict(self.price)) if self.price is not None else None,
            "kept_usd": self.kept_usd,
            "model": self.model,
            "model_uri": self.model_uri or None,
            "open_command": self.open_command,
            "has_gap": self.has_gap,
            "remarks": [*self.remarks, *self.verdicts],
        }

    def notes(self) -> list[str]:
        """The address of the run, gaps of its record, and verdicts on the model."""
        gap = (
            "MLflow did not take everything: this run's record has gaps, and the job's own files are complete; "
            f"`{command_line('sync')}` fills the gaps"
        )
        return [*filter(None, [self.open_command, gap if self.has_gap else ""]), *self.remarks, *self.verdicts]

    def __str__(self) -> str:
        """The table at the end of a job: quality against baselines, speed, seconds, cost, and where to look."""
        rows = self._quantities()
        width = max(len(name) for name in rows)
        lines = [f"  {name:<{width}}  {value}" for name, value in rows.items()]
        lines += ["", *(f"  {note}" for note in self.notes())] if self.notes() else []
        return "\n".join(["", self.title, *lines])

    def _shown(self) -> "DataFrame":
        import pandas

        return pandas.DataFrame(list(self._quantities().items()), columns=["", "value"])

    def _quantities(self) -> dict[str, str]:
        """The rows of the printed table, in order: first what a training of the user's own has logged."""
        ours = {"test_f1", *(text for text in vars(metrics).values() if isinstance(text, str))}
        own = [name for name in self.metrics if name not in ours] if self.spec.runs_own_training else []
        rows = {name: f"{self.metrics[name]:.6g}" for name in own[:_MOST_SHOWN]}
        rows |= metrics.in_words({metrics.COST_USD: 0.0, **self.metrics}, self.spec.task)
        rows["cost"] = "unknown: no price"
        if self.price is not None and metrics.COST_USD in self.metrics:
            source = self.price.source.partition(";")[0]
            rows["cost"] = f"{self.metrics[metrics.COST_USD]:.5f} USD ({source}, {self.price.stated})"
        where = {self.origin: self.facts.get("basis", ""), "model": self.model.removeprefix(f"{Path.cwd()}/")}
        where["model in MLflow"] = self.model_uri
        return rows | {name: text for name, text in where.items() if text}

    def note(self) -> str:
        """Markdown with quality and cost in its first line, the job and its figures, verdicts, and how to repeat it."""
        ending = "" if self.has_completed else f"**{self.state.value}**" + (f": {self.reason}" if self.reason else "")
        kind = "" if self.origin == "measured" else f"**{self.origin.capitalize()}**, nothing was trained: "
        usd, ran = self.metrics.get(metrics.COST_USD), self.ran or self.spec
        dollars = "" if usd is None else f"**{usd:.4g} USD**"
        cluster = f"{ran.instance_count} × {ran.instance_type}" if self.spec.has_instances else "this machine"
        figures = {name: text for name, text in self._quantities().items() if name not in ("model", "model in MLflow")}
        model = [f"- model: {code_span(self.model)}"] if self.model else []
        quotes = "\n>\n".join(f"> **{sentence}**" for sentence in self.verdicts)
        # The command is no block of code: that does not wrap, and widens MLflow's page.
        parts = [
            "; ".join(filter(None, [markdown(ending), self._quality(), dollars])),
            markdown(f"{run_name(self.spec)} on {cluster}"),
            "\n".join([*(f"- {markdown(f'{name}: {text}')}" for name, text in figures.items()), *model]),
            markdown(quotes),
        ]
        return kind + "\n\n".join([*filter(None, parts), f"Again: {code_span(self.spec.command())}"])

    def _quality(self) -> str:
        """F1 with the standard error of its validation rows, or perplexity."""
        f1, perplexity = self.metrics.get(metrics.F1), self.metrics.get(metrics.PERPLEXITY)
        if f1 is None:
            return "" if perplexity is None else f"perplexity **{perplexity:.2f}**"
        rows = int(self.metrics.get("validation_rows", 0))
        return f"F1 **{f1:.3f}**" + (f" ± {binomial_error(f1, rows):.3f} on {rows:,} validation rows" if rows else "")
