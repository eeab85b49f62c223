"""What a design writes to MLflow and to the terminal: its run with table and correlations, its progress."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from paretune.commands.design.bill import Bill
from paretune.commands.design.plan import DesignPlan
from paretune.commands.design.table_study import ROW
from paretune.core.errors import ParetuneError
from paretune.core.result import csv_text
from paretune.ledger.study_ledger import StudyLedger
from paretune.presentation.numbers import dollars, plain
from paretune.presentation.picture import Picture
from paretune.specification import metrics
from paretune.studies.definition.objectives import OBJECTIVES
from paretune.studies.results.trials import Trial
from paretune.studies.search.driver import Driver
from paretune.studies.search.parent_run import open_parent_run, without_payer
from paretune.tracking import Run, RunStatus, Tracking, schema, ui_view

TABLE_FILE, CORRELATION_FILE, CORRELATION_PICTURE = "design.csv", "correlation.csv", "correlation.png"
PENDING, NOT_RUN = "Pending", "NotRun"
"""Status of a row that has not ended yet, and of one that was passed over, such as one too dear for what was left."""
_SAID = (metrics.F1, metrics.JOB_SECONDS)
_MOST_NUMBERS = 16  # columns of the picture that still hold numbers


def table_csv(plan: DesignPlan, bill: Bill, trials: Mapping[int, Trial], *, rest: str = PENDING) -> str:
    """design.csv: a row for each run of the plan; responses are empty where they were not measured.

    `trials` has the last trial of each run; a run without any has the status `rest`.
    """
    factors = list(dict.fromkeys(name for row in plan.rows for name in row.factors()))
    responses = _measured(plan, trials)
    columns = ["run", *factors, "global_batch_size", "num_train_epochs", "steps", "steps_deviation", "seed"]
    columns += ["run_id", "status", *responses, "estimated_seconds", "estimated_usd", "worst_usd", "origin"]
    return csv_text([*dict.fromkeys(columns)], table_rows(plan, bill, trials, rest=rest))


def table_rows(
    plan: DesignPlan, bill: Bill, trials: Mapping[int, Trial], *, rest: str = PENDING
) -> list[dict[str, object]]:
    """The rows of design.csv; None where something is not known."""
    responses = _measured(plan, trials)
    rows: list[dict[str, object]] = []
    for at, row in enumerate(plan.rows):
        trial = trials.get(row.run)
        cost = bill.rows[at]
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
    """Responses that any row has, the user's own ones last."""
    every = dict.fromkeys([*OBJECTIVES, *plan.file.own_responses])
    return [name for name in every if any(name in trial.values for trial in trials.values())]


def write_plan(run: Run, plan: DesignPlan, bill: Bill) -> None:
    """Keep the table and its correlations in a run, and what the design is."""
    run.set_tags({schema.KIND: "design", schema.STUDY: plan.file.name})
    run.log_params(plan.file.as_text())
    figures = {"design_runs": float(len(plan.rows)), "design_d_efficiency": plan.d_efficiency}
    known = {"design_estimated_usd": bill.usd, "design_worst_usd": bill.worst_usd}
    figures |= {name: usd for name, usd in known.items() if usd is not None}
    run.log_metrics(figures)
    names, found = plan.correlations
    lines = (
        {"": name, **dict(zip(names, map(_two, row), strict=True))} for name, row in zip(names, found, strict=True)
    )
    run.log_text(csv_text(["", *names], lines), CORRELATION_FILE)
    run.log_figure(correlation_picture(names, found).figure(), CORRELATION_PICTURE)


def _two(r: float) -> str:
    return f"{r + 0.0:.2f}"  # no minus zero


def correlation_picture(names: Sequence[str], found: Any) -> Picture:
    """The correlations of all columns of the main effects, as colour and number."""
    title = "Correlation of the main effects (sum contrasts)"

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        image = axes.imshow(found, cmap="RdBu_r", vmin=-1, vmax=1)
        figure.colorbar(image, ax=axes, label="correlation r", shrink=0.8)
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set_title(title)
        if len(names) <= _MOST_NUMBERS:
            for row, values in enumerate(found):
                for column, r in enumerate(values):
                    colour = "white" if abs(r) > 0.6 else "black"
                    axes.text(column, row, _two(r), ha="center", va="center", color=colour)

    side = min(16.0, 4.0 + 0.5 * len(names))
    return Picture(name="correlation", title=title, caption="", draw=draw, size=(side + 1.2, side))


def described(plan: DesignPlan) -> str:
    """What makes two files one design: its rows, not its budget, how many jobs run at a time, nor who pays for them."""
    rows = {f"run {row.run}": {**row.factors(), "seed": row.spec.seed} for row in plan.rows}
    return json.dumps({"job": json.dumps(without_payer(plan.file.job)), "design": json.dumps(rows)})


class DesignRunWriter:
    """Writes the MLflow run of one design, the one that the ledger knows if it was begun before."""

    def __init__(
        self, plan: DesignPlan, bill: Bill, ledger: StudyLedger, tracking: Tracking, say: Callable[[str], None]
    ) -> None:
        self._plan, self._bill, self._ledger, self._say = plan, bill, ledger, say
        self._tracking = tracking
        self.run_id = open_parent_run(tracking, ledger, "design", plan.file.name, described(plan))
        self._run = tracking.run(self.run_id)
        self._run.reopen()
        write_plan(self._run, plan, bill)
        self._driver: Driver  # `watch` comes before everything else

    def watch(self, driver: Driver) -> None:
        """Whose trials these are."""
        self._driver = driver
        self._run.set_tags({schema.ORIGIN: driver.workplace.launcher.origin})
        self._write()

    def trial_ended(self, trial: Trial) -> None:
        """Print that a row has ended, and write the table anew."""
        balance = self._ledger.balance()
        told = {*_SAID, *self._plan.file.own_responses}
        values = ", ".join(f"{name} {plain(value, 4)}" for name, value in trial.values.items() if name in told)
        said = values or trial.reason[:120]
        self._say(
            f"run {trial.point[ROW]} of {len(self._plan.rows)} {trial.shown_status}: {said}; "
            f"USD spent {dollars(balance.spent_usd)}, committed {dollars(balance.committed_usd)}"
        )
        self._write()

    def trials(self) -> dict[int, Trial]:
        """Run to its last trial."""
        return {int(trial.point[ROW]): trial for trial in self._driver.trials.values()}

    def finish(self, *, is_last: bool) -> None:
        """Write the final table and the bill; the run is ended unless other drivers are still at work."""
        self._write(NOT_RUN if is_last else PENDING)
        self._close(RunStatus.FINISHED if is_last else None)

    def interrupted(self, error: BaseException) -> None:
        """Write what there is, and how to go on."""
        with suppress(ParetuneError):  # what ended the design may be the storage itself
            self._write()
            self._run.set_tags({schema.FAILURE_REASON: str(error)})
            self._close(None if self._driver.other_drivers() else RunStatus.KILLED)
        self._say("the same command goes on with the design")

    @property
    def open_command(self) -> str:
        """What to type or open to look at it."""
        return self._tracking.open_command(self.run_id, ui_view.ALL_RUNS)

    def _write(self, rest: str = PENDING) -> None:
        self._run.log_text(table_csv(self._plan, self._bill, self.trials(), rest=rest), TABLE_FILE)

    def _close(self, status: RunStatus | None) -> None:
        """Write the bill and end the run; None leaves it open, for other drivers."""
        balance = self._ledger.balance()
        self._run.log_metrics({metrics.COST_USD: balance.spent_usd, "trials": float(len(self._driver.trials))})
        self._run.log_text(self._plan.file.as_yaml(), "design.yaml")
        if status is not None:
            self._run.end(status)
