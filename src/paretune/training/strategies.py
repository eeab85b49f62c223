"""The values of the parameter `strategy`, each as arguments of the Trainer or as a `Division` of the model.

    ddp         every device has the whole model; gradients are averaged                    (PyTorch)
    fsdp        weights, gradients and optimiser state are sharded over the devices; matrices may be divided over
                tensor groups, or layers into the stages of a pipeline                      (PyTorch)
    smddp       as ddp, with SageMaker's collective operations                              (some AWS images)
    device_map  one process loads the layers onto all of its devices                        (Hugging Face)

smddp needs GPUs and an image with its package. No training has run with it. smp, deepspeed and deepspeed_zero3 are for
scripts of the user's own.

The Hugging Face Trainer's own FSDP is not used: on CPUs it silently trains with plain data parallelism (transformers
5.23), and it has no pipelines. Only the first process ever holds the whole model, in the machine's memory, while it
sends one tensor after another to the others. Checkpoints are written by all processes, each its own share, and read by
any number of processes with the same tensor groups and stages.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import distributed
from torch.autograd.graph import save_on_cpu
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint
from transformers import TrainerCallback, TrainerState, TrainingArguments

from paretune.core.errors import BadInput
from paretune.core.packages import can_be_imported
from paretune.specification.job import JobSpec
from paretune.training import device, processes
from paretune.training.model import PLAIN_DECODERS, PLAIN_ENCODERS, layers_of, parameter_counts
from paretune.training.pipeline import Pipeline

PROCESS_TIMEOUT_S = 600
"""Timeout of the process group in seconds, NCCL's default: after an instance has ended without closing its connections,
the other processes fail after this time. No process may work alone for longer, as when it writes a file."""
_STATE = "shares"  # folder of a checkpoint with the trained weights and the optimiser's moments
_WEIGHTS, _SCHEDULER = "model.safetensors", "scheduler.pt"  # the Trainer's own names
_TRAINED = StateDictOptions(ignore_frozen_params=True, strict=False, flatten_optimizer_state_dict=True)

_STYLES: Mapping[str, type[ParallelStyle]] = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
_WHOLE = {"embedding_rowwise"}  # styles of transformers (from 5.24 on) whose parameters stay whole
_GATHERED = ("colwise_gather_output", "colwise_rep")  # transformers 5.23 and 5.3

Build = Callable[..., tuple[Any, list[str]]]
"""Makes the whole model, or with `drawn` its layers on the device meta; also returns the names of drawn layers."""


def begin(spec: JobSpec) -> None:
    """Initialise smddp's library, and the process group if the Trainer would not make the right one.

    Raises BadInput if the image lacks that library, and for a pipeline in fp16: each stage would scale the loss itself.
    """
    strategy = _of(spec)
    if strategy == "smddp" and not can_be_imported("smdistributed"):
        rule = "strategy smddp needs package smdistributed, which this image lacks"
        raise BadInput([f"{rule}: set sagemaker.training_image to an image that has it, or use ddp or fsdp"])
    if divides(spec) and spec.degrees.pipeline > 1 and device.choose_precision(spec.precision) == "fp16":
        raise BadInput([f"a pipeline needs precision bf16 or fp32 on {device.device_name()}: set precision=fp32"])
    if strategy == "smddp":
        # The backend is set here: with SM_FRAMEWORK_PARAMS transformers expects variables of SageMaker's MPI launcher.
        # Source: SageMaker Developer Guide, "Adapt your training script to use the SMDDP collective operations".
        os.environ.pop("SM_FRAMEWORK_PARAMS", None)
        importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")  # registers the backend
        _join("smddp")
    elif divides(spec):
        _join("cpu:gloo,cuda:nccl" if device.has_gpu() else "gloo")  # offloaded weights are exchanged on the CPU


def _join(backend: str) -> None:
    if torch.distributed.is_initialized():
        return
    options: dict[str, Any] = {}
    if "RANK" not in os.environ:  # a group of this process
        options = {"store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}  # type: ignore[attr-defined]
    if device.has_gpu():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group(backend, timeout=timedelta(seconds=PROCESS_TIMEOUT_S), **options)


def _of(spec: JobSpec) -> str:
    """The strategy of a job; ddp if fsdp or smddp has only one process, unless that one offloads its weights."""
    is_plain = "RANK" not in os.environ and spec.strategy in {"fsdp", "smddp"} and not spec.cpu_offload
    return "ddp" if is_plain else spec.strategy


def divides(spec: JobSpec) -> bool:
    """Whether the processes of the job have a `Division` of the model."""
    return _of(spec) == "fsdp"


def data_rank(spec: JobSpec) -> int:
    """Rank of this process among those that train on different rows: equal within a tensor group and a pipeline."""
    rank = int(os.environ.get("RANK", "0"))
    return spec.degrees.data_rank(rank) if divides(spec) else rank


def trainer_arguments(spec: JobSpec, config: Any = None) -> dict[str, Any]:
    """TrainingArguments that the strategy needs for a model with this `config`; those of the user replace them."""
    arguments: dict[str, Any] = {"ddp_timeout": PROCESS_TIMEOUT_S}
    if spec.fine_tuning == "full" and getattr(config, "model_type", "") in PLAIN_ENCODERS | PLAIN_DECODERS:
        arguments["ddp_find_unused_parameters"] = False  # a search through the graph and an exchange in each step
    if divides(spec):  # the Trainer cannot read names of labels from a stage, and the `Division` saves the optimiser
        arguments |= {"label_names": ["labels"], "save_only_model": True}
    return arguments


def checkpoint_activations(model: Any, spec: JobSpec) -> None:
    """Make each layer of `model` keep only its input, if the job asks for it, and compute the rest again later.

    With `activation_offloading` the inputs are kept in the machine's memory.
    """
    if not spec.checkpoints_activations:
        return

    def run(layer: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        with save_on_cpu(pin_memory=device.has_gpu()) if spec.activation_offloading else nullcontext():
            return checkpoint(layer, *inputs, use_reentrant=False, **options)

    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):  # those of transformers' GradientCheckpointingLayer
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = run


def tensor_faults(config: Any, degree: int, name: str) -> list[str]:
    """The reasons why the matrices of the model `name` cannot be divided over `degree` devices; empty if they can."""
    plan = getattr(config, "base_model_tp_plan", None) or {}
    if not plan or set(plan.values()) - set(_STYLES) - _WHOLE:
        rule = "tensor_parallel_degree needs a model with a plain plan in transformers, such as llama or gpt_neox"
        remedy = "which shards the weights, or pipeline_parallel_degree, which divides the layers"
        return [f"{rule}, got {name} ({config.model_type}): set strategy=fsdp without it, {remedy}"]
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    sizes = (heads, groups, config.hidden_size, config.intermediate_size)
    if not any(size % degree for size in sizes):
        return []
    fits = [number for number in range(1, heads + 1) if not any(size % number for size in sizes)]
    rule = f"tensor_parallel_degree must divide the {heads} attention heads and the {groups} key/value heads of {name}"
    return [f"{rule}, and the sizes of its layers, got {degree}: use {', '.join(map(str, fits))}"]


def divide_matrices(model: Any, mesh: DeviceMesh) -> None:
    """Divide the matrices of `model` over the one-dimensional `mesh`, by the model's plan; replicate the rest.

    transformers' own application of these plans is not used: its Trainer would ask accelerate for a mesh, which refuses
    CPUs (accelerate 1.15), and the argument names differ between releases. Parameters outside the plan are replicated,
    so that all of them lie on one mesh.
    """
    tied = model.get_output_embeddings() is not None and (
        model.get_output_embeddings().weight is model.get_input_embeddings().weight
    )
    prefix = model.base_model_prefix
    styles = {path: style for path, style in model.config.base_model_tp_plan.items() if style not in _WHOLE}
    plan = {f"{prefix}.{path}": _STYLES[style]() for path, style in styles.items()}
    if not tied:  # a tied head stays whole like the embeddings
        gathered = {path: style for path, style in (type(model)._tp_plan or {}).items() if style in _GATHERED}
        plan |= {path: ColwiseParallel(output_layouts=Replicate()) for path in gathered}
    parallelize_module(model, mesh, plan)
    for module in list(model.modules()):
        parameters = list(module.parameters(recurse=False))
        if parameters and not isinstance(parameters[0], DTensor):
            distribute_module(module, mesh, input_fn=_as_replicated, output_fn=_as_local)  # type: ignore[arg-type]
    if tied:
        model.get_output_embeddings().weight = model.get_input_embeddings().weight


def _as_replicated(_: torch.nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
    return tuple(
        DTensor.from_local(item, mesh, [Replicate()], run_check=False) if isinstance(item, torch.Tensor) else item
        for item in inputs
    )


def _as_local(_: torch.nn.Module, output: Any, mesh: DeviceMesh) -> Any:
    return output.redistribute(mesh, [Replicate()]).to_local() if isinstance(output, DTensor) else output


class Division(TrainerCallback):  # type: ignore[misc]  # transformers ships no types for callbacks
    """The part of a model that this process trains; as a callback of the Trainer it restores checkpoints.

    Outside forward and backward every parameter, also a frozen one, is an fp32 DTensor, sharded along its first
    dimension over the sharers of the mesh. With bf16 or fp16 a layer is gathered and computed in that precision, and
    gradients are summed in fp32, over the devices in every micro-batch, so that they stay sharded while they
    accumulate. Several replicas have a whole copy each. With `cpu_offload` shards and optimiser stay in the machine's
    memory. With a single sharer and replica nothing is sharded, unless offloaded: gathering would copy each layer.
    """

    pipeline: Pipeline | None = None
    resumes_from: Path | None = None  # the checkpoint to go on from

    def __init__(self, spec: JobSpec, build: Build) -> None:
        self._degrees = degrees = spec.degrees
        has_gpu = device.has_gpu()
        self._compute = torch.device("cuda", torch.cuda.current_device()) if has_gpu else torch.device("cpu")
        self._device = torch.device("cpu") if spec.cpu_offload else self._compute
        whole, drawn = build() if distributed.get_rank() == 0 else (None, [])
        model, _ = build(drawn=processes.of_first(drawn))
        self.model, self.counts = model, parameter_counts(model)
        shape = (degrees.pipeline, degrees.replicas, degrees.sharers, degrees.tensor)
        names = ("pipeline", "replicate", "shard", "tensor")  # as the ranks: those of a tensor group are adjacent
        mesh = init_device_mesh(self._compute.type, shape, mesh_dim_names=names)
        if degrees.tensor > 1:
            divide_matrices(model, mesh["tensor"])
        if degrees.pipeline > 1:
            self.pipeline = Pipeline(
                model,
                mesh["pipeline"].get_group(),
                number=degrees.stage(distributed.get_rank()),
                stages=degrees.pipeline,
                micro_batches=spec.micro_batches or degrees.pipeline,
                device=self._compute,
            )
        if degrees.replicas * degrees.sharers > 1 or spec.cpu_offload:
            half = device.half_format(device.choose_precision(spec.precision))
            for module in (*layers_of(model), model):
                fully_shard(
                    module,
                    mesh=mesh["replicate", "shard"] if degrees.replicas > 1 else mesh["shard"],
                    mp_policy=MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32),
                    offload_policy=CPUOffloadPolicy(pin_memory=has_gpu) if spec.cpu_offload else OffloadPolicy(),
                    # In a pipeline a layer would be gathered anew for each micro-batch.
                    reshard_after_forward=False if degrees.pipeline > 1 else None,
                )
        self._fill(whole)

    @torch.no_grad()
    def _fill(self, whole: Any | None) -> None:
        """Give the model, which is on the device meta, the values of the one that only the first process has."""
        owners: dict[int, tuple[torch.nn.Module, str]] = {}
        ties = []
        for module in self.model.modules():
            for name, item in module._parameters.items():
                if item is not None and owners.setdefault(id(item), (module, name)) != (module, name):
                    ties.append((module, name, owners[id(item)]))
        self.model.to_empty(device=self._device)
        for module, name, (owner, of_owner) in ties:
            setattr(module, name, getattr(owner, of_owner))
        values = {} if whole is None else {name: item.cpu() for name, item in whole.named_buffers()}
        buffers = processes.of_first(values)
        for prefix, module in self.model.named_modules():
            for name, item in module._buffers.items():
                if item is None:
                    continue
                value = buffers[f"{prefix}.{name}".lstrip(".")].to(self._compute)
                if isinstance(item, DTensor):
                    value = DTensor.from_local(value, item.device_mesh, item.placements, run_check=False)
                module._buffers[name] = value
        parameters = dict(self.model.named_parameters())
        for name, value in self._sent({} if whole is None else dict(whole.named_parameters(remove_duplicate=False)), 0):
            if name in parameters:
                _assign(parameters[name], value)

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

    def share(self) -> tuple[int, int, bool]:
        """Number of this process's share of evaluated rows, number of shares, and whether it reports the results."""
        rank = distributed.get_rank()
        return self._degrees.data_rank(rank), self._degrees.data, self._degrees.is_last_with_its_rows(rank)

    def clip(self, limit: float) -> torch.Tensor:
        """The norm of all gradients of the model, which are scaled down if it is above `limit`."""
        parameters = [item for item in self.model.parameters() if item.grad is not None]
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
        for name, value in self._weights_of(model):
            if size and size + value.nbytes > most_bytes:
                yield part
                part, size = {}, 0
            size += value.nbytes
            if processes.is_first():
                part[name] = value.cpu()
        yield part

    def _weights_of(self, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and value of each weight and buffer of a model in files; a tied weight once."""
        copies = dict(model.named_parameters(remove_duplicate=False)).keys() - dict(model.named_parameters()).keys()
        if self.pipeline is None:
            weights = ((name, processes.whole(item)) for name, item in model.state_dict().items())
            yield from ((name, value) for name, value in weights if name not in copies)
            return
        own = {name: item for name, item in model.state_dict().items() if name != self.pipeline.copy}
        stages, seen = self._degrees.pipeline, set[str]()
        per_stage = distributed.get_world_size() // stages
        for stage in range(stages):
            is_own = distributed.get_rank() // per_stage == stage
            for name, value in self._sent(own if is_own else {}, stage * per_stage):
                if name not in seen:
                    seen.add(name)
                    yield name, value

    def reshard(self) -> None:
        """Free gathered weights, which an evaluation leaves gathered."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def _state(self, optimizer: Any) -> dict[str, Any]:
        self.reshard()  # the optimiser has the sharded parameters
        weights, moments = get_state_dict(self.model, _bare(optimizer), options=_TRAINED)
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
            self.model, _bare(optimizer), model_state_dict=weights, optim_state_dict=moments, options=_TRAINED
        )

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **objects: Any) -> None:
        """Restore the checkpoint to go on from."""
        if self.resumes_from is not None:
            self._load(self.resumes_from, objects["optimizer"])
            objects["lr_scheduler"].load_state_dict(torch.load(self.resumes_from / _SCHEDULER, weights_only=True))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: Any, **objects: Any) -> None:
        """Restore the best checkpoint if the training returns it."""
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self._load(Path(state.best_model_checkpoint), objects["optimizer"])


def _assign(parameter: torch.Tensor, value: torch.Tensor) -> None:
    if not isinstance(parameter, DTensor):
        parameter.copy_(value)
        return
    shape, start = compute_local_shape_and_global_offset(value.shape, parameter.device_mesh, parameter.placements)
    share = value[tuple(slice(first, first + size) for first, size in zip(start, shape, strict=True))]
    parameter.to_local().copy_(share)


def _bare(optimizer: Any) -> Any:
    return getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
