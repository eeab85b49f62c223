"""Suits a model to a processor."""

from typing import Any

from paretune.training.on_processor.attention import use_products
from paretune.training.on_processor.dropout import replace_dropout


def suit_processor(model: Any) -> None:
    """Change dropout of a Hugging Face model in place, and attention where it is PyTorch's own (sdpa)."""
    replace_dropout(model)
    use_products(model)
