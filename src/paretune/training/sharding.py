"""A model divided over processes: filled by the first of them, trained by all, and saved piece by piece.

The Hugging Face Trainer's own FSDP is not used: on CPUs it silently trains with plain data parallelism (transformers
5.23), and it has no pipelines. PyTorch's `fully_shard` works on GPUs and CPUs.

Only the first process ever holds the whole model, in the machine's memory, while it sends one tensor after another to
the others. It gathers and writes the trained model file by file. Checkpoints are written by all processes, each its
own share (torch.distributed.checkpoint), and read by any number of processes with the same tensor groups and stages.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import distributed
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from paretune.specification.job import JobSpec
from paretune.training import device, processes
from paretune.training.model import Shape, layers_of
from paretune.training.parallel.pipeline import STAGE_PREFIX, Pipeline, Stage
from paretune.training.parallel.tensor import divide_matrices

PIPELINE, REPLICATE, SHARD, TENSOR = "pipeline", "replicate", "shard", "tensor"
"""Dimensions of the mesh, in the order of the ranks: those of a tensor group are adjacent."""
_STATE = "shares"  # folder of a checkpoint with the trained weights and the optimiser's moments
_WEIGHTS, _SCHEDULER = "model.safetensors", "scheduler.pt"  # the Trainer's own names
_TRAINED = StateDictOptions(ignore_frozen_params=True, strict=False, flatten_optimizer_state_dict=True)

Build = Callable[..., tuple[Any, list[str]]]
"""Makes the whole model, or with `drawn` its layers on the device meta; also returns the names of drawn layers."""


def shard(model: Any, mesh: DeviceMesh, precision: str, *, cpu_offload: bool = False) -> Any:
    """`model` with every parameter sharded over the N sharers of `mesh`, one layer at a time; each keeps about 1/N.

    Outside forward and backward the parameters are fp32 DTensors, sharded along their first dimension. With bf16 or
    fp16 a layer is gathered and computed in that precision, and gradients are summed in fp32. Frozen parameters are
    sharded too. With several replicas in the mesh each group of sharers has a whole copy, and gradients are averaged
    over all. With `cpu_offload` the shards and the optimiser stay in the machine's memory. With a single sharer and
    replica the model is left unchanged, unless it is offloaded, because gathering would copy each layer.
    """
    copies = mesh[REPLICATE].size()
    if copies * mesh[SHARD].size() == 1 and not cpu_offload:
        return model
    policy = MixedPrecisionPolicy(param_dtype=device.half_format(precision), reduce_dtype=torch.float32)
    share = partial(
        fully_shard,
        mesh=mesh[REPLICATE, SHARD] if copies > 1 else mesh[SHARD],
        mp_policy=policy,
        offload_policy=CPUOffloadPolicy(pin_memory=device.has_gpu()) if cpu_offload else OffloadPolicy(),
        # In a pipeline a layer would be gathered anew for each micro-batch.
        reshard_after_forward=False if mesh[PIPELINE].size() > 1 else None,
    )
    for module in (*layers_of(model), model):
        share(module)
    return model


class Division(TrainerCallback):  # type: ignore[misc]  # transformers ships no types for callbacks
    """The part of a model that this process trains; as a callback of the Trainer it restores checkpoints.

    Gradients are summed over the devices in every micro-batch, so that they stay sharded while they accumulate.

    Attributes:
        part: the module for the Trainer: the model with its weights sharded, or a `Stage` of it.
        pipeline: the pipeline that `part` is a stage of, or None.
        model: the Hugging Face model, or the rest of it in a stage.
        shape: class and sizes of the whole model.
        resumes_from: the checkpoint to go on from, or None.
    """

    part: Any
    pipeline: Pipeline | None = None
    resumes_from: Path | None = None

    def __init__(self, spec: JobSpec, build: Build) -> None:
        """Divide the model that `build` makes."""
        self._degrees = degrees = spec.degrees
        on_gpu = device.has_gpu()
        self._compute = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self._device = torch.device("cpu") if spec.cpu_offload else self._compute
        whole, drawn = build() if distributed.get_rank() == 0 else (None, [])
        part, _ = build(drawn=processes.of_first(drawn))
        self.model, self.shape = part, Shape.of(part)
        shape = (degrees.pipeline, degrees.replicas, degrees.sharers, degrees.tensor)
        names = (PIPELINE, REPLICATE, SHARD, TENSOR)
        mesh = init_device_mesh(self._compute.type, shape, mesh_dim_names=names)
        if degrees.tensor > 1:
            divide_matrices(part, mesh[TENSOR])
        if degrees.pipeline > 1:
            part = Stage(part, number=degrees.stage(distributed.get_rank()), stages=degrees.pipeline)
            micro_batches = spec.micro_batches or degrees.pipeline
            group = mesh[PIPELINE].get_group()
            self.pipeline = Pipeline(part, group, micro_batches=micro_batches, device=self._compute)
        self.part = shard(part, mesh, device.choose_precision(spec.precision), cpu_offload=spec.cpu_offload)
        self._fill(whole)

    @torch.no_grad()
    def _fill(self, whole: Any | None) -> None:
        """Give the part, which is on the device meta, the values of the model that only the first process has."""
        shared: dict[int, tuple[torch.nn.Module, str]] = {}
        ties = []
        for module in self.part.modules():
            for name, item in module._parameters.items():
                if item is not None and shared.setdefault(id(item), (module, name)) != (module, name):
                    ties.append((module, name, shared[id(item)]))
        self.part.to_empty(device=self._device)
        for module, name, (owner, of_owner) in ties:
            setattr(module, name, getattr(owner, of_owner))
        found = {} if whole is None else {name: item.cpu() for name, item in whole.named_buffers()}
        buffers = processes.of_first(found)
        for prefix, module in self.part.named_modules():
            for name, item in module._buffers.items():
                if item is None:
                    continue
                value = buffers[self._name(f"{prefix}.{name}".lstrip("."))].to(self._compute)
                if isinstance(item, DTensor):
                    value = DTensor.from_local(value, item.device_mesh, item.placements, run_check=False)
                module._buffers[name] = value
        own = {self._name(name): item for name, item in self.part.named_parameters()}
        for name, value in self._sent({} if whole is None else dict(whole.named_parameters()), 0):
            if name in own:
                _assign(own[name], value)

    def _sent(self, tensors: Mapping[str, torch.Tensor], source: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and whole value of the `tensors` of process `source`, in all processes, one at a time.

        Processes that have shares of a tensor must pass theirs.
        """
        entries = [(name, item.shape, item.dtype) for name, item in tensors.items()]
        for name, shape, dtype in processes.of_first(entries, source):
            has_share = name in tensors
            value = processes.whole(tensors[name].detach()) if has_share else torch.empty(shape, dtype=dtype)
            value = value.to(self._device).contiguous()
            distributed.broadcast(value.reshape(-1).view(torch.uint8), source)  # gloo knows no bf16
            yield name, value

    def _name(self, name: str) -> str:
        """The name that a tensor of the part has in the whole model; a copy of a tied table has that of the table."""
        if not isinstance(self.part, Stage):
            return name
        name = name.removeprefix(STAGE_PREFIX)
        is_copy = self.part.is_tied and not self.part.is_first and name == f"{self.part.head}.weight"
        return self.part.table if is_copy else name

    def share(self) -> tuple[int, int, bool]:
        """Number of this process's share of evaluated rows, number of shares, and whether it reports the results.

        Processes that train on the same rows evaluate the same, and one of them reports it.
        """
        rank = distributed.get_rank()
        return self._degrees.data_rank(rank), self._degrees.data, self._degrees.is_last_with_its_rows(rank)

    def clip(self, limit: float) -> torch.Tensor:
        """The norm of all gradients of the model, which are scaled down if it is above `limit`."""
        parameters = [item for item in self.part.parameters() if item.grad is not None]
        if self.pipeline is None:
            norm = processes.whole(torch.nn.utils.get_total_norm([item.grad for item in parameters]))
        else:
            norm = self.pipeline.gradient_norm()
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
        return norm

    @torch.no_grad()
    def parts_of(self, model: Any, most_bytes: float) -> Iterator[dict[str, torch.Tensor]]:
        """Name to value of each weight of the whole `model`, in parts of up to `most_bytes` or of one weight.

        Parts are empty but in the first process. All processes must take all of them: one weight is gathered at a time.
        `model` is the attribute, or without its adapters if there are any.
        """
        part, size = dict[str, torch.Tensor](), 0
        for name, value in _weights_of(model) if self.pipeline is None else self._weights_of_stages():
            if size and size + value.nbytes > most_bytes:
                yield part
                part, size = {}, 0
            size += value.nbytes
            if processes.is_first():
                part[name] = value.cpu()
        yield part

    def _weights_of_stages(self) -> Iterator[tuple[str, torch.Tensor]]:
        per_stage = distributed.get_world_size() // self._degrees.pipeline
        own = {self._name(name): item for name, item in self.part.state_dict().items()}
        seen: set[str] = set()
        for stage in range(self._degrees.pipeline):
            is_own = distributed.get_rank() // per_stage == stage
            for name, value in self._sent(own if is_own else {}, stage * per_stage):
                if name not in seen:
                    seen.add(name)
                    yield name, value

    def reshard(self) -> None:
        """Free gathered weights, which an evaluation leaves gathered."""
        for module in self.part.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def _state(self, optimizer: Any) -> dict[str, Any]:
        """Trained weights and the optimiser's state in this process; makes the state if there is none yet."""
        self.reshard()  # the optimiser has the sharded parameters
        weights, moments = get_state_dict(self.part, _bare(optimizer), options=_TRAINED)
        return {"weights": weights, "moments": moments}

    def save(self, checkpoint: Path, optimizer: Any, scheduler: Any) -> None:
        """Write this process's share of a checkpoint. All processes must call it."""
        state_dict_saver.save(self._state(optimizer), checkpoint_id=checkpoint / _STATE)
        if distributed.get_rank() == 0:
            save_file({}, checkpoint / _WEIGHTS)  # the Trainer reads a file of weights
            torch.save(scheduler.state_dict(), checkpoint / _SCHEDULER)

    def _load(self, checkpoint: Path, optimizer: Any) -> None:
        state = self._state(optimizer)
        state_dict_loader.load(state, checkpoint_id=checkpoint / _STATE)
        weights, moments = state["weights"], state["moments"]
        set_state_dict(
            self.part, _bare(optimizer), model_state_dict=weights, optim_state_dict=moments, options=_TRAINED
        )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any
    ) -> None:
        """Restore the checkpoint to go on from."""
        if self.resumes_from is not None:
            self._load(self.resumes_from, objects["optimizer"])
            objects["lr_scheduler"].load_state_dict(torch.load(self.resumes_from / _SCHEDULER, weights_only=True))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any
    ) -> None:
        """Restore the best checkpoint if the training returns it."""
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self._load(Path(state.best_model_checkpoint), objects["optimizer"])


def _assign(parameter: torch.Tensor, value: torch.Tensor) -> None:
    """Set this process's share of the parameter from the whole value."""
    if not isinstance(parameter, DTensor):
        parameter.copy_(value)
        return
    shape, start = compute_local_shape_and_global_offset(value.shape, parameter.device_mesh, parameter.placements)
    share = value[tuple(slice(first, first + size) for first, size in zip(start, shape, strict=True))]
    parameter.to_local().copy_(share)


def _weights_of(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and value of each weight and buffer of a model in files; a tied weight once."""
    copies = dict(model.named_parameters(remove_duplicate=False)).keys() - dict(model.named_parameters()).keys()
    for name, item in model.state_dict().items():
        if name not in copies:
            yield name, processes.whole(item)


def _bare(optimizer: Any) -> Any:
    return getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
