"""The result of a night, the table of all nights, and their MLflow run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paretune.commands.recur.file import RecurFile
from paretune.commands.recur.history import CHANCE, RETRAIN, TRY, Night
from paretune.core.result import Result, Row, as_json, csv_text
from paretune.jobs.workplace import Workplace
from paretune.presentation.numbers import plain, usd
from paretune.presentation.picture import Picture, style
from paretune.specification import metrics
from paretune.specification.parameters import spell
from paretune.tracking import RunStatus, Tracking, schema, ui_view

COLUMNS = (
    *("night", "point", "chance_of_missing", "value", "usd", "retrain_point", "retrain_value", "retrain_usd"),
    *("returned_run_id", "returned_value", "meets_floor", "spent_usd", "default_usd", "saved_usd"),
)
"""Columns of nights.csv. `value` and `usd` are the try's. If a night trained again more than once, `retrain_point` and
`retrain_value` are the last one's, `retrain_usd` the sum. `saved_usd` is the sum up to and including this night."""
TABLE_FILE, PICTURE_FILE = "nights.csv", "nights.png"
_KIND, _DRIVER = "recur", "recur driver"
_A_CENT = 0.005  # USD, rounded


def night_rows(nights: Sequence[Night], default_usd: Mapping[str, float]) -> list[Row]:
    """A row for each night; `default_usd` has the estimated dollars of the default point for each night."""
    rows: list[Row] = []
    saved = 0.0
    for night in nights:
        first = next(iter(night.parts(TRY)), None)
        last = next(reversed(night.parts(RETRAIN)), None)
        returned = night.returned
        is_over = returned is not None or (last is not None and last.has_ended)
        saved += default_usd[night.name] - night.usd if is_over else 0.0
        row: Row = dict.fromkeys(COLUMNS)
        row |= {"night": night.name, "spent_usd": night.usd}
        if first is not None:
            chance = first.forecast.get(CHANCE)
            row |= {"point": first.setting, "chance_of_missing": chance, "value": first.value, "usd": first.usd}
        if last is not None:
            retrain_usd = sum(job.usd or 0.0 for job in night.parts(RETRAIN))
            row |= {"retrain_point": last.setting, "retrain_value": last.value, "retrain_usd": retrain_usd}
        if returned is not None:
            row |= {"returned_run_id": returned.run_id, "returned_value": returned.value}
        if is_over:
            row |= {"meets_floor": returned is not None}
            row |= {"default_usd": default_usd[night.name], "saved_usd": saved}
        rows.append(row)
    return rows


@dataclass(frozen=True, kw_only=True)
class RecurResult(Result):
    """One night, and all nights so far."""

    name: str
    metric: str  # the metric that the floor limits
    floor: float
    night: Night
    is_met: bool  # whether the night has a model that meets the floor as it is now
    nights: Sequence[Row] = field(default_factory=list)  # the rows of nights.csv, the oldest night first
    run_id: str  # the MLflow run of all nights
    open_command: str
    registered: str = ""  # the outcome of registering the returned model; empty if that was not requested

    @property
    def title(self) -> str:
        """The night and the recurring training."""
        return f"night {self.night.name} of {self.name}"

    def rows(self) -> list[Row]:
        """The rows of nights.csv."""
        return list(self.nights)

    def to_dict(self) -> dict[str, object]:
        """The night, its jobs, and all nights."""
        returned = self.night.returned
        jobs = [
            {
                **{
                    name: getattr(job, name)
                    for name in ("run_id", "part", "point", "state", "value", "usd", "returned")
                },
                **job.forecast,
                "reason": job.reason or None,
            }
            for job in self.night.jobs
        ]
        document = {
            "name": self.name,
            "night": self.night.name,
            "metric": self.metric,
            "floor": self.floor,
            "meets_floor": self.is_met,
            "returned_run_id": None if returned is None else returned.run_id,
            "returned_value": None if returned is None else returned.value,
            "spent_usd": self.night.usd,
            "jobs": jobs,
            "nights": list(self.nights),
            "run_id": self.run_id,
            "open_command": self.open_command,
            "registered": self.registered or None,
        }
        return {name: as_json(value) for name, value in document.items()}

    def notes(self) -> list[str]:
        """The savings, the registered model, and where to look."""
        tonight = next((row for row in self.nights if row["night"] == self.night.name), {})
        saved, spent = tonight.get("saved_usd"), sum(float(str(row["spent_usd"] or 0)) for row in self.nights)
        nights = f"{len(self.nights)} night{'s' if len(self.nights) > 1 else ''}: {usd(spent)}"
        if isinstance(saved, float):
            difference = f"about {usd(abs(saved))} {'less' if saved > 0 else 'more'} than"
            nights += f", {difference if abs(saved) >= _A_CENT else 'as'} the default every night (estimated)"
        return [nights, *filter(None, [self.registered]), self.open_command]

    def __str__(self) -> str:
        """The jobs of the night, its model, and what all nights cost."""
        lines = ["", self.title]
        for job in self.night.jobs:
            value = f"{job.state.lower() or job.part}" if job.value is None else f"{self.metric} {plain(job.value, 4)}"
            cost = "" if job.usd is None else f", {usd(job.usd)}"
            chance = job.forecast.get(CHANCE)
            reason = "" if chance is None else f"; its chance of missing {plain(self.floor, 4)} was {chance:.1%}"
            lines.append(f"  {job.part}: {job.setting}: {value}{cost}{reason}")
        returned = self.night.returned
        if unmeasured := [job for job in self.night.jobs if job.is_unmeasured]:
            lines.append(f"  run {unmeasured[-1].run_id} has logged no {self.metric}, which the floor is about")
        if returned is None:
            lines.append(f"  no model of this night meets {self.metric} {plain(self.floor, 4)}: none is returned")
        else:
            later = "" if self.is_met else f"; it misses {self.metric} {plain(self.floor, 4)}, the floor as it is now"
            lines.append(f"  returned: the model of run {returned.run_id}{later}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes())])


class RecurRunWriter:
    """Writes the MLflow run of all nights, which the first night opens.

    `process_tracking` is the store as this process sees it, with the run that `mlflow run` has opened for it.
    """

    def __init__(self, file: RecurFile, process_tracking: Tracking, workplace: Workplace) -> None:
        self._file = file
        self._tracking = workplace.tracking
        condition = f"tags.`{schema.RECUR}` = '{file.name}' and tags.`{schema.KIND}` = '{_KIND}'"
        runs = self._tracking.runs(condition)
        tags = {schema.KIND: _KIND, schema.RECUR: file.name, schema.ORIGIN: workplace.launcher.origin}
        name = f"recurring {file.name}"
        self._run = self._tracking.run(runs[-1].run_id) if runs else self._tracking.create(name, tags)
        self.run_id = self._run.run_id
        if process_tracking.opened_run_id() is not None:
            process_tracking.begin(f"{name}, {file.night}").set_tags(
                {schema.KIND: _DRIVER, schema.STUDY_RUN: self.run_id}
            )

    def finish(
        self,
        nights: Sequence[Night],
        tonight: Night,
        default_usd: Mapping[str, float],
        registered: str,
        *,
        is_met: bool,
    ) -> RecurResult:
        """Write table, picture and totals; returns the night's result."""
        rows = night_rows(nights, default_usd)
        self._run.log_text(csv_text(COLUMNS, rows), TABLE_FILE)
        self._run.log_figure(picture(self._file.name, rows).figure(), PICTURE_FILE)
        saved = [row["saved_usd"] for row in rows if isinstance(row["saved_usd"], float)]
        figures = {metrics.COST_USD: sum(night.usd for night in nights), "nights": float(len(nights))}
        figures |= {"saved_usd": saved[-1]} if saved else {}
        self._run.log_metrics(figures)
        self._run.log_text(
            "".join(f"{name}: {text}\n" for name, text in _file_lines(self._file).items()), "recurring.yaml"
        )
        self._run.end(RunStatus.FINISHED)
        return RecurResult(
            name=self._file.name,
            metric=self._file.metric,
            floor=self._file.floor,
            night=tonight,
            is_met=is_met,
            nights=rows,
            run_id=self.run_id,
            open_command=self._tracking.open_command(self.run_id, ui_view.ALL_RUNS),
            registered=registered,
        )


def _file_lines(file: RecurFile) -> dict[str, str]:
    """One line for each key of recurring.yaml."""
    lines = {"name": file.name, "floor": f"{{{file.metric}: {file.floor:g}}}"}
    lines |= {"max_cost_usd": f"{file.max_cost_usd:g}"} if file.max_cost_usd is not None else {}
    job = ", ".join(f"{name}: {spell(value)}" for name, value in file.job.items())
    search = ", ".join(f"{name}: {entry.as_json()}" for name, entry in file.search.items())
    return lines | {"job": f"{{{job}}}", "search": f"{{{search}}}"}


def picture(name: str, rows: Sequence[Row]) -> Picture:
    """Dollars of each night beside those of the default point."""
    title = f"Dollars of each night: {name}"

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        numbers = range(1, len(rows) + 1)
        axes.bar(numbers, [_usd(row, "usd") for row in rows], color="#56B4E9", label="first training")
        rest = [max(0.0, _usd(row, "spent_usd") - _usd(row, "usd")) for row in rows]
        axes.bar(numbers, rest, bottom=[_usd(row, "usd") for row in rows], color="#D55E00", label="trained again")
        default = [(number, _usd(row, "default_usd")) for number, row in zip(numbers, rows, strict=True)]
        if default := [(number, dollars) for number, dollars in default if dollars]:
            axes.plot(*zip(*default, strict=True), label="the default (estimated)", markersize=4, **style(4))
        axes.set_xlabel("night")
        axes.set_ylabel("USD")
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

    return Picture(name="nights", title=title, caption="", draw=draw)


def _usd(row: Row, column: str) -> float:
    value = row[column]
    return value if isinstance(value, float) else 0.0
