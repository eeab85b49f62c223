"""What was decided about a job before it starts: its offers, limits and payload, and the order that a launcher gets.

An `Offer` is one cluster that the job may get. The `Limits` bound its seconds and dollars, and the `Payload` is what
runs. They are decided once, when the job is planned, and are the same for all attempts. An `Order` is one attempt: what
a launcher gets, and what the job itself reads.

All are plain values. `as_json` returns their JSON values, and `from_json` reads them back.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter

from paretune.core.tags import Attribution
from paretune.specification import catalog, launchers
from paretune.specification.container import Command, JobInputs
from paretune.specification.launchers import LOCAL
from paretune.specification.parallelism import BatchPlan
from paretune.specification.price import Price
from paretune.specification.rules import IN_SECRETS_MANAGER

JOB_PREFIX = "paretune-"  # prefix of all job names
_ON_LAUNCHING_MACHINE = ("recorded", "takes_seed", "takes_batch", "accumulates")  # fields of a command


def job_name(job: str, attempt: int) -> str:
    """Return the name of an attempt of a job: at most 63 letters, digits and hyphens.

    The name depends only on the arguments, and a launcher creates only one job with each name, so no attempt starts
    twice. `job` is the same for all attempts: the id of the job's run, or the name that `jobs.launch` gives to
    identical jobs.
    """
    return f"{JOB_PREFIX}{job}-{attempt}"


def job_of(name: str) -> str:
    """Return the part of a `job_name` that all attempts share; any other name is returned unchanged."""
    job, _, attempt = name.removeprefix(JOB_PREFIX).rpartition("-")
    return job if name.startswith(JOB_PREFIX) and job and attempt.isdigit() else name


class _Value:
    """Base class of values that are JSON both ways. Members that `from_json` does not know are ignored."""

    def as_json(self) -> dict[str, Any]:
        """Return the value as JSON values."""
        values: dict[str, Any] = _ADAPTERS[type(self)].dump_python(self, mode="json")
        return values

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Create the value from the result of `as_json`. Raises ValueError if a member is missing or has a wrong type.

        A newer version of paretune may have written more members, which are ignored.
        """
        value: Self = _ADAPTERS[cls].validate_python(raw)
        return value


@dataclass(frozen=True, kw_only=True)
class Offer(_Value):
    """One cluster that a job may get.

    Attributes:
        instance_type: the type of its instances, or `local`.
        instance_count: the number of instances; on this machine, the number of processes.
        processes: the number of processes of a script on each machine.
        batch: the batch and the learning rate of the job on this cluster.
        price: the hourly price of one instance; None if it is unknown.
        request: a number. Offers with the same number go into one request, and the service takes the first of them
            that it has capacity for.
        computation: `JobSpec.spec_hash` of the job on this cluster.
        training: parameters of the training that differ from `Payload.training` on this cluster; None removes one.
        image: address of the container image; "" if the launcher uses none.
        packages: requirements that pip installs into the image when the job starts.
        volume_gib: size of the volume that each instance gets; 0 if the launcher provides none.
    """

    instance_type: str = LOCAL
    instance_count: int = 1
    processes: int = 1
    batch: BatchPlan
    price: Price | None = None
    request: int = 0
    computation: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    image: str = ""
    packages: tuple[str, ...] = ()
    volume_gib: int = 0

    @property
    def has_instances(self) -> bool:
        """Whether it is a cluster of instances rather than this machine."""
        return self.instance_type != LOCAL


@dataclass(frozen=True, kw_only=True)
class Limits(_Value):
    """The bounds of the seconds and dollars of a whole job. An attempt has what the earlier attempts have left.

    Attributes:
        max_seconds: the time limit of the job.
        deadline_s: the job stops itself this many seconds after its container has started; None if it does not.
        billed_after_s: the most seconds that are billed beyond the limit, to stop and to upload results.
        kept_s: for how long the instances are kept after the job, and billed.
        worst_usd: the most dollars that the job should cost on any of its offers; None if a price is unknown.
        budget: path of the budget file that the job counts against, if any.
        is_spot: whether the job runs on instances that the service may take away.
    """

    max_seconds: float
    deadline_s: float | None = None
    billed_after_s: float = 0.0
    kept_s: float = 0.0
    worst_usd: float | None = None
    budget: str | None = None
    is_spot: bool = False


@dataclass(frozen=True, kw_only=True)
class Payload(_Value):
    """The program of a job, with its parameters.

    Attributes:
        kind: paretune's own training, or a script or a project of the user.
        training: the parameters that were given for the training, without those of the user's account, network and
            budget. For a user's own training with a `command`, only its environment variables.
        strategy: how the training is spread over devices, as in `JobSpec.strategy`.
        command: the command of a user's own training.
        environment: environment variables of the job.
        launcher: `LauncherTraits.as_json` of the launcher, whose package may be missing inside the job.
        instances: the rows of the instance types that the job may get. The table may be missing inside the job.
    """

    kind: Literal["ours", "script", "project"] = "ours"
    training: Mapping[str, Any] = field(default_factory=dict)
    strategy: str = "ddp"
    command: Command | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: Mapping[str, Any] = field(default_factory=dict)
    instances: tuple[Mapping[str, Any], ...] = ()

    @property
    def runs_user_code(self) -> bool:
        """Whether a script or a project of the user runs instead of paretune's training."""
        return self.kind != "ours"

    @property
    def reads_secrets(self) -> bool:
        """Whether a variable of the job is read from AWS Secrets Manager."""
        return any(value.startswith(IN_SECRETS_MANAGER) for value in self.environment.values())


_ADAPTERS: dict[type, TypeAdapter[Any]] = {each: TypeAdapter(each) for each in (Offer, Limits, Payload)}


@dataclass(frozen=True, kw_only=True)
class Order:
    """One attempt of a job: everything that a launcher needs to start it.

    Attributes:
        job_name: the name of the attempt.
        offers: the clusters that are still to be tried, best first.
        limits: the limits of the whole job.
        payload: what runs.
        run_id: id of the MLflow run that records the job.
        attempt: its number, from 1.
        spent_seconds: billed seconds of the earlier attempts of the job.
        owner: study, user and team of the job.
        tags: the user's own tags.
        request: `JobIdentity.request`, a digest that all attempts share.
        place: what `Launcher.place` decided for the job.
        inputs: rows, model and code on the launching machine; empty if the first attempt has sent them.

    The last five are for the launcher only: `as_json` leaves them out.
    """

    job_name: str
    offers: tuple[Offer, ...]
    limits: Limits
    payload: Payload
    run_id: str = ""
    attempt: int = 1
    spent_seconds: float = 0.0
    owner: Attribution = field(default_factory=Attribution)
    tags: Mapping[str, str] = field(default_factory=dict)
    request: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    inputs: JobInputs = field(default_factory=JobInputs)

    @property
    def offer(self) -> Offer:
        """The cluster that is tried first."""
        return self.offers[0]

    @property
    def batch(self) -> BatchPlan:
        """The batch and the learning rate of the attempt."""
        return self.offer.batch

    @property
    def together(self) -> tuple[Offer, ...]:
        """The offers that go into the attempt's request, best first."""
        return tuple(offer for offer in self.offers if offer.request == self.offer.request)

    @property
    def max_seconds(self) -> float:
        """The time limit of the attempt, in seconds."""
        return self.limits.max_seconds - self.spent_seconds

    @property
    def deadline_s(self) -> float | None:
        """The attempt stops itself this many seconds after its container has started; None if it does not."""
        return None if self.limits.deadline_s is None else self.limits.deadline_s - self.spent_seconds

    @property
    def has_time(self) -> bool:
        """Whether earlier attempts have left any time for this one."""
        return (self.max_seconds if self.deadline_s is None else self.deadline_s) > 0

    @property
    def training(self) -> dict[str, Any]:
        """The parameters of the training on the cluster that is tried first."""
        merged = {**self.payload.training, **self.offer.training}
        return {name: value for name, value in merged.items() if value is not None}

    def next(
        self, *, attempt: int, spent_s: float, offers: tuple[Offer, ...] | None = None, batch: BatchPlan | None = None
    ) -> "Order":
        """Return a later attempt of the same job, by default with the same offers and batch.

        `spent_s` are the billed seconds of all earlier attempts. `batch` replaces the batch of the first of `offers`.
        """
        first, *others = self.offers if offers is None else offers
        return replace(
            self,
            job_name=job_name(job_of(self.job_name), attempt),
            attempt=attempt,
            spent_seconds=spent_s,
            offers=(first if batch is None else replace(first, batch=batch), *others),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the job document: the part of the order that is sent into the job, as JSON values."""
        payload, command = self.payload.as_json(), self.payload.command
        told = None if command is None else {**payload["command"], "processes": self.offer.processes}
        return {
            "job_name": self.job_name,
            "spec": self.training,
            "plan": asdict(self.batch),
            "attempt": self.attempt,
            "spent_seconds": self.spent_seconds,
            "deadline_s": self.deadline_s,
            "run_id": self.run_id,
            "command": told and {name: value for name, value in told.items() if name not in _ON_LAUNCHING_MACHINE},
            "launcher": payload["launcher"],
            "instances": payload["instances"],
            "max_seconds": self.max_seconds,
            "kind": self.payload.kind,
            "strategy": self.payload.strategy,
            "offers": [offer.as_json() for offer in self.offers],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Order":
        """Create the order from a job document, without the fields for the launcher only.

        The launcher and the instance types of the job are known afterward, even where their packages are missing.
        Raises ValueError if a member is missing or has a wrong type.
        """
        launchers.add(raw["launcher"])
        for instance in raw["instances"]:
            catalog.add(instance)
        given, told, spent_s = raw["spec"], raw["command"], raw["spent_seconds"]
        command = None if told is None else {name: told[name] for name in told if name != "processes"}
        offers = tuple(Offer.from_json(offer) for offer in raw["offers"])
        payload = {
            "kind": raw["kind"],
            "training": given,
            "strategy": raw["strategy"],
            "command": command,
            "environment": given.get("environment", {}),
            "launcher": raw["launcher"],
            "instances": raw["instances"],
        }
        deadline_s = raw["deadline_s"]
        return cls(
            **{name: raw[name] for name in ("job_name", "run_id", "attempt")},
            spent_seconds=spent_s,
            offers=offers,
            limits=Limits(
                max_seconds=raw["max_seconds"] + spent_s,
                deadline_s=None if deadline_s is None else deadline_s + spent_s,
            ),
            payload=Payload.from_json(payload),
        )

    @classmethod
    def read(cls, path: Path) -> "Order":
        """Read the job document in `path`; see `from_json`."""
        return cls.from_json(json.loads(path.read_text()))
