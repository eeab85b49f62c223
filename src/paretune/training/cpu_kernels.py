"""Attention and dropout for models that train on a CPU, where the operations made for GPUs are slow.

Results stay the same but for random numbers and rounding. benchmarks/training_throughput.py compares the speed.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

LONGEST_ROWS = 512  # tokens of rows for attention by matrix products: beyond it the matrices become too large
_ATTENTION = "products"
_DELEGATED = ("position_bias", "cache", "softcap", "s_aux")  # arguments that only some models pass
_BYTE_VALUES = 256
_TOLERANCE = 0.05  # relative difference between the requested dropout probability and the nearest 256th

Tensor = torch.Tensor


def use_cpu_kernels(model: Any) -> None:
    """Replace dropout of a Hugging Face model in place, and attention if it is PyTorch's own (sdpa)."""
    _replace_dropout(model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if getattr(base.config, "_attn_implementation", None) == "sdpa":
        AttentionInterface.register(_ATTENTION, attention_by_products)
        AttentionMaskInterface.register(_ATTENTION, sdpa_mask)
        base.set_attn_implementation(_ATTENTION)


def _replace_dropout(module: torch.nn.Module) -> None:
    for name, child in module.named_children():
        if type(child) is torch.nn.Dropout and (threshold := byte_threshold(child.p)) is not None:
            setattr(module, name, ByteDropout(child.p, threshold))
        else:
            _replace_dropout(child)


def attention_by_products(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as plain matrix products: (B, T, H, D) from transformers' arguments of an attention function.

    PyTorch's flash kernel for CPUs takes four times as long in its backward pass for rows of 28 to 128 tokens. With
    dropout PyTorch does not use it, but operations that take up to three times as long (torch 2.13, bf16, an AMD EPYC).
    Without gradients and for rows longer than LONGEST_ROWS this calls `sdpa_attention_forward`.
    """
    length = query.shape[2]
    is_unusual = key.shape[2] != length or any(others.get(name) is not None for name in _DELEGATED)
    threshold = byte_threshold(dropout) if dropout else None
    if is_unusual or length > LONGEST_ROWS or not torch.is_grad_enabled() or (dropout and threshold is None):
        options = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **others}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)  # type: ignore[no-any-return]
    groups = getattr(module, "num_key_value_groups", 1)
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    scores = torch.matmul(query * (scaling or query.shape[-1] ** -0.5), key.transpose(2, 3))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if attention_mask is None and causal and length > 1:
        attention_mask = torch.ones(length, length, dtype=torch.bool).tril_()
    if attention_mask is not None:
        # Not -inf: a row of nothing but padding must not become NaN.
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, -1).to(value.dtype)
    weights = weights if threshold is None else drop(weights, threshold)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), None


class ByteDropout(torch.nn.Dropout):
    """Dropout with one random byte per element: the probability is `threshold` / 256, the closest to `p`.

    PyTorch draws one Bernoulli variable after another: 1.04 ms for 172,032 elements, against 0.14 ms (torch 2.13).
    """

    def __init__(self, p: float, threshold: int) -> None:
        super().__init__(p)
        self.threshold = threshold

    def forward(self, inputs: Tensor) -> Tensor:
        """`inputs`, with random elements set to 0 and the others scaled so that the mean stays."""
        return drop(inputs, self.threshold) if self.training else inputs


def byte_threshold(probability: float) -> int | None:
    """The number of 256ths nearest to `probability`; None if it is more than 5 % off, as for 0 and 1."""
    threshold = round(probability * _BYTE_VALUES)
    is_close = abs(threshold - probability * _BYTE_VALUES) <= _TOLERANCE * probability * _BYTE_VALUES
    return threshold if is_close and 0 < threshold < _BYTE_VALUES else None


def drop(inputs: Tensor, threshold: int) -> Tensor:
    """`inputs` times a random mask: 0 with probability p = `threshold` / 256, else 1 / (1 - p)."""
    count = inputs.numel()
    words = torch.empty(-(-count // 8), dtype=torch.int64).random_(-(2**63), None)
    mask = torch.empty(inputs.shape, dtype=inputs.dtype)
    torch.ge(words.view(torch.uint8)[:count].view(inputs.shape), threshold, out=mask)
    return inputs * mask.mul_(_BYTE_VALUES / (_BYTE_VALUES - threshold))
