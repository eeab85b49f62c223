"""How one job is spread over devices: what each strategy asks of the training.

    ddp         every device has the whole model; gradients are averaged                    (PyTorch)
    fsdp        weights, gradients and optimiser state are spread over the devices          (PyTorch)
    smddp       as ddp, with SageMaker's collective operations                              (some images of AWS)
    smp         as fsdp, with tensor and context parallelism                                (AWS's pytorch-smp images)
    deepspeed   optimiser state and gradients are spread: ZeRO stage 2                      (package deepspeed)

smddp, smp and deepspeed need GPUs and packages of their own, and have never trained: smddp and smp were started with
stand-ins for those packages, of deepspeed the configuration was checked.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch

from paretune.core.errors import BadInput
from paretune.spec.job import JobSpec
from paretune.training import device
from paretune.training.model import leave_out_unused_rows, optimizer_skips_zero_gradients, restore_embeddings
from paretune.training.trainer import LengthGroupedTrainer

PROCESS_TIMEOUT_S = 600
"""Longest wait of a process for the others, in seconds, NCCL's default: when an instance dies without closing its
connections, the others fail after it. Saving or gathering a model must be done in that time."""


class Strategy:
    """Plain data parallelism, and what the others change of it.

    Args:
        spec: the job.
    """

    package: tuple[str, str] | None = None
    """Module that the image must have, and the remedy when it has not."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec

    def begin(self) -> None:
        """Start the strategy's library, in each process, before anything else meets the other processes.

        Raises:
            BadInput: the image has no such library.
        """
        if self.package is not None and not _has(self.package[0]):
            name, remedy = self.package
            raise BadInput([f"strategy {self.spec.strategy} needs package {name}, which this image lacks: {remedy}"])

    def data_rank(self) -> int:
        """Number of this process among those that train on rows of their own."""
        return int(os.environ.get("RANK", "0"))

    def training_arguments(self) -> dict[str, Any]:
        """Arguments that the Trainer needs for it."""
        return {"ddp_timeout": PROCESS_TIMEOUT_S}

    def spread(self, model: Any) -> Any:
        """The model as the Trainer is to get it; the processes have met."""
        return model

    def trainer_class(self) -> type[LengthGroupedTrainer]:
        """The Trainer that can save and resume such a model."""
        return LengthGroupedTrainer

    def trains_used_rows_only(self, model: Any, used: Callable[[], Any]) -> bool:
        """Leave the embedding rows that the data does not use out of the training, where that is allowed; say whether.

        Args:
            model: the model, before it is spread.
            used: gives the token ids that the data uses.
        """
        allowed = optimizer_skips_zero_gradients(self.spec.training_arguments)
        return allowed and leave_out_unused_rows(model, used())

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: str) -> None:
        """Write the trained model as a Hugging Face folder; all processes must call it, the first one writes.

        Args:
            trainer: has finished.
            build: makes a model of the same shape as the one that was given to `spread`.
            folder: where to.
        """
        restore_embeddings(trainer.model)
        if trainer.is_world_process_zero():
            trainer.save_model(folder)


class FullySharded(Strategy):
    """PyTorch FSDP: `fully_shard` of every layer, on GPUs (NCCL) and CPUs (gloo) alike."""

    def spread(self, model: Any) -> Any:
        """The model, its parameters spread over all processes."""
        from paretune.training.sharding import shard

        return shard(model, device.choose_precision(self.spec.precision))

    def trainer_class(self) -> type[LengthGroupedTrainer]:
        """The Trainer of sharded models."""
        from paretune.training.sharding import ShardedTrainer

        return ShardedTrainer

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: str) -> None:
        """Gather the weights in the first process, which writes them."""
        from paretune.training.sharding import gather

        plain = gather(trainer.model, build)
        if plain is not None:
            restore_embeddings(plain)
            plain.save_pretrained(folder)


class SageMakerDataParallel(Strategy):
    """SageMaker's collectives (smddp) under PyTorch's data parallelism.

    The backend is chosen here and not through transformers: with its switch, SM_FRAMEWORK_PARAMS, it expects variables
    of SageMaker's MPI launcher, which torchrun does not set. So the switch is taken away.
    Source: SageMaker Developer Guide, "Adapt your training script to use the SMDDP collective operations".
    """

    package = (
        "smdistributed",
        "choose an image of AWS that has it with image_uri and instances with EFA, such as ml.p4d.24xlarge, or use ddp",
    )

    def begin(self) -> None:
        """Register the backend and meet the other processes through it."""
        super().begin()
        os.environ.pop("SM_FRAMEWORK_PARAMS", None)
        importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")  # registers the backend

        if device.has_gpu():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if "RANK" in os.environ and not torch.distributed.is_initialized():
            torch.distributed.init_process_group("smddp", timeout=timedelta(seconds=PROCESS_TIMEOUT_S))


class SageMakerModelParallel(FullySharded):
    """SageMaker's model parallel library, version 2: its transformations under PyTorch's first FSDP.

    The degrees come from the specification, so that the request needs nothing: `torch.sagemaker.init` takes them as a
    mapping. Rows are dealt to groups of tensor x context parallel processes, which are neighbours in rank.
    Source: SageMaker Developer Guide, "The SageMaker model parallel library v2 reference".
    """

    package = ("torch.sagemaker", "choose a pytorch-smp image of AWS with image_uri, or use fsdp")

    def begin(self) -> None:
        """Start the library with the degrees of the specification."""
        super().begin()
        tsm = importlib.import_module("torch.sagemaker")
        if device.has_gpu():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        tsm.init(self.configuration())

    def configuration(self) -> dict[str, int | bool]:
        """The library's own names and values."""
        spec = self.spec
        degrees = {
            "tensor_parallel_degree": spec.tensor_parallel_degree,
            "context_parallel_degree": spec.context_parallel_degree,
            "expert_parallel_degree": spec.expert_parallel_degree,
            "hybrid_shard_degree": spec.hybrid_shard_degree,
        }
        given: dict[str, int | bool] = {name: value for name, value in degrees.items() if value is not None}
        return given | {"sm_activation_offloading": spec.activation_offloading, "random_seed": spec.seed}

    def data_rank(self) -> int:
        """Number of this process's group of tensor and context parallel processes."""
        spec = self.spec
        return super().data_rank() // ((spec.tensor_parallel_degree or 1) * (spec.context_parallel_degree or 1))

    def training_arguments(self) -> dict[str, Any]:
        """The wrapped model does not tell the Trainer which of its arguments are labels."""
        return super().training_arguments() | {"label_names": ["labels"]}

    def trains_used_rows_only(self, model: Any, used: Callable[[], Any]) -> bool:
        """Never: the library replaces embedding tables by its own."""
        return False

    def spread(self, model: Any) -> Any:
        """The model, transformed, and sharded by PyTorch's first FSDP, to which the library's groups apply."""
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        from paretune.training.sharding import layers_of

        tsm = importlib.import_module("torch.sagemaker")
        model = tsm.transform(model)
        formats = {"bf16": torch.bfloat16, "fp16": torch.float16}
        number = formats.get(device.choose_precision(self.spec.precision))
        mixed = None if number is None else MixedPrecision(param_dtype=number, reduce_dtype=torch.float32)
        kinds: set[type[torch.nn.Module]] = {type(layer) for layer in layers_of(model)}
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy(kinds),
            mixed_precision=mixed,
            use_orig_params=True,
            device_id=torch.cuda.current_device() if device.has_gpu() else torch.device("cpu"),
        )


class DeepSpeed(Strategy):
    """DeepSpeed's ZeRO stage 2 through the Trainer's own integration; every value that it can derive is `auto`.

    A `deepspeed` of the user's own among the training arguments wins.
    """

    package = (
        "deepspeed",
        "choose an image that has it with image_uri, or add it to the job's requirements, or use fsdp",
    )

    def training_arguments(self) -> dict[str, Any]:
        """The DeepSpeed configuration."""
        auto: Mapping[str, Any] = {
            "train_micro_batch_size_per_gpu": "auto",
            "train_batch_size": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"},
            "fp16": {"enabled": "auto"},
        }
        zero = {"stage": 2, "overlap_comm": True, "contiguous_gradients": True, "reduce_scatter": True}
        return super().training_arguments() | {"deepspeed": {**auto, "zero_optimization": zero}}

    def trains_used_rows_only(self, model: Any, used: Callable[[], Any]) -> bool:
        """Never: DeepSpeed keeps flat copies of the parameters, which putting a table back would miss."""
        return False

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: str) -> None:
        """Every process takes part in DeepSpeed's own gathering."""
        trainer.save_model(folder)


_STRATEGIES: Mapping[str, type[Strategy]] = {
    "ddp": Strategy,
    "fsdp": FullySharded,
    "smddp": SageMakerDataParallel,
    "smp": SageMakerModelParallel,
    "deepspeed": DeepSpeed,
}


def strategy_of(spec: JobSpec) -> Strategy:
    """The strategy a job asks for; a job of one process is spread over nothing, so it trains as with ddp."""
    alone = "RANK" not in os.environ and spec.strategy in {"fsdp", "smddp"}
    return (Strategy if alone else _STRATEGIES[spec.strategy])(spec)


def strategy_faults(spec: JobSpec) -> list[str]:
    """What the strategy cannot do; empty if it can do the job. Scripts of the user's own are not looked at."""
    faults: list[str] = []
    if spec.entry_script is not None:
        return faults
    sharded = spec.strategy in {"fsdp", "smp"}
    if spec.compiler != "none" and (sharded or spec.strategy == "deepspeed"):
        faults.append(f"compiler {spec.compiler} goes with strategy ddp, got {spec.strategy}: set compiler=none")
    for name in ("fsdp", "fsdp_config", "deepspeed", "ddp_backend", "parallelism_config"):
        if name in spec.training_arguments and not (name == "deepspeed" == spec.strategy):
            faults.append(f"training_arguments must not set {name}: use the parameter strategy")
    if sharded and spec.training_arguments.get("save_only_model"):
        faults.append(f"training_arguments must not set save_only_model with strategy {spec.strategy}: leave it out")
    return faults


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False
