"""The command `report`: tables, figures and findings of recorded runs."""

import re
from collections.abc import Iterator
from datetime import date, datetime
from typing import ClassVar, Literal

from paretune.commands.command import command_of, imported_later
from paretune.commands.report.factors import factor_faults, total_key_faults
from paretune.specification.parameters import Fault, Parameters, Rules, parameter, split_list
from paretune.specification.regions import region_faults


class ReportRequest(Parameters):
    """The recorded runs to table, and the terms on which they are priced again; raises BadInput with all faults."""

    view: Literal["runs", "scaling", "compare"] = parameter(
        "runs",
        "runs: a line each, and totals of dollars; scaling: what larger clusters do; compare: one setting's values",
    )
    factor: str | None = parameter(None, "of view=scaling: shape (default), devices or a parameter of a job")
    by: str | None = parameter(
        None,
        "of view=runs: only these totals, one of study, month, user, team, tag, instance_type (also the colours of the "
        "picture); of view=compare: the parameter of a job whose values are compared",
    )
    learning_rates: Literal["all", "fixed", "scaled"] = parameter(
        "all",
        "runs with this learning rate: fixed, or scaled with the global batch size",
    )
    rate: Literal["list", "effective"] = parameter(
        "list",
        "dollars by list prices, or effective: what bills say is paid, see reconcile",
    )
    runs: str | None = parameter(None, "run ids or their beginnings, comma-separated; by default all jobs")
    filter: str | None = parameter(None, "MLflow's search language, such as \"metrics.f1 > 0.9 and params.seed = '1'\"")
    region: str | None = parameter(None, "price the runs again with this region's prices")
    price_date: str | None = parameter(None, "price the runs again with the prices of this day, such as 2026-11-20")
    spot_share: float | None = parameter(
        None, "price the runs again as managed spot that bills this share of the seconds", gt=0, le=1
    )

    listed_by: ClassVar[str] = "report"
    rules: ClassVar[Rules] = (lambda request: request._all_faults(),)

    def _all_faults(self) -> Iterator[Fault]:
        for name in split_list(self.runs):
            if not re.fullmatch("[0-9a-f]{4,32}", name):
                text = f"runs must be run ids of MLflow, or their first 4 or more characters, got {name!r}"
                yield Fault(("runs",), text)
        yield from (Fault((), text) for text in [*region_faults(self.region), *self._view_faults()])
        try:
            _ = self.on
        except ValueError:
            yield Fault(("price_date",), f"price_date must be a day such as 2026-11-20, got {self.price_date!r}")

    def _view_faults(self) -> list[str]:
        """Return the faults of parameters that do not fit the view."""
        faults = factor_faults("factor", self.factor)
        faults += total_key_faults(self.by) if self.view == "runs" else factor_faults("by", self.by)
        if self.factor is not None and self.view != "scaling":
            faults.append(f"factor is for view=scaling, got view={self.view}: leave one out")
        if self.by is not None and self.view == "scaling":
            faults.append("by is for view=runs and view=compare, got view=scaling: leave one out")
        if self.by is None and self.view == "compare":
            faults.append("view=compare needs the setting whose values are compared: set by, such as by=precision")
        terms = ("region", "price_date", "spot_share")
        set_terms = [name for name in terms if getattr(self, name) is not None]
        if self.rate == "effective":
            faults += [f"{name} is a term of list prices, got rate=effective: leave one out" for name in set_terms]
            set_terms.append("rate=effective")
        unused = set_terms if self.view in ("scaling", "compare") else []
        return faults + [
            f"{name} prices the runs of view=runs again, got view={self.view}: leave it out" for name in unused
        ]

    @property
    def on(self) -> date | None:
        """The day of the prices, or None; raises ValueError if the text is not a day."""
        return datetime.strptime(self.price_date, "%Y-%m-%d").date() if self.price_date else None


COMMAND = command_of(ReportRequest, imported_later("paretune.commands.report.run:run_report"))
