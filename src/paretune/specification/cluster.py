"""The cluster that a job runs on, and the launcher that starts it there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.core.errors import collecting
from paretune.specification import catalog
from paretune.specification.parameters import STEP, parameter
from paretune.specification.simulation import Simulation

SIMULATED = "simulated"  # the launcher that runs nothing
ONLY_SIMULATED = ("recorded_runs", "simulation")  # parameters that only the simulated launcher accepts


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
