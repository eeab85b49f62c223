"""Attention as plain products of matrices.

PyTorch's flash kernel for processors takes four times as long in its backward pass for rows of 28 to 128 tokens, and
with dropout PyTorch does not use it at all, but operations that take up to three times as long (torch 2.13, bf16, an
AMD EPYC).
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from paretune.training.on_processor.dropout import byte_threshold, drop

LONGEST_ROWS = 512
"""Tokens of a row up to which attention is made by products: longer ones would hold too large matrices."""
_ATTENTION = "products"
_DELEGATED = ("position_bias", "cache", "softcap", "s_aux")  # arguments that only some models give

Tensor = torch.Tensor


def use_products(model: Any) -> None:
    """Let a Hugging Face model attend by products, where its attention is PyTorch's own."""
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    if getattr(base.config, "_attn_implementation", None) == "sdpa":
        AttentionInterface.register(_ATTENTION, attention_by_products)
        AttentionMaskInterface.register(_ATTENTION, sdpa_mask)
        base.set_attn_implementation(_ATTENTION)


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
    """As transformers' `sdpa_attention_forward`, which it calls where nothing is trained and for longer rows.

    `query` is (B, H, T, D), `key` and `value` (B, G, T, D) with H a multiple of G, `attention_mask` (B or 1, 1, T, T)
    of bool; the output is (B, T, H, D).
    """
    length = query.shape[2]
    is_unusual = key.shape[2] != length or any(others.get(name) is not None for name in _DELEGATED)
    threshold = byte_threshold(dropout) if dropout else None
    if is_unusual or length > LONGEST_ROWS or not torch.is_grad_enabled() or (dropout and threshold is None):
        given = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **others}
        found: tuple[Tensor, Tensor | None] = sdpa_attention_forward(module, query, key, value, attention_mask, **given)
        return found
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
