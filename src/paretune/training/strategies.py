"""The values of `strategy`: how the processes of a job share its model and its rows.

    ddp         every device has the whole model; gradients are averaged                       `Replicas`
    smddp       like ddp, with SageMaker's collective operations (some AWS images); never run  `Replicas`
    device_map  one process spreads the layers over all of its devices                         `Replicas`
    fsdp        weights, gradients and optimizer state are sharded over the devices            `Shards`

smp, deepspeed and deepspeed_zero3 are only for users' own scripts.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import distributed
from torch.autograd.graph import save_on_cpu
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from paretune.core.errors import BadInput
from paretune.core.packages import can_be_imported
from paretune.estimating.formats import Formats, is_plain, kind_of
from paretune.specification.parallelism import ParallelDegrees
from paretune.training import device, processes
from paretune.training.arguments import Arguments
from paretune.training.model import four_bit_layers, layers_of, needs_masks, pack
from paretune.training.optimizer import MasterAdamW
from paretune.training.output_layer import OutputLayer, find_output_layer
from paretune.training.rows.tokenized import masked
from paretune.training.tasks import SummedLoss

PROCESS_TIMEOUT_S = 600
"""Timeout of the process group in seconds, NCCL's default. If an instance ends without closing its connections, the
other processes fail after this time. If one process works alone for longer, use `processes.wait_for_all`."""

Build = Callable[..., tuple[Any, list[str]]]
"""Builds the model, on the meta device if given `drawn`; also returns the names of drawn layers (see `build_model`)."""
Batch = Mapping[str, torch.Tensor]


def begin(degrees: ParallelDegrees) -> None:
    """Connect the processes of the job if there are several, or if the model is sharded.

    Raises BadInput if the image lacks smddp's library.
    """
    if degrees.strategy == "smddp" and "RANK" in os.environ:
        if not can_be_imported("smdistributed"):
            rule = "strategy=smddp needs the package smdistributed, which this image lacks"
            raise BadInput([f"{rule}: set sagemaker.training_image to an image that has it, or use ddp or fsdp"])
        # transformers would expect variables of SageMaker's MPI launcher.
        # Source: SageMaker Developer Guide, "Adapt your training script to use the SMDDP collective operations".
        os.environ.pop("SM_FRAMEWORK_PARAMS", None)
        importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")  # registers the backend
        _join("smddp")
        processes.exchange_objects_with("gloo")  # SMDDP is for tensors of GPUs
    elif divides(degrees) or "RANK" in os.environ:
        _join("cpu:gloo,cuda:nccl" if device.has_gpu() else "gloo")  # objects and offloaded weights use the CPU


def _join(backend: str) -> None:
    if distributed.is_initialized():
        return
    options: dict[str, Any] = {}
    if "RANK" not in os.environ:  # a group of this process alone
        options = {"store": distributed.HashStore(), "rank": 0, "world_size": 1}  # type: ignore[attr-defined]
    if device.has_gpu():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    distributed.init_process_group(backend, timeout=timedelta(seconds=PROCESS_TIMEOUT_S), **options)


def divides(degrees: ParallelDegrees) -> bool:
    """Return whether the job divides its model (`Shards`). A single process does this only to offload the model."""
    return degrees.strategy == "fsdp" and ("RANK" in os.environ or degrees.cpu_offload)


def checkpoint_activations(model: Any, *, on_cpu: bool) -> None:
    """Make each layer keep only its input and recompute the rest in the backward pass.

    With `on_cpu`, the inputs are kept in main memory.
    """
    run = _checkpoint_on_cpu if on_cpu else partial(checkpoint, use_reentrant=False)
    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):  # subclasses of transformers' GradientCheckpointingLayer
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = run


def _checkpoint_on_cpu(layer: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Run a layer, and keep its inputs in main memory until the backward pass, which runs it again.

    `checkpoint` saves the inputs before it replaces the hooks for the layer's own tensors, so only the inputs move.
    """
    with save_on_cpu(pin_memory=device.has_gpu()):
        return checkpoint(layer, *inputs, use_reentrant=False, **options)


class Replicas:
    """Keeps the whole model in each process. Processes train on different rows and average their gradients.

    `rank` is the index of this process's share of the rows, and `shares` is the number of shares. If several processes
    have the same rows, only one of them `reports` its evaluation. `parts` is the number of parts into which a pipeline
    splits a micro-batch. `begin_training` makes the optimizer.
    """

    reports = True

    def __init__(self, degrees: ParallelDegrees, formats: Formats, build: Build, parts: int = 1) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device()) if device.has_gpu() else torch.device("cpu")
        is_alone = not distributed.is_initialized()
        self.rank, self.shares = (0, 1) if is_alone else (distributed.get_rank(), distributed.get_world_size())
        self.formats, self._degrees, self._parts = formats, degrees, parts
        self._build(build)
        self._wrapped = self.model
        self._output_layer: OutputLayer | None = None
        self._is_plain = self.counts[0] == self.counts[1] and is_plain(kind_of(self.model.config.to_dict()))
        self.uses_cache = bool(getattr(self.model.config, "use_cache", False))  # of keys and values, to generate text
        if self.uses_cache:  # training does not need it, and each layer would copy its keys and values
            self.model.config.use_cache = False

    def _build(self, build: Build) -> None:
        self.model, _ = build()
        self.counts = self.model.num_parameters(), self.model.num_parameters(only_trainable=True)
        if getattr(self.model, "hf_device_map", None) is None:  # else transformers has placed its layers
            self.model.to(self.device)

    def wrap(self, arguments: Arguments) -> None:
        """Add DDP's exchange of gradients and the compiler. `begin_training` calls this once the optimizer exists."""
        if self.shares > 1:
            self._wrapped = DistributedDataParallel(
                self.model,
                [self.device] if self.device.type == "cuda" else None,
                broadcast_buffers=False,  # buffers such as position ids are constant
                gradient_as_bucket_view=True,
                find_unused_parameters=not self._is_plain,  # costs a search of the graph and an exchange in each step
            )
        if arguments.torch_compile:
            backend, mode = arguments.torch_compile_backend or "inductor", arguments.torch_compile_mode
            self._wrapped = torch.compile(self._wrapped, backend=backend, mode=mode)

    @property
    def averages_in_backward(self) -> bool:
        """Whether DDP averages the gradients during the backward pass of the last micro-batch of a step."""
        return hasattr(self._wrapped, "no_sync")

    def find_output_layer(self) -> None:
        """Let a language model compute its losses without its logits, if its own code does not change its logits."""
        with self._autocast():
            self._output_layer = find_output_layer(self.model, self.device)
        self.reshard()

    def backward(self, batch: Batch, loss: SummedLoss, *, scale: torch.Tensor | None, is_last: bool) -> torch.Tensor:
        """Compute a micro-batch, and add its gradients, times `scale` if given. Returns its loss.

        With DDP, gradients are averaged over the processes only after the last micro-batch of a step (`is_last`).
        Sharded gradients are averaged over the shards after each micro-batch, so that they stay sharded.
        """
        skips = not is_last and self.averages_in_backward
        exchange: AbstractContextManager[Any] = self._wrapped.no_sync() if skips else nullcontext()
        with exchange:
            value, _ = self._forward(self._wrapped, batch, loss)
            (value if scale is None else value * scale).backward()  # type: ignore[no-untyped-call]
        return value.detach()

    def outputs(self, batch: Batch, loss: SummedLoss) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Return loss and logits of a batch, on the device, or None if another process computes them.

        If a language model computes its loss without its logits, they are None.
        """
        return self._forward(self.model, batch, loss)

    def _forward(self, model: Any, batch: Batch, loss: SummedLoss) -> tuple[torch.Tensor, torch.Tensor | None]:
        inputs = self._on_device(batch)
        labels = inputs.pop("labels")
        if self._output_layer is None:
            with self._autocast():
                logits = model(**inputs)["logits"]
            return loss.of_logits(logits, labels), logits
        with self._autocast(), self._output_layer.computing(partial(loss.of_hidden, labels)):
            return model(**inputs)["logits"], None

    def _autocast(self) -> AbstractContextManager[Any]:
        formats = self.formats
        return torch.autocast(self.device.type, device.DTYPES[formats.compute]) if formats.autocast else nullcontext()

    def _on_device(self, batch: Batch) -> dict[str, torch.Tensor]:
        batch = self._masked(dict(batch))
        if self.device.type == "cpu":
            return batch
        return {name: value.pin_memory().to(self.device, non_blocking=True) for name, value in batch.items()}

    def _masked(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        form = None if self.formats.mask is None else device.DTYPES[self.formats.mask]
        return masked(batch, form) if needs_masks(self.model) else batch

    def reshard(self) -> None:
        """Free the full weights that were gathered from shards, because the next update will make them outdated."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def norm(self, weights: list[torch.Tensor]) -> torch.Tensor:
        """Return the norm of all gradients of the model. `weights` are those of this process."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        return processes.whole(torch.nn.utils.get_total_norm(gradients))


class Shards(Replicas):
    """Shards the model over the processes: each keeps a part of every weight, and gathers layers to compute them.

    Each parameter, even a frozen one, is a DTensor, sharded along its first dimension over the mesh dimension `shard`.
    Trained parameters have the format in which they are updated. With bf16 or fp16, a layer is gathered and computed in
    bf16 or fp16, and gradients are summed in fp32. 4-bit weights are stored in numbers of the format in which layers
    are computed, several weights in one number. Each process packs the whole weight, and keeps its shard and the scales
    of all blocks. If there are several replicas, each has a full copy of the model. With `cpu_offload`, shards and
    optimizer stay in main memory. Without it, FSDP shards nothing if there is only one data-parallel device.

    The Hugging Face Trainer's own FSDP is not used, because it silently trains with plain data parallelism on CPUs
    (transformers 5.23). Only the first process loads the whole model. It keeps the model in main memory while it sends
    one tensor after another to the other processes.
    """

    _gathers_again = True  # whether the weights of a layer are gathered again in the backward pass

    def _build(self, build: Build) -> None:
        degrees = self._degrees
        shape = (degrees.pipeline, degrees.replicas, degrees.sharers, degrees.tensor)
        names = ("pipeline", "replicate", "shard", "tensor")  # in the order of ranks: a tensor group has adjacent ranks
        mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=names)
        stage, replica, sharer, member = map(mesh.get_local_rank, names)
        self.rank, self.shares = replica * degrees.sharers + sharer, degrees.data
        self.reports = member == 0 and stage == degrees.pipeline - 1
        whole, drawn = build(packs=False) if distributed.get_rank() == 0 else (None, [])
        processes.wait_for_all()  # the first process reads the model first
        self.model, _ = build(drawn=processes.of_first(drawn))
        self.counts = self.model.num_parameters(), self.model.num_parameters(only_trainable=True)
        for layer in four_bit_layers(self.model).values():  # Params4bit cannot be sharded
            layer.weight = torch.nn.Parameter(torch.empty_like(layer.weight.data), requires_grad=False)
        self._divide(mesh)
        is_sharded = degrees.replicas * degrees.sharers > 1 or degrees.cpu_offload
        if is_sharded:
            offload = CPUOffloadPolicy(pin_memory=device.has_gpu()) if degrees.cpu_offload else OffloadPolicy()
            for module in (*layers_of(self.model), self.model):
                fully_shard(
                    module,
                    mesh=mesh["replicate", "shard"] if degrees.replicas > 1 else mesh["shard"],
                    mp_policy=MixedPrecisionPolicy(
                        param_dtype=device.DTYPES[self.formats.compute], reduce_dtype=torch.float32
                    ),
                    offload_policy=offload,
                    reshard_after_forward=None if self._gathers_again else False,
                )
        self._fill(whole, torch.device("cpu") if degrees.cpu_offload else self.device)

    def backward(self, batch: Batch, loss: SummedLoss, *, scale: torch.Tensor | None, is_last: bool) -> torch.Tensor:
        """Compute a micro-batch like `Replicas`. Gradients are averaged over replicas only after a step's last one."""
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_all_reduce(is_last)
        return super().backward(batch, loss, scale=scale, is_last=is_last)

    def _divide(self, mesh: DeviceMesh) -> None:
        """Divide the model before it is sharded. This does nothing, but subclasses override it."""

    def wrap(self, arguments: Arguments) -> None:
        """Do nothing: FSDP exchanges the gradients, and a sharded model is not compiled."""

    @torch.no_grad()
    def _fill(self, whole: Any | None, place: torch.device) -> None:
        """Move the model from the meta device to `place`, with the values of `whole`.

        Only the first process has `whole`; the others pass None.
        """
        owners: dict[int, tuple[torch.nn.Module, str]] = {}
        ties = []
        for module in self.model.modules():
            for name, item in module._parameters.items():
                if item is not None and owners.setdefault(id(item), (module, name)) != (module, name):
                    ties.append((module, name, owners[id(item)]))
        self.model.to_empty(device=place)
        for module, name, (owner, of_owner) in ties:
            setattr(module, name, getattr(owner, of_owner))
        values = {} if whole is None else {name: item.cpu() for name, item in whole.named_buffers()}
        buffers = processes.of_first(values)
        for prefix, module in self.model.named_modules():
            for name, item in module._buffers.items():
                if item is None:
                    continue
                value = buffers[f"{prefix}.{name}".lstrip(".")].to(self.device)
                if isinstance(item, DTensor):
                    value = DTensor.from_local(value, item.device_mesh, item.placements, run_check=False)
                module._buffers[name] = value
        parameters, packed = dict(self.model.named_parameters()), four_bit_layers(self.model)
        for name, value in sent({} if whole is None else dict(whole.named_parameters(remove_duplicate=False)), 0):
            own = parameters.get(name)
            if name in packed:
                value = pack(packed[name], value)
            if isinstance(own, DTensor):
                value = distribute_tensor(value, own.device_mesh, own.placements, src_data_rank=None).to_local()
                own = own.to_local()
            if own is not None:
                own.copy_(value)

    @torch.no_grad()
    def gather_weights(self, model: Any) -> dict[str, torch.Tensor]:
        """Return all weights of `model` by name, in main memory. Only the first process gets them; others get none.

        All processes must call this, because they gather each weight together. `model` is `self.model`, or the base
        model if `self.model` has adapters.
        """
        weights = {}
        for name, value in self._weights_of(model):
            if processes.is_first():
                weights[name] = value.cpu()
        return weights

    def _weights_of(self, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Return name and full value of each weight and buffer to write. Tied weights are returned once."""
        copies = dict(model.named_parameters(remove_duplicate=False)).keys() - dict(model.named_parameters()).keys()
        return ((name, processes.whole(item)) for name, item in model.state_dict().items() if name not in copies)


def begin_training(strategy: Replicas, arguments: Arguments, learning_rate: float, *, is_causal: bool) -> MasterAdamW:
    """Return the optimizer of the strategy's model, which is ready to be trained afterward.

    The order matters. The strategy has built and divided the model. Now the optimizer casts the model's weights to
    their format in training. Then the output layer of a language model is looked for. DDP and the compiler come last,
    because they need weights in their final format.
    """
    optimizer = MasterAdamW(strategy.model.named_parameters(), arguments, learning_rate, strategy.formats)
    if is_causal:
        strategy.find_output_layer()
    strategy.wrap(arguments)
    return optimizer


def sent(tensors: Mapping[str, torch.Tensor], source: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Send the `tensors` of process `source` to all processes. Yields name and full value, one tensor at a time.

    All processes must call this. Processes that have a shard of each tensor pass the tensors; the others pass none.
    """
    gpu = torch.device("cuda", torch.cuda.current_device()) if device.has_gpu() else torch.device("cpu")
    entries = [(name, item.shape, item.dtype) for name, item in tensors.items()]
    for name, shape, dtype in processes.of_first(entries, source):
        has_share = name in tensors
        value = processes.whole(tensors[name].detach()) if has_share else torch.empty(shape, dtype=dtype)
        value = value.to(gpu).contiguous()
        distributed.broadcast(value.reshape(-1).view(torch.uint8), source)  # gloo does not support bf16
        yield name, value
