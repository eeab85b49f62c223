"""The MLflow run of a design, with its table and correlations, and its progress in the terminal."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paretune.commands.design.bill import Bill
from paretune.commands.design.plan import DesignPlan
from paretune.commands.design.table_study import ROW
from paretune.core.result import csv_text
from paretune.core.untrusted import markdown
from paretune.ledger.study_ledger import StudyLedger
from paretune.presentation.numbers import dollars, plain, usd
from paretune.presentation.picture import Picture
from paretune.specification import metrics
from paretune.studies.definition.objectives import OBJECTIVES
from paretune.studies.results.trials import Trial
from paretune.studies.search.driver import Driver
from paretune.studies.search.parent_run import ParentRun, without_payer
from paretune.tracking import Run, RunStatus, Tracking, schema, ui_view

TABLE_FILE, CORRELATION_FILE, CORRELATION_PICTURE = "design.csv", "correlation.csv", "correlation.png"
PENDING, NOT_RUN = "Pending", "NotRun"
"""Status of a row that has not ended, and of one that was passed over, for example because the budget was spent."""
_REPORTED = (metrics.F1, metrics.JOB_SECONDS)
_MOST_NUMBERS = 16  # columns of the picture that still hold numbers


def table_csv(plan: DesignPlan, bill: Bill, trials: Mapping[int, Trial], *, rest: str = PENDING) -> str:
    """The text of design.csv: a row for each run of the plan; empty cells for responses that were not measured.

    `trials` has the last trial of each run; a run without one has the status `rest`.
    """
    factors = list(dict.fromkeys(name for row in plan.rows for name in row.factors()))
    responses = _measured(plan, trials)
    columns = ["run", *factors, "global_batch_size", "num_train_epochs", "steps", "steps_deviation", "seed"]
    columns += ["run_id", "status", *responses, "estimated_seconds", "estimated_usd", "worst_usd", "origin"]
    return csv_text([*dict.fromkeys(columns)], table_rows(plan, bill, trials, rest=rest))


def table_rows(
    plan: DesignPlan, bill: Bill, trials: Mapping[int, Trial], *, rest: str = PENDING
) -> list[dict[str, object]]:
    """The rows of design.csv, with None for unknown values."""
    responses = _measured(plan, trials)
    rows: list[dict[str, object]] = []
    for row, cost in zip(plan.rows, bill.rows, strict=True):
        trial = trials.get(row.run)
        rows.append(
            {
                "run": row.run,
                **row.factors(),
                "global_batch_size": row.spec.plan().global_batch_size,
                "num_train_epochs": row.spec.num_train_epochs,
                "steps": row.job.steps,
                "steps_deviation": None if row.job.deviation is None else round(row.job.deviation, 6),
                "seed": row.spec.seed,
                "run_id": None if trial is None else trial.run_id,
                "status": rest if trial is None else trial.shown_status,
                **{name: None if trial is None else trial.values.get(name) for name in responses},
                "estimated_seconds": cost.seconds,
                "estimated_usd": cost.usd,
                "worst_usd": cost.worst_usd,
                "origin": None if trial is None else trial.origin,
            }
        )
    return rows


def _measured(plan: DesignPlan, trials: Mapping[int, Trial]) -> list[str]:
    """Responses that any row has; those of the user's own training come last."""
    names = dict.fromkeys([*OBJECTIVES, *plan.file.own_responses])
    return [name for name in names if any(name in trial.values for trial in trials.values())]


def write_plan(run: Run, plan: DesignPlan, bill: Bill) -> None:
    """Record the design and its correlations in a run."""
    run.set_tags({schema.KIND: "design", schema.STUDY: plan.file.name})
    run.log_params(plan.file.as_text())
    figures = {"design_runs": float(len(plan.rows)), "design_d_efficiency": plan.d_efficiency}
    dollars = {"design_estimated_usd": bill.usd, "design_worst_usd": bill.worst_usd}
    figures |= {name: usd for name, usd in dollars.items() if usd is not None}
    run.log_metrics(figures)
    names, correlations = plan.correlations
    lines = [
        {"": name, **dict(zip(names, map(_two_decimals, row), strict=True))}
        for name, row in zip(names, correlations, strict=True)
    ]
    run.log_text(csv_text(["", *names], lines), CORRELATION_FILE)
    run.log_figure(correlation_picture(names, correlations).figure(), CORRELATION_PICTURE)


def _two_decimals(r: float) -> str:
    return f"{r + 0.0:.2f}"  # no minus zero


def correlation_picture(names: Sequence[str], correlations: Any) -> Picture:
    """The correlations of all columns of the main effects, as colours and numbers."""
    title = "Correlation of the main effects (sum contrasts)"

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        image = axes.imshow(correlations, cmap="RdBu_r", vmin=-1, vmax=1)
        figure.colorbar(image, ax=axes, label="correlation r", shrink=0.8)
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set_title(title)
        if len(names) <= _MOST_NUMBERS:
            for row, values in enumerate(correlations):
                for column, r in enumerate(values):
                    colour = "white" if abs(r) > 0.6 else "black"
                    axes.text(column, row, _two_decimals(r), ha="center", va="center", color=colour)

    side = min(16.0, 4.0 + 0.5 * len(names))
    return Picture(name="correlation", title=title, caption="", draw=draw, size=(side + 1.2, side))


def described(plan: DesignPlan) -> str:
    """Identity of a design: its job and rows, but not its budget, its parallelism, or who pays for it."""
    rows = {f"run {row.run}": {**row.factors(), "seed": row.spec.seed} for row in plan.rows}
    return json.dumps({"job": json.dumps(without_payer(plan.file.job)), "design": json.dumps(rows)})


class DesignRunWriter(ParentRun):
    """Writes the MLflow run of one design; a design that continues keeps its run."""

    def __init__(
        self, plan: DesignPlan, bill: Bill, ledger: StudyLedger, tracking: Tracking, say: Callable[[str], None]
    ) -> None:
        file = plan.file
        super().__init__("design", file.name, ledger, tracking, say, described=described(plan), yaml=file.as_yaml())
        self._plan, self._bill = plan, bill
        write_plan(self._run, plan, bill)

    def watch(self, driver: Driver) -> None:
        """Set the driver whose trials are recorded, and write the first table."""
        super().watch(driver)
        self.write_results()

    def trial_ended(self, trial: Trial) -> None:
        """Report that a row has ended, and rewrite the table."""
        balance = self._ledger.balance()
        reported = {*_REPORTED, *self._plan.file.own_responses}
        values = [f"{name} {plain(value, 4)}" for name, value in trial.values.items() if name in reported]
        result = ", ".join(values) or trial.reason[:120]
        self.say(
            f"run {trial.point[ROW]} of {len(self._plan.rows)} {trial.shown_status}: {result}; "
            f"USD spent {dollars(balance.spent_usd)}, committed {dollars(balance.committed_usd)}"
        )
        self.write_results()

    def trials(self) -> dict[int, Trial]:
        """Run to its last trial."""
        return {int(trial.point[ROW]): trial for trial in self._driver.trials.values()}

    def finish(self) -> None:
        """Write the final table and the bill, and end the run."""
        self.write_results(NOT_RUN)
        self._close(RunStatus.FINISHED)

    @property
    def open_command(self) -> str:
        """The command or address that shows the design."""
        return self._tracking.open_command(self.run_id, ui_view.ALL_RUNS)

    def write_results(self, rest: str = PENDING) -> None:
        """Write the table, and the best F1 with its dollars; rows that have not ended get the status `rest`."""
        trials = self.trials()
        self._run.log_text(table_csv(self._plan, self._bill, trials, rest=rest), TABLE_FILE)
        spent = f"{len(trials)} of {len(self._plan.rows)} runs, {usd(self._ledger.balance().spent_usd)} spent."
        judged = {run: trial for run, trial in trials.items() if metrics.F1 in trial.values}
        if judged:
            run, best = max(judged.items(), key=lambda item: item[1].values[metrics.F1])
            self._write_pick(best.values[metrics.F1], best.cost_usd)
            origin = "" if best.origin == "measured" else f"{best.origin.capitalize()}: "
            cost = "" if best.cost_usd is None else f", {usd(best.cost_usd)}"
            setting = markdown(best.setting())
            spent = f"**{origin}best F1 {best.values[metrics.F1]:.4g} in run {run}{cost}** ({setting}).\n\n{spent}"
        self._run.set_tags({schema.NOTE: f"{spent} Every run is in `{TABLE_FILE}`, under Artifacts."})
