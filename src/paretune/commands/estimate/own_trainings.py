"""Estimates of trainings of the user's own: seconds and dollars that finished runs tell, and nothing before one has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paretune.commands.estimate.table import PHASE_COLUMNS, phase_columns
from paretune.core.result import Result, Row, as_json, csv_text
from paretune.core.untrusted import markdown
from paretune.estimating.forecast import OwnTrainingTimes
from paretune.estimating.time_estimate import TimeEstimate
from paretune.presentation.table import Column, Table
from paretune.pricing.prices import Price
from paretune.specification.job import JobSpec
from paretune.tracking import schema

if TYPE_CHECKING:
    from paretune.tracking import Tracking

_UNKNOWN = "nothing known: run one"
_COLUMNS = (
    *("instance_type", "instance_count", "seconds", "seconds_low", "seconds_high"),
    *("cost_usd", "cost_usd_low", "cost_usd_high", "basis", "project", "entry_point", "entry_script"),
    *PHASE_COLUMNS,
)


def _interval(estimate: TimeEstimate) -> str:
    return f"{estimate.time.seconds_low:.0f} to {estimate.time.seconds_high:.0f}"


_Job = tuple[JobSpec, TimeEstimate | None]
_TABLE: Sequence[Column[_Job]] = (
    Column("instance_type", lambda job: job[0].instance_type),
    Column("count", lambda job: job[0].instance_count),
    Column("seconds", lambda job: job[1].time.seconds if job[1] else None, ".0f"),
    Column("80 % interval", lambda job: _interval(job[1]) if job[1] else None),
    Column("USD", lambda job: job[1].cost_usd if job[1] else None, ".3g"),
    Column("basis", lambda job: job[1].basis if job[1] else _UNKNOWN),
)


@dataclass(frozen=True, kw_only=True)
class OwnEstimates(Result):
    """Estimates of jobs of the user's own trainings, one row each; without seconds and dollars where none has run."""

    jobs: Sequence[_Job]  # each with its estimate, None where nothing is known
    run_id: str
    open_command: str

    @property
    def title(self) -> str:
        """Says that nothing of it has run."""
        return "estimated, none of these has run"

    def rows(self) -> list[Row]:
        """One row per job; seconds are billable seconds per instance, low and high bound 80 % intervals."""
        return [_row(spec, expected) for spec, expected in self.jobs]

    def to_dict(self) -> dict[str, object]:
        """Run, rows and remarks."""
        rows = as_json(self.rows())
        return {"run_id": self.run_id, "rows": rows, "remarks": self.notes()[:-1], "open_command": self.open_command}

    def notes(self) -> list[str]:
        """Sentences on how to improve the estimates, and where to look."""
        remarks = []
        if any(expected is None for _, expected in self.jobs):
            remarks.append(
                "seconds of a training of your own are learnt from its runs on each cluster: run one job, or a study"
            )
        return [*remarks, self.open_command]

    def __str__(self) -> str:
        """The table for a terminal with remarks."""
        return "\n".join([Table.of(_TABLE, self.jobs).text(), "", self.title, *self.notes()])


def estimate_own(
    specs: Sequence[JobSpec], prices: Sequence[Price | None], tracking: "Tracking", machine: str
) -> OwnEstimates:
    """The estimates of these jobs from what the store holds, recorded as a run."""
    from paretune.tracking import RunStatus

    learnt = OwnTrainingTimes.collect(tracking, machine)
    jobs = [(spec, learnt.predict(spec, price)) for spec, price in zip(specs, prices, strict=True)]
    run = tracking.begin("estimate")
    sentences = [
        f"{spec.instance_count} x {spec.instance_type}: {estimate.sentence()}"
        for spec, estimate in jobs
        if estimate is not None
    ]
    note = "\n\n".join(sentences[:4] or ["No run of this training has finished, so there is no estimate."])
    run.set_tags({schema.KIND: "estimate", schema.ORIGIN: schema.ESTIMATED, schema.NOTE: markdown(note)})
    rows = [_row(spec, expected) for spec, expected in jobs]
    run.log_text(csv_text(_COLUMNS, rows), "estimate.csv")
    run.end(RunStatus.FINISHED)
    return OwnEstimates(jobs=jobs, run_id=run.run_id, open_command=tracking.open_command(run.run_id))


def _row(spec: JobSpec, estimate: TimeEstimate | None) -> Row:
    row: Row = dict.fromkeys(_COLUMNS)
    row |= {name: getattr(spec, name) for name in _COLUMNS if name in spec.as_text()} | {"basis": _UNKNOWN}
    if estimate is not None:
        time = estimate.time
        row |= {"seconds": time.seconds, "seconds_low": time.seconds_low, "seconds_high": time.seconds_high}
        row |= phase_columns(estimate.phases)
        row |= {"cost_usd": estimate.cost_usd, "basis": estimate.basis}
        row |= {"cost_usd_low": estimate.usd(time.seconds_low), "cost_usd_high": estimate.usd(time.seconds_high)}
    return row
