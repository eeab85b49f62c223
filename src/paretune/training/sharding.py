"""Weights, gradients and optimiser state sharded over the devices (PyTorch FSDP).

The Hugging Face Trainer's own FSDP is not used: on CPUs it silently trains with plain data parallelism (transformers
5.23), and its argument names differ between releases. PyTorch's `fully_shard` works on GPUs and CPUs.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from paretune.training import device
from paretune.training.trainer import LengthGroupedTrainer

HALF_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
_STATE = "sharded.pt"
"""Trained weights and optimiser state of a checkpoint, not sharded, written by the first process."""
_SCHEDULER = "scheduler.pt"  # the Trainer's own name


def shard(model: Any, precision: str) -> Any:
    """`model` with every parameter sharded over all N processes, one layer at a time; each keeps about 1/N.

    Outside forward and backward the parameters are fp32 DTensors, sharded along their first dimension. With bf16 or
    fp16 a layer is gathered and computed in that precision, and gradients are summed in fp32. Frozen parameters are
    sharded too. The process group must be initialised, and every process must have loaded the same weights.
    """
    mesh = init_device_mesh("cuda" if device.has_gpu() else "cpu", (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=HALF_FORMATS.get(precision), reduce_dtype=torch.float32)
    for module in (*layers_of(model), model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    return model


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The repeated layers of a model: the entries of its outermost module lists that have submodules."""
    layers: list[torch.nn.Module] = []
    for child in model.children():
        if isinstance(child, torch.nn.ModuleList):
            layers += [entry for entry in child if any(True for _ in entry.children())]
        else:
            layers += layers_of(child)
    return layers


def gather(model: Any, build: Callable[[], Any]) -> Any | None:
    """An unsharded copy of a sharded model on the CPU, in the first process; None in the others. All must call it.

    `build` makes an unsharded model of the same shape, with any weights.
    """
    options = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = state_dict.get_model_state_dict(model, options=options)
    if torch.distributed.get_rank() != 0:
        return None
    plain = build()
    missing, unknown = plain.load_state_dict(state, strict=False)
    # a tied weight is in the state under one of its names
    loaded = {id(item) for name, item in plain.named_parameters(remove_duplicate=False) if name in state}
    lost = [name for name in missing if id(plain.get_parameter(name)) not in loaded]
    if lost or unknown:
        raise RuntimeError(f"sharded and unsharded model have different weights: {sorted([*lost, *unknown])[:5]}")
    return plain


class ShardedTrainer(LengthGroupedTrainer):
    """A Trainer of a model that `shard` (or SageMaker's library) has sharded over the processes.

    Gradients are summed over the devices in every micro-batch, so that they stay sharded while they accumulate.
    A checkpoint holds the whole state, gathered in the first process, which broadcasts it on resuming: the number of
    processes may change in between, and only the first process reads the checkpoint.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        # Mixed precision only: when training begins, accelerate would add plain data parallelism.
        self.accelerator.prepare_model(self.model, device_placement=False, evaluation_mode=True)
        self.accelerator.prepare_model = self._unchanged

    def _unchanged(self, model: Any, **_: Any) -> Any:
        self.accelerator._models.append(model)  # else every evaluation prepares it again
        return model

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
        """No effect: a checkpoint has the weights in its state, and the trained model is written from `gather`."""

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        options = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
        weights, moments = state_dict.get_state_dict(self.model, self._bare_optimizer(), options=options)
        if self.args.should_save:
            os.makedirs(output_dir, exist_ok=True)
            torch.save({"model": weights, "optimizer": moments}, os.path.join(output_dir, _STATE))
            torch.save(self.lr_scheduler.state_dict(), os.path.join(output_dir, _SCHEDULER))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Weights are loaded with the optimiser's state, once there is an optimiser."""
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
