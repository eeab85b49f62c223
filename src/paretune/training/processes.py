"""Operations of all processes of a job together; a job of one process needs no process group for them."""

from typing import TypeVar

import torch

Value = TypeVar("Value")


def gather(value: Value) -> list[Value]:
    """The values that all processes have passed, in the order of their ranks; all of them must call it."""
    if not torch.distributed.is_initialized():
        return [value]
    values = [value] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def wait_for_all() -> None:
    """Return when every process has called it."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
