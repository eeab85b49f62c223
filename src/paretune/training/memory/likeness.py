"""Operations as a GPU does them, for fake tensors, which take those of a processor."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Of those that autocast computes in fp32 on CUDA, the ones that models use: PyTorch 2.13, "Automatic Mixed Precision
# package", "CUDA Ops that can autocast to float32".
_IN_FP32 = {
    *("cross_entropy", "cumsum", "exp", "group_norm", "layer_norm", "log", "log_softmax", "mse_loss", "nll_loss"),
    *("norm", "pow", "__pow__", "prod", "reciprocal", "rsqrt", "softmax", "softplus", "sum"),
}


class LikeGPU(TorchFunctionMode):
    """Attention, dropout and, with `half`, autocast as on a GPU."""

    def __init__(self, half: torch.dtype | None) -> None:
        super().__init__()
        self._half = half

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The result of `function`, or of what a GPU does in its place."""
        named = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "scaled_dot_product_attention":
            return _attention(self._half, *args, **named)
        if name == "dropout" and _asked(args, named, 2, "training", default=True):
            chance = _asked(args, named, 1, "p", default=0.5)
            return torch.native_dropout(args[0] if args else named["input"], chance, True)[0] if chance else args[0]
        if self._half is not None and name in _IN_FP32:
            args = [self._precise(item) for item in args]
        return function(*args, **named)

    def _precise(self, item: Any) -> Any:
        return item.float() if isinstance(item, torch.Tensor) and item.dtype == self._half else item


def _asked(args: Sequence[Any], named: Mapping[str, Any], place: int, name: str, *, default: Any) -> Any:
    return args[place] if len(args) > place else named.get(name, default)


def _attention(
    half: torch.dtype | None, query: Any, key: Any, value: Any, attn_mask: Any = None, *_: Any, **named: Any
) -> Any:
    """Attention that keeps query, key, value, output and the sums of its rows, and no attention matrix.

    It is the one for processors, which does so where there is no dropout; those for GPUs do so with dropout, too (Dao
    et al., arXiv 2205.14135, algorithm 2).
    """
    query, key, value = (item.to(half) if half is not None else item for item in (query, key, value))
    if named.get("enable_gqa"):
        times = query.shape[1] // key.shape[1]
        key, value = (item.repeat_interleave(times, dim=1) for item in (key, value))
    if attn_mask is not None:  # the kernels take it as numbers, made in every layer
        attn_mask = torch.empty_like(attn_mask, dtype=query.dtype)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, is_causal=attn_mask is None, attn_mask=attn_mask
    )[0]
