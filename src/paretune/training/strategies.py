"""How the model of one job is distributed over devices: one class per value of the parameter `strategy`.

    ddp         every device has the whole model; gradients are averaged                    (PyTorch)
    fsdp        weights, gradients and optimiser state are sharded over the devices; matrices may be divided over
                tensor groups, or layers into the stages of a pipeline (folder parallel)    (PyTorch)
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
from paretune.estimating.workload import trains_used_rows
from paretune.specification.job import JobSpec
from paretune.training import device
from paretune.training.model import leave_out_unused_rows, restore_embeddings
from paretune.training.parallel.activations import compute_again
from paretune.training.parallel.mesh import PIPELINE, TENSOR, mesh_of
from paretune.training.parallel.pipeline import Pipeline
from paretune.training.parallel.stages import Stage
from paretune.training.parallel.tensor import divide_matrices
from paretune.training.returned import ReturnedFolder
from paretune.training.sharding import PipelinedTrainer, ShardedTrainer, gather, layers_of, shard
from paretune.training.shared.together import SharedModel
from paretune.training.shared.turns import Seat
from paretune.training.trainer import LengthGroupedTrainer, SideBySideTrainer

PROCESS_TIMEOUT_S = 600
"""Timeout of the process group in seconds, NCCL's default: the other processes fail so long after an instance has ended
without closing its connections. Saving or gathering a model must not take longer."""


class Strategy:
    """Plain data parallelism (ddp), and the base class of the other strategies."""

    package: tuple[str, str] | None = None
    """Module that the image must have, and what to do if it is missing."""

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

    def make(self, build: Callable[[], Any]) -> Any:
        """The model to train, as `build` makes it."""
        return build()

    def spread(self, model: Any) -> Any:
        """The model to give to the Trainer; called after the process group is initialised."""
        spec = self.spec
        if spec.activation_checkpointing:
            compute_again(model, offload=spec.activation_offloading, on_gpu=device.has_gpu())
        return model

    def trainer(self, **arguments: Any) -> LengthGroupedTrainer:
        """The Trainer that saves and resumes the model that `spread` returns."""
        return LengthGroupedTrainer(**arguments)

    def leave_out_rows(self, model: Any, used: Callable[[], Any]) -> None:
        """Train only the embedding rows of `used()`, the token ids in the data, where possible; before `spread`."""
        if trains_used_rows(self.spec):
            leave_out_unused_rows(model, used())

    def facts(self) -> dict[str, int]:
        """What a report says of the strategy that its specification does not."""
        return {}

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: ReturnedFolder) -> None:
        """Write the trained model as a Hugging Face folder; all processes must call it, the first one writes.

        `build` makes a model of the same shape as the one given to `spread`.
        """
        restore_embeddings(trainer.model)
        if not trainer.is_world_process_zero():
            return
        if folder.has_adapters:
            folder.write(trainer.model)
        else:
            trainer.save_model(str(folder.path))


class SideBySide(Strategy):
    """One training of several in a process, on one frozen base, in a `seat` of its own."""

    def __init__(self, spec: JobSpec, *, seat: Seat, shared: SharedModel, trials: int) -> None:
        super().__init__(spec)
        self._trials = trials
        self._seat = seat
        self._shared = shared

    def make(self, build: Callable[[], Any]) -> Any:
        """A model with weights to train of its own and the frozen ones of all."""
        return self._shared.make(build)

    def trainer(self, **arguments: Any) -> LengthGroupedTrainer:
        """A Trainer that does its steps together with the others."""
        return SideBySideTrainer(seat=self._seat, **arguments)

    def facts(self) -> dict[str, int]:
        """How many trials began side by side: seconds of each are its share, memory is that of all."""
        return {"side_by_side": self._trials}


class FullySharded(Strategy):
    """PyTorch FSDP: `fully_shard` of every layer, on GPUs (NCCL) and CPUs (gloo).

    With a `tensor_parallel_degree` the matrices of each layer are divided first, with a `pipeline_parallel_degree` the
    layers; what is left of the model is sharded over the processes that train on different rows.
    """

    def __init__(self, spec: JobSpec) -> None:
        super().__init__(spec)
        self._degrees = spec.degrees

    def begin(self) -> None:
        """For `cpu_offload` initialise a process group that also exchanges what lies in the machine's memory.

        Raises:
            BadInput: a pipeline in fp16, whose stages would each scale the loss alone.
        """
        super().begin()
        if self._degrees.pipeline > 1 and device.choose_precision(self.spec.precision) == "fp16":
            raise BadInput([f"a pipeline needs precision bf16 or fp32 on {device.device_name()}: set precision=fp32"])
        if not self.spec.cpu_offload or torch.distributed.is_initialized():
            return
        alone: dict[str, Any] = {}
        if "RANK" not in os.environ:
            alone = {"store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}  # type: ignore[attr-defined]
        if device.has_gpu():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl" if device.has_gpu() else "gloo"
        torch.distributed.init_process_group(backend, timeout=timedelta(seconds=PROCESS_TIMEOUT_S), **alone)

    def data_rank(self) -> int:
        """The same for the processes of a tensor (x context) group and for the stages of a pipeline."""
        return self._degrees.data_rank(super().data_rank())

    def training_arguments(self) -> dict[str, Any]:
        """Also the names of labels, which the Trainer cannot read from a stage."""
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
            where = torch.device("cuda", torch.cuda.current_device()) if device.has_gpu() else torch.device("cpu")
            number = degrees.stage(torch.distributed.get_rank())
            model = Stage(model, number=number, stages=degrees.pipeline)
            parts = spec.micro_batches or degrees.pipeline
            model.pipeline = Pipeline(model, mesh[PIPELINE].get_group(), micro_batches=parts, device=where)
        return shard(model, mesh, device.choose_precision(spec.precision), cpu_offload=spec.cpu_offload)

    def trainer(self, **arguments: Any) -> LengthGroupedTrainer:
        """A Trainer of a model that is divided."""
        kind = PipelinedTrainer if self._degrees.pipeline > 1 else ShardedTrainer
        return kind(degrees=self._degrees, offloaded=self.spec.cpu_offload, **arguments)

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: ReturnedFolder) -> None:
        """Gather the weights in the first process, which writes them."""
        plain = gather(trainer.model, build)
        if plain is None:
            return
        restore_embeddings(plain)
        if folder.has_adapters:
            folder.write(plain)
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
    group of tensor x context parallel processes, which have adjacent ranks, trains on the same rows.
    Source: SageMaker Developer Guide, "The SageMaker model parallel library v2 reference".
    """

    package = ("torch.sagemaker", "set image_uri to an AWS pytorch-smp image, or use fsdp")

    def begin(self) -> None:
        """Initialise the library with the degrees of the specification."""
        super().begin()
        tsm = importlib.import_module("torch.sagemaker")
        if device.has_gpu():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        names = ("tensor_parallel_degree", "context_parallel_degree", "expert_parallel_degree", "hybrid_shard_degree")
        degrees = {name: value for name in names if (value := getattr(self.spec, name)) is not None}
        tsm.init(degrees | {"sm_activation_offloading": self.spec.activation_offloading, "random_seed": self.spec.seed})

    def training_arguments(self) -> dict[str, Any]:
        """Also the names of labels, which the Trainer cannot read from the wrapped model."""
        return super().training_arguments() | {"label_names": ["labels"]}

    def spread(self, model: Any) -> Any:
        """The model, transformed by the library and sharded by PyTorch's FSDP version 1, which uses its groups.

        Layers are computed again by PyTorch's wrapper, as the library's documentation does it: it replaces those that
        transformers could compute again.
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
        if self.spec.activation_checkpointing:
            apply_activation_checkpointing(sharded, check_fn=lambda module: type(module) in kinds)
        return sharded


class DeepSpeed(Strategy):
    """DeepSpeed's ZeRO stage 2 through the Trainer's integration; values that it can derive are `auto`.

    A configuration in the user's `training_arguments` under `deepspeed` replaces it.
    """

    package = ("deepspeed", "set image_uri to an image that has it, or add it to the job's requirements, or use fsdp")

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

    def save(self, trainer: LengthGroupedTrainer, build: Callable[[], Any], folder: ReturnedFolder) -> None:
        """Write the model with DeepSpeed's own gathering, in which every process takes part; adapters unmerged."""
        trainer.save_model(str(folder.path))


_STRATEGIES: Mapping[str, type[Strategy]] = {
    "ddp": Strategy,
    "fsdp": FullySharded,
    "smddp": SageMakerDataParallel,
    "smp": SageMakerModelParallel,
    "deepspeed": DeepSpeed,
}


def strategy_of(spec: JobSpec) -> Strategy:
    """The strategy of a job; ddp where fsdp or smddp has only one process, unless that one offloads its weights."""
    alone = "RANK" not in os.environ and spec.strategy in {"fsdp", "smddp"} and not spec.cpu_offload
    return (Strategy if alone else _STRATEGIES[spec.strategy])(spec)


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False
