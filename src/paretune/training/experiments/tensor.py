"""Tensor parallelism: divides a model's matrices over groups of devices, according to transformers' plan for it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from paretune.training.strategies import Shards

_STYLES: Mapping[str, type[ParallelStyle]] = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
_WHOLE = {"embedding_rowwise"}  # styles of transformers (from 5.24 on) whose parameters stay whole
_GATHERED = ("colwise_gather_output", "colwise_rep")  # transformers 5.23 and 5.3


class TensorGroups(Shards):
    """Divides a model's matrices over the devices of a group, then shards them. A group trains on the same rows."""

    def _divide(self, mesh: DeviceMesh) -> None:
        divide_matrices(self.model, mesh["tensor"])


def tensor_faults(config: Any, degree: int, name: str) -> list[str]:
    """Return reasons why the matrices of the model `name` cannot be split over `degree` devices; empty if they can."""
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
    """Divide the matrices of `model` over the one-dimensional `mesh`, according to the model's plan.

    Parameters outside the plan are replicated, so that all parameters are on one mesh. The function of transformers
    that applies such plans is not used, because its argument names differ between releases.
    """
    tied = model.get_output_embeddings() is not None and (
        model.get_output_embeddings().weight is model.get_input_embeddings().weight
    )
    prefix = model.base_model_prefix
    styles = {path: style for path, style in model.config.base_model_tp_plan.items() if style not in _WHOLE}
    plan = {f"{prefix}.{path}": _STYLES[style]() for path, style in styles.items()}
    if not tied:  # a tied head is replicated like the embeddings
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
