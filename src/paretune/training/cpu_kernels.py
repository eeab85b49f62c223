"""Attention and dropout for models that train on a CPU, where PyTorch's are made for GPUs.

Results stay the same but for random numbers and rounding. benchmarks/training_throughput.py compares the speed.
"""

from typing import Any

import torch

LONGEST_ROWS = 512  # tokens of rows for attention by matrix products: beyond it the matrices become too large
_BYTE_VALUES = 256
_TOLERANCE = 0.05  # relative difference between the requested dropout probability and the nearest 256th
_dropout = torch.nn.functional.dropout


def use_cpu_kernels(model: Any, longest_row: int) -> None:
    """Replace PyTorch's attention (sdpa) of a Hugging Face model, and dropout in this process.

    PyTorch's flash kernel for CPUs takes four times as long in its backward pass for rows of 28 to 128 tokens. With
    dropout PyTorch does not use it, but operations that take up to three times as long (torch 2.13, bf16, an AMD EPYC).
    """
    torch.nn.functional.dropout = dropout
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if getattr(base.config, "_attn_implementation", None) == "sdpa" and longest_row <= LONGEST_ROWS:
        base.set_attn_implementation("eager")


def dropout(inputs: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """PyTorch's dropout with one random byte per element: the probability is the 256th closest to `p`.

    PyTorch draws one Bernoulli variable after another: 1.04 ms for 172,032 elements, against 0.14 ms (torch 2.13). It
    does so here if no 256th is within 5 % of `p`, as for 0 and 1.
    """
    threshold = round(p * _BYTE_VALUES)
    is_close = abs(threshold - p * _BYTE_VALUES) <= _TOLERANCE * p * _BYTE_VALUES
    if not training or not is_close or not 0 < threshold < _BYTE_VALUES:
        return _dropout(inputs, p, training, inplace)
    count = inputs.numel()
    words = torch.empty(-(-count // 8), dtype=torch.int64).random_(-(2**63), None)
    mask = torch.empty(inputs.shape, dtype=inputs.dtype)
    torch.ge(words.view(torch.uint8)[:count].view(inputs.shape), threshold, out=mask)
    return inputs * mask.mul_(_BYTE_VALUES / (_BYTE_VALUES - threshold))
