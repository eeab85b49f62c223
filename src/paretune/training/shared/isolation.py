"""Settings of PyTorch and transformers for the whole process, which training arguments of one trial may change."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers.utils import logging


@contextmanager
def restored_settings() -> Iterator[None]:
    """Undo what the block changes: deterministic algorithms, precision of products, cuDNN's choices, log level."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    products = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    level, number = logging.get_verbosity(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        if torch.get_float32_matmul_precision() != products:
            torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
        logging.set_verbosity(level)
        torch.set_default_dtype(number)
