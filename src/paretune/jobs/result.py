"""The result of launching a job, and the note in Markdown that MLflow's UI shows above its run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.core.commands import command_line
from paretune.core.result import Result, Row, as_json, value_of
from paretune.core.untrusted import code_span, markdown
from paretune.estimating.noise import binomial_error
from paretune.pricing.prices import Price
from paretune.specification import metrics
from paretune.specification.inputs import BUNDLED
from paretune.specification.job import JobSpec

if TYPE_CHECKING:
    from pandas import DataFrame

# Columns that every job has; parameters that were set follow.
_COLUMNS = (
    *("instance_type", "instance_count", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("global_batch_size", "learning_rate", "scaled_learning_rate"),
)
_MOST_SHOWN = 8  # metrics of a user's own training in the printed table
_LONGEST_SOURCES = 500  # characters in a note; the tag has all


@dataclass(frozen=True, kw_only=True)
class JobResult(Result):
    """A finished job: what it measured, what it cost and where it is recorded.

    Attributes:
        job_name: its name for the launcher, SageMaker's for a job there.
        params: parameters of its run, as text.
        metrics: name to value, named as in MLflow; a metric that was not measured is absent.
        price: price of one instance; None if it is unknown, and then cost_usd is absent.
        model: where the files of the model are: a folder, or an S3 URI.
        model_uri: address of the model in MLflow; empty if MLflow has none.
        kept_usd: the most that instances kept after it can still cost; None if none are kept, or the price is unknown.
        has_gap: MLflow did not take everything, so the run is incomplete; the job's own files are complete.
        basis: where a simulated job's figures come from, in words.
        remarks: sentences on what the record lacks and why, and on the model.
    """

    run_id: str
    job_name: str
    metrics: Mapping[str, float]
    price: Price | None
    open_command: str
    model: str
    has_gap: bool
    model_uri: str = ""
    kept_usd: float | None = None
    spec: JobSpec = field(default_factory=JobSpec)
    params: Mapping[str, str] = field(default_factory=dict)
    origin: str = "measured"
    basis: str = ""
    remarks: Sequence[str] = ()

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
            "basis": self.basis or None,
            "params": {name: value_of(text) for name, text in self.params.items()},
            "metrics": as_json(self.metrics),
            "price": as_json(asdict(self.price)) if self.price is not None else None,
            "kept_usd": self.kept_usd,
            "model": self.model,
            "model_uri": self.model_uri or None,
            "open_command": self.open_command,
            "has_gap": self.has_gap,
            "remarks": list(self.remarks),
        }

    def notes(self) -> list[str]:
        """The address of the run, gaps of its record, and verdicts on the model."""
        gap = (
            "MLflow did not take everything: this run's record has gaps, and the job's own files are complete; "
            f"`{command_line('sync')}` fills the gaps"
        )
        return [*filter(None, [self.open_command, gap if self.has_gap else ""]), *self.remarks]

    def __str__(self) -> str:
        """The table at the end of a job: quality against baselines, speed, seconds, cost, and where to look."""
        rows = self._quantities()
        width = max(len(name) for name in rows)
        lines = [f"  {name:<{width}}  {value}" for name, value in rows.items() if value]
        lines += ["", *(f"  {note}" for note in self.notes())] if self.notes() else []
        return "\n".join(["", self.title, *lines])

    def _shown(self) -> "DataFrame":
        import pandas

        rows = [(name.strip(), value) for name, value in self._quantities().items() if value]
        return pandas.DataFrame(rows, columns=["", "value"])

    def _quantities(self) -> dict[str, str]:
        """The rows of the printed table, in order; an empty text for a quantity that is not known."""
        most_frequent = "set of labels" if self.spec.task == metrics.MULTI_LABEL else "class"
        return self._logged() | {
            f"F1 ({'entities' if self.spec.task == metrics.WORDS else 'macro'}, validation)": self._number(
                metrics.F1, ".4f"
            ),
            "  TF-IDF + logistic regression": self._number(metrics.BASELINE_TFIDF, ".4f"),
            f"  most frequent {most_frequent}": self._number(metrics.BASELINE_MAJORITY, ".4f"),
            "  most frequent label of each word": self._number(metrics.BASELINE_WORDS, ".4f"),
            "F1 (macro, test)": self._number("test_f1", ".4f"),
            "F1 (micro, validation)": self._number(metrics.F1_MICRO, ".4f"),
            "rows with all labels right": self._number(metrics.SUBSET_ACCURACY, ".1%"),
            "perplexity": self._number(metrics.PERPLEXITY, ".2f"),
            "throughput": self._number(metrics.THROUGHPUT_SAMPLES, ",.1f", " samples/s"),
            "training": self._number(metrics.TRAIN_SECONDS, ",.1f", " s"),
            "whole job": self._number(metrics.JOB_SECONDS, ",.1f", " s"),
            "cost": self._cost(),
            "truncated texts": self._number(metrics.TRUNCATED_SHARE, ".1%"),
            self.origin: self.basis,
            "model": self.model.removeprefix(f"{Path.cwd()}/"),
            "model in MLflow": self.model_uri,
        }

    def _logged(self) -> dict[str, str]:
        if not self.spec.runs_own_training:
            return {}
        recorded_names = {"test_f1", *(text for text in vars(metrics).values() if isinstance(text, str))}
        names = [name for name in self.metrics if name not in recorded_names]
        return {name: self._number(name, ".6g") for name in names[:_MOST_SHOWN]}

    def _number(self, name: str, form: str, unit: str = "") -> str:
        value = self.metrics.get(name)
        return "" if value is None else f"{value:{form}}{unit}"

    def _cost(self) -> str:
        value = self.metrics.get(metrics.COST_USD)
        if value is None or self.price is None:
            return "unknown: no price"
        return f"{value:.5f} USD ({self.price.source.partition(';')[0]}, {self.price.stated})"


def job_note(
    spec: JobSpec,
    values: Mapping[str, float],
    *,
    state: str,
    reason: str = "",
    origin: str = "measured",
    price: Price | None = None,
    model: str = "",
    verdicts: Sequence[str] = (),
    over_bound_usd: float = 0.0,
    ran: JobSpec | None = None,
    metrics_from: str = "",
) -> str:
    """Markdown with quality and cost in its first line, the job, verdicts, its model, and the command that repeats it.

    `values` are metrics of the job and of its data, `state` and `reason` how and why it ended, `model` is where the
    model is, `over_bound_usd` what it cost beyond its worst case, `ran` the job on the instances that it got, if they
    may differ from those of `spec`, `metrics_from` the sources of the numbers of a training of the user's own.
    """
    ending = "" if state == "Completed" else f"**{state}**" + (f": {reason}" if reason else "")
    answer = [part for part in (markdown(ending), _quality(values), _bill(values, price)) if part]
    kind = "" if origin == "measured" else f"**{origin.capitalize()}**, nothing was trained: "
    lines = [f"- {line}" for line in [_speed(values)] if line]
    if over_bound_usd:
        lines.append(f"- it cost {over_bound_usd:.4g} USD more than its worst case")
    if metrics_from:
        lines.append(f"- numbers from {code_span(metrics_from[:_LONGEST_SOURCES])}")
    if model:
        lines.append(f"- model: {code_span(model)}")
    quotes = [f"> **{sentence}**" for sentence in verdicts]
    # The command is no block of code: that does not wrap, and widens MLflow's page.
    summary = markdown(_summary(spec, values, ran or spec))
    parts = ["; ".join(answer), summary, "\n".join(lines), markdown("\n>\n".join(quotes))]
    return kind + "\n\n".join([*filter(None, parts), f"Again: {code_span(spec.command())}"])


def _summary(spec: JobSpec, values: Mapping[str, float], ran: JobSpec) -> str:
    plan = spec.plan()
    rows = values.get("train_rows")
    data = spec.dataset.removeprefix(BUNDLED) + (f" ({rows:,.0f} rows)" if rows is not None else "")
    cluster = f"{ran.instance_count} × {ran.instance_type}" if spec.has_instances else "this machine"
    if spec.project is not None:
        trained = f"the project **{Path(spec.project).name}**, entry point {spec.entry_point}"
        parameters = ", ".join(f"{name} {value}" for name, value in spec.project_parameters.items())
        settings = f"{parameters}, on {cluster}" if parameters else f"on {cluster}"
    else:
        trained = f"**{Path(spec.model).name.removeprefix(BUNDLED)}** on **{data}**"
        if spec.entry_script is not None:
            trained = f"the script **{Path(spec.entry_script).name}**"
        batch = f"{spec.fine_tuning} fine-tuning, global batch size {plan.global_batch_size}"
        settings = f"{batch}, learning rate {plan.learning_rate:.3g}, on {cluster}"
    return f"{trained}: {settings}."


def _quality(values: Mapping[str, float]) -> str:
    """F1 against baselines, with the standard error of its validation rows, or perplexity."""
    f1, rows = values.get(metrics.F1), values.get("validation_rows")
    if f1 is not None:
        error = ""
        if rows:
            size = binomial_error(f1, int(rows))
            error = f" on {rows:,.0f} validation rows (so few rows alone leave ± {size:.3f}; other seeds add to it)"
        baselines = {metrics.BASELINE_TFIDF: "TF-IDF", metrics.BASELINE_MAJORITY: "the most frequent class"}
        baselines |= {metrics.BASELINE_WORDS: "the most frequent label of each word"}
        parts = [f"{words} {values[name]:.3f}" for name, words in baselines.items() if name in values]
        return f"F1 **{f1:.3f}**{error}" + (f", against {' and '.join(parts)}" if parts else "")
    perplexity = values.get(metrics.PERPLEXITY)
    return "" if perplexity is None else f"perplexity **{perplexity:.2f}** on the validation rows"


def _bill(values: Mapping[str, float], price: Price | None) -> str:
    usd, seconds = values.get(metrics.COST_USD), values.get(metrics.JOB_SECONDS)
    parts = [] if seconds is None else [f"{seconds:,.0f} s"]
    if usd is not None and price is not None:
        kind = ", notional" if price.confidence == "notional" else ""
        parts.insert(0, f"**{usd:.4g} USD** ({price.stated}{kind})")
    return ", ".join(parts)


def _speed(values: Mapping[str, float]) -> str:
    rate = values.get(metrics.THROUGHPUT_SAMPLES)
    return "" if rate is None else f"{rate:,.1f} training samples per second"
