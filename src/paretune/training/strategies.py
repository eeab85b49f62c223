"""The distribution of the model of one job over devices: one class per value of the parameter `strategy`.

    ddp         every device has the whole model; gradients are averaged                    (PyTorch)
    fsdp        weights, gradients and optimiser state are sharded over the devices; matrices may be divided over
                tensor groups, or layers into the stages of a pipeline (folder parallel)    (PyTorch)
    smddp       as ddp, with SageMaker's collective operations                              (some AWS images)
    smp         as fsdp, with tensor parallelism                                            (AWS pytorch-smp images)
    deepspeed   optimiser state and gradients are sharded: ZeRO stage 2                     (package deepspeed)

smddp, smp and deepspeed need GPUs and further packages. No training has run with them: smddp and smp were started with
stand-ins for those packages, and for deepspeed only the configuration was checked.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import DEEPSPEED, DEVICE_MAP, ZERO3, ZERO3_LIVE
from paretune.training import device
from paretune.training.model import layers_of
from paretune.training.model_folder import ModelFolder
from paretune.training.parallel.pipeline import Pipeline
from paretune.training.parallel.sharding import (
    PIPELINE,
    TENSOR,
    PipelinedTrainer,
    ShardedTrainer,
    gather,
    mesh_of,
    shard,
)
from paretune.training.parallel.stages import Stage
from paretune.training.parallel.tensor import divide_matrices
from paretune.training.trainer import LengthGroupedTrainer

PROCESS_TIMEOUT_S = 600
"""Timeout of the process group in seconds, NCCL's default: after an instance has ended without closing its connections,
the other processes fail after this time. Saving or gathering a model must not take longer."""


class Strategy:
    """Plain data parallelism (ddp), and the base class of the other strategies."""

    package: tuple[str, str] | None = None  # module that the image must have, and the remedy if it is missing

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec

    def begin(self) -> None:
        """Initialise the strategy's library before the process group is used; raises BadInput if the image lacks it."""
        if self.package is not None and not _has(self.package[0]):
            name, remedy = self.package
            raise BadInput([f"strategy {self.spec.strategy} needs package {name}, which this image lacks: {remedy}"])

    def data_rank(self) -> int:
        """Rank of this process among those that train on different rows."""
        return int(os.environ.get("RANK", "0"))

    def training_arguments(self) -> dict[str, Any]:
        """TrainingArguments that the strategy needs."""
        return {"ddp_timeout": PROCESS_TIMEOUT_S}

    def spread(self, model: Any) -> Any:
        """The model to give to the Trainer; called after the process group is initialised."""
        spec = self.spec
        if spec.checkpoints_activations:
            checkpoint_activations(model, offload=spec.activation_offloading, on_gpu=device.has_gpu())
        return model

    def trainer(self, **arguments: Any) -> LengthGroupedTrainer:
        """The Trainer that saves and resumes the model that `spread` returns."""
        return LengthGroupedTrainer(**arguments)

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: ModelFolder) -> None:
        """Write the trained model as a Hugging Face folder; all processes must call it, the first one writes.

        `build` makes a model of the same shape as the one given to `spread`.
        """
        if not trainer.is_world_process_zero():
            return
        if folder.has_adapters:
            folder.write_adapters(trainer.model)
        else:
            trainer.save_model(str(folder.path))


def checkpoint_activations(model: Any, *, offload: bool, on_gpu: bool) -> None:
    """Make each layer of `model` keep only its input, and compute the rest again in the backward pass.

    The layers are those that transformers marks for it, `GradientCheckpointingLayer`. With `offload` the inputs are
    kept in the machine's memory; without a GPU they are there already, so it changes nothing. Results are the same:
    random numbers are drawn again from the same states.
    """

    def run(layer: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        if not offload:
            return checkpoint(layer, *inputs, use_reentrant=False, **options)
        with save_on_cpu(pin_memory=on_gpu):
            return checkpoint(layer, *inputs, use_reentrant=False, **options)

    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = run


class FullySharded(Strategy):
    """PyTorch FSDP: `fully_shard` of every layer, on GPUs (NCCL) and CPUs (gloo).

    With a `tensor_parallel_degree` the matrices of each layer are divided first, with a `pipeline_parallel_degree` the
    layers; the rest of the model is sharded over the processes that train on different rows.
    """

    def __init__(self, spec: JobSpec) -> None:
        super().__init__(spec)
        self._degrees = spec.degrees

    def begin(self) -> None:
        """For `cpu_offload` initialise a process group that can also exchange tensors on the CPU.

        Raises:
            BadInput: the job has a pipeline in fp16, whose stages would each scale the loss by themselves.
        """
        super().begin()
        if self._degrees.pipeline > 1 and device.choose_precision(self.spec.precision) == "fp16":
            raise BadInput([f"a pipeline needs precision bf16 or fp32 on {device.device_name()}: set precision=fp32"])
        if not self.spec.cpu_offload or torch.distributed.is_initialized():
            return
        options: dict[str, Any] = {}
        if "RANK" not in os.environ:  # the only process
            options = {"store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}  # type: ignore[attr-defined]
        if device.has_gpu():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl" if device.has_gpu() else "gloo"
        torch.distributed.init_process_group(backend, timeout=timedelta(seconds=PROCESS_TIMEOUT_S), **options)

    def data_rank(self) -> int:
        """The rank among those that train on different rows: equal within a tensor group and a pipeline."""
        return self._degrees.data_rank(super().data_rank())

    def training_arguments(self) -> dict[str, Any]:
        """Arguments of the base class and the names of labels, which the Trainer cannot read from a stage."""
        labels = {"label_names": ["labels"]} if self._degrees.pipeline > 1 else {}
        return super().training_arguments() | labels

    def spread(self, model: Any) -> Any:
        """The part of the model that this process trains."""
        spec, degrees = self.spec, self._degrees
        super().spread(model)
        mesh = mesh_of(degrees, "cuda" if device.has_gpu() else "cpu")
        if degrees.tensor > 1:
            divide_matrices(model, mesh[TENSOR])
        if degrees.pipeline > 1:
            own_device = torch.device("cuda", torch.cuda.current_device()) if device.has_gpu() else torch.device("cpu")
            number = degrees.stage(torch.distributed.get_rank())
            model = Stage(model, number=number, stages=degrees.pipeline)
            micro_batches = spec.micro_batches or degrees.pipeline
            group = mesh[PIPELINE].get_group()
            model.pipeline = Pipeline(model, group, micro_batches=micro_batches, device=own_device)
        return shard(model, mesh, device.choose_precision(spec.precision), cpu_offload=spec.cpu_offload)

    def trainer(self, **arguments: Any) -> LengthGroupedTrainer:
        """A Trainer for a sharded model or a stage of a pipeline."""
        kind = PipelinedTrainer if self._degrees.pipeline > 1 else ShardedTrainer
        return kind(degrees=self._degrees, offloaded=self.spec.cpu_offload, **arguments)

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: ModelFolder) -> None:
        """Gather the weights in the first process, which writes them."""
        plain = gather(trainer.model, build)
        if plain is None:
            return
        if folder.has_adapters:
            folder.write_adapters(plain)
        else:
            plain.save_pretrained(folder.path)


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
    group of tensor parallel processes, which have adjacent ranks, trains on the same rows.
    Source: SageMaker Developer Guide, "The SageMaker model parallel library v2 reference".
    """

    package = ("torch.sagemaker", "set image_uri to an AWS pytorch-smp image, or use fsdp")

    def begin(self) -> None:
        """Initialise the library with the degrees of the specification."""
        super().begin()
        tsm = importlib.import_module("torch.sagemaker")
        if device.has_gpu():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        names = ("tensor_parallel_degree", "hybrid_shard_degree")
        degrees = {name: value for name in names if (value := getattr(self.spec, name)) is not None}
        tsm.init(degrees | {"sm_activation_offloading": self.spec.activation_offloading, "random_seed": self.spec.seed})

    def training_arguments(self) -> dict[str, Any]:
        """Arguments of the base class and the names of labels, which the Trainer cannot read from the wrapped model."""
        return super().training_arguments() | {"label_names": ["labels"]}

    def spread(self, model: Any) -> Any:
        """The model, transformed by the library and sharded by PyTorch's FSDP version 1, which uses its groups.

        Activations are checkpointed by PyTorch's wrapper, as in the library's documentation, because the library
        replaces the layers that transformers could checkpoint.
        """
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        model = importlib.import_module("torch.sagemaker").transform(model)
        number = device.half_format(device.choose_precision(self.spec.precision))
        mixed = None if number is None else MixedPrecision(param_dtype=number, reduce_dtype=torch.float32)
        kinds: set[type[torch.nn.Module]] = {type(layer) for layer in layers_of(model)}
        sharded = FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy(kinds),
            mixed_precision=mixed,
            use_orig_params=True,
            device_id=torch.cuda.current_device() if device.has_gpu() else torch.device("cpu"),
        )
        if self.spec.checkpoints_activations:
            apply_activation_checkpointing(sharded, check_fn=lambda module: type(module) in kinds)
        return sharded


class DeepSpeed(Strategy):
    """DeepSpeed's ZeRO stage 2 or 3 through the Trainer's integration; values that DeepSpeed can derive are `auto`.

    Stage 2 shares gradients and moments, stage 3 also the weights, which are gathered for the saved model. A
    configuration in the user's `training_arguments` under `deepspeed` replaces it.
    """

    package = ("deepspeed", "set image_uri to an image that has it, or add it to the job's requirements, or use fsdp")

    def training_arguments(self) -> dict[str, Any]:
        """Arguments of the base class and the DeepSpeed configuration."""
        sizes = ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")
        zero: dict[str, Any] = {"overlap_comm": True, "contiguous_gradients": True, "reduce_scatter": True}
        if self.spec.strategy == ZERO3:
            buffers = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
            limits = ("stage3_max_live_parameters", "stage3_max_reuse_distance")
            zero |= dict.fromkeys(buffers, "auto") | dict.fromkeys(limits, ZERO3_LIVE)
            zero["stage3_gather_16bit_weights_on_model_save"] = True
        configuration: dict[str, Any] = {
            **dict.fromkeys((*sizes, "gradient_clipping"), "auto"),
            **{precision: {"enabled": "auto"} for precision in ("bf16", "fp16")},
            "zero_optimization": {"stage": 3 if self.spec.strategy == ZERO3 else 2, **zero},
        }
        return super().training_arguments() | {"deepspeed": configuration}

    def trainer(self, **arguments: Any) -> LengthGroupedTrainer:
        """The Trainer; processes with ZeRO stage 3 gather the weights of each layer together."""
        trainer = super().trainer(**arguments)
        trainer.is_divided = True
        return trainer

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: ModelFolder) -> None:
        """Write the model with DeepSpeed's own gathering, in which every process takes part; adapters stay unmerged."""
        trainer.save_model(str(folder.path))


_STRATEGIES: Mapping[str, type[Strategy]] = {
    "ddp": Strategy,
    "fsdp": FullySharded,
    "smddp": SageMakerDataParallel,
    "smp": SageMakerModelParallel,
    **dict.fromkeys(DEEPSPEED, DeepSpeed),
    DEVICE_MAP: Strategy,  # the model is loaded onto its devices
}


def strategy_of(spec: JobSpec) -> Strategy:
    """The strategy of a job; ddp if fsdp or smddp has only one process, unless that one offloads its weights."""
    is_plain = "RANK" not in os.environ and spec.strategy in {"fsdp", "smddp"} and not spec.cpu_offload
    return (Strategy if is_plain else _STRATEGIES[spec.strategy])(spec)


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False
