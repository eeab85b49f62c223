"""What a recurring training writes to MLflow: one run for all its nights, with their table and a picture of dollars."""

from collections.abc import Mapping, Sequence
from typing import Any

from paretune.commands.recur.answer import COLUMNS, RecurResult, night_rows
from paretune.commands.recur.file import RecurFile
from paretune.commands.recur.history import Night
from paretune.core.result import Row, csv_text
from paretune.jobs.workplace import Workplace
from paretune.presentation.picture import Picture, style
from paretune.specification import metrics
from paretune.specification.parameters import spell
from paretune.tracking import RunStatus, Tracking, schema, ui_view

TABLE_FILE, PICTURE_FILE = "nights.csv", "nights.png"
_KIND, _DRIVER = "recur", "recur driver"


class RecurRunWriter:
    """Writes the run of all nights, the one that an earlier night has opened.

    `own` is the store as this command sees it, with the run that `mlflow run` has opened for it.
    """

    def __init__(self, file: RecurFile, own: Tracking, workplace: Workplace) -> None:
        self._file = file
        self._tracking = workplace.tracking
        condition = f"tags.`{schema.RECUR}` = '{file.name}' and tags.`{schema.KIND}` = '{_KIND}'"
        there = self._tracking.runs(condition)
        tags = {schema.KIND: _KIND, schema.RECUR: file.name, schema.ORIGIN: workplace.launcher.origin}
        name = f"recurring {file.name}"
        self._run = self._tracking.run(there[-1].run_id) if there else self._tracking.create(name, tags)
        self.run_id = self._run.run_id
        if own.opened_run_id() is not None:
            own.begin(f"{name}, {file.night}").set_tags({schema.KIND: _DRIVER, schema.STUDY_RUN: self.run_id})

    def finish(
        self,
        nights: Sequence[Night],
        tonight: Night,
        default_usd: Mapping[str, float],
        registered: str,
        *,
        is_met: bool,
    ) -> RecurResult:
        """Write table, picture and totals; the night's result with them."""
        rows = night_rows(nights, default_usd)
        self._run.log_text(csv_text(COLUMNS, rows), TABLE_FILE)
        self._run.log_figure(picture(self._file.name, rows).figure(), PICTURE_FILE)
        saved = [row["saved_usd"] for row in rows if isinstance(row["saved_usd"], float)]
        figures = {metrics.COST_USD: sum(night.usd for night in nights), "nights": float(len(nights))}
        figures |= {"saved_usd": saved[-1]} if saved else {}
        self._run.log_metrics(figures)
        self._run.log_text("".join(f"{name}: {text}\n" for name, text in _said(self._file).items()), "recurring.yaml")
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


def _said(file: RecurFile) -> dict[str, str]:
    """What the file says, in one line each."""
    said = {"name": file.name, "floor": f"{{{file.metric}: {file.floor:g}}}"}
    said |= {"max_cost_usd": f"{file.max_cost_usd:g}"} if file.max_cost_usd is not None else {}
    job = ", ".join(f"{name}: {spell(value)}" for name, value in file.job.items())
    search = ", ".join(f"{name}: {entry.as_json()}" for name, entry in file.search.items())
    return said | {"job": f"{{{job}}}", "search": f"{{{search}}}"}


def picture(name: str, rows: Sequence[Row]) -> Picture:
    """Dollars of each night beside those of the default."""
    title = f"Dollars of each night: {name}"

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        numbers = range(1, len(rows) + 1)
        axes.bar(numbers, [_usd(row, "usd") for row in rows], color="#56B4E9", label="first training")
        rest = [max(0.0, _usd(row, "spent_usd") - _usd(row, "usd")) for row in rows]
        axes.bar(numbers, rest, bottom=[_usd(row, "usd") for row in rows], color="#D55E00", label="trained again")
        known = [(at, _usd(row, "default_usd")) for at, row in zip(numbers, rows, strict=True) if row["default_usd"]]
        if known:
            axes.plot(*zip(*known, strict=True), label="the default (estimated)", markersize=4, **style(4))
        axes.set_xlabel("night")
        axes.set_ylabel("USD")
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

    return Picture(name="nights", title=title, caption="", draw=draw)


def _usd(row: Row, column: str) -> float:
    value = row[column]
    return value if isinstance(value, float) else 0.0
