"""What a training does in other ways on a processor, where the operations made for GPUs are slow.

dropout      masks from random bytes
attention    queries x keys, softmax, x values as plain products
memory       what is freed is kept for the next step
others       how much of the processor other programs take meanwhile

None changes what is computed, but for the random numbers and rounding. benchmarks/training_throughput.py compares.
"""

from typing import Any

from paretune.training.on_processor.attention import use_products
from paretune.training.on_processor.dropout import replace_dropout


def suit_processor(model: Any) -> None:
    """Change dropout of a Hugging Face model in place, and attention where it is PyTorch's own (sdpa)."""
    replace_dropout(model)
    use_products(model)
