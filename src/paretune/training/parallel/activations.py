"""Activations that are not kept on the device between forward and backward pass: computed again, or offloaded.

Both use the layers that transformers marks for it, `GradientCheckpointingLayer`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint


def compute_again(model: Any, *, offload: bool, on_gpu: bool) -> None:
    """Let each layer of `model` keep only its input, and compute the rest again in the backward pass.

    With `offload` those inputs are kept in the machine's memory. Without a GPU they are there already, so it changes
    nothing. Results are the same: random numbers are drawn again from the same states.
    """

    def run(layer: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
        if not offload:
            return checkpoint(layer, *inputs, use_reentrant=False, **named)
        with save_on_cpu(pin_memory=on_gpu):
            return checkpoint(layer, *inputs, use_reentrant=False, **named)

    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = run


def activation_faults(kind: type[torch.nn.Module], name: str) -> list[str]:
    """Why activations of a model of class `kind`, the model `name`, cannot be computed again; empty if they can."""
    if getattr(kind, "supports_gradient_checkpointing", False):
        return []
    return [f"activation_checkpointing: transformers cannot compute the layers of {name} again: leave it out"]
