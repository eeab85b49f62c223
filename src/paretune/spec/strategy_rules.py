"""Which instance types a strategy runs on. What can be known without an account."""

from paretune.spec import catalog
from paretune.spec.cluster import Cluster

SMDDP_INSTANCE_TYPES = ("ml.p4d.24xlarge", "ml.p4de.24xlarge")
"""AWS, "Supported frameworks, regions and instance types" of SMDDP; older ones (p3) have no current image."""
SMP_FAMILIES = ("p4d", "p4de", "p5", "p5e", "p5en")
"""AWS, "Supported instance types" of SMP v2."""


def unsupported(cluster: Cluster) -> list[str]:
    """Why the strategy, or the number of processes, does not go with the instance types; empty if it does."""
    found = []
    for instance_type in cluster.instance_types():
        instance = catalog.instance(instance_type)
        if cluster.strategy == "smddp" and instance_type not in SMDDP_INSTANCE_TYPES:
            found.append(
                f"strategy smddp needs {' or '.join(SMDDP_INSTANCE_TYPES)}, got {instance_type}: use ddp, which uses "
                "NCCL, on all others"
            )
        elif cluster.strategy == "smp" and instance.family not in SMP_FAMILIES:
            found.append(
                f"strategy smp needs an instance of {', '.join(SMP_FAMILIES)}, got {instance_type}: use fsdp, or "
                "another instance_type"
            )
        elif cluster.strategy == "deepspeed" and not instance.has_gpu:
            found.append(f"strategy deepspeed needs GPUs, and {instance_type} has none: use fsdp or ddp")
        if cluster.processes_per_instance and 0 < instance.accelerator_count < cluster.processes_per_instance:
            found.append(
                f"processes_per_instance must be at most {instance.accelerator_count}, one per GPU of "
                f"{instance_type}, got {cluster.processes_per_instance}: lower it, or leave it out"
            )
    return found
