"""Operations as a GPU does them, for fake tensors, which take those of a processor.

Python functions are replaced, and not caught by a `TorchFunctionMode`: none is on where a backward pass computes a
layer again (torch 2.13).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

# Of those that autocast computes in fp32 on CUDA and not on processors, the ones that models use: PyTorch 2.13,
# "Automatic Mixed Precision package", "CUDA Ops that can autocast to float32".
_IN_FP32 = (
    *((functional, name) for name in ("cross_entropy", "group_norm", "layer_norm", "log_softmax", "softmax")),
    *((torch, name) for name in ("log_softmax", "pow", "softmax")),
)


@contextmanager
def like_gpu(half: torch.dtype | None) -> Iterator[None]:
    """Attention, dropout and, where it multiplies in `half`, autocast as on a GPU."""

    def attention(query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **named: Any) -> Any:
        return _attention(half, query, key, value, attn_mask, repeats=bool(named.get("enable_gqa")))

    with ExitStack() as replaced:
        replaced.enter_context(patch.object(functional, "scaled_dot_product_attention", attention))
        replaced.enter_context(patch.object(functional, "dropout", _dropout))
        for owner, name in _IN_FP32 if half is not None else ():
            precise = _in_fp32(getattr(owner, name), half)
            replaced.enter_context(patch.object(owner, name, precise))
        yield


def _in_fp32(function: Callable[..., Any], half: torch.dtype | None) -> Callable[..., Any]:
    def precise(*args: Any, **named: Any) -> Any:
        return function(*map(as_fp32, args), **{name: as_fp32(item) for name, item in named.items()})

    def as_fp32(item: Any) -> Any:
        return item.float() if isinstance(item, torch.Tensor) and item.dtype == half else item

    return precise


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Dropout that keeps a mask of a byte for each number; on processors it keeps numbers."""
    return torch.native_dropout(input, p, True)[0] if training and p else input


def _attention(half: torch.dtype | None, query: Any, key: Any, value: Any, mask: Any, *, repeats: bool) -> Any:
    """Attention that keeps query, key, value, output and the sums of its rows, and no attention matrix.

    It is the one for processors, which does so where there is no dropout; those for GPUs do so with dropout, too (Dao
    et al., arXiv 2205.14135, algorithm 2).
    """
    query, key, value = (item.to(half) if half is not None else item for item in (query, key, value))
    if repeats:
        times = query.shape[1] // key.shape[1]
        key, value = (item.repeat_interleave(times, dim=1) for item in (key, value))
    if mask is not None:  # the kernels take it as numbers, made in every layer
        mask = torch.empty_like(mask, dtype=query.dtype)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, is_causal=mask is None, attn_mask=mask
    )[0]
