"""The cluster that a job runs on, and the launcher that starts it there."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from paretune.core.errors import collecting, did_you_mean, refuse
from paretune.specification import catalog
from paretune.specification.parameters import STEP, annotations, check, parameter

SIMULATED = "simulated"  # the launcher that runs nothing
ONLY_SIMULATED = ("recorded_runs", "simulation")  # parameters that only the simulated launcher accepts


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The entries of the parameter `simulation`. By default nothing fails and nothing is random."""

    seed: int = parameter(0, "seed of failures and noise", minimum=0, maximum=2**32 - 1)
    startup_seconds: float = parameter(120.0, "billed seconds before the first step", minimum=0)
    startup_delay_seconds: float = parameter(0.0, "mean wait for instances (exponential), not billed", minimum=0)
    failure_rate: float = parameter(0.0, "share of jobs that fail while they run", minimum=0, maximum=1)
    out_of_memory_rate: float = parameter(0.0, "share of jobs that run out of memory", minimum=0, maximum=1)
    spot_wait_seconds: float = parameter(0.0, "spot=true: mean wait for spot instances at the start", minimum=0)
    spot_interruptions_per_hour: float = parameter(0.0, "spot=true: mean interruptions per hour", minimum=0, maximum=60)
    spot_billable_share: float = parameter(1.0, "spot=true: share of the seconds that is billed", above=0, maximum=1)
    capacity_error_rate: float = parameter(0.0, "share of attempts without capacity", minimum=0, maximum=1)
    seconds_noise: float = parameter(0.0, "relative standard deviation of the seconds", minimum=0, maximum=1)
    f1_noise: float = parameter(0.0, "standard deviation of F1", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        refuse([f"simulation: {fault}" for fault in check(self)])

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Simulation":
        """The settings in a JSON object; raises BadInput with all faults at once."""
        kinds = annotations(cls)  # type: ignore[arg-type]  # a class is hashable
        faults: list[str] = []
        numbers: dict[str, Any] = {}
        for name, value in values.items():
            if name not in kinds:
                hint = did_you_mean(name, kinds) or f"it has {', '.join(kinds)}"
                faults.append(f"simulation has no {name}: {hint}")
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if is_number and (kinds[name] is float or int(value) == value):
                numbers[name] = kinds[name](value)
            else:
                kind = "a whole number" if kinds[name] is int else "a number"
                faults.append(f"simulation: {name} must be {kind}, got {value!r}")
        with collecting(faults):
            settings = cls(**numbers)
        refuse(faults)
        return settings

    def share(self, *key: object) -> float:
        """A uniform number from 0 to below 1, always the same for the same seed and key."""
        return share_of("\x1f".join(map(str, (self.seed, *key))))

    def exponential(self, mean: float, *key: object) -> float:
        """A number from an exponential distribution; 0 if its mean is 0."""
        return -mean * math.log(1 - self.share(*key))

    def normal(self, deviation: float, *key: object) -> float:
        """A number from a normal distribution around 0."""
        return deviation * NormalDist().inv_cdf(max(self.share(*key), 1e-12)) if deviation else 0.0


def share_of(text: str) -> float:
    """A uniform number from 0 to below 1, always the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / 2**56


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Section of a job: instances, processes and launcher."""

    instance_type: str = parameter(
        "local",
        "local: processes on this machine; ml.*: SageMaker training instances",
        affects=STEP | {"cluster"},
        group="cluster and launcher",
        basic=True,
    )
    instance_facts: Mapping[str, Any] = parameter(
        {},
        "JSON object that describes instance types unknown to paretune: gpu, gpus, gpu_memory_gib, vcpus, memory_gib, "
        "network_gbps, local_storage_gib by type",
        affects={"cluster"},
        not_searched="it describes the hardware",
        example=catalog.FACTS_EXAMPLE,
    )
    instance_count: int = parameter(
        1,
        "number of instances; locally, of data-parallel processes",
        minimum=1,
        maximum=1024,
        affects=STEP | {"cluster"},
    )
    processes_per_instance: int | None = parameter(
        None,
        "processes on each SageMaker instance; by default one per accelerator",
        minimum=1,
        maximum=192,
        affects=STEP,
    )
    launcher: str = parameter(
        "auto",
        "where the job runs; auto follows instance_type; simulated runs nothing and pays nothing",
        choices=("auto", "local", "sagemaker", SIMULATED),
        affects={"launcher"},
    )
    recorded_runs: str | None = parameter(
        None, "simulated: CSV table of recorded runs to take results from", affects={"launcher"}
    )
    simulation: Mapping[str, Any] = parameter(
        {},
        "simulated: JSON object with seed, delays and failure rates",
        affects={"launcher"},
        example='{"failure_rate": 0.1, "seed": 7}',
    )

    @property
    def on_sagemaker(self) -> bool:
        """Whether the job runs in an AWS account."""
        return self.launcher == "sagemaker" or (self.launcher == "auto" and self.instance_type.startswith("ml."))

    @property
    def is_simulated(self) -> bool:
        """Whether the job is only simulated."""
        return self.launcher == SIMULATED

    @property
    def has_instances(self) -> bool:
        """Whether the cluster consists of SageMaker instances, real or simulated."""
        return self.on_sagemaker or (self.is_simulated and self.instance_type.startswith("ml."))

    @property
    def processes(self) -> int:
        """Number of training processes on each instance."""
        if not self.has_instances:
            return 1
        return self.processes_per_instance or max(1, self.instance().accelerator_count)

    def instance(self, instance_type: str | None = None) -> catalog.Instance:
        """Hardware of an instance type, by default the job's own; raises BadInput if nothing describes it."""
        return catalog.instance(instance_type or self.instance_type, self.instance_facts)


def simulation_faults(section: Cluster) -> list[str]:
    """Invalid settings of the simulated launcher, or settings of it that another launcher got."""
    if not section.is_simulated:
        names = [name for name in ONLY_SIMULATED if getattr(section, name)]
        return [f"{name} is for launcher=simulated, got launcher={section.launcher}" for name in names]
    faults: list[str] = []
    with collecting(faults):
        Simulation.read(section.simulation)
    return faults
