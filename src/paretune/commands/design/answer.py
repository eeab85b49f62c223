"""What `design` prints: the plan before anything is paid, and the table after it has run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from paretune.commands.design.bill import Bill
from paretune.commands.design.plan import DesignPlan
from paretune.commands.design.record import NOT_RUN, PENDING, table_rows
from paretune.core.result import Result, Row, as_json
from paretune.presentation.numbers import dollars, duration, plain
from paretune.specification import metrics
from paretune.studies.results.trials import Trial

_SHOWN = (metrics.F1, metrics.RMSE, metrics.PERPLEXITY, metrics.JOB_SECONDS, metrics.COST_USD)


def plan_text(plan: DesignPlan, bill: Bill) -> str:
    """The table of a design for a terminal, with what it can tell and what it costs."""
    cells = {
        "estimated": [_time(row.seconds) for row in bill.rows],
        "USD": [_usd(row.usd) for row in bill.rows],
        "at worst": [_usd(row.worst_usd) for row in bill.rows],
    }
    budget = "" if plan.file.budget_usd is None else f", budget {plan.file.budget_usd:g} USD"
    bill_line = f"estimated {_usd(bill.usd) or 'unknown'} USD, at worst {_usd(bill.worst_usd) or 'unknown'} USD{budget}"
    warnings = [f"warning: {text}" for text in [*plan.warnings(), *bill.warnings]]
    return "\n".join([plan.table(cells), "", *plan.findings(), bill_line, *bill.remarks, *warnings])


def _time(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def _usd(usd: float | None) -> str:
    return "" if usd is None else dollars(usd)


@dataclass(frozen=True, kw_only=True)
class DesignResult(Result):
    """A design: its plan, and how its rows have ended.

    Attributes:
        trials: run to the last trial of it; empty after a dry run.
        ending: why it ended.
        is_dry: nothing was launched.
    """

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
        """Run, ending, what the design can tell, dollars and rows."""
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
        """What the design can tell, and where to look."""
        warnings = [*self.plan.warnings(), *self.bill.warnings]
        return [*self.plan.findings(), *self.bill.remarks, *warnings, self.open_command]

    def __str__(self) -> str:
        """Plan or table for a terminal."""
        if self.is_dry:
            return f"{plan_text(self.plan, self.bill)}\n\n{self.title}\n\n  {self.open_command}"
        origins = " and ".join(sorted({trial.origin for trial in self.trials.values()}))
        counts = Counter(str(row["status"]) for row in self.rows())
        ended = ", ".join(f"{count} {status}" for status, count in counts.items())
        table = self.plan.table(self._responses())
        said = f"{self.title}: {ended} ({origins or 'nothing ran'}); spent {self.spent_usd:.4g} USD"
        return f"\n{table}\n\n{said}\n\n  {self.open_command}"

    def _responses(self) -> dict[str, list[str]]:
        """Heading to a cell for each row."""
        rows = self.rows()
        names = dict.fromkeys([*self.plan.file.own_responses, *_SHOWN])
        found = {name: [_shown(row.get(name)) for row in rows] for name in names}
        return {"status": [str(row["status"]) for row in rows], **found}


def _shown(value: object) -> str:
    return plain(value, 4) if isinstance(value, float) else ""
