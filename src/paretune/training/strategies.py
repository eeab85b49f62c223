"""How the model of one job is distributed over devices: one class per value of the parameter `strategy`.

    ddp         every device has the whole model; gradients are averaged                    (PyTorch)
    fsdp        weights, gradients and optimiser state are sharded over the devices         (PyTorch)
    smddp       as ddp, with SageMaker's collective operations                              (some AWS images)
    smp         as fsdp, with tensor and context parallelism                                (AWS pytorch-smp images)
    deepspeed   optimiser state and gradients are sharded: ZeRO stage 2                     (package deepspeed)

smddp, smp and deepspeed need GPUs and further packages. No training has run with them: smddp and smp were started with
stand-ins for those packages; of deepspeed the configuration was checked.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch

from paretune.core.errors import BadInput
from paretune.estimating.workload import optimizer_skips_zero_gradients
from paretune.spec.job import JobSpec
from paretune.training import device
from paretune.training.model import leave_out_unused_rows, restore_embeddings
from paretune.training.sharding import HALF_FORMATS, ShardedTrainer, gather, layers_of, shard
from paretune.training.trainer import LengthGroupedTrainer

PROCESS_TIMEOUT_S = 600
"""Timeout of the process group in seconds, NCCL's default: the other processes fail so long after an instance has ended
without closing its connections. Saving or gathering a model must not take longer."""


class Strategy:
    """Plain data parallelism (ddp), and the base class of the other strategies."""

    package: tuple[str, str] | None = None
    """Module that the image must have, and what to do if it is missing."""
    trainer_class = LengthGroupedTrainer
    """The Trainer class that saves and resumes the model that `spread` returns."""
    may_leave_out_rows = True
    """Whether embedding rows of tokens that the data do not contain may be left out of the training."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec

    def begin(self) -> None:
        """Initialise the strategy's library, in each process before the process group is used; BadInput without it."""
        if self.package is not None and not _has(self.package[0]):
            name, remedy = self.package
            raise BadInput([f"strategy {self.spec.strategy} needs package {name}, which this image lacks: {remedy}"])

    def data_rank(self) -> int:
        """Rank of this process among those that train on different rows."""
        return int(os.environ.get("RANK", "0"))

    def training_arguments(self) -> dict[str, Any]:
        """TrainingArguments of the strategy."""
        return {"ddp_timeout": PROCESS_TIMEOUT_S}

    def spread(self, model: Any) -> Any:
        """The model to give to the Trainer; called after the process group is initialised."""
        return model

    def leave_out_rows(self, model: Any, used: Callable[[], Any]) -> None:
        """Train only the embedding rows of `used()`, the token ids in the data, where possible; before `spread`."""
        if self.may_leave_out_rows and optimizer_skips_zero_gradients(self.spec.training_arguments):
            leave_out_unused_rows(model, used())

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: str) -> None:
        """Write the trained model as a Hugging Face folder; all processes must call it, the first one writes.

        `build` makes a model of the same shape as the one given to `spread`.
        """
        restore_embeddings(trainer.model)
        if trainer.is_world_process_zero():
            trainer.save_model(folder)


class FullySharded(Strategy):
    """PyTorch FSDP: `fully_shard` of every layer, on GPUs (NCCL) and CPUs (gloo)."""

    trainer_class = ShardedTrainer

    def spread(self, model: Any) -> Any:
        """The model with its parameters sharded over all processes."""
        return shard(model, device.choose_precision(self.spec.precision))

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: str) -> None:
        """Gather the weights in the first process, which writes them."""
        plain = gather(trainer.model, build)
        if plain is not None:
            restore_embeddings(plain)
            plain.save_pretrained(folder)


class SageMakerDataParallel(Strategy):
    """PyTorch's data parallelism with SageMaker's collective operations (smddp).

    The backend is set here and not by transformers, which with SM_FRAMEWORK_PARAMS set expects variables of SageMaker's
    MPI launcher that torchrun does not set. So SM_FRAMEWORK_PARAMS is removed.
    Source: SageMaker Developer Guide, "Adapt your training script to use the SMDDP collective operations".
    """

    package = (
        "smdistributed",
        "set image_uri to an AWS image that has it and choose instances with EFA, such as ml.p4d.24xlarge, or use ddp",
    )

    def begin(self) -> None:
        """Register the backend and initialise the process group with it."""
        super().begin()
        os.environ.pop("SM_FRAMEWORK_PARAMS", None)
        importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")  # registers the backend

        if device.has_gpu():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if "RANK" in os.environ and not torch.distributed.is_initialized():
            torch.distributed.init_process_group("smddp", timeout=timedelta(seconds=PROCESS_TIMEOUT_S))


class SageMakerModelParallel(FullySharded):
    """SageMaker's model parallel library, version 2: its transformations with PyTorch's FSDP version 1.

    `torch.sagemaker.init` gets the degrees from the specification, so the job request needs no further entries. Each
    group of tensor x context parallel processes, which have adjacent ranks, trains on the same rows.
    Source: SageMaker Developer Guide, "The SageMaker model parallel library v2 reference".
    """

    package = ("torch.sagemaker", "set image_uri to an AWS pytorch-smp image, or use fsdp")
    may_leave_out_rows = False  # the library replaces embedding tables by its own

    def begin(self) -> None:
        """Initialise the library with the degrees of the specification."""
        super().begin()
        tsm = importlib.import_module("torch.sagemaker")
        if device.has_gpu():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        names = ("tensor_parallel_degree", "context_parallel_degree", "expert_parallel_degree", "hybrid_shard_degree")
        degrees = {name: value for name in names if (value := getattr(self.spec, name)) is not None}
        tsm.init(degrees | {"sm_activation_offloading": self.spec.activation_offloading, "random_seed": self.spec.seed})

    def data_rank(self) -> int:
        """Index of this process's group of tensor and context parallel processes."""
        spec = self.spec
        return super().data_rank() // ((spec.tensor_parallel_degree or 1) * (spec.context_parallel_degree or 1))

    def training_arguments(self) -> dict[str, Any]:
        """Also the names of labels, which the Trainer cannot read from the wrapped model."""
        return super().training_arguments() | {"label_names": ["labels"]}

    def spread(self, model: Any) -> Any:
        """The model, transformed by the library and sharded by PyTorch's FSDP version 1, which uses its groups."""
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        model = importlib.import_module("torch.sagemaker").transform(model)
        number = HALF_FORMATS.get(device.choose_precision(self.spec.precision))
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
    """DeepSpeed's ZeRO stage 2 through the Trainer's integration; values that it can derive are `auto`.

    A configuration in the user's `training_arguments` under `deepspeed` replaces it.
    """

    package = ("deepspeed", "set image_uri to an image that has it, or add it to the job's requirements, or use fsdp")
    may_leave_out_rows = False  # it trains flat copies of the parameters, so the whole table could not be restored

    def training_arguments(self) -> dict[str, Any]:
        """The DeepSpeed configuration."""
        sizes = ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")
        zero = {"stage": 2, "overlap_comm": True, "contiguous_gradients": True, "reduce_scatter": True}
        configuration: dict[str, Any] = {
            **dict.fromkeys((*sizes, "gradient_clipping"), "auto"),
            **{precision: {"enabled": "auto"} for precision in ("bf16", "fp16")},
            "zero_optimization": zero,
        }
        return super().training_arguments() | {"deepspeed": configuration}

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: str) -> None:
        """Write the model with DeepSpeed's own gathering, in which every process takes part."""
        trainer.save_model(folder)


_STRATEGIES: Mapping[str, type[Strategy]] = {
    "ddp": Strategy,
    "fsdp": FullySharded,
    "smddp": SageMakerDataParallel,
    "smp": SageMakerModelParallel,
    "deepspeed": DeepSpeed,
}


def strategy_of(spec: JobSpec) -> Strategy:
    """The strategy of a job; ddp where a job with fsdp or smddp has only one process."""
    alone = "RANK" not in os.environ and spec.strategy in {"fsdp", "smddp"}
    return (Strategy if alone else _STRATEGIES[spec.strategy])(spec)


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False
