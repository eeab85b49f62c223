"""The output of `design`: the plan before anything is paid, and the table after it has run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from paretune.commands.design.bill import Bill
from paretune.commands.design.plan import DesignPlan
from paretune.commands.design.plan import Row as PlanRow
from paretune.commands.design.record import NOT_RUN, PENDING, table_rows
from paretune.core.result import Result, Row, as_json
from paretune.presentation.numbers import dollars, duration, plain
from paretune.presentation.table import Column
from paretune.specification import metrics
from paretune.studies.results.trials import Trial

_RESPONSES = (metrics.F1, metrics.PERPLEXITY, metrics.JOB_SECONDS, metrics.COST_USD)


def plan_text(plan: DesignPlan, bill: Bill) -> str:
    """The table of a design for a terminal, with its statistics and its bill."""
    row_bill = dict(zip((row.run for row in plan.rows), bill.rows, strict=True))
    columns: list[Column[PlanRow]] = [
        Column("estimated", lambda row: row_bill[row.run].seconds, duration),
        Column("USD", lambda row: row_bill[row.run].usd, dollars),
        Column("at worst", lambda row: row_bill[row.run].worst_usd, dollars),
    ]
    budget = "" if plan.file.budget_usd is None else f", budget {plan.file.budget_usd:g} USD"
    estimated = "no estimate" if bill.usd is None else f"estimated {dollars(bill.usd)} USD"
    worst = "an unknown worst case" if bill.worst_usd is None else f"at worst {dollars(bill.worst_usd)} USD"
    reason = f" (not estimated: {bill.no_estimate})" if bill.no_estimate else ""
    bill_line = f"{estimated}, {worst}{budget}{reason}"
    warnings = [f"warning: {text}" for text in [*plan.warnings(), *bill.warnings]]
    return "\n".join([plan.table(columns), "", *plan.findings(), bill_line, *bill.remarks, *warnings])


@dataclass(frozen=True, kw_only=True)
class DesignResult(Result):
    """A design: its plan, why it ended, and the last trial of each run; no trials if nothing was launched."""

    plan: DesignPlan
    bill: Bill
    run_id: str
    open_command: str
    ending: str
    is_dry: bool = False
    spent_usd: float = 0.0
    trials: Mapping[int, Trial] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The design and how it has ended."""
        return f"design {self.plan.file.name}: {self.ending}"

    def rows(self) -> list[Row]:
        """The rows of design.csv."""
        return table_rows(self.plan, self.bill, self.trials, rest=PENDING if self.is_dry else NOT_RUN)

    def to_dict(self) -> dict[str, object]:
        """Run, ending, statistics, dollars and rows."""
        return {
            "design": self.plan.file.name,
            "run_id": self.run_id,
            "ending": self.ending,
            "dry_run": self.is_dry,
            "d_efficiency": as_json(self.plan.d_efficiency),
            "correlations": [{"factors": list(pair), "r": as_json(r)} for pair, r in self.plan.between_factors.items()],
            "detectable": [
                {"factor": item.factor, "seconds": as_json(item.seconds), "f1": as_json(item.f1)}
                for item in self.plan.detectable
            ],
            "warnings": [*self.plan.warnings(), *self.bill.warnings],
            "remarks": list(self.bill.remarks),
            "estimated_usd": as_json(self.bill.usd),
            "worst_usd": as_json(self.bill.worst_usd),
            "budget_usd": self.plan.file.budget_usd,
            "spent_usd": self.spent_usd,
            "rows": as_json(self.rows()),
            "open_command": self.open_command,
        }

    def notes(self) -> list[str]:
        """Statistics, remarks and warnings, and where to look."""
        warnings = [*self.plan.warnings(), *self.bill.warnings]
        return [*self.plan.findings(), *self.bill.remarks, *warnings, self.open_command]

    def __str__(self) -> str:
        """Plan or table for a terminal."""
        if self.is_dry:
            return f"{plan_text(self.plan, self.bill)}\n\n{self.title}\n\n  {self.open_command}"
        origins = " and ".join(sorted({trial.origin for trial in self.trials.values()})) or "nothing ran"
        rows = {row["run"]: row for row in self.rows()}
        counts = Counter(str(row["status"]) for row in rows.values())
        endings = ", ".join(f"{count} {status}" for status, count in counts.items())
        columns: list[Column[PlanRow]] = [Column("status", lambda row: str(rows[row.run]["status"]))]
        for name in dict.fromkeys([*self.plan.file.own_responses, *_RESPONSES]):
            columns.append(Column(name, partial(_response, rows, name), partial(plain, digits=4)))
        summary = f"{self.title}: {endings} ({origins}); spent {self.spent_usd:.4g} USD"
        return f"\n{self.plan.table(columns)}\n\n{summary}\n\n  {self.open_command}"


def _response(rows: Mapping[object, Row], name: str, row: PlanRow) -> float | None:
    value = rows[row.run].get(name)
    return value if isinstance(value, float) else None
