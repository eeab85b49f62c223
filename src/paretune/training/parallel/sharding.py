"""Weights, gradients and optimiser state sharded over the devices (PyTorch FSDP), and the Trainers of divided models.

The Hugging Face Trainer's own FSDP is not used: on CPUs it silently trains with plain data parallelism (transformers
5.23), and its argument names differ between releases. PyTorch's `fully_shard` works on GPUs and CPUs.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from paretune.specification.parallelism import ParallelDegrees
from paretune.training import device
from paretune.training.model import layers_of
from paretune.training.parallel import pipeline
from paretune.training.parallel.stages import Stage
from paretune.training.trainer import LengthGroupedTrainer

PIPELINE, REPLICATE, SHARD, TENSOR = "pipeline", "replicate", "shard", "tensor"
"""Dimensions of the mesh, in the order of the ranks: those of a tensor group are adjacent."""
_STATE = "sharded.pt"  # trained weights and optimiser state of a checkpoint, not sharded, written by the first process
_SCHEDULER = "scheduler.pt"  # the Trainer's own name


def mesh_of(degrees: ParallelDegrees, device_type: str) -> DeviceMesh:
    """All processes of the job: stages x copies of the weights x sharers of a copy x members of a tensor group.

    The process group must be initialised. `device_type` is `cuda` or `cpu`.
    """
    shape = (degrees.pipeline, degrees.replicas, degrees.sharers, degrees.tensor)
    return init_device_mesh(device_type, shape, mesh_dim_names=(PIPELINE, REPLICATE, SHARD, TENSOR))


def shard(model: Any, mesh: DeviceMesh, precision: str, *, cpu_offload: bool = False) -> Any:
    """`model` with every parameter sharded over the N sharers of `mesh`, one layer at a time; each keeps about 1/N.

    Outside forward and backward the parameters are fp32 DTensors, sharded along their first dimension. With bf16 or
    fp16 a layer is gathered and computed in that precision, and gradients are summed in fp32. Frozen parameters are
    sharded too. With several replicas in the mesh each group of sharers has a whole copy, and gradients are averaged
    over all. With `cpu_offload` the shards and the optimiser stay in the machine's memory. Every process must have
    loaded the same weights. With a single sharer and replica the model is left unchanged, unless it is offloaded,
    because gathering would copy each layer.
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


def gather(model: Any, build: Callable[[], Any]) -> Any | None:
    """An unsharded copy of a model, made by `build`, on the CPU of the first process; all must call it."""
    state = _whole_weights(model)
    if state is None:
        return None
    plain = build()
    missing, unknown = plain.load_state_dict(state, strict=False)
    # a tied weight is in the state under one of its names
    loaded = {id(item) for name, item in plain.named_parameters(remove_duplicate=False) if name in state}
    lost = [name for name in missing if id(plain.get_parameter(name)) not in loaded]
    if lost or unknown:
        raise RuntimeError(f"sharded and unsharded model have different weights: {sorted([*lost, *unknown])[:5]}")
    return plain


def _whole_weights(model: Any) -> dict[str, Any] | None:
    """All weights on the CPU, in the first process; None in the others."""
    if isinstance(model, Stage):
        whole = pipeline.gather_state(model, None)
        return None if whole is None else whole["model"]
    options = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True)
    state: dict[str, Any] = state_dict.get_model_state_dict(model, options=options)
    return state if torch.distributed.get_rank() == 0 else None


class ShardedTrainer(LengthGroupedTrainer):
    """A Trainer for a model that `shard` (or SageMaker's library) has sharded over the processes.

    Gradients are summed over the devices in every micro-batch, so that they stay sharded while they accumulate.
    A checkpoint holds the whole state, gathered in the first process, which broadcasts it on resuming: the number of
    processes may change in between, and only the first process reads the checkpoint. Processes of a tensor group and
    the stages of a pipeline evaluate the same rows, as `degrees` says.
    """

    is_divided = True

    def __init__(self, *, degrees: ParallelDegrees, offloaded: bool = False, **arguments: Any) -> None:
        self._degrees, self._offloaded = degrees, offloaded
        super().__init__(**arguments)
        # Mixed precision only: when training begins, accelerate would add plain data parallelism.
        self.accelerator.prepare_model(self.model, device_placement=False, evaluation_mode=True)
        self.accelerator.prepare_model = self._unchanged

    def _unchanged(self, model: Any, **_: Any) -> Any:
        self.accelerator._models.append(model)  # else every evaluation prepares it again
        return model

    def _move_model_to_device(self, model: Any, device: torch.device) -> Any:
        """The model itself if it is offloaded to the machine's memory; else the model on the device."""
        return model if self._offloaded else super()._move_model_to_device(model, device)

    def _evaluation_share(self) -> tuple[int, int, bool]:
        """The share of a process; those that train on the same rows have the same, and one of them reports it."""
        rank = self.args.process_index
        return self._degrees.data_rank(rank), self._degrees.data, self._degrees.is_last_with_its_rows(rank)

    def _clip_grad_norm(self, model: Any) -> torch.Tensor:
        return self._gradient_norm(self.args.max_grad_norm)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        return self._gradient_norm(float("inf")) if grad_norm is None else grad_norm

    def _gradient_norm(self, limit: float) -> torch.Tensor:
        self.accelerator.unscale_gradients()
        if hasattr(self.model, "clip_grad_norm_"):  # FSDP version 1, which sums over the processes
            return torch.as_tensor(self.model.clip_grad_norm_(limit))
        parameters = [item for item in self.model.parameters() if item.grad is not None]
        norm = torch.nn.utils.get_total_norm([item.grad for item in parameters])
        whole: torch.Tensor = norm.full_tensor() if isinstance(norm, torch.distributed.tensor.DTensor) else norm
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, whole)
        return whole

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Do nothing: a checkpoint has the weights in its state, and the trained model is written from `gather`."""

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        options = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
        weights, moments = state_dict.get_state_dict(self.model, self._bare_optimizer(), options=options)
        if self.args.should_save:
            self._write_state({"model": weights, "optimizer": moments}, output_dir)

    def _write_state(self, state: dict[str, Any], output_dir: str) -> None:
        os.makedirs(output_dir, exist_ok=True)
        torch.save(state, os.path.join(output_dir, _STATE))
        torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, _SCHEDULER))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load weights and optimiser state together, once there is an optimiser."""
        if self.optimizer is not None:
            self._load_state(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        self._load_state(self.state.best_model_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        self._load_state(checkpoint)
        schedule = [self._read(checkpoint, _SCHEDULER)]
        torch.distributed.broadcast_object_list(schedule)
        self.lr_scheduler.load_state_dict(schedule[0])

    def _load_state(self, checkpoint: str) -> None:
        state = self._read(checkpoint, _STATE) or {"model": {}, "optimizer": {}}
        options = state_dict.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
        # Not `set_state_dict`: it rejects the empty mappings of all processes but the first.
        state_dict.set_model_state_dict(self.model, state["model"], options=options)
        state_dict.set_optimizer_state_dict(self.model, self._bare_optimizer(), state["optimizer"], options=options)

    def _read(self, checkpoint: str, name: str) -> Any:
        """The content of a file of a checkpoint, in the first process; None in the others."""
        if not self.args.should_save:
            return None
        return torch.load(os.path.join(checkpoint, name), map_location="cpu", weights_only=True)

    def _bare_optimizer(self) -> Any:
        return getattr(self.optimizer, "optimizer", self.optimizer)  # accelerate wraps it


class PipelinedTrainer(ShardedTrainer):
    """A Trainer for a `Stage`, the part of the layers that this process has."""

    model: Stage

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._pipeline: pipeline.Pipeline = self.model.pipeline

    def forward_and_backward(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """The loss of one micro-batch of the Trainer, which the pipeline divides into smaller ones."""
        model.train()
        inputs = self._prepare_inputs(inputs)
        loss = self._pipeline.train(inputs, partial(self._loss, items=num_items_in_batch))
        if self.accelerator.sync_gradients:
            self._pipeline.add_up_tied_gradients()
        return loss

    def _logits(self, model: Any, inputs: Any) -> torch.Tensor | None:
        """Logits in the processes of the last stage; None in the others."""
        return self._pipeline.predict(inputs)

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor, *, items: Any) -> torch.Tensor:
        """The Trainer's loss: divided by the items of the optimiser step, times the processes that they come from."""
        if self.compute_loss_func is not None:
            loss = self.compute_loss_func({"logits": logits}, labels, num_items_in_batch=items)
        else:
            size = self.model.config.vocab_size
            loss = self.model.model.loss_function(
                logits=logits, labels=labels, vocab_size=size, num_items_in_batch=items
            )
        scaled: torch.Tensor = loss * (self.accelerator.num_processes if self.args.average_tokens_across_devices else 1)
        return scaled

    def _gradient_norm(self, limit: float) -> torch.Tensor:
        norm = self._pipeline.gradient_norm()
        torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), limit, norm)
        return norm

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        state = pipeline.gather_state(self.model, self._bare_optimizer())
        if state is not None:
            self._write_state(state, output_dir)

    def _load_state(self, checkpoint: str) -> None:
        pipeline.scatter_state(self.model, self._bare_optimizer(), self._read(checkpoint, _STATE))
