"""What was decided about a job before it is paid for: plain values that a later process reads back from the job's run.

A job's request ends where its plan begins. `jobs.plan.plan` makes a plan once, from the request; afterwards, launchers
get orders, the recorder gets a card, and bills get limits. Nobody reads the request again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from paretune.core.tags import Attribution
from paretune.specification.container import JobInputs
from paretune.specification.ending import Cause
from paretune.specification.identity import JobIdentity
from paretune.specification.order import Limits, Offer, Order, Payload, job_name

Kind = Literal["ours", "script", "project"]
"""Whose training a job runs: paretune's own, a script of the user, or an MLflow project."""


@dataclass(frozen=True, kw_only=True)
class DataSplit:
    """A split of the rows that a job reads. `source` is where they come from, `digest` identifies the `rows` rows."""

    source: str
    context: str  # MLflow's word for the split: training, validation or test
    digest: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Judge:
    """How the quality of a completed job is judged: the names of its metrics, and what to try if it is too low."""

    quality: str
    baseline: str | None  # metric of a simple model on the same rows
    trivial: str | None  # metric of a constant answer
    remedies: tuple[str, ...]  # parameters, as typed


@dataclass(frozen=True, kw_only=True)
class Card:
    """All that MLflow and people read of a job before and after it runs, as decided when it was planned.

    Attributes:
        kind: whose training the job runs.
        code: name of the user's script or project, as messages show it; empty for paretune's training.
        task: the task of the model, see `specification.metrics.TASKS`.
        parameters: every parameter as text, also the defaults.
        command_line: the line that repeats the job.
        heads: by instance type, the beginning of the run's name: settings and cluster.
        unseeded_heads: the same without the seed, for a training that does not get it.
        model: name of the model, the end of the run's name; empty for a user's own training.
        params: the parameters of the run in MLflow.
        tags: tags of the run that are known before it starts.
        facts: metrics of the prepared data.
        estimates: metrics that were estimated before the launch.
        inputs: the splits that MLflow shows as data sets of the run.
        texts: what a dry run and a launch say of the job, by heading; absent if unknown.
        warnings: sentences that never stop a launch.
        advice: what to do after each cause of a failure; absent if there is nothing to say.
        judge: None for a user's own training, which computes its quality itself.
        experimental: its experimental parameters, in words; empty if it has none.
        takes_seed: whether another seed changes the training.
        register: name in MLflow's model registry; None if the model is not registered.
    """

    kind: Kind
    code: str = ""
    task: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    command_line: str
    heads: Mapping[str, str]
    unseeded_heads: Mapping[str, str]
    model: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    estimates: Mapping[str, float] = field(default_factory=dict)
    inputs: tuple[DataSplit, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    advice: Mapping[Cause, str] = field(default_factory=dict)
    judge: Judge | None = None
    experimental: str = ""
    takes_seed: bool = True
    register: str | None = None
    is_simulated: bool = False
    is_probe: bool = False
    is_profiled: bool = False

    @property
    def is_users(self) -> bool:
        """Whether the job runs the user's own training instead of paretune's."""
        return self.kind != "ours"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A job as it was planned: what may run where, for how long and for how much, and what people read of it.

    Attributes:
        card: what MLflow and people read of it.
        identity: what it has in common with equal jobs.
        owner: study, user and team.
        tags: the user's own tags, for AWS and for budgets.
        launcher: name of its launcher.
        region: region of its jobs and prices; empty without regions.
        offers: the clusters that it may get, best first; never empty.
        limits: its time limit and worst case.
        payload: what runs.
        place: what its launcher decided, as JSON values; empty if nothing was decided yet.
        revision: commit of the model on the Hub; None if it comes from elsewhere.
        retries: causes of failures after which any process may start another attempt.
        accumulates: whether it can be tried again with smaller batches and more accumulation steps.
        takes_batch: whether a user's own training gets the batch of its offer.
        chosen_batch: rows of a micro-batch, if paretune chose them because the usual ones may not fit; else None.
        is_whole: whether everything was checked; False for a plan that only the request has decided so far.
        inputs: its rows, model or code on the machine that planned it; None if this process has not read them.
    """

    card: Card
    identity: JobIdentity
    owner: Attribution = field(default_factory=Attribution)
    tags: Mapping[str, str] = field(default_factory=dict)
    launcher: str
    region: str = ""
    offers: tuple[Offer, ...]
    limits: Limits
    payload: Payload
    place: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None
    retries: frozenset[Cause] = frozenset(Cause)
    accumulates: bool = True
    takes_batch: bool = False
    chosen_batch: int | None = None
    is_whole: bool = False
    inputs: Annotated[JobInputs | None, Field(exclude=True)] = None

    @property
    def offer(self) -> Offer:
        """The cluster of the first attempt."""
        return self.offers[0]

    def offer_on(self, instance_type: str) -> Offer:
        """Return the offer of an instance type, or the first one if the job was not offered this type."""
        return next((offer for offer in self.offers if offer.instance_type == instance_type), self.offer)

    def warned(self, warning: str) -> "Plan":
        """Return the plan with one more warning."""
        return replace(self, card=replace(self.card, warnings=(*self.card.warnings, warning)))

    def at_worst(self, usd: float | None) -> "Plan":
        """Return the plan with another worst case in dollars."""
        return replace(self, limits=replace(self.limits, worst_usd=usd))

    def order(self, job: str, run_id: str) -> Order:
        """Return the order of the first attempt. `job` is the part of the job's name that all attempts share."""
        return Order(
            job_name=job_name(job, 1),
            offers=self.offers,
            limits=self.limits,
            payload=self.payload,
            run_id=run_id,
            owner=self.owner,
            tags=self.tags,
            request=self.identity.request,
            place=self.place,
            inputs=self.inputs or JobInputs(),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, without its inputs."""
        values: dict[str, Any] = _PLAN.dump_python(self, mode="json")
        return {**values, "retries": sorted(values["retries"])}  # a set has no order

    @classmethod
    def from_json(cls, raw: Any) -> "Plan":
        """Create a plan from the result of `as_json`. Raises ValueError if it is no plan of this version.

        Anybody may have edited it in MLflow, so this checks that it has an offer, batches of at least one row, and
        limits that are numbers.
        """
        plan = _PLAN.validate_python(raw)
        limits, batches = plan.limits, [offer.batch for offer in plan.offers]
        seconds = (limits.billed_after_s, limits.kept_s, limits.deadline_s or 0.0, limits.worst_usd or 0.0)
        rows = [(each.per_device_train_batch_size, each.gradient_accumulation_steps, each.devices) for each in batches]
        if not rows or min(map(min, rows)) < 1 or not limits.max_seconds > 0 or not all(each >= 0 for each in seconds):
            raise ValueError("a plan has offers, batches of at least one row, and limits above 0")
        return plan


_PLAN = TypeAdapter(Plan)
