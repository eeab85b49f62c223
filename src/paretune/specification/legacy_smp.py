"""Version 1 of SageMaker's model parallelism library, which AWS has archived: its settings and their rules.

Sources, read 2026-11-21: "Run a Distributed Training Job Using the SageMaker Python SDK" and the release notes of the
library (documentation of sagemaker 2.199), "Supported Frameworks and AWS Regions" of the SageMaker Developer Guide.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from paretune.core.errors import BadInput, collecting, did_you_mean, refuse
from paretune.specification.parallel_degrees import ParallelDegrees
from paretune.specification.parameters import annotations, check, parameter, range_faults

LEGACY_SMP_ENDED = (
    "legacy_smp: AWS has archived version 1 of its model parallelism library (2023-12-19); whether the old image "
    "(transformers 4.17, PyTorch 1.10, library 1.8.1) still runs has not been verified; strategy=fsdp with "
    "tensor_parallel_degree or pipeline_parallel_degree is what paretune trains with today"
)
"""What is said of a job with it before it begins."""
LEGACY_SMP_TYPES = ("ml.g4dn.12xlarge", "ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge")
LEGACY_SMP_EXAMPLE = '{"partitions": 2, "microbatches": 4, "ddp": true}'
_OF_TENSORFLOW = ("contiguous", "horovod")
_NEWER = {  # setting to the version of the library that knows it; the image has 1.8.1
    "fp16": "1.10",
    "sharded_data_parallel_degree": "1.11",
    "sdp_reduce_bucket_size": "1.11",
    "sdp_param_persistence_threshold": "1.11",
    "sdp_max_live_parameters": "1.11",
    "sdp_hierarchical_allgather": "1.11",
    "sdp_gradient_clipping": "1.11",
}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@dataclass(frozen=True, kw_only=True)
class LegacyModelParallel:
    """Settings of the library for PyTorch, the entries of the parameter `legacy_smp`; with the library's defaults."""

    pipeline_parallel_degree: int | None = parameter(None, "stages of the pipeline", minimum=1)
    partitions: int | None = parameter(None, "the same by its first name", minimum=1)
    microbatches: int = parameter(1, "parts of a per-device batch that pass the stages one by one", minimum=1)
    active_microbatches: int | None = parameter(None, "parts that are in the stages at once", minimum=1)
    pipeline: str = parameter("interleaved", "schedule of the pipeline", choices=("interleaved", "simple"))
    optimize: str = parameter("memory", "what the model is cut for", choices=("speed", "memory"))
    placement_strategy: str = parameter("cluster", "cluster, spread, or the letters D, P, T in any order")
    auto_partition: bool = parameter(True, "whether the library cuts the model itself")
    default_partition: int | None = parameter(None, "where modules go that no context names", minimum=0)
    memory_weight: float | None = parameter(None, "cut for memory (1) or computation (0)", minimum=0, maximum=1)
    ddp: bool = parameter(False, "whether copies of the model train on rows of their own")
    tensor_parallel_degree: int = parameter(1, "devices that share the matrices of a layer", minimum=1)
    prescaled_batch: bool = parameter(False, "whether the devices of a tensor group get the same rows")
    shard_optimizer_state: bool = parameter(False, "whether copies share the optimiser's state")
    offload_activations: bool = parameter(False, "whether checkpointed activations go to the machine's memory")
    activation_loading_horizon: int = parameter(4, "pipeline tasks before which they come back", minimum=1)
    fp16_params: bool = parameter(False, "whether distributed modules begin in fp16")
    deterministic_server: bool = parameter(False, "whether all copies keep the same order")
    skip_tracing: bool = parameter(False, "whether the first step is not traced")

    def __post_init__(self) -> None:
        refuse([f"legacy_smp: {fault}" for fault in check(self) or self._contradictions()])

    @classmethod
    def read(cls, values: Mapping[str, Any], *, own_image: bool = False) -> "LegacyModelParallel":
        """The settings of a JSON object; those of newer libraries are left out where `own_image` may have one.

        Raises:
            BadInput: unknown names, wrong types and values out of range, all at once; else contradictions, all at once.
        """
        faults: list[str] = []
        good: dict[str, Any] = {}
        for name, value in values.items():
            if name in _NEWER and own_image:
                continue
            with collecting(faults):
                good[name] = _checked(name, value, annotations(cls))  # type: ignore[arg-type]  # a class is hashable
        faults += [
            f"legacy_smp: {fault}"
            for item in fields(cls)
            if item.name in good
            for fault in range_faults(item, good[item.name])
        ]
        refuse(faults)
        return cls(**good)

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return self.pipeline_parallel_degree or self.partitions or 1

    def degrees(self, devices: int, per_instance: int) -> ParallelDegrees:
        """How a cluster is divided between rows: members of a tensor group share them only with `prescaled_batch`."""
        tensor = self.tensor_parallel_degree if self.prescaled_batch else 1
        return ParallelDegrees(devices=devices, per_instance=per_instance, tensor=tensor, pipeline=self.stages)

    def batch_faults(self, rows: int) -> list[str]:
        """What so many rows of one device cannot be divided into."""
        rule = f"legacy_smp: microbatches must divide per_device_train_batch_size {rows}"
        return [f"{rule}, got {self.microbatches}"] if rows % self.microbatches else []

    def faults_on(self, devices: int, per_instance: int) -> list[str]:
        """What the devices cannot be divided into."""
        divided = ParallelDegrees(
            devices=devices, per_instance=per_instance, tensor=self.tensor_parallel_degree, pipeline=self.stages
        )
        found = divided.faults()
        if not found and divided.data > 1 and not self.ddp:
            found.append(
                f"ddp must be true, for {devices} devices hold {divided.data} copies of the model: set it, or divide "
                "the model over all devices"
            )
        return [f"legacy_smp: {fault}" for fault in found]

    def _contradictions(self) -> list[str]:
        faults = []
        names = ("pipeline_parallel_degree", "partitions")
        if len([name for name in names if getattr(self, name) is not None]) != 1:
            faults.append(f"give {' or '.join(names)}, and not both: how many stages the pipeline has")
        if self.tensor_parallel_degree > 1 and not self.ddp:
            faults.append(f"tensor_parallel_degree above 1 needs ddp=true, got {self.tensor_parallel_degree} without")
        placed = self.placement_strategy
        if placed not in {"cluster", "spread"} and sorted(placed) != ["D", "P", "T"]:
            faults.append(f"placement_strategy must be cluster, spread or the letters D, P, T, got {placed!r}")
        if not self.auto_partition and self.default_partition is None:
            faults.append("auto_partition=false needs a default_partition: where modules go that no context names")
        if (self.default_partition or 0) >= self.stages:
            faults.append(f"default_partition must be below the {self.stages} stages, got {self.default_partition}")
        return faults


def _checked(name: str, value: Any, kinds: Mapping[str, Any]) -> Any:
    """The value of a setting.

    Raises:
        BadInput: there is no such setting, or it is of another kind.
    """
    if name in _NEWER:
        since = f"needs version {_NEWER[name]} of the library and the image of transformers 4.17 has 1.8.1"
        raise BadInput([f"legacy_smp: {name} {since}: leave it out, or give an image_uri that has it"])
    if name in _OF_TENSORFLOW:
        raise BadInput([f"legacy_smp: {name} is for TensorFlow, and the image has PyTorch: leave it out, or use ddp"])
    if name not in kinds:
        known = [item.name for item in fields(LegacyModelParallel)]
        hint = did_you_mean(name, known) or f"it has {', '.join(known)}"
        raise BadInput([f"legacy_smp knows no {name}: {hint}"])
    (kind,) = [one for one in getattr(kinds[name], "__args__", (kinds[name],)) if one is not type(None)]
    is_number = kind is float and isinstance(value, int) and not isinstance(value, bool)
    if type(value) is not kind and not is_number:
        raise BadInput([f"legacy_smp: {name} must be {_KINDS[kind]}, got {value!r}"])
    return value
