"""Parameters of the commands `prices`, `report`, `schedule` and `mcp`, checked."""

import re
from dataclasses import dataclass
from datetime import date, datetime

from paretune.core.errors import BadInput, refuse
from paretune.reporting.factors import factor_faults, way_faults
from paretune.spec.cluster import listed
from paretune.spec.parameters import check, parameter
from paretune.spec.regions import region_faults
from paretune.studies.scheduling import cron_expression

_LEARNING_RATES = ("all", "fixed", "scaled")


@dataclass(frozen=True, kw_only=True)
class PricesRequest:
    """Which prices to show, and whether to read them anew.

    Raises:
        BadInput: with all faults at once.
    """

    region: str | None = parameter(
        None, "AWS region; by default the profile's, AWS_REGION, AWS_DEFAULT_REGION, else us-east-1"
    )
    instance_type: str | None = parameter(None, "types to show, comma-separated; all that are known by default")
    refresh: bool = parameter(False, "read today's prices of SageMaker Training from AWS into the cache")
    price_source: str = parameter(
        "auto",
        "api: Pricing API, needs credentials; bulk: public file, needs none; auto: the API if it may be asked",
        choices=("auto", "api", "bulk"),
    )

    def __post_init__(self) -> None:
        faults = check(self) + region_faults(self.region)
        if faults:
            raise BadInput(faults)


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """Which recorded runs to table, and on which terms to price them again.

    Raises:
        BadInput: with all faults at once.
    """

    view: str = parameter(
        "runs",
        "runs: a line each, and totals of dollars; scaling: what larger clusters do; compare: one setting's values",
        choices=("runs", "scaling", "compare"),
    )
    factor: str | None = parameter(None, "of view=scaling: shape (default), devices or a parameter of a job")
    by: str | None = parameter(
        None,
        "of view=runs: only these totals, one of study, month, user, team, tag, instance_type (also the colours of the "
        "picture); of view=compare: the parameter of a job whose values are compared",
    )
    learning_rates: str = parameter(
        "all",
        "runs with this learning rate: fixed, or scaled with the global batch size",
        choices=_LEARNING_RATES,
    )
    rate: str = parameter(
        "list",
        "dollars by list prices, or effective: what bills say is paid, see reconcile",
        choices=("list", "effective"),
    )
    runs: str | None = parameter(None, "run ids or their beginnings, comma-separated; by default all jobs")
    filter: str | None = parameter(None, "MLflow's search language, such as \"metrics.f1 > 0.9 and params.seed = '1'\"")
    region: str | None = parameter(None, "price the runs again with this region's prices")
    price_date: str | None = parameter(None, "price the runs again with the prices of this day, such as 2026-11-20")
    spot_share: float | None = parameter(
        None, "price the runs again as managed spot that bills this share of the seconds", above=0, maximum=1
    )

    def __post_init__(self) -> None:
        if self.rate in _LEARNING_RATES:  # what `learning_rates` was called until version 0.2
            object.__setattr__(self, "learning_rates", self.rate)
            object.__setattr__(self, "rate", "list")
        faults = check(self)
        for name in listed(self.runs):
            if not re.fullmatch("[0-9a-f]{4,32}", name):
                faults.append(f"runs must be run ids of MLflow, or their first 4 or more characters, got {name!r}")
        faults += [*region_faults(self.region), *self._view_faults()]
        try:
            _ = self.on
        except ValueError:
            faults.append(f"price_date must be a day such as 2026-11-20, got {self.price_date!r}")
        if faults:
            raise BadInput(faults)

    def _view_faults(self) -> list[str]:
        """What does not go with the view."""
        faults = factor_faults("factor", self.factor)
        faults += way_faults(self.by) if self.view == "runs" else factor_faults("by", self.by)
        if self.factor is not None and self.view != "scaling":
            faults.append(f"factor is for view=scaling, got view={self.view}: leave one out")
        if self.by is not None and self.view == "scaling":
            faults.append("by is for view=runs and view=compare, got view=scaling: leave one out")
        if self.by is None and self.view == "compare":
            faults.append("view=compare needs the setting whose values are compared: set by, such as by=compiler")
        terms = ("region", "price_date", "spot_share")
        asked = [name for name in terms if getattr(self, name) is not None]
        if self.rate == "effective":
            faults += [f"{name} is a term of list prices, got rate=effective: leave one out" for name in asked]
            asked.append("rate=effective")
        elsewhere = asked if self.view in ("scaling", "compare") else []
        return faults + [
            f"{name} prices the runs of view=runs again, got view={self.view}: leave it out" for name in elsewhere
        ]

    @property
    def on(self) -> date | None:
        """The day of the prices.

        Raises:
            ValueError: it is none.
        """
        return datetime.strptime(self.price_date, "%Y-%m-%d").date() if self.price_date else None


_OF_KIND = {
    "kubernetes": ("image_uri",),
    "eventbridge": ("image_uri", "role", "scheduler_role", "secret", "bucket"),
}
"""Kind of scheduler to the parameters without which its entry would be incomplete."""
_GITHUB_MINUTES = 5
"""The least interval between two runs of a workflow (GitHub's documentation of `schedule`, read 2026-11-22)."""


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """Which scheduler is to call the rounds of which study, and how often.

    Raises:
        BadInput: with all faults at once.
    """

    study: str = parameter("", "the study's file, such as studies/pareto.yaml")
    kind: str = parameter(
        "cron",
        "what the entry is for; eventbridge: AWS's scheduler",
        choices=("cron", "kubernetes", "github", "eventbridge"),
    )
    every_minutes: int = parameter(10, "minutes from one round to the next", minimum=1, maximum=1440)
    storage: str | None = parameter(
        None,
        "postgresql://... (a password is not printed); by default the study's, PARETUNE_STORAGE, a file",
        choices=(),
    )
    image_uri: str | None = parameter(None, "container image with paretune, for kubernetes and eventbridge")
    role: str | None = parameter(None, "eventbridge: ARN of the role of SageMaker that the round's job has")
    scheduler_role: str | None = parameter(None, "eventbridge: ARN of the role that may create that job")
    secret: str | None = parameter(None, "eventbridge: name in AWS Secrets Manager of the storage's address")
    bucket: str | None = parameter(None, "eventbridge: bucket of S3 for the study's file")
    region: str | None = parameter(None, "AWS region; by default the profile's, else us-east-1")

    def __post_init__(self) -> None:
        faults = check(self) + region_faults(self.region)
        if not self.study:
            faults.append("study must name a study file, such as studies/pareto.yaml")
        needed = [name for name in _OF_KIND.get(self.kind, ()) if not getattr(self, name)]
        faults += [f"kind={self.kind} needs {name}: its entry would be incomplete" for name in needed]
        for name in ("role", "scheduler_role"):
            if (text := getattr(self, name)) and not re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+", text):
                faults.append(
                    f"{name} must be the ARN of a role, such as arn:aws:iam::111122223333:role/NAME, got {text}"
                )
        if not any(text.startswith("every_minutes") for text in faults):
            faults += self._interval_faults()
        if self.kind != "cron" and self.storage is not None and self.storage.startswith("sqlite"):
            faults.append("storage must be postgresql://... for rounds in containers: a file ends with its container")
        refuse(faults)

    def _interval_faults(self) -> list[str]:
        """What the scheduler has against an interval that is a number of minutes up to a day."""
        faults = []
        if self.kind == "github" and self.every_minutes < _GITHUB_MINUTES:
            faults.append(f"every_minutes must be {_GITHUB_MINUTES} or more for GitHub, got {self.every_minutes}")
        if self.kind != "eventbridge":
            try:
                cron_expression(self.every_minutes)
            except ValueError:
                faults.append(
                    f"every_minutes must divide an hour or, in whole hours, a day, for cron, got {self.every_minutes}: "
                    "5, 10, 15, 20, 30, 60, 120, 240"
                )
        return faults


@dataclass(frozen=True, kw_only=True)
class McpRequest:
    """What agents may do through this server.

    Raises:
        BadInput: with all faults at once.
    """

    session_budget_usd: float = parameter(
        0.0, "dollars that all that agents launch may cost together; with 0 they may look only", minimum=0
    )
    own_code: bool = parameter(False, "let agents launch jobs with scripts, projects and images of their own")

    def __post_init__(self) -> None:
        refuse(check(self))
